"""What the tables of TTK and ATK have in common: number formats, and calls of aclnnConvolutionBackward as cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

from ...errors import GraphError, near_misses, shorten
from ...spec import snake_case
from ..record import Case, Operand

OP = "ascend::ConvolutionBackward"
INPUTS = ("grad_output", "input", "weight")
FORMATS = {"float32": "float32", "fp32": "float32", "float16": "float16", "fp16": "float16", "bfloat16": "bfloat16",
           "bf16": "bfloat16", "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2", "hifloat8": "hifloat8"}
ATTRIBUTES = ("biasSizes", "stride", "padding", "dilation", "transposed", "outputPadding", "groups", "outputMask",
              "cubeMathType")
DATA_FORMATS = {3: ("NCL", "ND"), 4: ("NCHW",), 5: ("NCDHW",)}
"""Orders of axes that the interface takes, by rank."""
LARGEST = 2**31
LOW, HIGH = -2.0, 2.0
"""The range of values where a table states none."""


def format_named(name: Any, where: str) -> str:
    """Return the number format of a table's dtype name."""
    if not isinstance(name, str) or name not in FORMATS:
        raise GraphError(f"{where}: number format {shorten(name)} is refused; needed: {', '.join(FORMATS)}")
    return FORMATS[name]


def shape_of(value: Any, where: str) -> tuple[int, ...]:
    """Return a shape; extents may be 0."""
    if not isinstance(value, tuple | list) or len(value) > 8 or any(
            type(extent) is not int or not 0 <= extent < LARGEST for extent in value):
        raise GraphError(f"{where}: {shorten(value)} is no shape; needed: up to 8 integers of at least 0 and "
                         f"below {LARGEST}")
    return tuple(value)


def ranged(shape: tuple[int, ...], format: str, entry: Any, where: str) -> Operand:
    """Return an operand with a table's range: least value, greatest value, and values that must occur."""
    entry = (None, None) if entry is None else entry
    numbers = entry if isinstance(entry, tuple | list) else ()
    if len(numbers) < 2 or any(number is not None and not _is_number(number) for number in numbers[:2]) or any(
            not _is_number(number) for number in numbers[2:]):
        raise GraphError(f"{where}: the range {shorten(entry)} is refused; needed: the least and the greatest value, "
                         "each a number or None, and then numbers that must occur")
    low, high = (default if number is None else float(number)
                 for number, default in zip(numbers, (LOW, HIGH), strict=False))
    if isnan(low) or isnan(high) or low > high:
        raise GraphError(f"{where}: the range {shorten(entry)} holds no value; needed: a least value that does not "
                         "exceed the greatest one")
    return Operand(shape, format, low, high, tuple(map(float, numbers[2:])))


def _is_number(value: Any) -> bool:
    """Whether it is a number that a float can hold."""
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) < 2**1000
    return isinstance(value, float)


def check_data_formats(names: Sequence[Any], shapes: Sequence[tuple[int, ...]], where: str) -> None:
    """Refuse an order of axes that the interface does not take."""
    for name, shape in zip(names, shapes, strict=True):
        allowed = DATA_FORMATS.get(len(shape), ())
        if allowed and name not in (*allowed, "ND"):
            raise GraphError(f"{where}: a tensor of rank {len(shape)} has the format {shorten(name)}; needed: "
                             f"{' or '.join(allowed)}")


def attributes_of(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the attributes of aclnnConvolutionBackward as its Python function spells them."""
    for name in given:
        if name not in ATTRIBUTES:
            near = near_misses(name, ATTRIBUTES)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise GraphError(f"{where}: no attribute of aclnnConvolutionBackward is named {shorten(name)}{hint}; "
                             f"needed: {', '.join(ATTRIBUTES)}")
    missing = [name for name in ("stride", "padding", "dilation") if given.get(name) is None]
    if missing:
        raise GraphError(f"{where}: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing; needed: "
                         "one integer per spatial axis")
    return {snake_case(name): list(value) if isinstance(value, tuple) else value
            for name, value in given.items() if value is not None}


def backward(name: str, inputs: Sequence[Operand], attributes: dict[str, Any], outputs: Sequence[str | None],
             fields: Mapping[str, str], conformance: str | None = None) -> Case:
    """Return a call as a case.

    Parameters
    ----------
    outputs : sequence of str or None
        Formats of the three gradients, None for the format of the tensor that each is the gradient of. Where they
        differ from that and no product is stated, the case is one of emulation: the document lets nobody choose them.
    """
    grad_output, data, weight = (operand.format for operand in inputs)
    mask = attributes.get("output_mask", (True, True, True))
    mask = mask if isinstance(mask, list | tuple) and len(mask) == 3 else (True, True, True)
    chosen = ["" if stated in (None, own) or not asked else stated
              for stated, own, asked in zip(outputs, (data, weight, grad_output), mask, strict=True)]
    if any(chosen):
        attributes, conformance = {**attributes, "output_formats": chosen}, conformance or "emulation"
    return Case(name, OP, dict(zip(INPUTS, inputs, strict=True)), attributes, conformance, dict(fields))
