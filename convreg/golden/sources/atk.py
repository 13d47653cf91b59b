"""Tables of ATK, which are JSON files, as cases of Ascend's operator.

A table is a list of calls. A call's `inputs` are objects in the order of the arguments; an argument that is an array
has a list of objects, one an element. Source: ops-nn, conv/convolution_backward/tests/st.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...errors import GraphError, shorten
from ..record import Case
from .ascend import attributes_of, backward, check_data_formats, format_named, ranged, shape_of

API = "ConvolutionBackward"
TENSORS = ("gradOutput", "input", "weight")


def is_table(document: Any) -> bool:
    """Whether a JSON document is a table of ATK."""
    return isinstance(document, list) and bool(document) and isinstance(document[0], dict) and (
        {"aclnn_name", "inputs"} <= document[0].keys())


def of_table(document: list[Any], file: str) -> Iterator[Case]:
    """Yield the cases of a table."""
    for number, entry in enumerate(document):
        yield _case(entry, f"{file}, case {number}")


def _case(entry: Any, where: str) -> Case:
    if not isinstance(entry, dict):
        raise GraphError(f"{where} is {shorten(entry)}; needed: an object")
    api, number = entry.get("aclnn_name"), entry.get("id")
    if type(number) is int:
        where = f"{where} (id {number})"
    if api != API:
        raise GraphError(f"{where}: no operator here computes aclnn_name {shorten(api)}; needed: {API!r}")
    tensors, attributes, layout = _arguments(entry.get("inputs"), where)
    missing = [name for name in TENSORS if name not in tensors]
    if missing:
        raise GraphError(f"{where} has no tensor {' and no '.join(map(repr, missing))}; needed: {', '.join(TENSORS)}")
    operands = [ranged(shape_of(tensors[name].get("shape"), f"{where}, {name}"),
                       format_named(tensors[name].get("dtype"), f"{where}, {name}"),
                       tensors[name].get("range_values"), f"{where}, {name}") for name in TENSORS]
    if layout is not None:
        check_data_formats([layout] * 3, [operand.shape for operand in operands], where)
    fields = {key: str(entry[key]) for key in ("id", "name", "aclnn_name", "api_type") if key in entry}
    return backward(f"aclnn{API}-{number}" if type(number) is int else f"aclnn{API}", operands,
                    attributes_of(attributes, where), (None,) * 3, fields)


def _arguments(inputs: Any, where: str) -> tuple[dict[str, dict[str, Any]], dict[str, Any], Any]:
    """Return the objects of the tensors and the values of the attributes by name, and the order of axes."""
    if not isinstance(inputs, list):
        raise GraphError(f"{where}: 'inputs' is {shorten(inputs)}; needed: a list of objects and of lists of objects")
    tensors: dict[str, dict[str, Any]] = {}
    attributes: dict[str, Any] = {}
    for place, argument in enumerate(inputs):
        elements = argument if isinstance(argument, list) else [argument]
        here = f"{where}, input {place}"
        if not all(isinstance(element, dict) and isinstance(element.get("name"), str) for element in elements):
            raise GraphError(f"{here} is {shorten(argument)}; needed: objects with a name")
        names = {element["name"] for element in elements}
        if len(names) != 1:
            raise GraphError(f"{here} has {len(names)} names; needed: one array argument, not empty")
        name = names.pop()
        kinds = [element.get("type") for element in elements]
        if name in tensors or name in attributes:
            raise GraphError(f"{here}: {name!r} occurs twice; needed: every argument once")
        if any(element.get("outlier_values") for element in elements):
            raise GraphError(f"{here} ({name}) has outlier_values, whose meaning is not documented; needed: null")
        if kinds == ["tensor"] and isinstance(argument, dict):
            tensors[name] = argument
        elif kinds == ["attr"] and isinstance(argument, dict):
            attributes[name] = argument.get("range_values")
        elif all(kind == "attrs" for kind in kinds):
            attributes[name] = [element.get("range_values") for element in elements]
        else:
            raise GraphError(f"{here} ({name}) has the type {shorten(kinds)}; needed: tensor, attr, "
                             "or attrs in a list")
    return tensors, attributes, attributes.pop("format", None)
