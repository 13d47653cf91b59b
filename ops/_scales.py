"""Scales of operands: their ports, their checks, and kernels that apply them.

An operand's values are its decoded numbers times its scale. A scale can be the same for all terms of a result: one
number, or one per channel that the result keeps. Such a scale multiplies the finished float32 sum. A scale along a
channel that is summed over multiplies the decoded operand in float32 before the products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from types import ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np

from convreg.conversion import dequantize, quantize
from convreg.formats import FORMATS
from convreg.geometry import Geometry, Window, known
from convreg.roles import Role
from convreg.spec import Call, Dim, OpSpec, Port, TensorType

from ._views import Array

Side = Literal["large", "small"]

VARIABLE, FORMAT = "S", "float32"
"""The type variable of the ports, and the only format it takes."""

TENSORS = {"forward": ("large", "taps", "small"), "backward_data": ("small", "taps", "large"),
           "backward_weights": ("large", "small", "taps")}
"""The arrays of every kernel in its order; the last is written."""

CHANNELS = {"grad_output": "channel", "data": "channel", "weight": "output channel of the forward operator",
            "bias": "channel"}
"""The axis that a vector of scales has one number per."""


def scaled(spec: OpSpec, conformance: str) -> OpSpec:
    """Return a declaration with a port added for the scale of each operand, spelled as its other ports."""
    suffix = "_scale" if all(port.name.islower() for port in spec.inputs) else "Scale"
    ports = tuple(
        Port(port.name + suffix, f"one number, or one per {CHANNELS[port.role]}.", VARIABLE,
             optional=True, scales=port.name, only=(conformance,))
        for port in spec.inputs if not port.shape)
    return replace(spec, inputs=(*spec.inputs, *ports), types={**spec.types, VARIABLE: (FORMAT,)})


class Scale(NamedTuple):
    """A scale as a call states it: the input that holds it, what it scales, and the side whose channels it has one
    number for, None for one number in all."""

    place: int
    port: str
    role: Role
    along: Side | None


class Layout(NamedTuple):
    """The sides and groups of a call, as far as scales care."""

    gradient: Side
    """The side of grad_output."""
    outputs: Side
    """The side that holds the output channels of the forward convolution."""
    groups: int

    def tensor(self, role: Role) -> str:
        """Return the kernels' name of an operand."""
        if role in ("weight", "bias"):
            return {"weight": "taps", "bias": "bias"}[role]
        return self.gradient if role == "grad_output" else _other(self.gradient)


def _other(side: Side) -> Side:
    return "small" if side == "large" else "large"


def sides_of(call: Call) -> tuple[Side, Side]:
    """Return the side of grad_output, and the one of the output channels of the forward convolution."""
    convolution = call.spec.convolution
    gradient: Side = "large" if convolution.is_transposed(call) else "small"
    return gradient, _other(gradient) if convolution.forward else gradient


def layout_of(call: Call, geometry: Geometry) -> Layout:
    """Return where the operands of a call lie."""
    return Layout(*sides_of(call), geometry.groups)


def channels_of(geometry: Geometry) -> dict[Side, Dim]:
    """Return the channels of both sides."""
    return {"large": geometry.groups * geometry.large_channels, "small": geometry.groups * geometry.small_channels}


def known_channels(call: Call, outputs: Sequence[TensorType | None]) -> dict[Side, Dim]:
    """As `channels_of`, from the operands and the types of the results, None where they do not tell."""
    tensors = {**dict(zip(call.spec.input_names, call.inputs, strict=True)),
               **{port.name: made for port, made in zip(call.spec.outputs, outputs, strict=True)}}
    axis = 1 if call.spec.convolution.data_layout_of(call) == "NCX" else -1
    gradient, _ = sides_of(call)
    found: dict[Side, Dim] = {"large": None, "small": None}
    for role in ("grad_data", "data", "grad_output"):
        tensor = tensors.get(call.spec.roles.get(role, ""))
        if tensor is not None and tensor.shape is not None and len(tensor.shape) > 1:
            found[gradient if role == "grad_output" else _other(gradient)] = tensor.shape[axis]
    return found


def scales_of(call: Call, channels: Mapping[Side, Dim]) -> tuple[Scale, ...]:
    """Return the scales that a call gives, refused where their shape is known and none that it could have."""
    (gradient, outputs), roles = sides_of(call), {port: role for role, port in call.spec.roles.items()}
    found = []
    for index, port in enumerate(call.spec.inputs):
        if not port.scales or not call.has(port.name):
            continue
        role, tensor = roles[port.scales], call.tensor(port.name)
        shape, format = tensor.shape, tensor.format
        if format != FORMAT:
            raise call.refuse(port.name, format, FORMAT, "arguments", wrong_type=True)
        along = outputs
        if role in ("grad_output", "data"):
            along = gradient if role == "grad_output" else _other(gradient)
        count = channels[along]
        if shape is None or (len(shape) == 1 and not known(*shape, count)):
            found.append(Scale(index, port.name, role, along))
        elif all(extent == 1 or not known(extent) for extent in shape):
            found.append(Scale(index, port.name, role, None))
        elif shape == (count,):
            found.append(Scale(index, port.name, role, along))
        else:
            inputs = ", not per input channel" if role == "weight" and shape == (channels[_other(along)],) else ""
            raise call.refuse(port.name, list(shape), f"shape [] or [1], or [{count}] for one number per "
                              f"{CHANNELS[role]}{inputs}", "arguments")
    return tuple(found)


