"""The exact result of a call and the error that rounding can make, element by element.

An element is a sum of n products. Computed in any order, split in any way and fused or not, it differs from the exact
sum s by at most ((1 + u)**n - 1) S + n eta, where u is the unit roundoff of the accumulator, S the sum of the
products' magnitudes and eta the error of an underflow. The operator itself gives all three: s on the operands, S on
their magnitudes and n on ones, in float64. If q divides all products and S <= 2**24 q, every partial sum is exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..calls.binding import Bound, bind
from ..calls.signature import reader_of
from ..conversion import dequantize, quantize, round_operand
from ..errors import Asking, OpError, Refusing
from ..formats import FORMATS, Format, format_of
from ..guard import failure, thread_count
from ..memory import Array, max_bytes
from ..ops import kernels
from ..registry import resolve
from ..roles import CONVERTED, RESULTS, Precision
from ..spec import Plan, Port
from . import ranks
from .arithmetic import SMALLEST_NORMAL, USUAL, Accumulator, Arithmetic
from .quanta import exponent_of_quanta
from .rounding import Rounding, Step, rounding_of

if TYPE_CHECKING:
    from .record import Golden

OPERANDS = {"grad_data": ("grad_output", "weight"), "grad_weight": ("data", "grad_output"),
            "grad_bias": ("grad_output",)}
"""The roles of what a result is a sum of: products of two, or the gradient alone."""

HALF = 2.0**-53
"""Unit roundoff of float64, in which the exact result is computed."""

PROBABLE = 6.0
"""How many standard deviations of a random walk are likely: an error beyond has the probability 2 exp(-18)."""


class Ends(NamedTuple):
    """The ranks between which a result may lie, both included.

    `low` is `ranks.NAN` where the result has to be NaN. `undefined` says where it may also be NaN, because partial
    sums of both signs can overflow.
    """

    low: Array
    high: Array
    undefined: Array


@dataclass(frozen=True, eq=False)
class Analysis:
    """What is known about one output of a call.

    Attributes
    ----------
    output : str
        The vendor's name.
    shape : tuple of int
    rounding : Rounding
        What happens to a sum before it is stored.
    reference, magnitude, terms : ndarray of float64
        s, S and n, one number an element, in C order and flat.
    wide : bool
        Whether the operands are float64.
    products : bool
        Whether the terms are products; those of a bias gradient are not.
    added : int
        Terms besides the products: the bias.
    factors : int
        Scales that are not all powers of two: each costs one rounding.
    highest_scale : float
        The product of the largest scales, at least 1.
    quanta : int or None
        Binary exponent of q; None where it is not known.
    lost : ndarray or float
        What flushing subnormal operands to zero can change.
    arithmetic : Arithmetic
    stored : ndarray, optional
        The one allowed result of a conversion, which has no error.
    """

    output: str
    shape: tuple[int, ...]
    rounding: Rounding
    reference: Array
    magnitude: Array
    terms: Array
    wide: bool = False
    products: bool = True
    added: int = 0
    factors: int = 0
    highest_scale: float = 1.0
    quanta: int | None = None
    lost: Array | float = 0.0
    arithmetic: Arithmetic = USUAL
    stored: Array | None = field(default=None, repr=False)

    @property
    def format(self) -> Format:
        """The format of the output."""
        return self.rounding.format

    @property
    def accumulator(self) -> Accumulator:
        """The arithmetic of the sums."""
        return self.arithmetic.accumulator_for(self.wide)

    @property
    def quantum(self) -> float:
        """q, 0 where it is not known or below all numbers of float64."""
        return 0.0 if self.quanta is None or self.quanta < -1074 else 2.0**min(self.quanta, 1023)

    def error(self, part: slice = slice(None)) -> Array:
        """Return e: how far a sum may lie from the reference, for a part of the flat elements."""
        how, accumulator = self.arithmetic, self.accumulator
        magnitude, terms = self.magnitude[part], self.terms[part]
        operations = terms if self.products else np.maximum(terms - 1, 0)
        roundings = np.where(terms == 0, 0, operations + self.added) + self.factors
        logarithm = roundings * np.log1p(accumulator.unit)
        underflow = accumulator.underflow * ((terms if self.products else 0) + self.factors)
        if how.parts is not None:
            unit = 2.0**-(FORMATS[how.parts[0]].mantissa + 1)
            logarithm = logarithm + how.parts[1] * np.log1p(unit)
            underflow = underflow + how.parts[1] * FORMATS[how.parts[0]].smallest / 2
        unit = self._operand_unit
        with np.errstate(over="ignore", invalid="ignore"):
            growth = np.expm1(logarithm) * (1 + unit)**2 + (2 + unit) * unit + np.expm1((operations + 4) * HALF)
            error = np.where(magnitude == 0, 0, growth * magnitude) + underflow * self.highest_scale
            if how.flush_to_zero:
                lost = self.lost if isinstance(self.lost, float) else self.lost[part]
                error = error + (2 * terms + 1) * SMALLEST_NORMAL * self.highest_scale + lost
            error = error * (1 + (terms + 8) * (2 * HALF))  # what float64 itself may have lost on the way here
        return np.where(self._exact(magnitude, terms), 0.0, error)

    def _exact(self, magnitude: Array, terms: Array) -> Array:
        """Whether no rounding is possible before the roundings of the result."""
        untouched = (terms == 0) & (self.factors == 0) & (magnitude * 0 == 0)
        quantum, digits, largest = self.quantum, self.accumulator.digits, self.accumulator.largest
        smallest = 2 * self.accumulator.underflow
        if self.arithmetic.parts is not None:
            parts = FORMATS[self.arithmetic.parts[0]]
            digits, largest = min(digits, parts.mantissa + 1), min(largest, parts.largest)
            smallest = max(smallest, parts.smallest)
        if self.arithmetic.flush_to_zero:
            smallest = max(smallest, SMALLEST_NORMAL)
        if quantum < smallest or self.factors or self._operand_unit:
            return untouched
        return untouched | ((magnitude <= 2.0**digits * quantum) & (magnitude <= largest))

    def ends(self, part: slice = slice(None), *, likely: bool = False) -> Ends:
        """Return the ranks between which results may lie; with `likely`, those of the probable error."""
        if self.stored is not None:
            return self._ends_of_conversion(self.stored[part], self.reference[part])
        exact, magnitude = self.reference[part], self.magnitude[part]
        error = self.error(part)
        if likely:
            error = np.minimum(error, PROBABLE * np.sqrt(self.terms[part] + self.added) * self.accumulator.unit *
                               magnitude)
        number = np.isfinite(exact)
        error = np.where(number, error, 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            low = np.where(error == 0, exact, np.nextafter(exact - error, -np.inf))
            high = np.where(error == 0, exact, np.nextafter(exact + error, np.inf))
            largest = self._largest
            over = number & (error > 0) & ((magnitude + exact) / 2 + error > largest)
            under = number & (error > 0) & ((magnitude - exact) / 2 + error > largest)
        high, low = np.where(over, np.inf, high), np.where(under, -np.inf, low)
        ties = self.arithmetic.ties == "both"
        low, high = self.rounding.outward(low, -np.inf, ties), self.rounding.outward(high, np.inf, ties)
        return Ends(low, high, over & under)

    @property
    def _largest(self) -> float:
        """The number beyond which partial sums overflow."""
        parts = self.arithmetic.parts
        return min(self.accumulator.largest, np.inf if parts is None else FORMATS[parts[0]].largest)

    @property
    def _operand_unit(self) -> float:
        return self.arithmetic.operand_unit if self.products else 0.0

    def _ends_of_conversion(self, stored: Array, exact: Array) -> Ends:
        if self.rounding.steps[-1].rounding == "stochastic":
            low, high = (self.rounding.outward(exact, end, True) for end in (-np.inf, np.inf))
        else:
            low = high = ranks.ranks(stored, self.format)
        return Ends(low, high, np.zeros(low.shape, bool))

    def bound(self) -> Array:
        """Return the largest difference between a result and the reference that rounding can make."""
        bounds = np.empty(self.reference.size)
        for part in blocks(self.reference.size):
            ends, exact = self.ends(part), self.reference[part]
            with np.errstate(invalid="ignore"):
                low, high = (ranks.values_of(end, self.format) for end in ends[:2])
                found = np.maximum(high - exact, exact - low)
            found[ends.undefined] = np.inf
            bounds[part] = np.where(np.isfinite(exact), np.maximum(found, 0), 0)
        return bounds.reshape(self.shape)


BLOCK = 1 << 18
"""Elements that are worked on together, so that what is computed about them fits the processor's caches."""


