"""Drawn calls of every operator on arrays in drawn places, with drawn algorithms, checked against contiguous arrays and
against float64.

A call has a number: the same seed and number draw the same call, in any order.
`python tests/support/drawn_layouts.py SEED NUMBER` repeats one and prints what it is.
"""

from __future__ import annotations

import random
import sys
from contextlib import nullcontext
from functools import lru_cache
from math import prod
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from convreg.ops.kernels import engine
from drawn_sizes import EDGES, drawn_case
from engine_comparison import SETS
from gradient_calls import GradientCall, forward, single, together
from memory_layouts import Placed, draw_layout, placed

import convreg
import convreg.onnx.runtime_ort.nodes
from convreg.errors import OpError
from convreg.formats import format_of
from convreg.spec import OpSpec, by_conformance

CONVERSIONS = ("nodes::Quantize", "nodes::Dequantize")


# ---------------------------------------------------------------------------------------------------------------------
# Values and formats


def drawn_values(rng: random.Random, kind: str, shape: tuple[int, ...], format: str) -> np.ndarray:
    """Numbers of a format, contiguous or repeated by strides of 0: `exact` ones, whose sums are exact in float32,
    `normal` ones, or `special` ones of all magnitudes."""
    gen = np.random.default_rng(rng.getrandbits(64))
    repeated = [rng.random() < 0.3 for _ in shape] if rng.random() < 0.15 else [False] * len(shape)
    once = tuple(1 if again else extent for again, extent in zip(repeated, shape, strict=True))
    values = gen.integers(-8, 9, once) / 4 if kind == "exact" else gen.standard_normal(once)
    if kind == "special":
        values = values * 2.0 ** gen.integers(-30, 10, once)
        values = np.where(gen.random(once) < 0.01, gen.choice([np.inf, -np.inf, np.nan], once), values)
    return np.broadcast_to(of_format(values, format), shape)


