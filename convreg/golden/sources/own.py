"""convreg's own file of cases: JSON that every case can be written to and read from.

    {"format": "convreg golden cases", "version": 1, "cases": [
      {"name": "layer 1", "op": "onednn::ConvolutionBackwardData", "conformance": "library",
       "inputs": {"diff_dst": {"shape": [2, 4, 6, 6], "format": "bfloat16", "range": [-1, 1], "occurring": ["inf", 0]},
                  "weights": {"shape": [4, 3, 3, 3], "format": "bfloat16"}},
       "attributes": {"dst_shape": [2, 3, 8, 8], "strides": [1, 1], "pads_begin": [0, 0], "pads_end": [0, 0],
                      "dilations": [1, 1], "data_format": "NCX", "weights_format": "OIX"}}]}

`op`, `inputs` and `attributes` are required, in the names of the operator's Python function. An input has a `shape` and
a `format`; `range` is the closed range of its values, `occurring` lists values that must occur. `values`, a flat list
in C order, or `bytes`, the base64 text of the same in little-endian order, give the values themselves. Numbers that
JSON lacks are the strings "nan", "inf" and "-inf". `fields` keeps what another source says of the case.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite, prod
from typing import Any

import numpy as np

from ... import registry
from ...calls.signature import signature_of
from ...conversion import dequantize, quantize
from ...errors import GraphError, UnknownOp, near_misses, shorten
from ...files import PathLike, write_atomically
from ...formats import FORMATS
from ...guard import guarded
from ...memory import Array
from ...spec import snake_case
from ..calling import OTHER_ARGUMENTS
from ..data import INTEGERS
from ..record import Case, Operand, checked
from .ascend import shape_of

FORMAT, VERSION = "convreg golden cases", 1
KEYS = ("name", "op", "conformance", "inputs", "attributes", "fields")
OPERAND_KEYS = ("shape", "format", "range", "occurring", "values", "bytes")
LISTED = 64
"""Values of inputs up to this many elements are written as numbers."""


def is_table(document: Any) -> bool:
    """Whether a JSON document is such a file."""
    return isinstance(document, dict) and document.get("format") == FORMAT


def of_table(document: dict[str, Any], file: str) -> Iterator[Case]:
    """Yield the cases of a file."""
    if document.get("version") != VERSION or not isinstance(document.get("cases"), list):
        raise GraphError(f"{file}: version {shorten(document.get('version'))} of {FORMAT!r} is not known, or 'cases' "
                         f"is no list; needed: version {VERSION} with a list of cases")
    for number, entry in enumerate(document["cases"]):
        yield _case(entry, f"{file}, case {number}")


@guarded("convreg::golden")
def write_cases(cases: Iterable[Case], path: PathLike) -> None:
    """Write cases to convreg's own JSON file, which `cases` reads again.

    Parameters
    ----------
    cases : iterable of Case
    path : path-like

    Raises
    ------
    OpTypeError
        If `cases` has something else.
    GraphError
        If an attribute has no JSON form, or the file cannot be written.
    """
    lines = ",\n".join(json.dumps(_written(case), allow_nan=False) for case in checked("cases", cases, Case))
    text = f'{{"format": {json.dumps(FORMAT)}, "version": {VERSION}, "cases": [\n{lines}\n]}}\n'
    write_atomically(path, lambda file: file.write(text.encode()))


def _case(entry: Any, where: str) -> Case:
    if not isinstance(entry, dict):
        raise GraphError(f"{where} is {shorten(entry)}; needed: an object")
    _check_keys(entry, KEYS, where)
    name = entry.get("name", "")
    if not isinstance(name, str):
        raise GraphError(f"{where}: 'name' is {shorten(name)}; needed: a string")
    where = f"{where} ({shorten(name)})" if name else where
    try:
        spec = registry.get(entry.get("op", "")).spec
    except UnknownOp as error:
        raise GraphError(f"{where}: {error}") from None
    conformance = entry.get("conformance")
    if conformance is not None and conformance not in spec.conformances:
        raise GraphError(f"{where}: conformance {shorten(conformance)} is refused; needed: "
                         f"{' or '.join(spec.conformances)}")
    inputs, attributes = (_object(entry.get(key), key, where) for key in ("inputs", "attributes"))
    fields = _object(entry.get("fields", {}), "fields", where)
    ports = [snake_case(port.name) for port in spec.vendor_inputs]
    _check_keys(inputs, ports, f"{where}, inputs")
    _check_keys(attributes, [argument for argument in signature_of(spec).parameters if argument not in OTHER_ARGUMENTS],
                f"{where}, attributes")
    if not all(isinstance(value, str) for value in fields.values()):
        raise GraphError(f"{where}: 'fields' holds a value that is no string; needed: strings")
    operands = {port: _operand(inputs[port], f"{where}, input {port!r}") for port in ports if port in inputs}
    return Case(name, spec.qualified_name, operands, attributes, conformance, fields)


def _object(value: Any, key: str, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise GraphError(f"{where}: {key!r} is {shorten(value)}; needed: an object")
    return value


def _operand(entry: Any, where: str) -> Operand:
    if not isinstance(entry, dict):
        raise GraphError(f"{where} is {shorten(entry)}; needed: an object")
    _check_keys(entry, OPERAND_KEYS, where)
    shape, format = shape_of(entry.get("shape"), where), entry.get("format")
    if format not in (*FORMATS, *INTEGERS):
        raise GraphError(f"{where}: format {shorten(format)} is refused; needed: {', '.join((*FORMATS, *INTEGERS))}")
    low, high = _numbers(entry.get("range", [None, None]), where, allow_none=True, count=2)
    occurring = _numbers(entry.get("occurring", []), where)
    if low is not None and high is not None and not low <= high:
        raise GraphError(f"{where}: the range {shorten(entry['range'])} holds no value; needed: a least value that "
                         "does not exceed the greatest one")
    return Operand(shape, format, low, high, tuple(occurring), _values(entry, shape, format, where))


def _values(entry: dict[str, Any], shape: tuple[int, ...], format: str, where: str) -> Array | None:
    known = FORMATS.get(format)
    stored = (known.storage if known else np.dtype(format)).newbyteorder("<")
    if "bytes" in entry and "values" in entry:
        raise GraphError(f"{where} has 'values' and 'bytes'; needed: one of the two")
    if "bytes" in entry:
        try:
            content = base64.b64decode(entry["bytes"], validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise GraphError(f"{where}: 'bytes' is {shorten(entry['bytes'])}; needed: base64 text") from None
        if len(content) != prod(shape) * stored.itemsize:
            raise GraphError(f"{where}: 'bytes' holds {len(content)} bytes; needed: {prod(shape) * stored.itemsize}")
        array = np.frombuffer(content, stored).astype(stored.newbyteorder("=")).reshape(shape)
        return array.view(known.dtype) if known else array
    if "values" not in entry:
        return None
    numbers = _numbers(entry["values"], where, count=prod(shape))
    if known is None:
        if any(not float(number).is_integer() or abs(number) > np.iinfo(stored).max for number in numbers):
            raise GraphError(f"{where}: 'values' holds a number that is not in {format}; needed: integers")
        return np.array([int(number) for number in numbers], format).reshape(shape)
    return _exact(np.array(numbers, np.float64).reshape(shape), format, where)


def _exact(numbers: Array, format: str, where: str) -> Array:
    """Return numbers in a format that has all of them."""
    with np.errstate(over="ignore"):
        array = numbers if format == "float64" else quantize(numbers.astype(np.float32), format)
    back = dequantize(array, dtype=np.float64)
    wrong = ~((back == numbers) | (np.isnan(back) & np.isnan(numbers)))
    if wrong.any():
        raise GraphError(f"{where}: the value {float(numbers[wrong][0])} is not in {format}; needed: values of the "
                         "format")
    return array


def _numbers(value: Any, where: str, *, allow_none: bool = False, count: int | None = None) -> list[Any]:
    """Return a list of numbers, which may be spelled as strings where JSON has none."""
    words = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
    if not isinstance(value, list) or (count is not None and len(value) != count):
        has = f"{len(value)} entries" if isinstance(value, list) else shorten(value)
        raise GraphError(f"{where} has {has}; needed: a list of {'numbers' if count is None else f'{count} numbers'}")
    found: list[Any] = []
    for number in value:
        if isinstance(number, str) and number in words:
            found.append(words[number])
        elif (number is None and allow_none) or isinstance(number, float) or (
                type(number) is int and abs(number) < 2**63):
            found.append(number)
        else:
            raise GraphError(f"{where}: {shorten(number)} is no number; needed: numbers, or 'nan', 'inf' and '-inf'")
    return found


def _check_keys(entry: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    known = list(known)
    for key in entry:
        if key not in known:
            near = near_misses(key, known)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise GraphError(f"{where}: key {shorten(key)} is refused{hint}; needed: {', '.join(known)}")


def _written(case: Case) -> dict[str, Any]:
    """Return a case as JSON has it."""
    entry: dict[str, Any] = {"name": case.name, "op": case.op}
    if case.conformance is not None:
        entry["conformance"] = case.conformance
    entry["inputs"] = {name: _written_operand(operand) for name, operand in case.inputs.items()}
    entry["attributes"] = {name: _plain(value, name) for name, value in case.attributes.items()}
    return entry | ({"fields": dict(case.fields)} if case.fields else {})


def _written_operand(operand: Operand) -> dict[str, Any]:
    entry: dict[str, Any] = {"shape": list(operand.shape), "format": operand.format}
    if operand.low is not None or operand.high is not None:
        entry["range"] = [None if end is None else _number(end) for end in (operand.low, operand.high)]
    if operand.occurring:
        entry["occurring"] = [_number(number) for number in operand.occurring]
    if operand.values is not None:
        known = FORMATS.get(operand.format)
        flat = np.ascontiguousarray(operand.values).reshape(-1)
        numbers = dequantize(flat, dtype=np.float64) if known else flat
        if flat.size > LISTED or np.isnan(numbers).any():  # NaN has codes that its name does not tell
            codes = flat.view(known.storage) if known else flat
            entry["bytes"] = base64.b64encode(codes.astype(codes.dtype.newbyteorder("<")).tobytes()).decode()
        else:
            entry["values"] = [_number(number) for number in numbers.tolist()]
    return entry


def _number(value: float) -> float | str:
    return value if isfinite(value) else str(float(value))


def _plain(value: Any, name: str) -> Any:
    """Return an attribute as JSON has it."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(entry, name) for entry in value]
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and isfinite(value)):
        return value
    raise GraphError(f"attribute {name!r} is {shorten(value)}; needed: what JSON has")
