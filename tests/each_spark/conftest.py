"""JVMs of their own beside that of the tests."""

from __future__ import annotations

import py4j.java_gateway
import py4j.protocol
import pytest

# Also those that the modules named in the tests import in turn.
pytest.register_assert_rewrite(
    "tests.cluster.application",
    "tests.inspect.builders",
    "tests.maintenance.harness",
    "tests.migration.builders",
    "tests.streaming.runs",
)


@pytest.fixture(autouse=True)
def _exceptions_of_other_jvms(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """As in tests/cluster/conftest.py, for tests without a session in this process."""
    if "make_spark" not in request.fixturenames:
        monkeypatch.setattr(py4j.java_gateway, "get_return_value", py4j.protocol.get_return_value)
