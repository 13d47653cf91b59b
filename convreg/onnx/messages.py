"""Every message inside a model, wherever the definitions of ONNX let one stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onnx import TensorProto

from ..errors import GraphError
from .limits import NESTING

Message = Any
"""Any message of protobuf, whose own base class has no types."""


def messages_of(root: Message) -> Iterator[Message]:
    """Yield a message and all messages inside it, at any depth.

    The fields come from the messages themselves, so that no place is forgotten: attributes of every kind, defaults of
    functions, sparse tensors, subgraphs and training graphs are all found.

    Raises
    ------
    GraphError
        If messages are nested deeper than files can hold: protobuf would exhaust the stack when it copies them.
    """
    waiting: list[tuple[Message, int]] = [(root, 0)]
    while waiting:
        message, depth = waiting.pop()
        if depth > NESTING:
            raise GraphError(f"messages are nested more than {NESTING} levels deep")
        yield message
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                inner = [value] if hasattr(value, "ListFields") else value
                waiting.extend((entry, depth + 1) for entry in inner)


def tensors_of(root: Message) -> Iterator[TensorProto]:
    """Yield every tensor inside a message."""
    return (message for message in messages_of(root) if isinstance(message, TensorProto))


def has_broken_text(message: Message) -> bool:
    """Whether a string of the message itself is not UTF-8: protobuf then hands out bytes, which nobody expects."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            values: Any = [value] if isinstance(value, str | bytes) else value
            if any(isinstance(entry, bytes) for entry in values):
                return True
    return False
