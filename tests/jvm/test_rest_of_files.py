"""Of an SST of which look-ahead has asked for half, the rest comes at once, and nobody waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jvm.harness import until

pytestmark = pytest.mark.spark

FILES = 6
LENGTH = 4 << 20
PIECE = 256 << 10
"""Look-ahead asks for every second one."""
AT_ONCE = 8


@pytest.fixture
def halves(jvm: Any, tmp_path: Path) -> Iterator[Any]:
    """Files whose rest is held back, without what is fetched in the background at a rate."""
    lazily = jvm.io.pyspark.statestore.tables.Lazily
    lazily.pause(True)
    made = jvm.io.pyspark.statestore.tables.Halves(
        jvm.java.io.File(str(tmp_path)).toPath(), LENGTH, FILES, jvm.java.util.Random(1)
    )
    made.ask()
    until(lambda: made.held() == AT_ONCE, "requests for the rest")
    yield made
    made.close()
    lazily.asEver()


def test_all_files_become_whole(halves: Any) -> None:
    assert halves.whole() == 0
    halves.letGo()
    until(lambda: halves.whole() == FILES, "whole files")
    assert halves.ofRest() <= FILES * LENGTH // (2 * PIECE), "one for each part that nobody asked for"


def test_it_ends_with_its_task(halves: Any) -> None:
    halves.cancel()
    halves.letGo()
    halves.awaitThreads()
    assert halves.ofRest() == AT_ONCE
    assert halves.whole() < FILES


def test_it_ends_where_another_version_is_loaded(jvm: Any, halves: Any) -> None:
    halves.loadAnother(jvm.java.util.Random(2))
    halves.letGo()
    halves.awaitThreads()
    assert halves.ofRest() == AT_ONCE


def test_what_fails_is_left_to_the_background(jvm: Any, halves: Any) -> None:
    halves.fail(True)
    halves.letGo()
    halves.awaitThreads()
    assert halves.whole() == 0
    halves.fail(False)
    jvm.io.pyspark.statestore.tables.Lazily.pause(False)
    until(lambda: halves.whole() == FILES, "whole files")
