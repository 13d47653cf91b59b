"""One hypothesis profile for the whole suite, without deadlines and with the same examples on every run; fixtures."""

from __future__ import annotations

import pytest
from clusters import cluster
from convreg.ops.kernels import engine
from engine_comparison import SETS
from hypothesis import HealthCheck, settings

__all__ = ["cluster"]

settings.register_profile("convreg", deadline=None, derandomize=True, max_examples=60,
                          suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("convreg")


@pytest.fixture
def guarded_workspace():
    """Guards between the buffers of every call's workspace: a call that writes to one raises RuntimeError."""
    engine.guard_workspace(True)
    yield
    engine.guard_workspace(False)


@pytest.fixture(params=SETS)
def isa(request):
    """Each instruction set that results are compared on, in turn."""
    before = engine.isa()
    engine.use_isa(request.param)
    yield request.param
    engine.use_isa(before)


@pytest.fixture
def rules(monkeypatch):
    """The registry of gradient rules, restored afterwards."""
    from convreg.onnx.training import rule_registry

    monkeypatch.setattr(rule_registry, "_rules", dict(rule_registry._rules))
    monkeypatch.setattr(rule_registry, "_plugins_loaded", False)
    return rule_registry
