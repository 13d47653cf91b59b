"""The exact result of a call and the error that rounding can make, element by element.

An element is a sum of n products. Computed in any order, split in any way and fused or not, it differs from the exact
sum s by at most ((1 + u)**n - 1) S + n eta, where u is the unit roundoff of the accumulator, S the sum of the
products' magnitudes and eta the error of an underflow. The operator itself gives all three: s on the operands, S on
their magnitudes and n on ones, in float64. If q divides all products and S <= 2**24 q, every partial sum is exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..calls.binding import Bound
from ..conversion import dequantize, quantize, round_operand
from ..errors import OpError, Refusing
from ..formats import FORMATS, format_of
from ..guard import failure, thread_count
from ..memory import Array, max_bytes
from ..ops import kernels
from ..roles import CONVERTED, RESULTS, Precision
from ..spec import Port
from .arithmetic import SMALLEST_NORMAL, USUAL, Arithmetic
from .axes import axes_of
from .bounds import Analysis
from .calling import ASK, bound_of
from .quanta import exponent_of_quanta
from .rounding import Rounding, Step, rounding_of

if TYPE_CHECKING:
    from .record import Golden

OPERANDS = {"grad_data": ("grad_output", "weight"), "grad_weight": ("data", "grad_output"),
            "grad_bias": ("grad_output",)}
"""The roles of what a result is a sum of: products of two, or the gradient alone."""


@kernels.choosing_freely()
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
    bound = bound_of(golden)
    spec = bound.call.spec
    workers = thread_count(ASK, threads)
    _check_size(ASK, bound)
    try:
        for port, made in zip(spec.outputs, bound.plan.outputs, strict=True):
            if made is not None and port.role not in (*RESULTS, CONVERTED):
                raise ASK.refuse("golden", golden.op, f"an operator whose outputs have roles, which {port.name} lacks",
                                 "arguments")
        if any(port.role == CONVERTED for port in spec.outputs):
            return {port.name: _conversion(bound, place, port, workers)
                    for place, port in enumerate(spec.outputs)}
        sums = _Sums(bound, arithmetic, workers)
        return {port.name: sums.analysis(place, port) for place, port in enumerate(spec.outputs)
                if bound.plan.outputs[place] is not None}
    except (OverflowError, MemoryError, OpError) as error:
        raise failure(bound.call, error) from None


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
                    exact.ravel(), nothing, nothing, stored=stored.ravel(), axes=axes_of(call, plan, place))


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
        self.magnitude = self._results(_magnitudes)
        self.terms = self._results(_counting)
        self.lost = self._lost() if arithmetic.flush_to_zero else {}

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

    def _results(self, change: Any) -> dict[int, Array]:
        """Run the operator in float64 on operands changed by ``change(port, values)``; return its outputs by place."""
        results = {place: np.zeros(made.extents) for place, made in enumerate(self.plan.outputs) if made is not None}
        sums = {place for place, port in enumerate(self.call.spec.outputs) if port.role == "grad_bias"}
        if self.alike:
            self._run(self.rounded, results, change)
        else:
            self._run(self.rounded, {place: array for place, array in results.items() if place not in sums}, change)
            self._run(self.given, {place: array for place, array in results.items() if place in sums}, change)
        return results

    def _run(self, inputs: Sequence[Array | None], results: Mapping[int, Array], change: Any) -> None:
        if not results:
            return
        wide = [None if array is None else change(port, dequantize(array, dtype=np.float64))
                for port, array in zip(self.ports, inputs, strict=True)]
        outputs = tuple(results.get(place) for place in range(len(self.plan.outputs)))
        self.call.spec.run(self.plan, wide, outputs, kernels, self.threads)

    def _lost(self) -> dict[int, Array]:
        """Return what the products of subnormal operands add up to, by the place of the output."""

        def flushed(port: Port, values: Array) -> Array:
            values = np.abs(values, out=values)
            if not port.scales:
                values[values < SMALLEST_NORMAL] = 0
            return values

        with np.errstate(invalid="ignore"):
            return {place: np.fmax(self.magnitude[place] - kept, 0).ravel()
                    for place, kept in self._results(flushed).items()}

    def analysis(self, place: int, port: Port) -> Analysis:
        """Return the analysis of an output."""
        exact, magnitude, terms = self.reference[place], self.magnitude[place], self.terms[place]
        added = sum(port.role == "bias" and array is not None
                    for port, array in zip(self.ports, self.given, strict=True))
        scaled = {one.name for one in self.ports if one.role in (*OPERANDS[port.role], "bias")}
        scales = [values for one, values in zip(self.ports, self.given, strict=True)
                  if one.scales in scaled and values is not None]
        factors = sum(not _powers_of_two(values) for values in scales)
        highest, lowest = (float(np.prod([end(values, initial=1) for values in scales])) for end in (np.max, np.min))
        return Analysis(
            port.name, exact.shape, rounding_of(self.plan, place, self.wide), exact.ravel(), magnitude.ravel(),
            terms.ravel(), self.wide, len(OPERANDS[port.role]) == 2, added, factors, highest, lowest,
            None if factors else self._quanta(port.role), self.lost.get(place, 0.0), self.arithmetic,
            axes=axes_of(self.call, self.plan, place))

    def _quanta(self, role: str) -> int | None:
        """Return the binary exponent of the largest power of two that divides every product and the bias."""
        of = dict.fromkeys(OPERANDS[role])
        inputs = self.given if role == "grad_bias" else self.rounded
        exponents: dict[str, int] = {}
        for port, array in zip(self.ports, inputs, strict=True):
            if array is None or not (port.role in of or port.role == "bias" or port.scales):
                continue
            exponent, scaled = exponent_of_quanta(array), port.scales or port.name
            if exponent is None:
                return None
            exponents[scaled] = exponents.get(scaled, 0) + exponent
        by_role: dict[str, int] = {port.role: exponents[port.name] for port in self.ports if port.name in exponents}
        products = sum(by_role.get(name, 0) for name in of)
        return min(products, by_role["bias"]) if "bias" in by_role else products


def _magnitudes(port: Port, values: Array) -> Array:
    """Return the magnitudes of numbers, and 0 for an infinite or undefined operand.

    A result with a term of such an operand is infinite or NaN; whether it may be NaN depends on the sum of the others.
    """
    np.abs(values, out=values)
    values[~np.isfinite(values)] = 0
    return values


def _counting(port: Port, values: Array) -> Array:
    """Return ones for an operand and its scale, and zeros for a bias, which is no product."""
    one = 0.0 if port.role == "bias" else 1.0
    return np.broadcast_to(np.float64(one), values.shape)


def _powers_of_two(values: Array) -> bool:
    return bool((np.frexp(values)[0] == 0.5).all())
