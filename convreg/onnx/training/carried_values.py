"""Values that are carried from step to step as arrays of this process; the interface is that of `CarriedOnOrt`."""

from __future__ import annotations

from collections.abc import Mapping

from ...memory import Array


class CarriedValues:
    """The state of a training that this process holds: what a step reads, and what the last one made.

    Parameters
    ----------
    values : mapping
        Name -> array.
    """

    def __init__(self, values: Mapping[str, Array]) -> None:
        self._values, self._next = dict(values), dict[str, Array]()

    def advance(self) -> None:
        """Make what the last run made the values that the next one reads."""
        self._values = self._next

    def read(self, name: str) -> Array:
        """Return a copy of a value that is carried."""
        return self._values[name].copy()

    def write(self, values: Mapping[str, Array]) -> None:
        """Replace values that are carried."""
        self._values = {**self._values, **values}