def blocks(size: int) -> Sequence[slice]:
    """Return slices that cover so many elements."""
    return [slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK)]


def analyse(golden: Golden, arithmetic: Arithmetic = USUAL, *, threads: int | None = None) -> dict[str, Analysis]:
    """Compute what is known about every output of a call.

    Parameters
    ----------
    golden : Golden
    arithmetic : Arithmetic
        How the kernel that is judged computes.
    threads : int, optional
        Number of threads. The result does not depend on it.

    Returns
    -------
    dict of str to Analysis
        By the vendor's names of the outputs.

    Raises
    ------
    OpError, OpTypeError
        If the operator refuses the call, has no roles that say what it computes, or too little memory is free.
    """
    function = resolve(golden.op)
    ask = Asking("convreg::golden")
    stated = {} if golden.conformance is None else {"conformance": golden.conformance}
    tensors, attributes, conformance, _, _ = reader_of(function.spec)((), {
        **golden.inputs, **golden.attributes, **stated})
    bound = bind(function.spec, tensors, attributes, conformance=conformance)
    workers = thread_count(ask, threads)
    _check_size(ask, bound)
    token = kernels.FORCED.set(None)  # the reference may take any algorithm
    try:
        found = {}
        for place, (port, made) in enumerate(zip(function.spec.outputs, bound.plan.outputs, strict=True)):
            if made is not None and port.role not in (*RESULTS, CONVERTED):
                raise ask.refuse("golden", golden.op, f"an operator whose outputs have roles, which {port.name} lacks",
                                 "arguments")
        if any(port.role == CONVERTED for port in function.spec.outputs):
            return {port.name: _conversion(bound, place, port, workers)
                    for place, port in enumerate(function.spec.outputs)}
        sums = _Sums(bound, arithmetic, workers)
        for place, (port, made) in enumerate(zip(function.spec.outputs, bound.plan.outputs, strict=True)):
            if made is not None:
                found[port.name] = sums.analysis(place, port)
        return found
    except (OverflowError, MemoryError, OpError) as error:
        raise failure(bound.call, error) from None
    finally:
        kernels.FORCED.reset(token)


