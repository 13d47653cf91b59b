"""The reader of serialized oneDNN graphs: from a JSON file to checked operations in topological order.

Nothing here knows what an operation computes; `importer` does. Source of the format: the reader and writer of
oneDNN 3.14 (`tests/benchdnn/graph/deserialize.cpp`, `src/graph/interface`) and the files of its tester.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from math import prod
from typing import Any, NamedTuple

from convreg import GraphError
from convreg.files import json_of, reason

from ...onednn_dtypes import DATA_TYPES

UNKNOWN_EXTENTS = (-(2**63), -1)
"""The numbers for an unknown extent in files; the second one is the spelling of very old files."""
MAX_RANK = 12
MEMBERS = {
    "dtype": {*DATA_TYPES, "undef"},
    "layout_type": {"strided", "undef", "any", "opaque"},
    "property_type": {"undef", "variable", "constant", "host_scalar"},
}
"""The allowed words of a tensor; only dtype concerns values."""
FLOAT32_MAX = (2 - 2**-23) * 2.0**127
_TENSOR_KEYS = {"id": int, "dtype": str, "shape": list, "stride": list, "layout_type": str, "property_type": str}


@dataclass(frozen=True, slots=True)
class LogicalTensor:
    """One use of a tensor; equal ids are the same tensor. `shape` holds None for an unknown extent."""

    id: int
    dtype: str
    shape: tuple[int | None, ...]

    @property
    def name(self) -> str:
        """The name that the tensor has in an imported model."""
        return str(self.id)

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape if all its extents are known."""
        return None if None in self.shape else self.shape  # type: ignore[return-value]


