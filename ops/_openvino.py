"""Common parts of OpenVINO's two transposed operations."""

from __future__ import annotations

from types import ModuleType

from convreg.calls.arguments import UNSET_SHAPE
from convreg.geometry import openvino
from convreg.spec import Attribute, Call, Plan, Port, Rules, Spellings, TensorType

from . import _views
from ._onednn import FORMATS, typed

RULES = Rules(
    missing_input="arity", missing_attribute="attributes", unknown="attributes", kind="attributes", arity="arity",
    format="19", named_formats={"float8_e4m3fn": "23", "float8_e5m2": "23", "int4": "24", "uint4": "24"},
    mixed_formats="20", output_format="20", shape_format="14", shape_length="16",
)
TYPES = {"T": FORMATS, "T2": ("int32",)}

_RUNTIME = Spellings({"explicit": "none", "same_upper": "same_upper", "same_lower": "same_lower", "valid": "valid"},
                     case_sensitive=False)
_DOCUMENT = Spellings({"none": "none", **_RUNTIME.table}, case_sensitive=False)


def attributes() -> tuple[Attribute, ...]:
    """Attributes of the window."""
    return (
        Attribute("strides", "ints", "Step of the scatter, one per spatial axis.", minimum=1,
                  rule={"document": "R29", "openvino": "9"}, rule_negative={"document": "R29", "openvino": "11"}),
        Attribute("pads_begin", "ints", "Elements cut before the result, one per spatial axis; at least 0 where "
                  "auto_pad is explicit.", minimum={"document": 0, "openvino": None}, rule="R7"),
        Attribute("pads_end", "ints", "Elements cut after the result, one per spatial axis. A negative number "
                  "appends zeros, as in the runtime.", minimum={"document": 0, "openvino": None},
                  rule="R7"),
        Attribute("dilations", "ints", "Distance between filter taps, one per spatial axis.", minimum=1,
                  rule={"document": "R30", "openvino": "10"}),
        Attribute("auto_pad", "string", "Place of the window: none and explicit use the pads, valid starts at "
                  "0, and the same modes centre the stated extent; same_upper cuts the odd element at the beginning.",
                  "explicit", choices={"document": _DOCUMENT, "openvino": _RUNTIME},
                  rule={"document": "R4", "openvino": "18"}),
        Attribute("output_padding", "ints", "Elements appended at the end, one per spatial axis. A negative number "
                  "cuts elements, as in the runtime.", None,
                  minimum={"document": 0, "openvino": None}, rule="R32", unset=UNSET_SHAPE),
    )


def shape_port(doc: str, *, attribute: bool) -> Port:
    """The optional third input."""
    return Port("output_shape", doc, "T2", optional=True, shape=True, attribute=attribute, rule="R20",
                role="data_extents")


def plan(call: Call) -> Plan:
    """Place the window; the result has the data's format."""
    geometry, shape = openvino.backprop(call)
    layouts = openvino.layout(call), None if openvino.is_grouped(call) else call["filter_format"]
    return Plan(typed(call, shape), layouts, geometry=geometry)


def infer(call: Call) -> tuple[TensorType | None, ...]:
    """Every extent that follows from what is known."""
    return typed(call, openvino.infer(call))


def run(plan: Plan, inputs: tuple, outputs: tuple, kernels: ModuleType, threads: int) -> None:
    """Small side data, large side result."""
    geometry, (layout, filter_layout) = plan.integers, plan.work
    groups = geometry.groups
    taps = (_views.grouped_weights(inputs[1]) if filter_layout is None
            else _views.weights(inputs[1], groups, filter_layout))
    _views.backward_data(kernels, geometry, _views.data(inputs[0], groups, layout), taps,
                         _views.data(outputs[0], groups, layout), threads)