def _check_size(ask: Refusing, bound: Bound) -> None:
    """Refuse a call whose operands and analysis take more than ``max_bytes``."""
    numbers = sum(array.size for array in bound.inputs if array is not None)
    for made in bound.plan.outputs:
        size = 5 if made is not None else 0
        for extent in () if made is None else made.extents:
            size *= extent
        numbers += size
    if 8 * numbers > max_bytes(ask):
        raise ask.refuse("golden", f"a call whose analysis takes {8 * numbers} bytes",
                         f"at most {max_bytes(ask)} bytes (CONVREG_MAX_BYTES sets the limit)", "max_bytes")


def _conversion(bound: Bound, place: int, port: Port, threads: int) -> Analysis:
    """Return the analysis of a conversion: its result is the only one, or either neighbour if it is drawn."""
    plan, call = bound.plan, bound.call
    made = plan.outputs[place]
    assert made is not None
    target = FORMATS[made.format]
    chosen = call["rounding"] if call.declares("rounding") else None
    saturate = bool(call.declares("saturate") and call["saturate"])
    stored = np.zeros(made.extents, target.dtype)
    call.spec.run(plan, bound.inputs, (stored,), kernels, threads)
    wide = [None if array is None else dequantize(array, dtype=np.float64) for array in bound.inputs]
    exact = np.zeros(made.extents)
    call.spec.run(plan, wide, (exact,), kernels, threads)
    nothing = np.zeros(exact.size)
    return Analysis(port.name, made.extents, Rounding((Step(target, chosen or target.rounding, saturate),)),
                    exact.ravel(), nothing, nothing, stored=stored.ravel())


