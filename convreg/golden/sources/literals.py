"""Cells of TTK's tables: Python literals, read without running anything."""

from __future__ import annotations

import ast
import warnings
from typing import Any

from ...errors import shorten

LONGEST, DEEPEST = 100_000, 16
"""The most characters and the deepest nesting of a cell."""
CLOSING = {"(": ")", "[": "]", "{": "}"}


def literal(text: str) -> Any:
    """Return the value of a cell: numbers, strings, booleans and None in tuples, lists and dictionaries.

    The tables' own reader evaluates cells, so ``inf``, ``nan`` and ``float("inf")`` occur too.

    Raises
    ------
    ValueError
        If it is something else, or too large.
    """
    if len(text) > LONGEST:
        raise ValueError(f"{len(text)} characters, and at most {LONGEST} are read")
    if _depth(text) > DEEPEST:
        raise ValueError(f"brackets are nested more than {DEEPEST} deep")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # escapes in strings
            tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ValueError(f"{shorten(text)} is no Python literal") from None
    try:
        return _value(tree.body)
    except (OverflowError, RecursionError):  # an integer beyond all floats; operators nest without brackets
        raise ValueError(f"{shorten(text)} holds a number that is too large, or is nested too deep") from None


def _depth(text: str) -> int:
    """Return a bound of the nesting, so that the parser and `_value` cannot exhaust the stack."""
    deepest = depth = signs = 0
    for character in text:
        depth += (character in CLOSING) - (character in CLOSING.values())
        signs = signs + 1 if character in "+-~" else signs if character == " " else 0
        deepest = max(deepest, depth, signs)
    return deepest


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | None):
        return node.value
    if isinstance(node, ast.Tuple):
        return tuple(map(_value, node.elts))
    if isinstance(node, ast.List):
        return list(map(_value, node.elts))
    if isinstance(node, ast.Dict):
        return {_key(key): _value(value) for key, value in zip(node.keys, node.values, strict=True)}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        number = _value(node.operand)
        if isinstance(number, int | float) and not isinstance(number, bool):
            return -number if isinstance(node.op, ast.USub) else number
    if isinstance(node, ast.Name) and node.id in ("inf", "nan"):
        return float(node.id)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "float" and len(node.args) == 1 and not node.keywords:
        argument = node.args[0]
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str | int | float):
            return float(argument.value)
    raise ValueError(f"{shorten(ast.unparse(node))} is no number, string, tuple, list or dictionary")


def _key(node: ast.expr | None) -> str:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        raise ValueError("a dictionary has a key that is no string")
    return node.value
