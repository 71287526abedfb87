"""A small checkpoint, and the local file system, watched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.register_assert_rewrite("tests.inspect.builders")

if TYPE_CHECKING:
    from tests.inspect.builders import Watch


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """What ``file:`` is asked in this test, and what goes wrong there."""
    from tests.inspect.builders import Watch, use_for_local_files, watched_file_system

    watch = Watch()
    use_for_local_files(monkeypatch, watched_file_system(watch))
    return watch


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Two sealed files with a version of two partitions in each."""
    from tests.inspect.builders import simple_checkpoint

    return simple_checkpoint(tmp_path / "checkpoint")
