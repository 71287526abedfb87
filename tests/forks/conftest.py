"""A checkpoint to fork, and the local file system, with a fault in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.register_assert_rewrite("tests.inspect.places", "tests.maintenance.worlds", "tests.forks.families")

if TYPE_CHECKING:
    from tests.maintenance.worlds import Breakage


def pytest_configure(config: pytest.Config) -> None:
    """A mark of this package's."""
    config.addinivalue_line("markers", "changes: the test changes its checkpoints")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Versions 1 to 4 of two partitions, in four merged files."""
    from tests.maintenance.checkpoints import make

    return make(tmp_path / "source")


@pytest.fixture
def breakage(monkeypatch: pytest.MonkeyPatch) -> Breakage:
    """What goes wrong on ``file:`` in this test."""
    from tests.inspect.places import use_for_local_files
    from tests.maintenance.worlds import Breakage, breaking_file_system

    breakage = Breakage()
    use_for_local_files(monkeypatch, breaking_file_system(breakage))
    return breakage
