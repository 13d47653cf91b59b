"""A matrix product of operands that may be transposed first, in nodes that every runtime computes alike."""

from __future__ import annotations

from collections.abc import Sequence

from .builder import ModelBuilder


def matrix_product(builder: ModelBuilder, operands: Sequence[str], transposed: Sequence[bool], output: str | None = None
                   ) -> str:
    """Add the nodes of a product and return its name; `transposed` has no effect on a vector.

    onnxruntime fuses a Transpose into a product with a vector wrongly, so the vector becomes a matrix there.
    """
    ranks = [builder.value(name).rank for name in operands]
    turned = [flag and rank > 1 for flag, rank in zip(transposed, ranks, strict=True)]
    values = [builder.node("Transpose", [name], perm=[*range(rank - 2), rank - 1, rank - 2]) if turn else name
              for name, rank, turn in zip(operands, ranks, turned, strict=True)]
    if 1 not in ranks or not any(turned):
        return builder.node("MatMul", values, output)
    vector = ranks.index(1)
    values[vector] = builder.node("Unsqueeze", [values[vector], builder.integers([vector], "axes")])
    product = builder.node("MatMul", values)
    return builder.node("Squeeze", [product, builder.integers([vector - 2], "axes")], output)