class Value(NamedTuple):
    """An attribute's type in the file's words (``"s64[]"`` and the like) and its checked value."""

    type: str
    value: Any


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation."""

    id: int
    name: str
    kind: str
    attributes: dict[str, Value]
    inputs: tuple[LogicalTensor, ...]
    outputs: tuple[LogicalTensor, ...]

    def __str__(self) -> str:
        return f"operation {self.id} ({self.kind})" + (f" {self.name!r}" if self.name else "")


@dataclass(frozen=True, slots=True)
class Graph:
    """Operations in topological order, and the tensors that enter and leave."""

    operations: tuple[Operation, ...]
    inputs: tuple[LogicalTensor, ...]
    outputs: tuple[LogicalTensor, ...]


def graph_of(content: bytes) -> Graph:
    """Return the graph in the content of a file.

    Raises
    ------
    GraphError
        If it is no such graph; the message names the place.
    """
    return _graph(_parsed(content))


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        document = json_of(content)
    except GraphError:
        raise
    except ValueError as error:
        raise GraphError(f"not a JSON document: {reason(error)}") from None
    return _typed(document, dict, "the document")


_KINDS = {dict: "an object", list: "a list", str: "a string", int: "an integer"}


def _typed(value: Any, kind: type, where: str) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise GraphError(f"{where} is {_shown(value)}, not {_KINDS[kind]}")
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise GraphError(f"{where} is {_shown(value)}, which has half a surrogate pair and is not Unicode text")
    return value


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _member(holder: dict[str, Any], key: str, kind: type, where: str) -> Any:
    if key not in holder:
        raise GraphError(f"{where} has no {key!r}")
    return _typed(holder[key], kind, f"{key!r} of {where}")


def _id(value: Any, where: str) -> int:
    if not 0 <= _typed(value, int, where) < 2**64:
        raise GraphError(f"{where} is {_shown(value)}, not an unsigned 64-bit integer")
    return value


def _integer(value: Any, where: str) -> int:
    if not -(2**63) <= _typed(value, int, where) < 2**63:
        raise GraphError(f"{where} is {_shown(value)}, not a 64-bit integer")
    return value


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise GraphError(f"{where} is {_shown(value)}, not a number")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if not abs(number) <= FLOAT32_MAX:
        raise GraphError(f"{where} is not a finite f32 number")
    return number


def _graph(document: dict[str, Any]) -> Graph:
    entries = _member(document, "graph", list, "the document")
    if not entries:
        raise GraphError("'graph' holds no operation")
    operations: dict[int, Operation] = {}
    for position, entry in enumerate(entries):
        operation = _operation(_typed(entry, dict, f"entry {position} of 'graph'"), f"entry {position} of 'graph'")
        if operation.id in operations:
            raise GraphError(f"operation id {operation.id} occurs twice")
        operations[operation.id] = operation
    producers = _producers(operations.values())
    ordered = _ordered(operations, producers)
    tensors = {tensor.id: tensor for operation in ordered for tensor in operation.outputs}
    for operation in ordered:
        for tensor in operation.inputs:
            known = tensors.setdefault(tensor.id, tensor)
            if known.dtype != tensor.dtype:
                raise GraphError(f"tensor {tensor.id} is {known.dtype} in one place and {tensor.dtype} in {operation}")
    # Uses of a tensor differ in some files: the producer is right, or the first use of what enters the graph.
    ordered = [replace(operation, inputs=tuple(_settled(tensors[tensor.id], tensor) for tensor in operation.inputs))
               for operation in ordered]
    consumed = {tensor.id for operation in ordered for tensor in operation.inputs}
    free = [name for name in tensors if name not in producers]
    listed_inputs, listed_outputs = (_ports(document, key) for key in ("input_ports", "output_ports"))
    # Ports order the inputs; they are wrong about the set in some files, so the edges decide that.
    inputs = [name for name in listed_inputs if name in free]
    outputs = [name for name in listed_outputs if name in producers]
    inputs += [name for name in free if name not in inputs]
    outputs += [name for name in producers if name not in consumed and name not in outputs]
    return Graph(tuple(ordered), tuple(tensors[name] for name in inputs), tuple(tensors[name] for name in outputs))


def _settled(known: LogicalTensor, used: LogicalTensor) -> LogicalTensor:
    """The description of a tensor that decides: `known`, unless it leaves extents open."""
    return used if known.static_shape is None else known


def _producers(operations: Iterable[Operation]) -> dict[int, int]:
    producers: dict[int, int] = {}
    for operation in operations:
        for tensor in operation.outputs:
            if tensor.id in producers:
                raise GraphError(f"tensor {tensor.id} is produced twice, by operations {producers[tensor.id]} and "
                                 f"{operation.id}")
            producers[tensor.id] = operation.id
    return producers


def _ordered(operations: dict[int, Operation], producers: dict[int, int]) -> list[Operation]:
    sorter = TopologicalSorter({
        operation.id: [producers[tensor.id] for tensor in operation.inputs if tensor.id in producers]
        for operation in operations.values()
    })
    try:
        return [operations[name] for name in sorter.static_order()]
    except CycleError as error:
        raise GraphError(f"operations {', '.join(map(str, error.args[1]))} form a cycle") from None


def _ports(document: dict[str, Any], key: str) -> list[int]:
    if key not in document:
        return []
    entries = _typed(document[key], list, repr(key))
    return list(dict.fromkeys(_id(entry, f"an entry of {key!r}") for entry in entries))


def _operation(entry: dict[str, Any], where: str) -> Operation:
    number = _id(_member(entry, "id", int, where), f"'id' of {where}")
    kind = _member(entry, "kind", str, where)
    where = f"operation {number} ({kind})"
    attributes = _typed(entry.get("attrs", {}), dict, f"'attrs' of {where}")
    return Operation(
        number, _typed(entry.get("name", ""), str, f"'name' of {where}"), kind,
        {name: _attribute(value, f"attribute {name!r} of {where}") for name, value in attributes.items()},
        _tensors(entry, "input", where), _tensors(entry, "output", where))


def _tensors(entry: dict[str, Any], side: str, where: str) -> tuple[LogicalTensor, ...]:
    listed = _member(entry, f"{side}s", list, where)
    return tuple(_tensor(tensor, f"{side} {index} of {where}") for index, tensor in enumerate(listed))


def _attribute(entry: Any, where: str) -> Value:
    kind = _member(_typed(entry, dict, where), "type", str, where)
    if "value" not in entry:
        raise GraphError(f"{where} has no 'value'")
    return Value(kind, _attribute_value(kind, entry["value"], where))


def _attribute_value(kind: str, value: Any, where: str) -> Any:
    match kind:
        case "string":
            return _typed(value, str, where)
        case "bool":
            if value not in (0, 1) or isinstance(value, float):
                raise GraphError(f"{where} is {_shown(value)}, not 0 or 1")
            return bool(value)
        case "s64":
            return _integer(value, where)
        case "f32":
            return _number(value, where)
        case "s64[]":
            return [_integer(item, f"an entry of {where}") for item in _typed(value, list, where)]
        case "f32[]":
            return [_number(item, f"an entry of {where}") for item in _typed(value, list, where)]
    raise GraphError(f"{where} has the unknown type {kind!r}")


def _tensor(entry: Any, where: str) -> LogicalTensor:
    _typed(entry, dict, where)
    members = {key: _member(entry, key, kind, where) for key, kind in _TENSOR_KEYS.items()}
    number = _id(members["id"], f"'id' of {where}")
    where = f"{where}, tensor {number},"
    for key, allowed in MEMBERS.items():
        if members[key] not in allowed:
            raise GraphError(f"{where} has the unknown {key} {_shown(members[key])}")
    for stride in members["stride"]:
        _integer(stride, f"an entry of 'stride' of {where}")
    shape = [_extent(extent, where) for extent in members["shape"]]
    if len(shape) > MAX_RANK:
        raise GraphError(f"{where} has {len(shape)} axes; the library's limit is {MAX_RANK}")
    if prod(extent or 1 for extent in shape) >= 2**62:
        raise GraphError(f"{where} has more elements than 64-bit positions can reach: {_shown(members['shape'])}")
    return LogicalTensor(number, members["dtype"], tuple(shape))


def _extent(value: Any, where: str) -> int | None:
    extent = _integer(value, f"an extent of {where}")
    if extent in UNKNOWN_EXTENTS:
        return None
    if extent < 0:
        raise GraphError(f"{where} has the negative extent {extent}")
    return extent
