"""nodes::Quantize: float32 to a narrow format inside a graph, as `convreg.quantize` rounds."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from convreg.conversion import quantize as rounded
from convreg.formats import FORMATS, ROUNDINGS
from convreg.registry import register
from convreg.spec import Attribute, Call, OpSpec, Plan, Port, Spellings, TensorType

from . import _scaling


def plan(call: Call) -> Plan:
    """Refuse roundings that the format lacks."""
    format, rounding = FORMATS[call["format"]], call["rounding"]
    if rounding is not None and rounding not in format.roundings:
        raise call.refuse("rounding", rounding, f"{' or '.join(format.roundings)} for {format.name}")
    _scaling.check_scale(call)
    chosen = {"rounding": rounding, "saturate": call["saturate"], "seed": call["seed"]}
    return Plan((TensorType(call.shape("x"), format.name),), (format.name, chosen))


def infer(call: Call) -> tuple[TensorType | None, ...]:
    """The shape of x, in the format asked for."""
    return (TensorType(call.tensor("x").shape, call["format"]),)


def run(plan: Plan, inputs: tuple, outputs: tuple, kernels: ModuleType, threads: int) -> None:
    """Divide, then round once."""
    format, chosen = plan.work
    values = _scaling.divided(*inputs)
    if values.dtype == np.float64:  # the float64 reference rounds nothing
        outputs[0][...] = values
        return
    rounded(values, format, **chosen, out=outputs[0], threads=threads or None)


quantize = register(OpSpec(
    vendor="nodes",
    name="Quantize",
    since_version=1,
    domain="convreg",
    doc="Numbers in a narrow format, each rounded once: y = round(x / scale), as convreg.quantize rounds.",
    source=_scaling.SOURCE,
    inputs=(Port("x", "Any shape.", "T1"), _scaling.scale_port("What x is divided by in float32 before it is rounded")),
    outputs=(Port("y", "The shape of x; in ONNX, hifloat8 is uint8.", "T3"),),
    attributes=(
        Attribute("format", "string", "Of the result.", "hifloat8",
                  choices={"*": Spellings({name: name for name in _scaling.NARROW})}),
        Attribute("rounding", "string", "None for the format's own.", None,
                  choices={"*": Spellings({name: name for name in ROUNDINGS})}),
        Attribute("saturate", "bool", "Whether what is too large becomes the format's largest number.", False),
        Attribute("seed", "int", "Of stochastic rounding; None for a fresh one.", None, minimum=0),
    ),
    types={"T1": ("float32",), "T2": ("float32",), "T3": _scaling.NARROW},
    conformances=("document",),
    plan=plan,
    run=run,
    infer=infer,
))
