"""Conformance "emulation": an operator's geometry under its default rules, with number formats that the caller chooses.

Operands may be in any mixture of formats. The caller chooses the formats of the results, their rounding and the scales
of operands. `emulated` adds this to a declaration. Ascend's operator has more rules about formats, so it uses
the parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from convreg.conversion import quantize
from convreg.formats import FORMATS, ROUNDINGS, format_of
from convreg.geometry import Geometry
from convreg.roles import Role
from convreg.spec import Attribute, Call, OpSpec, Plan, Port, TensorType, spellings

from . import _scales
from ._views import Array

CONFORMANCE = "emulation"
FLOATS = ("float32", "float16", "bfloat16")
EIGHT_BIT = ("hifloat8", "float8_e4m3fn", "float8_e5m2")

LAST_ROUNDING = (
    Attribute("rounding", "string", "Rounding of each result, as in convreg.quantize; None means the format's "
              "default.", None, choices=spellings(*ROUNDINGS), only=(CONFORMANCE,)),
    Attribute("saturate", "bool", "Whether a result that is too large becomes the format's largest number, as in "
              "convreg.quantize.", False, only=(CONFORMANCE,)),
    Attribute("seed", "int", "Seed of stochastic rounding, the same for all outputs; None means a new random seed.",
              None, minimum=0, only=(CONFORMANCE,)),
)
"""Attributes that replace a result's rounding."""


class Finish(NamedTuple):
    """The last rounding of every output, in the terms of `convreg.quantize`."""

    rounding: str | None
    saturate: bool
    seed: int | None

    @property
    def usual(self) -> bool:
        """Whether it is the rounding of the kernels."""
        return self.rounding is None and not self.saturate


USUAL = Finish(None, False, None)


class Emulation(NamedTuple):
    """The parts that a call under emulation adds to the operator's computation."""

    call: Call
    last: Finish
    layout: _scales.Layout
    scales: tuple[_scales.Scale, ...]

    def ends_in_kernels(self, operands: np.dtype) -> bool:
        """Whether kernels that read this dtype round as the results are, so that nothing is left to do after them."""
        return self.last.usual and not self.scales and operands != np.float64

    def kernels(self, kernels: ModuleType, inputs: Sequence[Array | None]) -> Any:
        """Return kernels that apply the scales among the inputs of a call, refused where one cannot be a scale."""
        if not self.scales:
            return kernels
        factors = {}
        for scale in self.scales:
            values = inputs[scale.place]
            assert values is not None
            _scales.check_values(self.call, scale, values)
            factors[self.layout.tensor(scale.role)] = _scales.Factor(
                values.astype(np.float64), scale.along, self.layout.groups)
        return _scales.ScaledKernels(kernels, self.layout, factors)


def emulation_of(call: Call, geometry: Geometry, outputs: Sequence[TensorType | None]) -> Emulation:
    """Return the choices of a call; refuse a rounding or scale that does not fit."""
    return Emulation(call, finish(call, outputs), _scales.layout_of(call, geometry),
                     _scales.scales_of(call, _scales.channels_of(geometry)))


def check_known(call: Call, outputs: Sequence[TensorType | None]) -> None:
    """As `emulation_of`, for results whose extents may be unknown: refuse what is known and does not fit."""
    finish(call, outputs)
    _scales.scales_of(call, _scales.known_channels(call, outputs))


def finish(call: Call, outputs: Sequence[TensorType | None]) -> Finish:
    """Refuse a rounding that some output's format lacks; float32 outputs of float32 sums need none."""
    rounding = call["rounding"]
    for port, made in zip(call.spec.outputs, outputs, strict=True):
        if made is None or rounding is None or made.format in ("float32", "float64"):
            continue
        roundings = FORMATS[made.format].roundings
        if rounding not in roundings:
            raise call.refuse("rounding", rounding, f"{' or '.join(roundings)} for {port.name} in {made.format}")
    return Finish(rounding, call["saturate"], call["seed"])


def staged(output: Array | None, written: str, last: Finish = USUAL) -> Array | None:
    """Return where a kernel that writes `written` puts its result: the output itself when that rounds the same way."""
    if output is None:
        return None
    same = format_of(output.dtype) is FORMATS[written]
    if last.usual and (same or written == "float32"):
        return output
    return np.empty(output.shape, FORMATS["float32" if same and written != "float64" else written].dtype)


def deliver(stage: Array | None, output: Array | None, last: Finish, threads: int) -> None:
    """Round a staged result to the format of its output."""
    if stage is None or output is None or stage is output:
        return
    target = format_of(output.dtype)
    assert target is not None, output.dtype
    rounding = last.rounding if last.rounding in target.roundings else None
    quantize(stage, target.name, rounding=rounding, saturate=last.saturate, seed=last.seed, out=output,
             threads=threads or None)


