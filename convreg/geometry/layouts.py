"""Calls that fail because an attribute names another order of axes than the tensors have: the commonest mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from ..errors import OpError
from ..spec import Call

ORDERS = ("data_format", "weights_format", "filter_format")
"""The attributes that name an order of axes, under any vendor's name."""


def with_hint(call: Call, error: OpError, plan: Callable[[Call], Any]) -> OpError:
    """Return the error of a refused call, with the order of axes that would fit the shapes, if there is one.

    Parameters
    ----------
    call : Call
        The refused one.
    error : OpError
        What refused it.
    plan : callable
        Raises `OpError` for a call that is not legal.
    """
    for changed in _other_orders(call):
        attributes = tuple((name, changed.get(name, value)) for name, value in call.attributes)
        try:
            plan(replace(call, attributes=attributes, given=call.given | changed.keys()))
        except OpError:
            continue
        return _hinted(call, error, changed)
    return error


def _other_orders(call: Call) -> Iterator[dict[str, str]]:
    """Yield the changes to other values: first those that keep what was given, and put all channels on one side."""
    choices: dict[str, list[str]] = {}
    for attribute in call.spec.attributes:
        spellings = attribute.spellings(call.base) if attribute.name in ORDERS else None
        if spellings is not None and call.declares(attribute.name):
            choices[attribute.name] = [*dict.fromkeys(spellings.table.values())]

    def unlikely(orders: dict[str, str]) -> tuple[int, int, int]:
        changed = [name for name, value in orders.items() if value != call[name]]
        return (sum(name in call.given for name in changed), len({value.endswith("X") for value in orders.values()}),
                len(changed))

    for orders in sorted((dict(zip(choices, values, strict=True)) for values in product(*choices.values())),
                         key=unlikely):
        if changed := {name: value for name, value in orders.items() if value != call[name]}:
            yield changed


def _hinted(call: Call, error: OpError, changed: dict[str, str]) -> OpError:
    """The error with the hint; what only the default order of the data causes may have a row of its own."""
    fitting = " and ".join(f"{name}={value!r}" for name, value in changed.items())
    row = call.spec.rules_under(call.conformance).default_order
    if row and "data_format" in changed.keys() - call.given:
        value, other = call["data_format"], changed["data_format"]
        allowed = f"{other!r} for these shapes (the default is {value!r}); with {fitting} the shapes agree"
        return call.refuse("data_format", value, allowed, row)
    allowed = f"{error.allowed}; with {fitting} the shapes agree"
    return type(error)(error.op, error.argument, error.value, allowed, rule=error.rule, status=error.status)
