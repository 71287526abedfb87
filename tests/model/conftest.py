"""Profiles for the state machines, and a JVM for the Java index.

``HYPOTHESIS_PROFILE=soak`` runs a hundred times as many histories, other ones each time.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

_COMMON: dict[str, Any] = {
    "database": None,
    "deadline": None,  # other tests share the cores
    "print_blob": False,
    "stateful_step_count": 50,
    "suppress_health_check": list(HealthCheck),
}
settings.register_profile("model", max_examples=100, derandomize=True, **_COMMON)
settings.register_profile("soak", max_examples=10_000, **_COMMON)
# A mutant only has to be found, its history need not be the shortest.
settings.register_profile(
    "mutant", max_examples=2_000, derandomize=True, phases=[Phase.generate], report_multiple_bugs=False, **_COMMON
)


def model_settings(examples: int = 100) -> settings:
    """What the machines run with; ``examples`` histories, or as many as a soak has."""
    name = os.environ.get("HYPOTHESIS_PROFILE", "model")
    profile = settings.get_profile(name)
    return settings(profile, max_examples=examples) if name == "model" else profile


@pytest.fixture(scope="session")
def jvm(_sessions: Any) -> Any:
    """py4j's view of the JVM that all sessions of this process share."""
    from pyspark import SparkContext

    return SparkContext._jvm