def of_format(values: np.ndarray, format: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        return values.astype(format) if format in ("float32", "float64") else convreg.quantize(values, format)


@lru_cache
def signatures(spec: OpSpec, conformance: str) -> tuple[dict[str, str], ...]:
    return tuple(convreg.onnx.runtime_ort.nodes.signatures(spec, conformance))


def drawn_formats(rng: random.Random, spec: OpSpec, conformance: str) -> list[str]:
    """Formats of the inputs: half of the time one for all that are not scales."""
    chosen = signatures(spec, conformance)
    operands = {port.type for port in spec.inputs if not port.shape and not port.scales}
    alike = [formats for formats in chosen if len({formats[name] for name in operands}) == 1]
    formats = rng.choice(alike if alike and rng.random() < 0.5 else chosen)
    return [formats[port.type] for port in spec.inputs if not port.shape and not port.scales]


def result_formats(rng: random.Random, spec: OpSpec, formats: list[str]) -> dict[str, Any]:
    """The argument that chooses the formats of emulated results, half of the time."""
    names = {attribute.name for attribute in spec.attributes} & {"output_format", "output_formats", "outputFormats"}
    if not names or rng.random() < 0.5:
        return {}
    drawn = [rng.choice([name for name in by_conformance(spec.types[port.type], "emulation")
                         if name != "float64" or "float64" in formats]) for port in spec.outputs]
    return {name: drawn if name != "output_format" else drawn[0] for name in names}


# ---------------------------------------------------------------------------------------------------------------------
# Calls


class DrawnCall(NamedTuple):
    """A call of an operator, the kind of its numbers, and what it needs to be drawn again."""

    call: GradientCall
    kind: str
    terms: int  # of a sum, at most
    seed: int
    number: int

    def __str__(self) -> str:
        tensors = ", ".join(f"{array.dtype}{list(array.shape)}" for array in self.call.tensors)
        return (f"python tests/support/drawn_layouts.py {self.seed} {self.number}  # {self.call.name}({tensors}, "
                f"{self.call.arguments}), {self.kind} numbers")


def generator(seed: int, number: int, purpose: str) -> random.Random:
    return random.Random(f"{seed}/{number}/{purpose}")


def drawn_call(seed: int, number: int) -> DrawnCall:
    """Call `number`; operators take turns."""
    operators = convreg.operators()
    spec = operators[number % len(operators)].spec
    for attempt in range(20):
        rng = generator(seed, number, f"call {attempt}")
        drawn = (conversion if spec.qualified_name in CONVERSIONS else convolution)(rng, spec)
        drawn = drawn._replace(seed=seed, number=number)
        try:  # a vendor's rule may refuse what is drawn
            run(drawn.call, drawn.call.tensors, threads=1)
        except OpError:
            continue
        return drawn
    raise AssertionError(f"all that was drawn is refused: {drawn}")


def convolution(rng: random.Random, spec: OpSpec) -> DrawnCall:
    name = spec.qualified_name
    kind = rng.choice(["exact", "exact", "normal", "special"])
    conformance = rng.choice(spec.conformances)
    formats = drawn_formats(rng, spec, conformance)
    transposed = rng.random() < 0.3
    case = drawn_case(rng, symmetric=name.split("::")[0] in ("aten", "ascend", "microsoft", "openvino"))
    layouts = rng.choice([("NCX", "OIX"), ("NXC", "XIO"), ("NCX", "XIO"), ("NXC", "OIX")])
    mask = rng.choice([(True, True, True), (True, True, True), (False, True, True), (True, False, True)])
    shapes = [call for call in [*single(case, hollow, layouts), *forward(case, hollow),
                                *together(case, hollow, mask, transposed)] if call.name == name]
    call = rng.choice(shapes)
    tensors = tuple(drawn_values(rng, kind, array.shape, format)
                    for array, format in zip(call.tensors, formats, strict=False))
    if len(spec.conformances) > 1:
        call = call._replace(arguments={**call.arguments, "conformance": conformance})
    if conformance == "emulation":
        call = call._replace(arguments={**call.arguments, **result_formats(rng, spec, formats)})
    positions = case.small[0] * prod(case.small[2:])
    channels = max(case.weights[1], case.weights[0] // case.groups)
    terms = max(positions, case.large[0] * prod(case.large[2:]), channels * prod(case.weights[2:]))
    return DrawnCall(call._replace(tensors=tensors), kind, terms, 0, 0)


def hollow(shape: tuple[int, ...]) -> np.ndarray:
    """An array of that shape and hardly any memory."""
    return np.broadcast_to(np.float32(0), shape)


def conversion(rng: random.Random, spec: OpSpec) -> DrawnCall:
    shape = tuple(rng.choice(EDGES) for _ in range(rng.randint(0, 4)))
    while prod(shape) > 1 << 17:
        shape = shape[1:]
    if rng.random() < 0.05:
        shape = (3, 1 << 16)  # shared by threads
    kind = rng.choice(["normal", "special"])
    format = drawn_formats(rng, spec, "document")[0]
    arguments = {}
    if spec.name == "Quantize":
        arguments = {"format": rng.choice(by_conformance(spec.types[spec.outputs[0].type], "document"))}
    call = GradientCall(spec.qualified_name, (drawn_values(rng, kind, shape, format),), arguments)
    return DrawnCall(call, kind, 1, 0, 0)


def run(call: GradientCall, tensors: tuple[np.ndarray, ...], **more: Any) -> tuple[np.ndarray | None, ...]:
    results = convreg.get(call.name)(*tensors, **call.arguments, **more)
    return results if isinstance(results, tuple) else (results,)


# ---------------------------------------------------------------------------------------------------------------------
# Checks


def check_call(seed: int, number: int) -> DrawnCall:
    """Check a call; a failure says how to repeat it. In a crash, faulthandler prints that line as a function's name."""
    line = f"python tests/support/drawn_layouts.py {seed} {number}"
    names = {name: line for name in ("co_name", "co_qualname") if hasattr(check.__code__, name)}
    try:
        return FunctionType(check.__code__.replace(**names), globals())(seed, number)
    except Exception as error:
        if line in str(error):
            raise
        raise AssertionError(f"{line}  # {type(error).__name__}: {error}") from error


def check(seed: int, number: int) -> DrawnCall:
    """Run a call on contiguous arrays and on those in drawn places, each instruction set, one on three threads.

    The algorithm is the engine's choice or a drawn one that fits. There are guards in the workspace.
    """
    drawn = drawn_call(seed, number)
    before = engine.isa()
    engine.guard_workspace(True)
    try:
        expected = run(drawn.call, tuple(np.array(array, order="C") for array in drawn.call.tensors), threads=1)
        check_values(drawn, expected)
        for isa in SETS:
            engine.use_isa(isa)
            rng = generator(seed, number, f"layouts {isa}")
            threads = 3 if (number + engine.usable().index(isa)) % len(engine.usable()) == 0 else 1
            check_places(rng, drawn, expected, f"{isa}, {threads} threads", threads)
    finally:
        engine.guard_workspace(False)
        engine.use_isa(before)
    return drawn


def check_places(
    rng: random.Random, drawn: DrawnCall, expected: tuple[np.ndarray | None, ...], how: str, threads: int
) -> None:
    """Run a call on operands and results in drawn places, half of the time with a drawn algorithm."""
    operands, names = zip(*(placed(rng, array) for array in drawn.call.tensors), strict=True)
    places = [None if array is None else Placed(draw_layout(rng, array.shape, array.itemsize), array.shape, array.dtype)
              for array in expected]
    out: Any = tuple(None if place is None else place.view for place in places)
    if rng.random() < 0.3:
        places, out = [None] * len(places), None
    elif len(out) == 1:
        out = out[0]
    more = {"threads": threads} if out is None else {"threads": threads, "out": out}
    algorithm = drawn_algorithm(rng, drawn.call, operands, more) if rng.random() < 0.5 else None
    with nullcontext() if algorithm is None else convreg.force_algorithm(algorithm):
        results = run(drawn.call, operands, **more)
    where = f"{how}, {algorithm or 'free choice'}, operands {'; '.join(names)}, results " + "; ".join(
        "fresh" if place is None else str(place.layout) for place in places)
    for index, (result, wanted, place) in enumerate(zip(results, expected, places, strict=True)):
        if wanted is None:
            assert result is None, f"{drawn}, {where}: result {index} was not asked for"
            continue
        assert same_bits(result, wanted), f"{drawn}, {where}: result {index} has other bits"
        if place is not None:
            stray = place.stray_bytes(result)
            assert stray == 0, f"{drawn}, {where}: {stray} bytes around result {index} were written"
    for operand, original in zip(operands, drawn.call.tensors, strict=True):
        assert np.array_equal(codes(operand), codes(original)), f"{drawn}, {where}: an operand was written"


def drawn_algorithm(
    rng: random.Random, call: GradientCall, operands: tuple[np.ndarray, ...], more: dict[str, Any]
) -> str | None:
    """Return an algorithm that one kernel of a call may take, None if it fits not all parts of the call."""
    choices = convreg.algorithm(call.name, *operands, **call.arguments, **more)
    if not choices:  # conversions
        return None
    names = [one.name for one in rng.choice(choices).candidates]
    if len({array.dtype for array in operands}) == 1 and not call.arguments.get("scales"):
        names.append("reference")  # it computes with operands of one format only
    algorithm = rng.choice(names)
    try:
        with convreg.force_algorithm(algorithm):
            convreg.algorithm(call.name, *operands, **call.arguments, **more)
    except OpError:
        return None
    return algorithm


def codes(array: np.ndarray) -> np.ndarray:
    return np.array(array, order="C").view(f"u{array.itemsize}")


def numbers(array: np.ndarray) -> np.ndarray:
    return convreg.dequantize(np.array(array, order="C"), dtype=np.float64)


def same_bits(result: np.ndarray, expected: np.ndarray) -> bool:
    """Equal bits, any NaN for any NaN."""
    if result.dtype != expected.dtype or result.shape != expected.shape:
        return False
    different = codes(result) != codes(expected)
    return not different.any() or bool((np.isnan(numbers(result)) & np.isnan(numbers(expected)))[different].all())


def magnitude(array: np.ndarray) -> np.ndarray:
    format = format_of(array.dtype)
    assert format is not None
    return of_format(np.abs(numbers(array)), format.name)


def reference(call: GradientCall, tensors: tuple[np.ndarray, ...]) -> tuple[np.ndarray | None, ...]:
    exact = convreg.get(call.name).reference(*tensors, **call.arguments)
    return exact if isinstance(exact, tuple) else (exact,)


def check_values(drawn: DrawnCall, results: tuple[np.ndarray | None, ...]) -> None:
    """Exact sums, rounded once, or within half a step of the format and a float32 error for each term.

    The errors of a sum of different numbers have both signs. Those of equal numbers, which a stride of 0 repeats, have
    one sign, so their bound is that of any sum: each addition errs by half a step of the sum of magnitudes.
    """
    if drawn.kind == "special":
        return
    exact = reference(drawn.call, drawn.call.tensors)
    repeated = any(0 in array.strides for array in drawn.call.tensors)
    sums = reference(drawn.call, tuple(map(magnitude, drawn.call.tensors))) if repeated else exact
    largest = prod(float(np.abs(numbers(array)).max(initial=0)) + 1 for array in drawn.call.tensors)
    for index, (result, wide, magnitudes) in enumerate(zip(results, exact, sums, strict=True)):
        if result is None:
            continue
        format = format_of(result.dtype)
        assert format is not None
        if drawn.kind == "exact":
            assert same_bits(result, of_format(wide, format.name)), f"{drawn}: result {index} is not the rounded sum"
            continue
        slack = drawn.terms * 2.0**-23 * np.maximum(largest, magnitudes if repeated else 0)
        low, high = (numbers(of_format(wide + slack * sign, format.name)) for sign in (-1, 1))
        got = numbers(result)
        fine = ((got >= low) & (got <= high)) | np.isnan(low) | np.isnan(high)  # NaN: beyond the largest number
        assert fine.all(), f"{drawn}: result {index} is off by {np.abs(got - wide)[~fine].max()}"


if __name__ == "__main__":
    print(check_call(*map(int, sys.argv[1:])))
