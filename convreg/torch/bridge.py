"""Tensors as the arrays of convreg's kernels, numbers rounded to codes, and codes as numbers again.

Codes travel as tensors that say their format: float8_e4m3fn, float8_e5m2, bfloat16 and float16 in torch's dtypes,
HiFloat8 as uint8, since torch has no dtype for it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..conversion import write_converted
from ..errors import Asking, OpError
from ..memory import Array
from ..ops.kernels import check_isa

STORED: dict[torch.dtype, tuple[str, str]] = {
    torch.float32: ("float32", "<f4"),
    torch.bfloat16: ("bfloat16", "<u2"),
    torch.uint8: ("hifloat8", "|u1"),
    torch.float8_e4m3fn: ("float8_e4m3fn", "|u1"),
    torch.float8_e5m2: ("float8_e5m2", "|u1"),
    torch.float16: ("float16", "<u2"),
    torch.float64: ("float64", "<f8"),
}
"""By dtype: the format, and NumPy's type of the arrays that the kernels take."""

DTYPES = {format: dtype for dtype, (format, _) in STORED.items()} | {"hf32": torch.float32}
"""The dtype of tensors that hold the numbers of a format."""

ALLOWED = ("float32, bfloat16, float16, float8_e4m3fn, float8_e5m2, or uint8 with the codes of HiFloat8; float64 for "
           "a recipe in float64")

HOLDS = {
    "float64": {"float32", "hf32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "hifloat8"},
    "float32": {"hf32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "hifloat8"},
    "hf32": {"bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "hifloat8"},
    "bfloat16": {"float8_e4m3fn", "float8_e5m2", "hifloat8"},
    "float16": {"float8_e4m3fn", "float8_e5m2", "hifloat8"},
}
"""By format: those whose numbers it represents exactly, so that rounding to it changes none."""


def _keys(tensor: Tensor) -> int:
    return int(torch._C._dispatch_keys(tensor).raw_repr())


def _keys_of_plain(inference: bool) -> int:
    with torch.inference_mode(inference):  # whatever the mode and the device are when this module is imported
        return _keys(torch.empty(0, device="cpu"))


_PLAIN = (_keys_of_plain(False), _keys_of_plain(True))


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is dense, in the CPU's memory, no view with other signs, and nothing that dispatches itself."""
    return _keys(tensor) in _PLAIN


def asking(op: str, layer: str) -> Asking:
    """Return what raises errors in the name of an operator and, where it is known, a layer of a module."""
    return Asking(f"convreg::torch.{op}" + (f" of layer {layer!r}" if layer else ""))


def refuse_place(op: str, layer: str, name: str, tensor: Tensor) -> OpError:
    """Return the exception for a tensor that is not in the memory of the CPU, or not as plain numbers."""
    kind = f"{tensor.device.type}, {tensor.layout}, {tensor.dtype}{', nested' if tensor.is_nested else ''}"
    of = {"seed": "int64", "input_scale": "float32", "weight_scale": "float32"}.get(name, ALLOWED)
    return asking(op, layer).refuse(name, kind, f"a dense tensor on the CPU, torch.strided, of {of}", wrong_type=True)


def check_dtypes(
    op: str, layer: str, wide: bool, names: tuple[str, ...], tensors: tuple[Tensor | None, ...]
) -> None:
    """Refuse tensors whose dtype has no rule: float64 goes with float64 only."""
    for name, tensor in zip(names, tensors, strict=True):
        if tensor is not None and (tensor.dtype not in STORED or (tensor.dtype is torch.float64) is not wide):
            allowed = "torch.float64 for this recipe" if wide else ALLOWED
            raise asking(op, layer).refuse(name, str(tensor.dtype), allowed, wrong_type=True)


class _Memory:
    """The memory of a tensor for NumPy. `Tensor.numpy` would forbid to resize it later, which sharded training does."""

    __slots__ = ("__array_interface__", "_tensor")

    def __init__(self, tensor: Tensor, type: str) -> None:
        self._tensor = tensor  # kept while an array uses its memory
        strides = None if tensor.is_contiguous() else tuple([tensor.itemsize * stride for stride in tensor.stride()])
        self.__array_interface__ = {"version": 3, "typestr": type, "shape": tensor.shape, "strides": strides,
                                    "data": (tensor.data_ptr(), False)}


def stored(tensor: Tensor) -> Array:
    """Return the memory of a tensor as the kernels take it, with its strides."""
    if tensor.is_neg():  # its memory has the opposite numbers
        tensor = tensor.resolve_neg()
    return np.asarray(_Memory(tensor, STORED[tensor.dtype][1]))


def format_of(tensor: Tensor) -> str:
    """Return the format of a tensor of an allowed dtype."""
    return STORED[tensor.dtype][0]


def rounds(dtype: torch.dtype, format: str) -> bool:
    """Whether rounding numbers of a dtype to a format can change some."""
    held = STORED[dtype][0]
    return held != format and held not in HOLDS.get(format, ())


def codes_of(
    tensor: Tensor, format: str, rounding: str, saturate: bool, exponent: int | Tensor = 0, seed: int = 0
) -> Tensor:
    """Return a tensor, multiplied by a power of two, rounded to a format, in the memory order of the tensor.

    Parameters
    ----------
    tensor : Tensor
        Of any dtype of `STORED`, any strides.
    format, rounding, saturate, seed
        As in `convreg.quantize`.
    exponent : int or Tensor
        The power of two; a tensor of integers if it differs, which broadcasts to `tensor`.

    Returns
    -------
    Tensor
        Of the dtype in `DTYPES`.
    """
    target = torch.empty_like(tensor, dtype=DTYPES[format], requires_grad=False)
    _convert(tensor, target, format, rounding, saturate, seed, exponent)
    return target


def values_of(codes: Tensor, dtype: torch.dtype, exponent: int = 0) -> Tensor:
    """Return the numbers of codes times a power of two, rounded to a dtype that has more range than the codes."""
    if codes.dtype.itemsize > 1 and not exponent:
        return codes.to(dtype)
    values = torch.empty_like(codes, dtype=dtype)
    _convert(codes, values, STORED[dtype][0], "nearest_even", False, 0, exponent)
    return values


def _convert(
    source: Tensor, target: Tensor, format: str, rounding: str, saturate: bool, seed: int, exponent: int | Tensor
) -> None:
    check_isa()
    read, written, scale = stored(source), stored(target), None
    if not isinstance(exponent, int) or exponent:
        powers = np.ldexp(np.float32(1), exponent.numpy() if isinstance(exponent, Tensor) else exponent)
        scale = np.broadcast_to(powers, read.shape)
    write_converted(read, written, STORED[source.dtype][0], format, rounding, saturate, seed, scale,
                    torch.get_num_threads())
