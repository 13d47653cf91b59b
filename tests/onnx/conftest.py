"""What tests of graphs share."""

from __future__ import annotations

import pytest

from convreg.onnx.execution import engines
from convreg.onnx.execution import session as sessions


@pytest.fixture(params=["default", "reference"])
def default_engine(request, monkeypatch):
    """Run every test under the default engine, and under the reference engine in its place."""
    if request.param == "reference":
        monkeypatch.setattr(sessions, "choose", lambda model, engine, observer: engines.choose(
            model, engine or "reference", observer))
    return request.param
