"""Types of options that several verbs have."""

from __future__ import annotations


def names(value: str) -> list[str]:
    """Return names that commas separate."""
    return [name for name in value.split(",") if name]
