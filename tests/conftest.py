"""One hypothesis profile for the whole suite: no deadline on shared machines, the same examples on every run; a
fixture of several modules."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("convreg", deadline=None, derandomize=True, max_examples=60,
                          suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("convreg")


@pytest.fixture
def guarded_workspace():
    """Guards between the buffers of every call's workspace: a call that writes to one raises RuntimeError."""
    from convreg.ops.kernels import engine

    engine.guard_workspace(True)
    yield
    engine.guard_workspace(False)
