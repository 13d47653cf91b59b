"""nodes::Quantize: converts float32 to a narrow format inside a graph. It rounds as `convreg.quantize` does."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from convreg.conversion import quantize as rounded
from convreg.formats import FORMATS, ROUNDINGS
from convreg.registry import register
from convreg.spec import Attribute, Call, OpSpec, Plan, Port, TensorType, spellings

from . import _scaling


def plan(call: Call) -> Plan:
    """The format and the rounding are what `run` needs."""
    return Plan(infer(call), (call["format"], {name: call[name] for name in ("rounding", "saturate", "seed")}))


def infer(call: Call) -> tuple[TensorType | None, ...]:
    """The shape of x, in the requested format; roundings that the format lacks are refused."""
    format, rounding = FORMATS[call["format"]], call["rounding"]
    if rounding is not None and rounding not in format.roundings:
        raise call.refuse("rounding", rounding, f"{' or '.join(format.roundings)} for {format.name}")
    _scaling.check_scale(call)
    return (TensorType(call.tensor("x").shape, format.name),)


def run(plan: Plan, inputs: tuple, outputs: tuple, kernels: ModuleType, threads: int) -> None:
    """Divide, then round the quotient."""
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
    doc="Convert float32 to a narrow format: y = round(x / scale). The float32 quotient is rounded as in "
        "convreg.quantize.",
    source=_scaling.SOURCE,
    inputs=(Port("x", "Numbers of any shape.", "T1", role="number"),
            _scaling.scale_port("Divisor of x, in float32", "divisor")),
    outputs=(Port("y", "Result, of the shape of x; in ONNX, hifloat8 codes are uint8.", "T3", role="converted"),),
    attributes=(
        Attribute("format", "string", "Format of the result.", "hifloat8",
                  choices=spellings(*_scaling.NARROW)),
        Attribute("rounding", "string", "Rounding, as in convreg.quantize; None means the format's default.", None,
                  choices=spellings(*ROUNDINGS)),
        Attribute("saturate", "bool", "Whether a number that is too large becomes the format's largest number.", False),
        Attribute("seed", "int", "Seed of stochastic rounding; None means a new random seed.", None, minimum=0),
    ),
    types={"T1": ("float32",), "T2": ("float32",), "T3": _scaling.NARROW},
    conformances=("document",),
    plan=plan,
    run=run,
    infer=infer,
))
