"""nodes::Dequantize: converts numbers of any format to float32 inside a graph."""

from __future__ import annotations

from types import ModuleType

from convreg.conversion import dequantize as decoded
from convreg.formats import FORMATS
from convreg.registry import register
from convreg.spec import Call, OpSpec, Plan, Port, TensorType

from . import _scaling


def plan(call: Call) -> Plan:
    """Nothing but the result's type."""
    return Plan(infer(call))


def infer(call: Call) -> tuple[TensorType | None, ...]:
    """The shape of x, in float32; a scale that does not fit is refused."""
    _scaling.check_scale(call)
    return (TensorType(call.tensor("x").shape, "float32"),)


def run(plan: Plan, inputs: tuple, outputs: tuple, kernels: ModuleType, threads: int) -> None:
    """Decode, then multiply."""
    x, scale = inputs
    decoded(x, dtype=outputs[0].dtype, out=outputs[0], threads=threads or None)
    if scale is not None:
        _scaling.multiplied(outputs[0], scale, outputs[0])


dequantize = register(OpSpec(
    vendor="nodes",
    name="Dequantize",
    since_version=1,
    domain="convreg",
    doc="Convert numbers of a narrow format to float32: y = x * scale, where x is read exactly.",
    source=_scaling.SOURCE,
    inputs=(Port("x", "Numbers of any shape; in ONNX, hifloat8 codes are uint8 with operand_types.", "T1",
                 role="number"),
            _scaling.scale_port("Factor of x, in float32", "factor")),
    outputs=(Port("y", "Result, of the shape of x.", "T3", role="converted"),),
    attributes=(),
    types={"T1": tuple(name for name in FORMATS if name != "float64"), "T2": ("float32",), "T3": ("float32",)},
    conformances=("document",),
    plan=plan,
    run=run,
    infer=infer,
))
