"""Cases of golden vectors, and bytes of arrays."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from convreg.golden import Case, Golden, Operand

LISTS = {"strides": [2, 1], "pads_begin": [1, 0], "pads_end": [1, 2], "dilations": [1, 2], "data_format": "NCX",
         "weights_format": "OIX"}


def data_case(name: str = "data", format: str = "float32", **attributes) -> Case:
    """A data gradient of a grouped, strided and dilated convolution."""
    return Case(name, "onednn::ConvolutionBackwardData", {
        "diff_dst": Operand((2, 4, 5, 6), format), "weights": Operand((4, 3, 3, 3), format)},
        {**LISTS, "groups": 2, "dst_shape": [2, 6, 10, 8], **attributes})


def weights_case(name: str = "weights", format: str = "float32", layout: str = "NXC") -> Case:
    """A weights gradient; its channels come last unless `layout` says otherwise."""
    first, last = ((2, 6), ()) if layout == "NCX" else ((2,), (6,))
    small = (2, 4) if layout == "NCX" else (2,), () if layout == "NCX" else (4,)
    lists = {**LISTS, "data_format": layout, "weights_format": "OIX" if layout == "NCX" else "XIO"}
    shape = [4, 3, 3, 3] if layout == "NCX" else [3, 3, 3, 4]
    return Case(name, "onednn::ConvolutionBackwardWeights", {
        "src": Operand((*first, 10, 8, *last), format), "diff_dst": Operand((*small[0], 5, 6, *small[1]), format)},
        {**lists, "groups": 2, "weights_shape": shape})


def ascend_case(name: str = "ascend", format: str = "bfloat16", mask=(True, True, True), **more) -> Case:
    """All three gradients of Ascend's operator; `more` are fields of the case."""
    return Case(name, "ascend::ConvolutionBackward", {
        "grad_output": Operand((2, 4, 6, 6), format), "input": Operand((2, 3, 6, 6), format),
        "weight": Operand((4, 3, 3, 3), format)},
        {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "output_mask": list(mask)}, **more)


def sha256(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def files_of(folder: Path) -> dict[str, bytes]:
    """The content of every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file()}


def same_arrays(first: Golden, second: Golden) -> bool:
    """Whether two have the same call and the same bytes."""
    mine, theirs = ({**{f"in {name}": array for name, array in each.inputs.items()},
                     **{f"out {name}": array for name, array in each.outputs.items()}} for each in (first, second))
    return (first.op, dict(first.attributes), first.conformance) == (
        second.op, dict(second.attributes), second.conformance) and list(mine) == list(theirs) and all(
        array.dtype == theirs[name].dtype and array.shape == theirs[name].shape
        and array.tobytes() == theirs[name].tobytes() for name, array in mine.items())
