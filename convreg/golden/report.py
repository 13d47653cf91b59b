"""The report of a comparison: text of one screen whose first line is the verdict, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import printable
from ..presentation import json_value
from .standards import BOUND, Outcome


@dataclass(frozen=True)
class Element:
    """A wrong element.

    Attributes
    ----------
    index : tuple of int
    expected, got : float
        The golden result and the judged one.
    low, high : float
        The results that rounding can make lie between these two, both included; NaN where only NaN is right.
    steps : int or None
        Steps in the format from `got` to the nearest of them; None if one is NaN.
    """

    index: tuple[int, ...]
    expected: float
    got: float
    low: float
    high: float
    steps: int | None

    def __str__(self) -> str:
        """Index, expected, got and allowed."""
        allowed = "NaN" if self.low != self.low else f"{self.low:.9g}" if self.low == self.high else \
            f"{self.low:.9g} to {self.high:.9g}"
        steps = "" if self.steps is None else f", {self.steps} step{'s' if self.steps != 1 else ''} outside"
        return f"{list(self.index)}: expected {self.expected:.9g}, got {self.got:.9g}, allowed {allowed}{steps}"


@dataclass(frozen=True)
class Steps:
    """Distances from the golden result in steps of the format, over the elements where neither is NaN."""

    largest: int
    mean: float
    above_0: float
    above_1: float


@dataclass(frozen=True)
class OutputReport:
    """The comparison of one output.

    Attributes
    ----------
    output, format : str
    shape : tuple of int
    elements, wrong, unlikely : int
        Elements in all, those outside the bound, and those inside it that are possible but unlikely.
    first, worst : Element or None
        Of the wrong elements, in memory order and by steps.
    snr_db : float
        Signal-to-noise ratio against the exact result, over the elements where that and the golden one are finite.
    steps : Steps
    nan, infinite : (int, int)
        NaN and infinities of the judged and of the golden result.
    where : str
        Where the wrong elements lie, empty if there are none.
    causes : tuple of str
        What kind of error it looks like.
    unwritten : str
        Elements that look never written, empty if there are none.
    standards : tuple of Outcome
        The verdicts of the vendors' standards that were asked for.
    golden_outside : int
        Elements of the golden result that lie outside the bound themselves.
    bound_decides : bool
        Whether the bound is among the standards asked for.
    """

    output: str
    format: str
    shape: tuple[int, ...]
    elements: int
    wrong: int
    unlikely: int
    first: Element | None
    worst: Element | None
    snr_db: float
    steps: Steps
    nan: tuple[int, int]
    infinite: tuple[int, int]
    where: str = ""
    causes: tuple[str, ...] = ()
    unwritten: str = ""
    standards: tuple[Outcome, ...] = ()
    golden_outside: int = 0
    bound_decides: bool = True

    @property
    def passed(self) -> bool:
        """Whether all standards asked for pass."""
        return (not self.wrong or not self.bound_decides) and all(outcome.passed for outcome in self.standards)

    def lines(self) -> list[str]:
        """Return the lines of the report about this output."""
        shape = "x".join(map(str, self.shape)) or "scalar"
        lines = [f"{self.output}  {self.format} {shape}: {'pass' if self.passed else 'FAIL'}, "
                 f"{self.wrong} of {self.elements} elements outside the bound"]
        if self.wrong:
            lines.append(f"  where     {self.where}")
        if self.unwritten:
            lines.append(f"  unwritten {self.unwritten}")
        lines += [f"  looks like {cause}" for cause in self.causes]
        if self.first is not None:
            lines.append(f"  first     {self.first}")
        if self.worst is not None and self.first is not None and self.worst.index != self.first.index:
            lines.append(f"  worst     {self.worst}")
        lines.append(f"  steps     largest {self.steps.largest}, mean {self.steps.mean:.3g}, above 0: "
                     f"{_percent(self.steps.above_0)}, above 1: {_percent(self.steps.above_1)}; "
                     f"SNR {self.snr_db:.1f} dB")
        if any((*self.nan, *self.infinite)):
            lines.append(f"  specials  NaN {self.nan[0]} (golden {self.nan[1]}), infinities {self.infinite[0]} (golden "
                         f"{self.infinite[1]})")
        if self.unlikely:
            lines.append(f"  note      {self.unlikely} elements are possible, but unlikely: beyond 6 sqrt(n) u S")
        if self.golden_outside:
            lines.append(f"  note      {self.golden_outside} elements of the golden result lie outside the bound: "
                         "another program made it, or the inputs have changed since")
        lines += [f"  {_told(outcome)}" for outcome in self.standards]
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        found = {**asdict(self), "passed": self.passed}
        found["standards"] = [{**outcome._asdict(), "figures": dict(outcome.figures), "limits": dict(outcome.limits)}
                              for outcome in self.standards]
        plain: dict[str, Any] = json_value(found)
        return plain


@dataclass(frozen=True)
class Report:
    """The result of `convreg.golden.compare`. It prints as one screen of text; it is true if it passed.

    Attributes
    ----------
    name : str
        The name of the case, empty where it has none.
    op : str
        Qualified name of the operator.
    standards : tuple of str
        The standards that decide.
    arithmetic : str
        What the caller states about the kernel's arithmetic.
    outputs : mapping of str to OutputReport
    """

    name: str
    op: str
    standards: tuple[str, ...]
    arithmetic: str
    outputs: Mapping[str, OutputReport]

    @property
    def passed(self) -> bool:
        """Whether all outputs pass all standards asked for."""
        return all(found.passed for found in self.outputs.values())

    def __bool__(self) -> bool:
        """Whether it passed."""
        return self.passed

    def __str__(self) -> str:
        """The verdict, then what supports it."""
        lines = [self.verdict]
        for found in self.outputs.values():
            lines += found.lines()
        if self.arithmetic:
            lines.append(f"judged for {self.arithmetic}")
        return "\n".join(lines)

    @property
    def verdict(self) -> str:
        """The first line: pass or fail, what was compared, and which outputs are wrong."""
        subject = self.op + (f" {printable(self.name)}" if self.name else "")
        by = "" if self.standards == (BOUND,) else f" (by {', '.join(self.standards)})"
        elements = sum(found.elements for found in self.outputs.values())
        failed = [found for found in self.outputs.values() if not found.passed]
        count = f"{len(self.outputs)} output{'s' if len(self.outputs) != 1 else ''}"
        if not self.outputs:
            return f"PASS  {subject}: the call masks off all outputs, so there is nothing to judge"
        if not failed:
            reason = "all within the error that rounding can make" if self.standards == (BOUND,) else \
                "all within the limits"
            return f"PASS  {subject}: {count}, {elements} elements, {reason}{by}"
        if self.standards == (BOUND,):
            told = "; ".join(f"{found.wrong} of {found.elements} elements of {found.output} are wrong"
                             for found in failed)
        else:
            told = f"{', '.join(found.output for found in failed)} of {count}"
        return f"FAIL  {subject}: {told}{by}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it: infinities and NaN become the strings that `float` reads."""
        return {"passed": self.passed, "verdict": self.verdict, "name": self.name, "op": self.op,
                "standards": list(self.standards), "arithmetic": self.arithmetic,
                "outputs": {name: found.to_dict() for name, found in self.outputs.items()}}

    def to_json(self) -> str:
        """Return everything as JSON."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)


def _told(outcome: Outcome) -> str:
    figures = ", ".join(f"{name} {value:.4g}" + (f" (limit {outcome.limits[name]:.4g})" if name in outcome.limits
                                                  else "")
                        for name, value in outcome.figures.items())
    others = ", ".join(f"{name} {value:.4g}" for name, value in outcome.limits.items() if name not in outcome.figures)
    parts = [part for part in (figures, others, outcome.note) if part]
    return f"{outcome.standard}: {'pass' if outcome.passed else 'FAIL'}" + (f"; {'; '.join(parts)}" if parts else "")


def _percent(share: float) -> str:
    return "0" if not share else f"{100 * share:.3g} %"
