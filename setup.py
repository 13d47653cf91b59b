"""The compiled modules; everything else about the package stands in pyproject.toml.

Environment: CONVREG_OPENMP=0 builds without OpenMP, CONVREG_DEBUG=1 with Cython's bounds checks,
CONVREG_SANITIZE=address,undefined with those sanitizers, CONVREG_MATRIX=emulated AVX-512 for a matrix unit.
After changing one, build with --force.
"""

import os
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import BoundedSemaphore

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError

DEBUG = os.environ.get("CONVREG_DEBUG") == "1"
OPENMP = os.environ.get("CONVREG_OPENMP") != "0"
SANITIZERS = os.environ.get("CONVREG_SANITIZE")
# Python's own -fwrapv would keep signed overflow from being checked, and take three times as long to compile.
SANITIZE = [f"-fsanitize={SANITIZERS}", "-fno-sanitize-recover", "-fno-wrapv", "-O1", "-g1"] if SANITIZERS else []
# The stable ABI has buffers since Python 3.11, and free-threaded Pythons have none.
STABLE_ABI = sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED")
JOBS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
MATRIX = {None: "matrix", "emulated": "matrix_emulated"}[os.environ.get("CONVREG_MATRIX")]
KERNELS = Path("ops/kernels")
HIFLOAT8 = Path("convreg/hifloat8_type")
HEADERS = sorted(map(str, [*KERNELS.rglob("*.h"), *HIFLOAT8.glob("*.h")]))
ENGINE = [f"ops/kernels/{name}.c" for name in  # what takes longest to compile comes first
          ("simd/targets/avx512", "simd/targets/generic", "simd/targets/avx512bf16", "simd/targets/avx2",
           f"simd/{MATRIX}", "simd/targets/dispatch", "numbers/codes")]


def extension(name, *sources, include=(), libraries=()):
    return Extension(
        name,
        list(sources),
        include_dirs=[str(KERNELS), *include],
        libraries=list(libraries),
        depends=HEADERS,
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
        self.parallel = len(self.extensions)
        self.compile_in_parallel()
        super().build_extensions()

    def compile_in_parallel(self):
        """Make the compiler compile several sources at once, as many as there are processors."""
        compile_sources, free = self.compiler.compile, BoundedSemaphore(JOBS)

        def compile_each(sources, *args, **kwargs):
            def compile_one(source):
                with free:
                    return compile_sources([source], *args, **kwargs)

            with ThreadPoolExecutor(len(sources) or 1) as pool:
                return [name for names in pool.map(compile_one, sources) for name in names]

        self.compiler.compile = compile_each

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


if __name__ == "__main__":  # Cython's processes may import this file
    setup(
        ext_modules=cythonize(
            [
                extension("convreg.ops.kernels.engine", *ENGINE, "ops/kernels/engine/engine.pyx"),
                extension("convreg.ops.kernels.reference", "ops/kernels/reference.pyx"),
                extension("convreg.ops.kernels.convert", "ops/kernels/numbers/convert.pyx"),
                extension("convreg.ops.kernels.trees", "ops/kernels/core/trees.pyx"),
                extension("convreg.ops.kernels.teams", "ops/kernels/core/teams.pyx"),
                extension("convreg.onnx.runtime_ort._ort", "convreg/onnx/runtime_ort/_ort.pyx"),
                extension("convreg._hifloat8", *sorted(map(str, HIFLOAT8.glob("*.c"))),
                          include=[numpy.get_include()], libraries=["m"]),
                extension("convreg.calls._likeness", "convreg/calls/_likeness.pyx"),
                extension("convreg._cyutility"),  # what Cython's modules share
            ],
            include_path=["ops/kernels", "ops/kernels/core", "ops/kernels/numbers"],
            nthreads=JOBS,
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
