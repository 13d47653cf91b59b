"""Which nodes with windows are divided by samples: poolings with their gradients, and convreg's operators by roles."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto

from .... import registry
from ....roles import OPERANDS, SHAPES
from ...graph import attributes_of
from .specialised import Known
from .splits import Change, Split


def max_pool(known: Known, node: NodeProto) -> Split | None:
    """Windows of a sample; the places of the maxima count from the shard's first element, which only scatters take."""
    shape = known.shape(node.input[0])
    if shape is None or known.shape(node.output[0]) is None:
        return None
    if len(node.output) > 1 and node.output[1] not in known.unread and not _scattered(known, node, int(np.prod(shape))):
        return None
    return Split((True,), tuple(name for name in node.output if name))


def _scattered(known: Known, node: NodeProto, elements: int) -> bool:
    """Whether the places of a MaxPool serve only to scatter into as many elements as it read, in one row."""
    waiting = [node.output[1]]
    while waiting:
        name = waiting.pop()
        if name in known.outputs or not known.per_sample(name):
            return False
        for reader in known.readers.get(name, ()):
            if reader.op_type == "Reshape" and reader.input[0] == name and known.value(reader.input[1]) is not None:
                waiting.append(reader.output[0])
            elif not (reader.op_type == "ScatterElements" and list(reader.input).index(name) == 1
                      and attributes_of(reader).get("axis", 0) == 0 and known.shape(reader.input[0]) == (elements,)
                      and known.per_sample(reader.input[2])):
                return False
    return True


def mark_places(known: Known, node: NodeProto) -> None:
    """Note which values of a divided node are places in a shard's own elements."""
    if node.op_type == "MaxPool" and len(node.output) > 1 and node.output[1]:
        shape = known.shape(node.input[0])
        assert shape is not None
        known.local[node.output[1]] = int(np.prod(shape)) // known.batch
    elif node.op_type == "Reshape" and node.input[0] in known.local:
        known.local[node.output[0]] = known.local[node.input[0]]


def scatter_elements(known: Known, node: NodeProto) -> Split | None:
    """Elements of the same rows along another axis, or a shard's own elements."""
    shapes = [known.shape(name) for name in node.input]
    if not all(shapes):
        return None
    axis = attributes_of(node).get("axis", 0)
    if axis % len(shapes[0] or (0,)) == 0:
        if node.input[1] not in known.local or known.local[node.input[1]] != known.per_sample(node.input[0]):
            return None
    elif len({shape[0] for shape in shapes if shape}) > 1:
        return None
    return Split((True, True, True), tuple(node.output))


def ours(known: Known, node: NodeProto) -> Split | None:
    """A data gradient or a convolution by the roles of its ports; a conversion of number formats."""
    operator = registry.find_node(node.domain, node.op_type)
    if operator is None:
        return None
    spec = operator.spec
    if "number" in spec.roles:
        return _conversion(known, node)
    if not spec.convolves:
        return None
    made = [(port.role, name) for port, name in zip(spec.outputs, node.output, strict=False) if name]
    if [role for role, _ in made] != ["grad_data"]:
        return None
    reads, constants, attributes = [], {}, dict[str, Any]()
    for place, (port, name) in enumerate(zip(spec.inputs, node.input, strict=False)):
        if port.role not in (*OPERANDS, *SHAPES) and name and known.shape(name) not in ((), (1,)):
            return None  # a scale may have one number per channel, of any axis
        reads.append(bool(name) and port.role in ("grad_output", "data"))
        if port.role == "data_shape" and name:
            stated = known.value(name)
            if stated is None:
                return None
            constants[place] = stated
    for port in spec.inputs:
        stated = attributes_of(node).get(port.name)
        if port.role == "data_shape" and stated is not None:
            attributes[port.name] = list(stated)

    def change(samples: int) -> Change:
        return Change({name: [samples, *stated[1:]] for name, stated in attributes.items()},
                      {place: np.array([samples, *stated[1:]], stated.dtype) for place, stated in constants.items()})

    return Split(tuple(reads), (made[0][1],), change)


def _conversion(known: Known, node: NodeProto) -> Split | None:
    """Numbers are converted one by one; scales are one number for all."""
    for name in node.input[1:]:
        if name and known.shape(name) not in ((), (1,)):
            return None
    return Split(tuple(index == 0 for index in range(len(node.input))), tuple(node.output))
