"""The compiled modules; everything else about the package stands in pyproject.toml.

CONVREG_OPENMP=0 builds without OpenMP, CONVREG_DEBUG=1 with Cython's run-time checks, CONVREG_SANITIZE=address,undefined
with those sanitizers. Wipe build/ after changing one: setuptools reuses objects whose flags changed.
"""

import os
import sysconfig
import tempfile
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

DEBUG = os.environ.get("CONVREG_DEBUG") == "1"
SANITIZE = os.environ.get("CONVREG_SANITIZE", "")
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))  # has no stable ABI
FLAGS = ["-O3", "-ffp-contract=off", "-g0"]


def extension(name, *sources):
    return Extension(
        name,
        list(sources),
        include_dirs=["ops/kernels"],
        define_macros=[] if FREE_THREADED else [("Py_LIMITED_API", "0x030B0000")],
        py_limited_api=not FREE_THREADED,
    )


class BuildWithFlags(build_ext):
    """Add the flags that this compiler takes."""

    def build_extensions(self):
        sanitize = [f"-fsanitize={SANITIZE}"] if SANITIZE else []
        openmp = ["-fopenmp"] if os.environ.get("CONVREG_OPENMP") != "0" and self.links("-fopenmp") else []
        for module in self.extensions:
            module.extra_compile_args = FLAGS + sanitize + openmp
            module.extra_link_args = sanitize + openmp
        super().build_extensions()

    def links(self, flag):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "probe.c")
            source.write_text("#include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }\n")
            try:
                objects = self.compiler.compile([str(source)], output_dir=folder, extra_postargs=[flag])
                self.compiler.link_executable(objects, str(Path(folder, "probe")), extra_postargs=[flag])
            except Exception:
                return False
        return True


setup(
    ext_modules=cythonize(
        [
            extension("convreg._cyutility"),
            extension("convreg.ops.kernels.direct", "ops/kernels/direct.pyx"),
        ],
        include_path=["ops/kernels"],
        build_dir="build/cython",
        shared_utility_qualified_name="convreg._cyutility",
        language_level=3,
        compiler_directives={
            "boundscheck": DEBUG,
            "wraparound": DEBUG,
            "initializedcheck": DEBUG,
            "cdivision": True,
            "freethreading_compatible": True,
        },
    ),
    cmdclass={"build_ext": BuildWithFlags},
    options={} if FREE_THREADED else {"bdist_wheel": {"py_limited_api": "cp311"}},
)
