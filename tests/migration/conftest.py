"""The local file system, with a fault in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.register_assert_rewrite("tests.inspect.builders", "tests.maintenance.harness", "tests.migration.builders")

if TYPE_CHECKING:
    from tests.maintenance.faults import Breakage


@pytest.fixture
def breakage(monkeypatch: pytest.MonkeyPatch) -> Breakage:
    """What goes wrong on ``file:`` in this test; renaming, too."""
    from tests.inspect.builders import use_for_local_files
    from tests.maintenance.faults import Breakage
    from tests.migration.builders import breaking_file_system

    breakage = Breakage()
    use_for_local_files(monkeypatch, breaking_file_system(breakage))
    return breakage
