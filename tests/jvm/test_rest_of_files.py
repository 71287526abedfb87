"""Of an SST of which look-ahead has asked for half, the rest comes at once, and nobody waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jvm.harness import begun, result_in_time, until

pytestmark = pytest.mark.spark

FILES = 8
LENGTH = 8 << 20
PIECE = 256 << 10
"""Look-ahead asks for every second one."""
AT_ONCE = 16
"""In a process, however many files there are."""


@pytest.fixture
def files(jvm: Any, tmp_path: Path) -> Iterator[Any]:
    """Files whose rest is held back, without what is fetched in the background at a rate."""
    lazily = jvm.io.pyspark.statestore.tables.Lazily
    lazily.pause(True)
    made = jvm.io.pyspark.statestore.tables.AskedFiles(
        jvm.java.io.File(str(tmp_path)).toPath(), LENGTH, FILES, jvm.java.util.Random(1)
    )
    made.ask(True)
    until(lambda: made.held() == AT_ONCE, "requests for the rest")
    yield made
    made.close()
    lazily.asEver()


def test_all_files_become_whole(files: Any) -> None:
    assert files.whole() == 0
    files.letGo()
    until(lambda: files.whole() == FILES, "whole files")
    assert files.ofRest() <= FILES * LENGTH // (2 * PIECE), "one for each part that nobody asked for"


def test_it_ends_with_its_task(files: Any) -> None:
    files.cancel()
    files.letGo()
    files.awaitThreads()
    assert files.ofRest() == AT_ONCE
    assert files.whole() < FILES


def test_another_task_may_want_it_again(files: Any) -> None:
    files.cancel()
    files.letGo()

    def asks() -> bool:
        files.ask(True)
        return bool(files.whole() == FILES)

    until(asks, "whole files")


def test_it_ends_where_another_version_is_loaded(jvm: Any, files: Any) -> None:
    files.loadAnother(jvm.java.util.Random(2))
    files.letGo()
    files.awaitThreads()
    assert files.ofRest() == AT_ONCE


@pytest.mark.parametrize("failure", ["java.io.IOException", "java.lang.NoClassDefFoundError"])
def test_what_fails_is_left_to_the_background(jvm: Any, files: Any, failure: str) -> None:
    """It ends no thread: Spark ends an executor of which any thread was ended by an error."""
    files.fail(getattr(jvm, failure)("it does not answer"))
    files.letGo()
    files.awaitThreads()
    assert files.whole() == 0
    assert files.ended() == 0
    files.fail(None)
    jvm.io.pyspark.statestore.tables.Lazily.pause(False)
    until(lambda: files.whole() == FILES, "whole files")


def test_a_scan_goes_on_where_requests_for_the_rest_get_no_answer(jvm: Any, files: Any) -> None:
    """It waits as long as they do, as for any request of its own, and then fetches what they have not brought."""
    scan = begun(files.scan)
    files.fail(jvm.java.io.IOException("no answer"))
    files.letGo()
    result_in_time(scan, "the scan")
    assert files.whole() == FILES


def test_nothing_waits_for_a_thread_that_nobody_can_have(jvm: Any, tmp_path: Path) -> None:
    lazily = jvm.io.pyspark.statestore.tables.Lazily
    lazily.pause(True)
    try:
        made = jvm.io.pyspark.statestore.tables.AskedFiles(
            jvm.java.io.File(str(tmp_path)).toPath(), LENGTH, FILES, jvm.java.util.Random(1)
        )
        made.endThreads()
        made.ask(True)
        assert made.ofRest() == 0
        assert made.waiting() == 0
        made.close()
    finally:
        lazily.asEver()


@pytest.mark.since("4.1", "stores are loaded lazily from Spark 4.1 on")
@pytest.mark.parametrize(("percent", "comes"), [(20, False), (40, True)])
def test_the_rest_comes_where_a_quarter_of_the_rows_is_asked_for(
    jvm: Any, tmp_path: Path, percent: int, comes: bool
) -> None:
    """A fifth of small rows needs more than half of the blocks, and the rest would come for nothing."""
    lazily = jvm.io.pyspark.statestore.tables.Lazily
    lazily.pause(True)
    try:
        rows = 40_000
        database = jvm.io.pyspark.statestore.rocks.HoleyDatabase
        left_out, missing = database.asked(str(tmp_path), rows, 700, rows * percent // 100)
    finally:
        lazily.asEver()
    assert left_out > 20 << 20
    assert 0 <= missing < left_out / 2
    assert (missing == 0) == comes
