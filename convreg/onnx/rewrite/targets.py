"""The statement of a gradient in each dialect: operator, attributes and operands. The target's own rule checks it.

Nothing here decides whether a statement is right: `translation` plans it as the target's operator would and compares
the geometry that comes out with the one that is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ... import registry
from ...geometry import Geometry
from ...roles import Role
from ...spec import OpSpec
from .parts import large_shape, weight_shape
from .problem import Problem


class Statement(NamedTuple):
    """One node of a dialect: attributes by the vendor's names; `shape` is the value of its shape input."""

    spec: OpSpec
    conformance: str
    attributes: dict[str, Any]
    shape: tuple[int, ...] | None = None
    shape_port: str = ""


class Wish(NamedTuple):
    """The gradients to compute together, and the geometry that they have."""

    geometry: Geometry
    transposed: bool
    results: tuple[Role, ...]


def onednn(wish: Wish) -> Iterator[Statement]:
    """One result of one operator, layouts NCX and OIX or IOX."""
    name = ("ConvTranspose" if wish.transposed else "Convolution") + "Backward"
    attributes = {**wish.geometry.explicit, "auto_pad": "None", "groups": wish.geometry.groups, "data_format": "NCX",
                  "weights_format": "IOX" if wish.transposed else "OIX"}
    if wish.results == ("grad_weight",):
        yield Statement(registry.get(f"onednn::{name}Weights").spec, "library", attributes,
                        weight_shape(wish.geometry), "weights_shape")
    elif wish.results == ("grad_data",) and wish.transposed:
        yield Statement(registry.get(f"onednn::{name}Data").spec, "library", attributes)
    elif wish.results == ("grad_data",):
        yield Statement(registry.get(f"onednn::{name}Data").spec, "library", attributes, large_shape(wish.geometry),
                        "dst_shape")


def openvino(wish: Wish) -> Iterator[Statement]:
    """The data gradient as a window of the full result; groups use the grouped operation."""
    if wish.results != ("grad_data",) or wish.transposed:
        return
    extents = tuple(axis.large for axis in wish.geometry.axes)
    attributes = {**wish.geometry.explicit, "auto_pad": "explicit"}
    if wish.geometry.groups > 1:
        spec = registry.get("openvino::GroupConvolutionBackpropData").spec
    else:
        spec = registry.get("openvino::ConvolutionBackpropData").spec
        attributes |= {"data_format": "NCX", "filter_format": "OIX"}
    yield Statement(spec, "openvino", attributes, extents, "output_shape")


def _paddings(wish: Wish) -> Iterator[tuple[list[int], list[int]]]:
    """Padding and output padding of the ATen kind: equal on both sides, or in two dimensions one number per side."""
    axes = wish.geometry.axes
    yield [axis.begin for axis in axes], [axis.begin - axis.end if wish.transposed else 0 for axis in axes]
    if len(axes) == 2:
        sides = [entry for axis in axes for entry in (axis.begin, max(axis.end, 0))]
        yield sides, wish.geometry.output_padding if wish.transposed else [0, 0]


def _mask(wish: Wish) -> list[bool]:
    return [role in wish.results for role in ("grad_data", "grad_weight", "grad_bias")]


def _channels(wish: Wish) -> int:
    geometry = wish.geometry
    return geometry.groups * (geometry.large_channels if wish.transposed else geometry.small_channels)


def aten(wish: Wish) -> Iterator[Statement]:
    """All results at once."""
    for padding, extra in _paddings(wish):
        if len(padding) == len(wish.geometry.axes):
            yield Statement(registry.get("aten::convolution_backward").spec, "pytorch", {
                "bias_sizes": [_channels(wish)], "stride": [axis.stride for axis in wish.geometry.axes],
                "padding": padding, "dilation": [axis.dilation for axis in wish.geometry.axes],
                "transposed": wish.transposed, "output_padding": extra, "groups": wish.geometry.groups,
                "output_mask": _mask(wish)})


def ascend(wish: Wish) -> Iterator[Statement]:
    """All results at once."""
    for padding, extra in _paddings(wish):
        yield Statement(registry.get("ascend::ConvolutionBackward").spec, "document", {
            "biasSizes": [_channels(wish)], "stride": [axis.stride for axis in wish.geometry.axes],
            "padding": padding, "dilation": [axis.dilation for axis in wish.geometry.axes],
            "transposed": wish.transposed, "outputPadding": extra, "groups": wish.geometry.groups,
            "outputMask": _mask(wish), "cubeMathType": 0})


def _is_openvinos_own(problem: Problem) -> bool:
    """Whether a node of the dialect has the form that OpenVINO itself has: no layouts, groups in the filter's axes."""
    layout = problem.layout("weight")
    return layout == "GOIX" or (layout == "OIX" and problem.layout("grad_data") == "NCX"
                                and problem.call.conformance == "openvino" and problem.plan.integers.groups == 1)


class Target(NamedTuple):
    """A dialect: how it states gradients, whether one node makes several, which of its own nodes it keeps (None: all),
    and whether its forward convolution is ONNX's."""

    statements: Callable[[Wish], Iterator[Statement]]
    together: bool
    keeps: Callable[[Problem], bool] | None = None
    standard_forward: bool = False


TARGETS = {
    "ascend": Target(ascend, True),
    "onednn": Target(onednn, False),
    "openvino": Target(openvino, False, _is_openvinos_own, standard_forward=True),
    "aten": Target(aten, True),
}
