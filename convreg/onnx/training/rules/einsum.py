"""Einsum: its gradients are Einsum themselves, with the gradient of the result in place of an operand."""

from __future__ import annotations

from string import ascii_letters

from ..rule_registry import Gradients, gradient_of
from ..step import Step
from ..value import Value


@gradient_of("Einsum")
def einsum(step: Step) -> Gradients:
    """Einsum of ``g`` and the other operands, with the letters of the operand as the result."""
    terms, result = _letters(step)
    _check(step, terms)
    return [_of(step, terms, result, index) if wanted else None for index, wanted in enumerate(step.wanted)]


def _letters(step: Step) -> tuple[list[str], str]:
    """Return the letters of every operand and of the result; those that an ellipsis stands for are written out."""
    equation = step.attribute("equation", "").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(step.node.input):
        raise step.error(f"equation={equation!r} has {len(terms)} operands; allowed: {len(step.node.input)}")
    letters = left.replace(",", "").replace(".", "")
    free = [letter for letter in ascii_letters if letter not in letters]
    hidden = [step.rank(step.input(index)) - len(term.replace("...", "")) if "..." in term else 0
              for index, term in enumerate(terms)]
    if max(hidden) > len(free):
        raise step.error(f"equation={equation!r} has more axes than there are letters")
    many = "".join(free[:max(hidden)])
    if not arrow:
        right = "..." * ("..." in left) + "".join(
            letter for letter in sorted(set(letters)) if letters.count(letter) == 1)
    return ([term.replace("...", many[len(many) - count:]) for term, count in zip(terms, hidden, strict=True)],
            right.replace("...", many))


def _check(step: Step, terms: list[str]) -> None:
    """Refuse diagonals, and operands that are stretched along an axis."""
    extents: dict[str, object] = {}
    for index, term in enumerate(terms):
        value = step.input(index)
        if len(set(term)) != len(term):
            raise step.error(f"operand {index} has a letter twice; allowed: letters that differ within an operand")
        if step.rank(value) != len(term):
            raise step.error(f"operand {index} has {step.rank(value)} axes; allowed: {len(term)}")
        for letter, extent in zip(term, value.shape or (), strict=True):
            other = extents.setdefault(letter, extent)
            if other != extent and 1 in (other, extent):
                raise step.error(f"operand {index} may be stretched along an axis, which is {extent!r} there and "
                                 f"{other!r} elsewhere; allowed: equal extents")


def _of(step: Step, terms: list[str], result: str, index: int) -> Value:
    """The gradient of one operand; letters that nothing else has were summed, so ``g`` is the same along them."""
    own = terms[index]
    others = [place for place in range(len(terms)) if place != index]
    around = {*result, *(letter for place in others for letter in terms[place])}
    met = "".join(letter for letter in own if letter in around)
    equation = ",".join([result, *(terms[place] for place in others)]) + "->" + met
    made = step.g.apply("Einsum", *(step.input(place) for place in others), equation=equation)
    alone = [axis for axis, letter in enumerate(own) if letter not in around]
    return made.unsqueeze(alone).expand(step.input(index).extents()) if alone else made
