"""A checkpoint to fork, and the local file system, with a fault in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.register_assert_rewrite("tests.inspect.builders", "tests.maintenance.harness", "tests.forks.harness")

if TYPE_CHECKING:
    from tests.maintenance.faults import Breakage


def pytest_configure(config: pytest.Config) -> None:
    """A mark of this package's."""
    config.addinivalue_line("markers", "changes: the test changes its checkpoints")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Versions 1 to 4 of two partitions, in four merged files."""
    from tests.maintenance.builders import make

    return make(tmp_path / "source")


@pytest.fixture
def breakage(monkeypatch: pytest.MonkeyPatch) -> Breakage:
    """What goes wrong on ``file:`` in this test."""
    from tests.inspect.builders import use_for_local_files
    from tests.maintenance.faults import Breakage, breaking_file_system

    breakage = Breakage()
    use_for_local_files(monkeypatch, breaking_file_system(breakage))
    return breakage
