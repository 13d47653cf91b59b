"""Cambricon's two differences, oneDNN's benchdnn, and the ONNX backend test."""

from __future__ import annotations

import numpy as np

from .pair import Outcome, Pair

DIFFERENCE = 3e-3
"""Limit of both differences in Cambricon's review template."""


def cambricon(pair: Pair) -> Outcome:
    """The sum of errors over the sum of magnitudes, and the same of squares."""
    a, g = pair.a.astype(np.float64), pair.g.astype(np.float64)
    with np.errstate(all="ignore"):
        error, size = np.abs(a - g), np.abs(g)
        figures = {"diff1": _share(error.sum(), size.sum()),
                   "diff2": float(np.sqrt(_share((error**2).sum(), (size**2).sum())))}
    return Outcome("cambricon", all(found <= DIFFERENCE for found in figures.values()), figures,
                   dict.fromkeys(figures, DIFFERENCE), "formulas from secondary sources")


def _share(error: float, size: float) -> float:
    return 0.0 if error == 0 else float(error / size)


def benchdnn(pair: Pair) -> Outcome:
    """Equal values, as its exact filling of direct convolutions allows; tiny ones may differ by float32's eps."""
    a, g = pair.a.astype(np.float64), pair.g.astype(np.float64)
    with np.errstate(invalid="ignore"):
        equal = (a == g) | (np.isnan(a) & np.isnan(g)) | ((np.abs(g) <= 1e-5) & (np.abs(a - g) < 2.0**-23))
    wrong = int((~equal).sum())
    return Outcome("benchdnn", not wrong, {"wrong": wrong}, {"wrong": 0})


def onnx(pair: Pair) -> Outcome:
    """All elements within the tolerance of the ONNX backend test."""
    rtol, atol = max(1e-3, 2.0**-6 if pair.format.name == "bfloat16" else 0), 1e-7
    with np.errstate(invalid="ignore", over="ignore"):
        wrong = int((~np.isclose(pair.a, pair.g, rtol=rtol, atol=atol, equal_nan=True)).sum())
    return Outcome("onnx", not wrong, {"wrong": wrong}, {"wrong": 0, "rtol": rtol, "atol": atol})
