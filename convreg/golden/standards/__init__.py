"""The vendors' own standards for results, by name: what their tools decide about the same two arrays.

A standard compares the device's result with the golden one, both in the output's format. None of them knows how large
an error rounding can make; `convreg.golden.compare` judges by that unless another standard is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from ...errors import Refusing
from . import benches, msprobe, ttk
from .pair import Outcome, Pair

STANDARDS: Mapping[str, Callable[[Pair], Outcome]] = {
    "mix_tolerance": ttk.mix_tolerance,
    "stat_rel_err": ttk.stat_rel_err,
    "isclose": ttk.isclose,
    "cosine": ttk.cosine,
    "binary_equal": ttk.binary_equal,
    "requant": ttk.requant,
    "quant": ttk.quant,
    "cross_check": ttk.cross_check,
    "thousandth": msprobe.thousandth,
    "ten_thousandth": msprobe.ten_thousandth,
    "double_thousandth": msprobe.double_thousandth,
    "absolute_threshold": msprobe.absolute_threshold,
    "ulp": msprobe.ulp,
    "cambricon": benches.cambricon,
    "benchdnn": benches.benchdnn,
    "onnx": benches.onnx,
}
"""The standards by name."""

ALIASES = {"mixed": "mix_tolerance", "close": "isclose", "binary": "binary_equal", "bin": "binary_equal"}
"""Other names that the vendors' tools take."""

BOUND = "bound"
"""The name of convreg's own standard."""


def names_of(ask: Refusing, standard: object) -> tuple[str, ...]:
    """Return the names that a caller asks for, in the spelling of the table.

    Raises
    ------
    OpError, OpTypeError
    """
    entries = [standard] if isinstance(standard, str) else standard
    if not isinstance(entries, list | tuple) or not entries:
        raise ask.refuse("standard", standard, "the name of a standard or a list of names", "arguments",
                         wrong_type=True)
    found = []
    for entry in entries:
        name = ALIASES.get(entry, entry) if isinstance(entry, str) else entry
        if not isinstance(name, str) or (name != BOUND and name not in STANDARDS):
            raise ask.refuse("standard", entry, " or ".join(map(repr, (BOUND, *STANDARDS, *ALIASES))), "arguments")
        found.append(name)
    return tuple(dict.fromkeys(found))


def check_other(ask: Refusing, names: Iterable[str], formats: Mapping[str, str], given: bool) -> None:
    """Refuse `cross_check` where it can give no verdict: without another device's results, or in another format.

    Parameters
    ----------
    ask : Refusing
    names : iterable of str
        What `names_of` returned.
    formats : mapping of str to str
        Output -> the name of its format.
    given : bool
        Whether there are results of another device.

    Raises
    ------
    OpError
    """
    if "cross_check" not in names:
        return
    if not given:
        raise ask.refuse("other", None, "results of another device, which the standard 'cross_check' compares errors "
                         "with", "arguments")
    for output, format in formats.items():
        if format not in ttk.SMALL:
            raise ask.refuse("standard", "cross_check", f"outputs in {', '.join(ttk.SMALL)}, which the kit has limits "
                             f"for: {output} is in {format}", "arguments")


def judge(name: str, pair: Pair) -> Outcome:
    """Return the verdict of a standard; empty arrays pass all of them."""
    if not pair.device.size:
        return Outcome(name, True, {}, {}, "nothing to compare")
    with np.errstate(all="ignore"):  # differences and quotients may overflow, and are infinite then
        return STANDARDS[name](pair)


__all__ = ["ALIASES", "BOUND", "STANDARDS", "Outcome", "Pair", "check_other", "judge", "names_of"]
