"""What the declaration of an operator is made of: ports, attributes, spellings, rows of the vendor's rule table.

`convreg.spec` has all these names too; import them from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from .roles import Role

Kind = Literal["int", "ints", "bool", "bools", "string", "strings"]

T = TypeVar("T")
ByConformance: TypeAlias = T | Mapping[str, T]
"""One value for all conformances, or a mapping by conformance with ``"*"`` for the others."""


def by_conformance(value: ByConformance[T], conformance: str) -> T:
    """Return what holds under `conformance`."""
    if isinstance(value, Mapping):
        return value[conformance] if conformance in value else value["*"]
    return value


class _Required:
    """The default of an attribute that has none."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()


class Spellings(NamedTuple):
    """The spellings of an attribute's values under one conformance, each mapped to the value the rules see."""

    table: Mapping[str, str]
    case_sensitive: bool = True

    def resolve(self, text: str) -> str | None:
        """Return the value that `text` spells, or None."""
        return self.table.get(text if self.case_sensitive else text.lower())


def spellings(*values: str) -> dict[str, Spellings]:
    """Return the choices of an attribute whose values have one spelling each, the same under every conformance."""
    return {"*": Spellings({value: value for value in values})}


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output tensor.

    Attributes
    ----------
    name : str
        The vendor's name.
    doc : str
        What the tensor is, with its shape, for the docstring.
    type : str
        The type variable of `OpSpec.types` that lists its number formats.
    optional : bool
        Whether a call may leave it out.
    shape : bool
        Whether it is a 1-D integer tensor that states a shape.
    attribute : bool
        Whether a stated shape may also be an attribute of that name. Python has one argument for both.
    rule : str
        The row of the vendor's table for a stated shape that contradicts another, and for a given output of a wrong
        shape.
    scales : str
        The input that the port multiplies. Such ports are the last ones, and Python has one argument for all of them.
    like : str
        The input that gives an output its default format.
    only : tuple of str
        The conformances that have the port; empty for all.
    role : str
        What the port is in the gradients of a convolution, or in a conversion (`convreg.roles`).
    """

    name: str
    doc: str
    type: str = "T"
    optional: bool = False
    shape: bool = False
    attribute: bool = False
    rule: str = "geometry"
    scales: str = ""
    like: str = ""
    only: tuple[str, ...] = ()
    role: Role | Literal[""] = ""


@dataclass(frozen=True, slots=True)
class Attribute:
    """A named constant of a call.

    `minimum`, `rule` and `rule_negative` may be mappings by conformance.

    Attributes
    ----------
    name : str
        The vendor's name.
    kind : str
        "int", "ints", "bool", "bools", "string" or "strings".
    doc : str
        What it means, for the docstring.
    default : object
        Its value in a call that leaves it out. Without it the attribute is required.
    choices : mapping, optional
        Conformance -> its spellings; ``"*"`` stands for any other conformance.
    minimum, maximum : int, optional
        The bounds of every entry.
    rule : str
        The row of the vendor's table for values outside the bounds or the spellings.
    rule_negative : str
        The row for negative values, if the table has a separate one.
    unset : tuple of int, optional
        The value that means "not given" in the vendor's files.
    only : tuple of str
        The conformances that have the attribute; empty for all.
    """

    name: str
    kind: Kind
    doc: str
    default: Any = REQUIRED
    choices: Mapping[str, Spellings] | None = None
    minimum: ByConformance[int | None] = None
    maximum: int | None = None
    rule: ByConformance[str] = "geometry"
    rule_negative: ByConformance[str] = ""
    unset: tuple[int, ...] | None = None
    only: tuple[str, ...] = ()

    @property
    def required(self) -> bool:
        """Whether a call must give it."""
        return self.default is REQUIRED

    def spellings(self, conformance: str) -> Spellings | None:
        """Return the spellings in force under `conformance`."""
        if self.choices is None:
            return None
        return self.choices[conformance if conformance in self.choices else "*"]


@dataclass(frozen=True, slots=True)
class Rules:
    """The rows of a vendor's rule table by kind of mistake, for any argument."""

    missing_input: str = "arguments"
    missing_attribute: str = "arguments"
    unknown: str = "arguments"
    kind: str = "arguments"
    empty_string: str = "arguments"
    arity: str = "arguments"
    format: str = "arguments"
    named_formats: Mapping[str, str] = field(default_factory=dict)
    """Rows for particular formats, where the table has more than one."""
    mixed_formats: str = "arguments"
    outputs: str = "arguments"
    output_format: str = "arguments"
    shape_format: str = "arguments"
    shape_length: str = "arguments"
    default_order: str = ""
    """Row for data in another order of axes than the default one, where the table has it."""
