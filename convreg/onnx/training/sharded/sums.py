"""Sums over the samples of a batch: gradients of weights and biases, and sums per channel, by the trees of the kernels.

`convreg.distributed.partial` sums some pieces of one, `join` adds these in the tree's order. The result has the bits of
one call on the whole batch, whatever the shards are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import NodeProto

from .... import registry
from ....distributed import Partial, Reduction, join, partial, reductions
from ....memory import Array
from ....roles import OPERANDS
from ....spec import snake_case
from ... import payload
from ...graph import attributes_of, place
from .separable import reduced_axes
from .specialised import Extents, Known

CHANNELS = "aten::convolution_backward"
"""The operator whose bias gradient is a sum over everything but the channels."""

MOST_AXES = 5


@dataclass(frozen=True)
class StandIn:
    """An operand of which only the shape and the element type matter; `batched` says whether axis 0 is the batch."""

    shape: Extents
    dtype: np.dtype[Any]
    batched: bool = False

    def array(self, samples: int) -> Array:
        """Return zeros without memory, for so many samples."""
        shape = (samples, *self.shape[1:]) if self.batched else self.shape
        return np.broadcast_to(np.zeros((), self.dtype), shape)


@dataclass(frozen=True)
class Rows:
    """An operand of which a partial sum needs some samples."""

    name: str
    like: StandIn


@dataclass(frozen=True)
class Mean:
    """A value that is averaged over shards, weighted by their samples: ``sum(samples / batch * part)`` in their order.

    Attributes
    ----------
    result : str
    what : str
        Words for messages.
    samples : tuple of int
        Of each shard.
    bytes : int
    """

    result: str
    what: str
    samples: tuple[int, ...]
    bytes: int

    def whole(self, parts: Sequence[Any], threads: int | None) -> Array:
        """Average the parts in their own element type."""
        batch = sum(self.samples)
        total: Array | None = None
        for part, samples in zip(parts, self.samples, strict=True):
            term = np.asarray(part) * np.asarray(samples / batch, part.dtype)
            total = term if total is None else total + term
        assert total is not None
        return total


@dataclass(frozen=True)
class Total:
    """One sum over the samples.

    Attributes
    ----------
    result : str
        The value that it is.
    what : str
        Words for messages.
    operator, of : str
        The operator, and its result that is the sum.
    operands : tuple
        `Rows`, `StandIn`, arrays and None, in the operator's order.
    attributes : dict
    batch : int
    divisor : int
        What the sum is divided by.
    shape : tuple
        Of the result.
    cut : Reduction
        The pieces.
    """

    result: str
    what: str
    operator: str
    of: str
    operands: tuple[Any, ...]
    attributes: Mapping[str, Any]
    batch: int
    divisor: int
    shape: Extents
    cut: Reduction = field(repr=False)

    @property
    def bytes(self) -> int:
        """Of a partial sum."""
        return self.cut.bytes

    @property
    def reads(self) -> list[str]:
        """The values whose rows are summed."""
        return list(dict.fromkeys(operand.name for operand in self.operands if isinstance(operand, Rows)))

    def part(self, rows: Mapping[str, Array], pieces: range, threads: int | None) -> Partial:
        """Sum some pieces; `rows` are the samples that they need, ``cut.samples(pieces)``."""
        samples = self.cut.samples(pieces)
        operands = [rows[operand.name] if isinstance(operand, Rows) else
                    operand.array(len(samples)) if isinstance(operand, StandIn) else operand
                    for operand in self.operands]
        return partial(self.operator, *operands, pieces=pieces, of=self.of, batch=self.batch, start=samples.start,
                       threads=threads, **self.attributes)

    def whole(self, parts: Sequence[Partial], threads: int | None) -> Array:
        """Add the partial sums of all pieces."""
        made = join(parts, threads=threads)
        if self.divisor != 1:
            made = made / np.asarray(self.divisor, made.dtype)
        return made.reshape(self.shape)


Summed = Total | Mean
"""A value that is joined from what shards make."""


def gradient_total(known: Known, node: NodeProto) -> Total | None:
    """Return the gradient of weights or of a bias that a node of ours makes alone, None for any other node."""
    operator = registry.find_node(node.domain, node.op_type)
    if operator is None or not operator.spec.convolves:
        return None
    spec = operator.spec
    made = [(port, name) for port, name in zip(spec.outputs, node.output, strict=False) if name]
    attributes = attributes_of(node)
    if len(made) != 1 or made[0][0].role not in ("grad_weight", "grad_bias") or payload.ATTRIBUTE in attributes:
        return None
    operands: list[Any] = []
    for port, name in zip(spec.inputs, node.input, strict=False):
        shape, dtype = known.shape(name) if name else None, known.dtype(name) if name else None
        if not name:
            operands.append(None)
        elif port.shape and known.value(name) is not None:
            operands.append(known.value(name))
        elif port.role not in OPERANDS or shape is None or dtype is None:
            return None
        elif port.role == "weight":
            operands.append(StandIn(shape, dtype))
        elif port.role == "data" and made[0][0].role == "grad_bias":
            operands.append(StandIn(shape, dtype, batched=True))
        elif known.rows.get(name) == 1:
            operands.append(Rows(name, StandIn(shape, dtype, batched=True)))
        else:
            return None
    while operands and operands[-1] is None:
        operands.pop()
    attributes = {snake_case(name): value for name, value in attributes.items()}
    shape = known.shape(made[0][1])
    if shape is None or not any(isinstance(operand, Rows) for operand in operands):
        return None
    return _total(known, made[0][1], place(node), spec.qualified_name, made[0][0].name, operands, attributes, 1, shape)


def channel_total(known: Known, node: NodeProto) -> Total | None:
    """Return the sum or mean over samples and space that a node makes, None for any other node."""
    if node.domain != "" or node.op_type not in ("ReduceMean", "ReduceSum"):
        return None
    name = node.input[0]
    shape, made = known.shape(name), known.shape(node.output[0])
    if known.rows.get(name) != 1 or shape is None or made is None or not 3 <= len(shape) <= MOST_AXES or 0 in shape:
        return None
    dtype, space = known.dtype(name), len(shape) - 2
    if dtype not in (np.float32, np.float64) or reduced_axes(known, node) != (0, *range(2, len(shape))):
        return None
    assert dtype is not None
    like = StandIn(shape, dtype, batched=True)
    operands = [Rows(name, like), like, StandIn((shape[1], 1, *[1] * space), dtype)]
    attributes = {"bias_sizes": [shape[1]], "stride": [1] * space, "padding": [0] * space, "dilation": [1] * space,
                  "transposed": False, "output_padding": [0] * space, "groups": shape[1],
                  "output_mask": [False, False, True]}
    divisor = int(np.prod(shape, dtype=np.int64)) // shape[1] if node.op_type == "ReduceMean" else 1
    return _total(known, node.output[0], place(node), CHANNELS, "grad_bias", operands, attributes, divisor, made)


def _total(
    known: Known, result: str, what: str, operator: str, of: str, operands: list[Any], attributes: dict[str, Any],
    divisor: int, shape: Extents,
) -> Total:
    arrays = [operand.like.array(known.batch) if isinstance(operand, Rows) else
              operand.array(known.batch) if isinstance(operand, StandIn) else operand for operand in operands]
    cut = reductions(operator, *arrays, **attributes)[of]
    return Total(result, what, operator, of, tuple(operands), attributes, known.batch, divisor, shape, cut)
