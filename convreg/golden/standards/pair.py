"""The two results that a standard compares, and what it says about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...conversion import dequantize
from ...formats import Format
from ...memory import Array
from ...once import once


class Outcome(NamedTuple):
    """The verdict of a standard on one output.

    `figures` are the numbers that it computes and `limits` what they are held against, by the names of its own tool.
    """

    standard: str
    passed: bool
    figures: Mapping[str, float]
    limits: Mapping[str, float]
    note: str = ""


@dataclass(frozen=True, eq=False)
class Pair:
    """Results as codes, flat: the device's, the golden one and, where there is one, another device's."""

    format: Format
    device: Array
    golden: Array
    other: Array | None = None

    @once
    def a(self) -> Array:
        """The device's numbers in float32, or float64 where that is the format."""
        return self._wide(self.device)

    @once
    def g(self) -> Array:
        """The golden numbers."""
        return self._wide(self.golden)

    @once
    def b(self) -> Array | None:
        """The other device's numbers."""
        return None if self.other is None else self._wide(self.other)

    def _wide(self, codes: Array) -> Array:
        return dequantize(codes, self.format.name, dtype=np.float64 if self.format.bits == 64 else np.float32)

    def agreement(self) -> tuple[Array, Array]:
        """Return where both are finite, and where exactly one is not, or both are not and differ."""
        a, g = self.a, self.g
        finite = np.isfinite(a) & np.isfinite(g)
        same = (np.isnan(a) & np.isnan(g)) | (np.isinf(a) & (a == g))
        return finite, ~finite & ~same

    def difference(self) -> Array:
        """Return abs(a - g)."""
        with np.errstate(invalid="ignore", over="ignore"):
            found: Array = np.abs(self.a - self.g)
            return found
