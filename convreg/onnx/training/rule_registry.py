"""Rules of gradients by operator: `rules/` registers convreg's, and plug-ins register when a rule is not found.

A plug-in is an entry point of group ``convreg.gradients`` that names a module whose functions carry `gradient_of`, or a
function without arguments that registers rules when it is called.
"""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, NamedTuple

from ...errors import Asking
from ...guard import guarded

if TYPE_CHECKING:
    from .step import Step
    from .value import Value

GROUP = "convreg.gradients"

Gradients = Sequence["Value | None"]
Rule = Callable[["Step"], "Value | Gradients | None"]
"""Takes a node with the gradients of its outputs and returns the gradients of its inputs in their order; None, or a
place that is missing at the end, adds nothing. A single value is the gradient of the first input."""


class Entry(NamedTuple):
    """The rule of one operator.

    `inputs` and `outputs` are the places of the inputs that have a gradient and of the outputs that a gradient passes,
    None for all; `constants` are the places of inputs that count as constants; `through` says that the gradient passes
    outputs that are not floating point, as codes of a narrow format are.
    """

    op_type: str
    domain: str
    function: Rule
    inputs: tuple[int, ...] | None
    outputs: tuple[int, ...] | None
    constants: tuple[int, ...]
    through: bool

    @property
    def name(self) -> str:
        """The operator as messages name it."""
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type


_lock = threading.RLock()
_rules: dict[tuple[str, str], Entry] = {}
_plugins_loaded = False


@guarded("convreg::onnx::gradient_of")
def gradient_of(
    op_type: str, *, domain: str = "", inputs: Sequence[int] | None = None,
    outputs: Sequence[int] | None = None, constants: Sequence[int] = (), through: bool = False,
    replace: bool = False,
) -> Callable[[Rule], Rule]:
    """Return a decorator that registers a function as the gradient of an operator.

    Parameters
    ----------
    op_type : str
        The node's op type, such as ``"Relu"``.
    domain : str
        The node's domain; empty for standard ONNX.
    inputs : sequence of int, optional
        Places of the inputs that have a gradient. A gradient that is asked for at another floating-point input is
        an error. By default all floating-point inputs have one.
    outputs : sequence of int, optional
        Places of the outputs that a gradient passes. Others count as constants, as running statistics do. By default
        all floating-point outputs.
    constants : sequence of int
        Places of inputs that count as constants whatever they depend on, as the ratio of Dropout does.
    through : bool
        Whether gradients pass outputs that are not floating point.
    replace : bool
        Whether the function may take the place of a rule that is registered.

    Returns
    -------
    callable
        The decorator. It returns the function unchanged. The function takes a `Step` (the node, the gradients of its
        outputs, and what builds nodes) and returns one `Value` or None per input.

    Raises
    ------
    OpError, OpTypeError
        If the name is no string, the operator has a rule and `replace` is false, or the decorated object is not
        callable.

    Examples
    --------
    >>> from convreg.onnx import gradient_of
    >>> @gradient_of("Cube", domain="my.domain")
    ... def cube(step):
    ...     x = step.input(0)
    ...     return step.g * 3 * x * x
    """
    ask = Asking("convreg::onnx::gradient_of")
    for argument, value in (("op_type", op_type), ("domain", domain)):
        if not isinstance(value, str) or (argument == "op_type" and not value):
            raise ask.refuse(argument, value, "the name as a str", wrong_type=not isinstance(value, str))
    places: dict[str, tuple[int, ...] | None] = {}
    for argument, given in (("inputs", inputs), ("outputs", outputs), ("constants", constants)):
        if given is not None and not isinstance(given, Sequence):
            raise ask.refuse(argument, given, "a sequence of places from 0 on", wrong_type=True)
        places[argument] = None if given is None else tuple(given)
        if not all(isinstance(place, int) and place >= 0 for place in places[argument] or ()):
            raise ask.refuse(argument, given, "places from 0 on")
    if not isinstance(replace, bool):
        raise ask.refuse("replace", replace, "True or False", wrong_type=True)

    def register(function: Rule) -> Rule:
        if not callable(function):
            raise ask.refuse("function", function, "a function of one Step", wrong_type=True)
        key = ("" if domain == "ai.onnx" else domain, op_type)
        with _lock:
            if key in _rules and not replace:
                raise ask.refuse("op_type", _rules[key].name, "an operator without a rule, or replace=True")
            _rules[key] = Entry(op_type, key[0], function, places["inputs"], places["outputs"],
                                places["constants"] or (), through)
        return function

    return register


def entries() -> list[Entry]:
    """Return all registered rules, those of standard ONNX first, each domain in alphabetical order."""
    return [_rules[key] for key in sorted(_rules)]


def table() -> str:
    """Return the registered rules as a table in Markdown: the operator and the first paragraph of its rule's text."""
    rows = ["| operator | gradients of its inputs |", "|---|---|"]
    for entry in entries():
        text = " ".join((inspect.getdoc(entry.function) or "").partition("\n\n")[0].split())
        text = text.replace("|", r"\|")
        rows.append(f"| `{entry.name}` | {text} |")
    return "\n".join(rows)


def find(domain: str, op_type: str) -> Entry | None:
    """Return the rule of an operator, or None; plug-ins are asked before the answer is None."""
    key = ("" if domain == "ai.onnx" else domain, op_type)
    if key not in _rules:
        _load_plugins()
    return _rules.get(key)


def _load_plugins() -> None:
    global _plugins_loaded
    with _lock:
        if _plugins_loaded:
            return
        _plugins_loaded = True
        for point in entry_points(group=GROUP):
            try:
                loaded = point.load()
                if callable(loaded):
                    loaded()
            except Exception as error:  # a plug-in may fail in any way; it must not take the others down
                warnings.warn(f"convreg plug-in {point.name!r} is skipped: {type(error).__name__}: {error}",
                              RuntimeWarning, stacklevel=3)