def check_values(call: Call, scale: Scale, values: Array) -> None:
    """Refuse numbers that cannot be scales."""
    bad = ~(np.isfinite(values) & (values > 0))
    if bad.any():
        raise call.refuse(scale.port, float(values[bad][0]), "finite numbers above zero", "arguments")


class Factor(NamedTuple):
    """The numbers of a scale, in the float64 that products of several are exact in."""

    values: Array
    along: Side | None
    groups: int

    def over(self, tensor: str) -> Array:
        """Return the numbers so that they broadcast to a kernel's view of a tensor."""
        if self.along is None:
            return self.values.reshape(())
        shapes = {"taps": (self.groups, -1, 1, 1, 1, 1) if self.along == "small" else (self.groups, 1, -1, 1, 1, 1),
                  "bias": (-1,)}
        return self.values.reshape(shapes.get(tensor, (1, self.groups, -1, 1, 1, 1)))


class ScaledKernels:
    """The four kernels for scaled operands, computed by those of another module.

    Parameters
    ----------
    kernels : module
        What computes, or notes, the sums.
    layout : Layout
    factors : mapping
        By the kernels' name of the operand: large, small, taps or bias.
    """

    def __init__(self, kernels: ModuleType, layout: Layout, factors: dict[str, Factor]) -> None:
        self._kernels, self._layout, self._factors = kernels, layout, factors

    def forward(self, large: Array, taps: Array, small: Array, window: Window, **settings: Any) -> None:
        """Fill the small side."""
        self._convolve("forward", (large, taps, small), window, **settings)

    def backward_data(self, small: Array, taps: Array, large: Array, window: Window, **settings: Any) -> None:
        """Fill the large side."""
        self._convolve("backward_data", (small, taps, large), window, **settings)

    def backward_weights(self, large: Array, small: Array, taps: Array, window: Window, **settings: Any) -> None:
        """Fill the taps."""
        self._convolve("backward_weights", (large, small, taps), window, **settings)

    def bias_sum(self, small: Array, bias: Array, *, formats: tuple[str, str], threads: int = 0) -> None:
        """Fill the bias gradient: `small` is grad_output, whichever side it is on."""
        factor = self._factors.get(self._layout.gradient)
        sums = _wide(bias, formats[1], factor is not None)
        self._kernels.bias_sum(small, sums, formats=(formats[0], _wide_format(formats[1], factor is not None)),
                               threads=threads)
        if factor is not None:
            _multiply(sums, factor.over("bias"))
        _narrow(sums, bias, formats[1], threads)

    def _convolve(
        self, kernel: str, arrays: tuple[Array, Array, Array], window: Window, *, threads: int = 0,
        bias: Array | None = None,
    ) -> None:
        names, result, formats = TENSORS[kernel], arrays[2], window.formats
        kept = ("small", "large", None) if kernel == "backward_weights" else (names[2], None)
        whole: list[Array] = []
        operands = []
        for name, array, format in zip(names[:2], arrays[:2], formats[:2], strict=True):
            factor = self._factors.get(name)
            if factor is not None and factor.along not in kept:
                array, format = _applied(array, format, factor.over(name), threads)
            elif factor is not None:
                whole.append(factor.over(names[2]))
            operands.append((array, format))
        if bias is not None and "bias" in self._factors:
            bias = bias.copy()
            _multiply(bias, self._factors["bias"].over("bias"))
        (first, first_format), (second, second_format) = operands
        sums = _wide(result, formats[2], bool(whole))
        added = {} if bias is None or whole else {"bias": bias}
        getattr(self._kernels, kernel)(
            first, second, sums,
            replace(window, formats=(first_format, second_format, _wide_format(formats[2], bool(whole)))),
            threads=threads, **added)
        if whole:
            _multiply(sums, np.asarray(prod(whole)))
            if bias is not None:
                with np.errstate(all="ignore"):
                    np.add(sums, bias.reshape(1, self._layout.groups, -1, 1, 1, 1), out=sums)
        _narrow(sums, result, formats[2], threads)


def _wide_format(format: str, scaled: bool) -> str:
    """Return the format of sums that a factor will multiply."""
    return FORMAT if scaled and format != "float64" else format


def _wide(result: Array, format: str, scaled: bool) -> Array:
    """Return the array of the sums: the result, unless sums must be multiplied first and its format is too narrow."""
    wide = _wide_format(format, scaled)
    return result if wide == format else np.empty(result.shape, FORMATS[wide].dtype)


def _narrow(sums: Array, result: Array, format: str, threads: int) -> None:
    """Round multiplied sums to the format of the result, as kernels do."""
    if sums is not result:
        quantize(sums, format, out=result.view(FORMATS[format].dtype), threads=threads or None)


def _applied(array: Array, format: str, factor: Array, threads: int) -> tuple[Array, str]:
    """Return an operand decoded and multiplied, and its new format."""
    wide = "float64" if format == "float64" else FORMAT
    values = dequantize(array, format, dtype=FORMATS[wide].dtype, threads=threads or None)
    _multiply(values, factor)
    return values, wide


def _multiply(values: Array, factor: Array) -> None:
    """Multiply in place as in float64, rounded once; a factor that the values' format represents is used as it is."""
    with np.errstate(all="ignore"):
        narrow = factor.astype(values.dtype)
        if np.array_equal(narrow, factor):
            np.multiply(values, narrow, out=values)
        else:
            np.multiply(values, factor, out=values, casting="same_kind", dtype=np.float64)
