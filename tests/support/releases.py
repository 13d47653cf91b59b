"""Which releases of other packages are here, without importing them."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import pytest


def not_before(package: str, needed: tuple[int, int], reason: str) -> pytest.MarkDecorator:
    """Skip what a package had wrong before a release, and what needs it where it is absent."""
    try:
        here = tuple(map(int, version(package).split(".")[:2]))
    except PackageNotFoundError:
        here = (0, 0)
    return pytest.mark.skipif(here < needed, reason=f"{package} before {needed[0]}.{needed[1]} {reason}")