def emulated(spec: OpSpec) -> OpSpec:
    """Return a declaration whose tensors share one format with the conformance "emulation" added."""
    own = next(port.type for port in spec.inputs if not port.shape)
    declared = spec.types[own]
    assert isinstance(declared, tuple), "one list of formats for all conformances"
    taken = tuple(name for name in FORMATS if name in (*declared, *FLOATS, *EIGHT_BIT))

    def separate(port: Port, like: str = "") -> Port:
        return port if port.shape else replace(port, type=f"T_{port.name}", like=like)

    inputs = tuple(separate(port) for port in spec.inputs)
    outputs = tuple(separate(port, source(spec.roles, port)) for port in spec.outputs)
    variables = {port.type: {CONFORMANCE: taken, "*": declared} for port in (*inputs, *outputs) if not port.shape}
    others = {name: formats for name, formats in spec.types.items() if name != own}

    def plan(call: Call) -> Plan:
        made = spec.plan(call)
        if call.conformance != CONFORMANCE:
            return made
        results = formatted(call, made.outputs)
        assert made.geometry is not None, spec.qualified_name
        return replace(made, outputs=results, emulation=emulation_of(call, made.geometry, results))

    def infer(call: Call) -> tuple[TensorType | None, ...]:
        made = spec.infer(call)
        if call.conformance != CONFORMANCE:
            return made
        results = formatted(call, made)
        check_known(call, results)
        return results

    def run(plan: Plan, inputs: tuple, outputs: tuple, kernels: ModuleType, threads: int) -> None:
        how: Emulation | None = plan.emulation
        operands = inputs[:len(spec.inputs)]
        if how is None or how.ends_in_kernels(inputs[0].dtype):
            spec.run(plan, operands, outputs, kernels, threads)
            return
        sums = "float64" if inputs[0].dtype == np.float64 else "float32"
        unrounded = [made is not None and array.dtype == np.float64 and made.format != "float64"
                     for made, array in zip(plan.outputs, outputs, strict=True)]  # the float64 reference
        stages = tuple(output if plain else staged(output, sums, how.last)
                       for output, plain in zip(outputs, unrounded, strict=True))
        spec.run(plan, operands, stages, how.kernels(kernels, inputs), threads)
        for stage, output in zip(stages, outputs, strict=True):
            deliver(stage, output, how.last, threads)

    return _scales.scaled(replace(
        spec, inputs=inputs, outputs=outputs,
        attributes=(*spec.attributes, _format_attribute(outputs), *LAST_ROUNDING), types={**variables, **others},
        conformances=(*spec.conformances, CONFORMANCE), extends={CONFORMANCE: spec.conformances[0]},
        uniform=spec.conformances, plan=plan, run=run, infer=infer), CONFORMANCE)


def source(roles: Mapping[Role, str], output: Port) -> str:
    """Return the input that an output is the gradient of, or else the gradient that it is computed from."""
    own: dict[str, Role] = {"grad_data": "data", "grad_weight": "weight"}
    return roles.get(own.get(output.role, "grad_output"), roles["grad_output"])


def _format_attribute(outputs: tuple[Port, ...]) -> Attribute:
    if len(outputs) == 1:
        return Attribute("output_format", "string", f"Format of {outputs[0].name}; None means the format of "
                         f"{outputs[0].like}.", None, only=(CONFORMANCE,))
    return Attribute("output_formats", "strings", f"Formats of the {len(outputs)} results. An empty name means "
                     f"the format of {', '.join(port.like for port in outputs)} respectively.", None,
                     only=(CONFORMANCE,))


def formatted(call: Call, outputs: Sequence[TensorType | None]) -> tuple[TensorType | None, ...]:
    """Return the results in the formats that a call chooses."""
    ports = call.spec.outputs
    name = "output_format" if len(ports) == 1 else "output_formats"
    stated = call[name] if name == "output_formats" else call[name] and (call[name],)
    if stated is not None and len(stated) != len(ports):
        raise call.refuse(name, list(stated), f"{len(ports)} names, empty for the default")
    results = []
    for index, (port, made) in enumerate(zip(ports, outputs, strict=True)):
        chosen = stated[index] if stated and stated[index] else call.tensor(port.like).format
        if made is not None:
            check_output(call, name, chosen, call.formats(port.type))
        results.append(None if made is None else made._replace(format=chosen))
    return tuple(results)


def check_output(call: Call, argument: str, chosen: str, known: tuple[str, ...], rule: str = "arguments") -> None:
    """Refuse the format of a result; float64 is for float64 operands."""
    wide = "float64" in (tensor.format for tensor in call.inputs if tensor is not None)
    allowed = [name for name in known if wide or name != "float64"]
    if chosen not in allowed:
        raise call.refuse(argument, chosen, " or ".join(allowed), rule, wrong_type=True)
