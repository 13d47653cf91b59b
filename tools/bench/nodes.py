"""The differences between the timed calls of a model's layers and its nodes, one sentence per difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .check import FORMAT_NAMES, RESULTS
from .problems import Node, Problem

NAMES = {full: name for name, full in FORMAT_NAMES.items()}
"""A number format's name in the records, and here."""
LAYOUTS = {"ncx": ("NCX", "OIX"), "nxc": ("NXC", "XIO")}
"""The orders of data and weights in each layout that is timed."""
MOST_NAMES = 5


def dtype_of(node: Node) -> str | None:
    """Return the number format that a node computes in, None if that is not timed."""
    return NAMES.get(node.operands[0]) if len(node.operands) == 1 else None


def results_of(problem: Problem, dtype: str) -> tuple[str, ...]:
    """Return the formats in which results are timed: for a model's node its own, if it is one of them."""
    own = NAMES.get(problem.node.result) if problem.node is not None else None
    return (own,) if own is not None and own in RESULTS[dtype] else RESULTS[dtype]


def differences(problems: Iterable[Problem], dtypes: Sequence[str] | None, layouts: Sequence[str]) -> list[str]:
    """Return what is timed differently from the nodes or not at all, with the names of the layers.

    Parameters
    ----------
    problems : iterable of Problem
        Those that are timed.
    dtypes : sequence of str, optional
        The number formats that the caller chose; by default each layer's own.
    layouts : sequence of str
    """
    names: dict[str, dict[str, None]] = {}
    for problem in problems:
        if problem.node is not None:
            for sentence in _differences(problem.node, dtypes or [problem.dtype or "f32"], layouts):
                names.setdefault(sentence, {})[problem.name] = None
    return [f"{sentence}: {listed([*found])}" for sentence, found in names.items()]


def _differences(node: Node, dtypes: Sequence[str], layouts: Sequence[str]) -> Iterator[str]:
    own = dtype_of(node)
    if own is None or own not in dtypes:
        computes = " and ".join(node.operands)
        yield (f"the model computes in {computes}, timed in {', '.join(dtypes)}"
               + ("" if own else ", because that format cannot be timed"))
    elif NAMES.get(node.result) not in RESULTS[own]:
        yield f"the model has results in {node.result}, timed with results in {' and in '.join(RESULTS[own])}"
    if node.layouts not in [LAYOUTS[layout] for layout in layouts]:
        data, weights = node.layouts
        yield f"the model has data in {data} and weights in {weights}, timed in layout {', '.join(layouts)}"
    for thing in node.extras:
        yield f"the model has {thing}; the timed call has none"


def listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
