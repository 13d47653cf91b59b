"""A session of onnxruntime that keeps values from run to run in its own memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...memory import Array
from .session import OnOrt


class CarriedOnOrt:
    """Runs of one session in which some outputs are the next run's inputs.

    Every value that is carried has two places in memory. A run reads one of them and writes the other, and `advance`
    makes them change roles, so that nothing is copied and a run that fails changes nothing.

    Parameters
    ----------
    runner : OnOrt
        One that takes arrays.
    state : mapping of str to str
        Input -> the output that it is next; of one element type and shape.
    values : mapping of str to array
        The first value of every input in `state`.
    others : sequence of str
        The outputs that a run returns.
    """

    def __init__(
        self, runner: OnOrt, state: Mapping[str, str], values: Mapping[str, Array], others: Sequence[str]
    ) -> None:
        from onnxruntime import OrtValue

        self._runner, self._state, self._others = runner, dict(state), list(others)
        self._value_of = OrtValue.ortvalue_from_numpy
        self._places = [{name: self._value_of(np.array(values[name], order="C")) for name in state} for _ in range(2)]
        self._now = 0
        self._bindings: list[Any] = []
        self._session: Any = None

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run once and return the outputs that are not carried."""
        binding = self._binding()
        for name, array in feeds.items():
            # not bind_cpu_input, which knows no inputs with a default value
            binding.bind_ortvalue_input(name, self._value_of(np.asarray(array, order="C")))
        for name in self._others:
            binding.bind_output(name)  # of a shape that only the run tells
        self._runner.run_bound(binding)
        made = binding.get_outputs()[len(self._state):]
        return {name: value.numpy() for name, value in zip(self._others, made, strict=True)}

    def advance(self) -> None:
        """Make what the last run wrote the values that the next one reads."""
        self._now = 1 - self._now

    def read(self, name: str) -> Array:
        """Return a copy of a value that is carried."""
        array: Array = self._places[self._now][name].numpy()
        return array.copy()

    def write(self, values: Mapping[str, Array]) -> None:
        """Replace values that are carried."""
        for name, array in values.items():
            self._places[self._now][name] = self._value_of(np.array(array, order="C"))
        self._bindings.clear()

    def _binding(self) -> Any:
        """The inputs and outputs of a run, the carried ones in their places."""
        session = self._runner.session
        if not self._bindings or session is not self._session:  # another one in a forked process
            self._session = session
            self._bindings = [self._bound(session, place) for place in range(2)]
        return self._bindings[self._now]

    def _bound(self, session: Any, place: int) -> Any:
        binding = session.io_binding()
        for name, made in self._state.items():
            binding.bind_ortvalue_input(name, self._places[place][name])
            binding.bind_ortvalue_output(made, self._places[1 - place][name])
        return binding
