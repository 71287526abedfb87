"""Applications for tests that kill them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import py4j.java_gateway
import py4j.protocol
import pytest

if TYPE_CHECKING:
    from tests.cluster.application import Application
    from tests.cluster.checks import Graveyard

pytest.register_assert_rewrite("tests.cluster.application", "tests.cluster.checks")


@pytest.fixture(scope="session")
def jars(main_jar: Path, test_jar: Path) -> tuple[Path, Path]:
    """The shim's jar and that of the test file systems."""
    return main_jar, test_jar


@pytest.fixture(scope="module")
def all_deleted(app: Application) -> Graveyard:
    """What was deleted in a module's application, by all of its tests."""
    from tests.cluster.checks import Graveyard

    return Graveyard(app.state)


@pytest.fixture
def graveyard(all_deleted: Graveyard) -> Iterator[Graveyard]:
    """The same, watched while a test runs."""
    with all_deleted.watched():
        yield all_deleted


@pytest.fixture(autouse=True)
def _exceptions_of_other_jvms(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark converts exceptions of every gateway with the JVM of its session, which has other objects by their ids.

    It does so from the first session of a process on, which another test may have made.
    """
    monkeypatch.setattr(py4j.java_gateway, "get_return_value", py4j.protocol.get_return_value)