class _Sums:
    """The sums of a call over a convolution: on its operands, on their magnitudes and on ones."""

    def __init__(self, bound: Bound, arithmetic: Arithmetic, threads: int) -> None:
        self.call, self.plan, self.arithmetic, self.threads = bound.call, bound.plan, arithmetic, threads
        self.ports = self.call.spec.inputs
        self.given = bound.inputs
        self.wide = any(array is not None and array.dtype == np.float64 for array in bound.inputs)
        self.rounded = [self._rounded(port, array) for port, array in zip(self.ports, self.given, strict=True)]
        self.alike = all(one is other for one, other in zip(self.given, self.rounded, strict=True))
        self.reference = self._results(lambda port, values: values)
        self.magnitude = self._results(lambda port, values: np.abs(values, out=values))
        self.terms = self._results(_counting)
        self.lost = self._lost() if arithmetic.flush_to_zero else None

    def _rounded(self, port: Port, array: Array | None) -> Array | None:
        """Return an operand as products read it."""
        if array is None or port.role not in ("grad_output", "data", "weight"):
            return array
        stated = self.arithmetic.rounded_operands
        array = round_operand(array, self.plan.precision, self.threads)
        if stated is None:
            return array
        if stated == "hf32":
            return round_operand(array, Precision("hf32"), self.threads)
        held = format_of(array.dtype)
        return array if held is FORMATS[stated] else quantize(array, stated, threads=self.threads or None)

    def _results(self, change: Any) -> list[Array | None]:
        """Run the operator in float64 on operands changed by ``change(port, values)``."""
        outputs = [None if made is None else np.zeros(made.extents) for made in self.plan.outputs]
        sums = [port.role == "grad_bias" for port in self.call.spec.outputs]
        if self.alike:
            self._run(self.rounded, outputs, change)
        else:
            self._run(self.rounded, [None if alone else output for alone, output in zip(sums, outputs, strict=True)],
                      change)
            self._run(self.given, [output if alone else None for alone, output in zip(sums, outputs, strict=True)],
                      change)
        return outputs

    def _run(self, inputs: Sequence[Array | None], outputs: Sequence[Array | None], change: Any) -> None:
        if all(output is None for output in outputs):
            return
        wide = [None if array is None else change(port, dequantize(array, dtype=np.float64))
                for port, array in zip(self.ports, inputs, strict=True)]
        self.call.spec.run(self.plan, wide, tuple(outputs), kernels, self.threads)

    def _lost(self) -> list[Array | None]:
        """Return what the products of subnormal operands add up to, by output."""

        def flushed(port: Port, values: Array) -> Array:
            values = np.abs(values, out=values)
            if not port.scales:
                values[values < SMALLEST_NORMAL] = 0
            return values

        lost: list[Array | None] = []
        for whole, kept in zip(self.magnitude, self._results(flushed), strict=True):
            if whole is None or kept is None:
                lost.append(None)
                continue
            with np.errstate(invalid="ignore"):
                lost.append(np.fmax(whole - kept, 0).ravel())
        return lost

    def analysis(self, place: int, port: Port) -> Analysis:
        """Return the analysis of an output."""
        made = self.plan.outputs[place]
        exact, magnitude, terms = self.reference[place], self.magnitude[place], self.terms[place]
        assert made is not None and exact is not None and magnitude is not None and terms is not None
        added = sum(port.role == "bias" and array is not None
                    for port, array in zip(self.ports, self.given, strict=True))
        scaled = {one.name for one in self.ports if one.role in (*OPERANDS[port.role], "bias")}
        scales = [values for one, values in zip(self.ports, self.given, strict=True)
                  if one.scales in scaled and values is not None]
        factors = sum(not _powers_of_two(values) for values in scales)
        highest = float(np.prod([np.max(values, initial=1) for values in scales]))
        lost = None if self.lost is None else self.lost[place]
        return Analysis(
            port.name, made.extents, rounding_of(self.plan, place, self.wide), exact.ravel(), magnitude.ravel(),
            terms.ravel(), self.wide, len(OPERANDS[port.role]) == 2, added, factors, highest,
            None if factors else self._quanta(port.role), 0.0 if lost is None else lost, self.arithmetic)

    def _quanta(self, role: str) -> int | None:
        """Return the binary exponent of the largest power of two that divides every product and the bias."""
        of = dict.fromkeys(OPERANDS[role])
        inputs = self.given if role == "grad_bias" else self.rounded
        exponents: Mapping[str, int | None] = {
            port.name: exponent_of_quanta(array) for port, array in zip(self.ports, inputs, strict=True)
            if array is not None and (port.role in of or port.role == "bias" or port.scales)}
        if None in exponents.values():
            return None
        known: dict[str, int] = {}
        for port in self.ports:
            own = exponents.get(port.name)
            if own is not None:
                name = port.scales or port.name
                known[name] = known.get(name, 0) + own
        by_role = {port.role: known[port.name] for port in self.ports if port.name in exponents}
        products = sum(by_role.get(name, 0) for name in of)
        return min(products, by_role["bias"]) if "bias" in by_role else products


def _counting(port: Port, values: Array) -> Array:
    """Return ones for an operand and its scale, and zeros for a bias, which is no product."""
    one = 0.0 if port.role == "bias" else 1.0
    return np.broadcast_to(np.float64(one), values.shape)


def _powers_of_two(values: Array) -> bool:
    return bool((np.frexp(values)[0] == 0.5).all())


def with_arithmetic(known: Mapping[str, Analysis], arithmetic: Arithmetic) -> dict[str, Analysis]:
    """Return analyses for another accumulator, other parts or other ties, whose sums are the same."""
    return {name: replace(found, arithmetic=arithmetic) for name, found in known.items()}


def same_sums(arithmetic: Arithmetic) -> bool:
    """Whether the sums do not depend on these choices, beside the usual ones."""
    return arithmetic.rounded_operands is None and not arithmetic.flush_to_zero
