"""The execution of checked calls, and of calls that are given in a vendor's names, as nodes of a graph are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ..conversion import dequantize
from ..errors import OpError
from ..guard import failure, thread_count
from ..memory import Array, max_bytes
from ..ops import kernels
from ..spec import Call, OpSpec, Plan
from ._likeness import likeness
from .binding import Bound, bind, check_conformance
from .outputs import allocate, check_sizes, new_arrays
from .recording import Fitting
from .repeated import find, remember

Result = Array | tuple[Array | None, ...] | None


def execute(
    spec: OpSpec,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    *,
    conformance: str | None = None,
    out: Any = None,
    threads: int | None = None,
    wanted: tuple[bool, ...] | None = None,
) -> Result:
    """Bind, plan, allocate and run one call given in the vendor's names, as graph nodes do."""
    if conformance is not None:
        check_conformance(spec, conformance)
    alike = None if out is not None else likeness(spec.input_names, spec.tensor_names, inputs, attributes)
    key = (spec, conformance, wanted, alike)
    if alike is not None and (known := find(key)) is not None:
        call, plan, room, chosen, _ = known
        workers = thread_count(call, threads)
        return perform(call, plan, chosen((*inputs, None)), new_arrays(call, room), workers)
    bound = bind(spec, inputs, attributes, conformance=conformance, out=out, wanted=wanted)
    workers = thread_count(bound.call, threads)
    if alike is not None:
        given = (*inputs, *(None,) * (len(spec.inputs) - len(inputs)))
        remember(key, bound, given, range(len(given)))
    return perform(bound.call, bound.plan, bound.inputs, allocate(bound.call, bound.plan, bound.outputs), workers)


def perform(
    call: Call, plan: Plan, inputs: tuple[Array | None, ...], outputs: tuple[Array | None, ...], workers: int
) -> Result:
    """Run a bound call and return its outputs."""
    try:
        if kernels.FORCED.get() is not None:  # it fits all kernels of the call, or nothing is written
            unwritten = tuple(None if array is None else np.empty_like(array) for array in outputs)
            call.spec.run(plan, inputs, unwritten, Fitting(), workers or kernels.default_threads())
        with kernels.Arithmetic():
            call.spec.run(plan, inputs, outputs, kernels, workers)
    except (OverflowError, MemoryError, OpError) as error:
        raise failure(call, error) from None
    return outputs[0] if len(outputs) == 1 else outputs


def refer(
    spec: OpSpec, inputs: Sequence[Any], attributes: Mapping[str, Any], *, conformance: str | None = None,
    threads: int = 0,
) -> Result:
    """Compute a call given in the vendor's names in float64, without any rounding."""
    bound = bind(spec, inputs, attributes, conformance=conformance)
    check_reference_sizes(bound)
    try:
        wide = [None if array is None else dequantize(array, dtype=np.float64) for array in bound.inputs]
        outputs = exact_results(spec, bound.plan, wide, threads)
    except (OverflowError, MemoryError, OpError) as error:
        raise failure(bound.call, error) from None
    return outputs[0] if len(outputs) == 1 else outputs


def check_reference_sizes(bound: Bound) -> None:
    """Refuse a call whose operands and results take more than ``max_bytes`` as float64, which the reference needs."""
    numbers = sum(array.size for array in bound.inputs if array is not None)
    numbers += sum(prod(made.extents) for made in bound.plan.outputs if made is not None)
    if 8 * numbers > max_bytes(bound.call):
        raise bound.call.refuse("inputs", f"{numbers} numbers with the outputs", "what takes at most "
                                f"{max_bytes(bound.call)} bytes as float64 (CONVREG_MAX_BYTES sets the limit)",
                                "max_bytes")
    check_sizes(bound.call, [made and made._replace(format="float64") for made in bound.plan.outputs])


@kernels.choosing_freely()
def exact_results(
    spec: OpSpec, plan: Plan, inputs: Sequence[Array | None], threads: int = 0
) -> tuple[Array | None, ...]:
    """Compute a planned call on float64 arrays, without any rounding."""
    outputs = tuple(None if made is None else np.zeros(made.extents) for made in plan.outputs)
    with kernels.Arithmetic():
        spec.run(plan, inputs, outputs, kernels, threads)
    return outputs
