"""Gradients of convolutions exactly as oneDNN Graph, OpenVINO and Ascend define them.

``convreg.names()`` lists the operators and ``convreg.get(name)`` returns one. The modules ``convreg.onednn``,
``convreg.openvino``, ``convreg.ascend``, ``convreg.aten``, ``convreg.microsoft`` and ``convreg.nodes`` have them as
functions. ``convreg.onnx`` runs graphs. ``convreg.golden`` judges the results of other kernels. ``convreg.numerics``
measures the error of number formats. ``convreg.distributed`` computes on clusters. ``convreg.torch`` needs PyTorch and
an import of its own.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

_here = Path(__file__).resolve().parent
if not (_here / "ops").is_dir() and (_here.parent / "ops" / "__init__.py").is_file():
    __path__.append(str(_here.parent))  # a checkout keeps ops/ and tools/ beside this package


def _import_compiled(module: str) -> None:
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(("convreg.ops.kernels.", "convreg.calls._", "convreg._")):
            raise
        raise ImportError(
            "convreg's compiled kernels are missing: this is a source checkout; run `pip install -e .` in it, or leave "
            "this directory to import an installed convreg"
        ) from None


_import_compiled("convreg.ops.kernels")
_import_compiled("convreg.calls._likeness")
_import_compiled("convreg._hifloat8")
from .algorithms import algorithm, algorithm_names, force_algorithm  # noqa: E402
from .conversion import dequantize, quantize  # noqa: E402
from .errors import GraphError, OpError, OpTypeError, UnknownOp  # noqa: E402
from .explain import explain  # noqa: E402
from .formats import formats, hifloat8  # noqa: E402
from .guard import guarded  # noqa: E402
from .limits import finfo  # noqa: E402
from .registry import get, names, namespace, operators, register  # noqa: E402
from .spec import Attribute, OpSpec, Port  # noqa: E402
from .workspace import workspace_bytes  # noqa: E402

onednn: ModuleType = namespace("onednn")
openvino: ModuleType = namespace("openvino")
ascend: ModuleType = namespace("ascend")
aten: ModuleType = namespace("aten")
microsoft: ModuleType = namespace("microsoft")
nodes: ModuleType = namespace("nodes")

import_module("convreg.registry.builtin")


@lru_cache(maxsize=1)
def _version() -> str:
    """Return `__version__`, which is looked up on first use: the import of importlib.metadata takes long."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("convreg")
    except PackageNotFoundError:  # run from a checkout that was built in place
        return "0+checkout"


@guarded("convreg::capabilities")
def capabilities() -> dict[str, Any]:
    """Return the instruction sets, the default number of threads and the version of this build.

    Returns
    -------
    dict
        isa : str
            The instruction set in use: the fastest usable one, or the best one that ``CONVREG_ISA`` allows.
        reason : str
            Why it is in use.
        usable, compiled : list of str
            The instruction sets that this processor has and those that this build has code for, best first. The first
            of `usable` need not be the fastest.
        rates : dict of str to float
            Where the processor has bfloat16 dot products: ``multiply_adds`` and ``dot_products``, the GFLOP/s of one
            thread on registers in float32 and with bfloat16 pairs, ``ratio``, the second over the first, and
            ``per_cycle``, the 512-bit multiply-adds in a cycle. They are measured once in a process, in about 0.1 ms.
            Empty elsewhere.
        trials : bool
            Whether calls that come again take the algorithm that was measured to be the fastest, or, with
            ``CONVREG_TRIALS=0``, always the one with the lowest estimate.
        threads : int
            The default number of threads.
        openmp : bool
            Whether the build has OpenMP, without which kernels run on one thread.
        version : str

    Raises
    ------
    OpError
        If ``CONVREG_ISA`` names no instruction set of this build.

    Notes
    -----
    Dot products are used if they pay at the measured rates. Results do not depend on the instruction set. To compute
    with the same one in every process, name it: ``CONVREG_ISA=avx512``.
    """
    from .ops import kernels

    return {**kernels.capabilities(), "version": _version()}


_LATE = ("distributed", "golden", "numerics", "onnx")
"""Modules that are imported on first use. Only convreg.onnx needs the onnx package."""

_LATE_FUNCTIONS = {"ulp_distance": "convreg.golden.ranks"}
"""Functions of such modules that are public here too, with the module of each."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name in _LATE:
        return import_module(f"convreg.{name}")
    if name in _LATE_FUNCTIONS:
        return getattr(import_module(_LATE_FUNCTIONS[name]), name)
    if not name.startswith("_") and (vendor := import_module("convreg.registry").vendor_module(name)) is not None:
        return vendor
    raise AttributeError(f"module 'convreg' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "__version__", *_LATE, *_LATE_FUNCTIONS})


__all__ = [
    "Attribute",
    "GraphError",
    "OpError",
    "OpSpec",
    "OpTypeError",
    "Port",
    "UnknownOp",
    "__version__",
    "algorithm",
    "algorithm_names",
    "ascend",
    "aten",
    "capabilities",
    "dequantize",
    "distributed",
    "explain",
    "finfo",
    "force_algorithm",
    "formats",
    "get",
    "golden",
    "hifloat8",
    "microsoft",
    "names",
    "nodes",
    "numerics",
    "onednn",
    "onnx",
    "openvino",
    "operators",
    "quantize",
    "register",
    "ulp_distance",
    "workspace_bytes",
]
