"""Golden vectors of a call, and those that a file holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..calls.signature import Operator
from ..files import PathLike
from ..guard import guarded
from . import archive
from .calling import called, check_texts
from .record import Golden


@guarded("convreg::golden")
def make(
    op: Operator | str, inputs: Mapping[str, Any] | Sequence[Any], *, conformance: str | None = None,
    threads: int | None = None, name: str = "", **attributes: Any,
) -> Golden:
    """Return the golden vectors of one call.

    Parameters
    ----------
    op : Operator or str
        An operator or its name.
    inputs : mapping or sequence
        Tensors by the argument names of the operator's function, or in their order; None stands for an absent one. They
        are kept and not copied. A shape that is given as a list is kept among the attributes.
    conformance : str, optional
        The rules of the call, by default the operator's own.
    threads : int, optional
        Number of threads. The results do not depend on it.
    name : str
        Name of the case.
    **attributes
        The other arguments of the function, without `out`. Stochastic rounding needs its seed.

    Returns
    -------
    Golden

    Raises
    ------
    OpError, OpTypeError
        What the operator's call raises, and for a name that is given twice.
    UnknownOp
        If there is no such operator.

    Examples
    --------
    >>> import numpy as np, convreg
    >>> dy, w = np.ones((1, 1, 2), np.float32), np.ones((1, 1, 1), np.float32)
    >>> lists = {"strides": [1], "pads_begin": [0], "pads_end": [0], "dilations": [1]}
    >>> golden = convreg.golden.make("onednn::ConvolutionBackwardData", [dy, w, [1, 1, 2]], data_format="NCX",
    ...                              weights_format="OIX", **lists)
    >>> golden.outputs["diff_src"].tolist()
    [[[1.0, 1.0]]]
    """
    check_texts(name=name)
    return Golden(name, *called(op, inputs, attributes, conformance, threads))


@guarded("convreg::golden")
def load(path: PathLike) -> Golden:
    """Return the golden vectors that `Golden.save` wrote.

    Parameters
    ----------
    path : path-like
        The .npz file.

    Returns
    -------
    Golden

    Raises
    ------
    GraphError
        If the file is damaged or no such file, or if it holds a call that the operator refuses or other outputs than
        the operator makes. Every array is compared with its SHA-256.
    """
    return Golden(*archive.read(path))
