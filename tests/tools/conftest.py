"""What tests of the benchmark share."""

from __future__ import annotations

import pytest
from bench_layers import CAUSAL, UP, shapes_file
from convreg.tools.bench import timing as bench_timing
from convreg.tools.bench.check import DTYPES
from convreg.tools.bench.machine import Machine
from convreg.tools.bench.problems import problem_of, read_shapes

MACHINE = Machine("a processor", 2, "generic", dict.fromkeys(DTYPES, (100.0, "somebody")), 10.0)


@pytest.fixture
def machine(monkeypatch):
    """A machine that needs no measuring."""
    monkeypatch.setattr(bench_timing, "measure_machine", lambda *_: MACHINE)


@pytest.fixture
def problems(tmp_path):
    """Layers that need every branch of the peers: strides with a rest, groups, 1-D to 3-D, one-sided padding."""
    descriptors = ["mb2ic8ih9oc6kh3ph1", "g2mb2ic4ih10oc6kh3ph1sh2dh1", "g4mb2ic4iw19oc4kw3sw2", "mb1ic4id5oc6kd3pd1",
                   "ic8ih8iw9oc16kh1kw1sh2sw2"]
    return [*map(problem_of, descriptors), problem_of("mb1ic4ih5oc8kh4sh2ph1", transposed=True),
            *read_shapes(shapes_file(tmp_path, CAUSAL, UP))]
