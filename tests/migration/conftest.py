"""The local file system, with a fault in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.register_assert_rewrite("tests.inspect.places", "tests.maintenance.worlds", "tests.migration.checkpoints")

if TYPE_CHECKING:
    from tests.maintenance.worlds import Breakage


@pytest.fixture
def breakage(monkeypatch: pytest.MonkeyPatch) -> Breakage:
    """What goes wrong on ``file:`` in this test; renaming, too."""
    from tests.inspect.places import use_for_local_files
    from tests.maintenance.worlds import Breakage
    from tests.migration.checkpoints import breaking_file_system

    breakage = Breakage()
    use_for_local_files(monkeypatch, breaking_file_system(breakage))
    return breakage
