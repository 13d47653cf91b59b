"""The compiled modules; everything else about the package stands in pyproject.toml.

Environment: CONVREG_OPENMP=0 builds without OpenMP, CONVREG_DEBUG=1 with Cython's bounds checks,
CONVREG_SANITIZE=address,undefined with those sanitizers, CONVREG_MATRIX=emulated AVX-512 for a matrix unit.
After changing one, build with --force.
"""

import os
import sysconfig
import tempfile
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError

DEBUG = os.environ.get("CONVREG_DEBUG") == "1"
OPENMP = os.environ.get("CONVREG_OPENMP") != "0"
SANITIZERS = os.environ.get("CONVREG_SANITIZE")
SANITIZE = [f"-fsanitize={SANITIZERS}", "-fno-sanitize-recover", "-O1", "-g1"] if SANITIZERS else []
STABLE_ABI = not sysconfig.get_config_var("Py_GIL_DISABLED")  # free-threaded Pythons have none
MATRIX = {None: "matrix", "emulated": "matrix_emulated"}[os.environ.get("CONVREG_MATRIX")]
ENGINE = [f"ops/kernels/{name}.c" for name in
          ("dispatch", MATRIX, "codes", "isa_generic", "isa_avx2", "isa_avx512", "isa_avx512bf16")]


def extension(name, *sources):
    return Extension(
        name,
        list(sources),
        include_dirs=["ops/kernels"],
        depends=[*map(str, Path("ops/kernels").glob("*.h"))],
        define_macros=[("Py_LIMITED_API", "0x030B0000")] if STABLE_ABI else [],
        py_limited_api=STABLE_ABI,
    )


class BuildWithFlags(build_ext):
    """Adds the flags that the compiler at hand takes."""

    def build_extensions(self):
        if not self.compiles("int main(void) { return 0; }"):
            raise SystemExit("convreg needs a C compiler (GCC >= 10 or Clang >= 14), and found none that works")
        openmp = "#include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }"
        serial = ["-Wno-unused-but-set-variable"]  # prange leaves one
        flags = ["-fopenmp"] if OPENMP and self.compiles(openmp, "-fopenmp") else serial
        for module in self.extensions:
            module.extra_compile_args = ["-O3", "-ffp-contract=off", "-g0", *SANITIZE, *flags]
            module.extra_link_args = [*SANITIZE, *flags]
        super().build_extensions()

    def compiles(self, program, *flags):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "probe.c")
            source.write_text(program + "\n")
            try:
                objects = self.compiler.compile([str(source)], output_dir=folder, extra_postargs=[*flags])
                self.compiler.link_executable(objects, str(Path(folder, "probe")), extra_postargs=[*flags])
            except CCompilerError:
                return False
        return True


setup(
    ext_modules=cythonize(
        [
            extension("convreg._cyutility"),  # what Cython's modules share
            extension("convreg._likeness", "convreg/_likeness.pyx"),
            extension("convreg.ops.kernels.direct", "ops/kernels/direct.pyx"),
            extension("convreg.onnx._ort", "convreg/onnx/_ort.pyx"),
            extension("convreg.ops.kernels.engine", "ops/kernels/engine.pyx", *ENGINE),
            extension("convreg.ops.kernels.convert", "ops/kernels/convert.pyx", "ops/kernels/conversion.c"),
        ],
        include_path=["ops/kernels"],
        build_dir="build/cython-debug" if DEBUG else "build/cython",
        shared_utility_qualified_name="convreg._cyutility",
        compiler_directives={
            "boundscheck": DEBUG,
            "wraparound": DEBUG,
            "initializedcheck": DEBUG,
            "cdivision": True,
            "freethreading_compatible": True,
        },
    ),
    cmdclass={"build_ext": BuildWithFlags},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE_ABI else {},
)
