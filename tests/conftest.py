"""One hypothesis profile for the whole suite: no deadline on shared machines, the same examples on every run."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("convreg", deadline=None, derandomize=True, max_examples=60,
                          suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("convreg")
