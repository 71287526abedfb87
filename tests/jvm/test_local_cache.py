"""A database of which parts of files go again all the time answers as one that is whole, also while it is compacted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jvm.harness import Checkpoint, compacted_histories

pytestmark = [pytest.mark.spark, pytest.mark.since("4.1", "stores are loaded lazily from Spark 4.1 on")]


@pytest.fixture
def small_pages(new_checkpoint: Callable[..., Checkpoint]) -> Iterator[Any]:
    """Lets parts of small files go, in small pages."""
    control: Any = new_checkpoint().jvm.io.pyspark.statestore.tables
    control.HoleySst.pages(512, 600)
    yield control
    control.HoleySst.pages(4096, 1 << 20)
    control.Lazily.asEver()


@pytest.mark.sweep
def test_random_histories_of_which_parts_go_again(jvm: Any, small_pages: Any, tmp_path: Path) -> None:
    limits = [4 << 10, 16 << 10, 1 << 20]
    given_back, compactions = compacted_histories(jvm, tmp_path, lambda seed: limits[seed % 3])
    assert given_back > 0
    assert compactions > 0


def test_nothing_goes_of_a_file_that_somebody_else_reads(jvm: Any, tmp_path: Path) -> None:
    """A snapshot reads a link of an SST that becomes durable under another name meanwhile."""
    directory = jvm.java.io.File(str(tmp_path)).toPath()
    found = jvm.io.pyspark.statestore.tables.HoleySst.pinned(directory, 1 << 20, jvm.java.util.Random(1))
    assert list(found) == [True, False]


def test_a_snapshot_finds_what_rocksdb_deletes_as_it_was(jvm: Any, tmp_path: Path) -> None:
    """It asks for the length of each file while a compaction ends, and Spark believes the first answer for ever."""
    directory = jvm.java.io.File(str(tmp_path)).toPath()
    ssts = jvm.io.pyspark.statestore.tables.HoleySst
    for _ in range(20):
        is_right, linked, afterwards = ssts.deletedWhileLinked(directory, 1 << 20, jvm.java.util.Random(1))
        assert is_right
        assert linked == 1 << 20
        assert afterwards == 0


def test_nothing_goes_of_a_file_that_is_uploaded(jvm: Any, tmp_path: Path) -> None:
    directory = jvm.java.io.File(str(tmp_path)).toPath()
    found = jvm.io.pyspark.statestore.tables.HoleySst.uploaded(directory, 1 << 20, jvm.java.util.Random(1))
    assert list(found) == [True, False]


@pytest.mark.parametrize("again", [False, True])
def test_holes_of_a_closed_store_are_never_data(jvm: Any, tmp_path: Path, again: bool) -> None:
    """A snapshot that waits for its upload has a name of the file, and finds it without its store."""
    directory = jvm.java.io.File(str(tmp_path)).toPath()
    ssts = jvm.io.pyspark.statestore.tables.HoleySst
    is_refused, is_known, is_known_afterwards = ssts.closedWhileStaged(
        directory, 1 << 20, again, jvm.java.util.Random(1)
    )
    assert is_refused
    assert is_known
    assert not is_known_afterwards


def test_where_nothing_can_be_given_back_nothing_counts_as_missing(jvm: Any, tmp_path: Path) -> None:
    """No python3 is there. It would be fetched again for each read, though it is on the disk."""
    directory = jvm.java.io.File(str(tmp_path)).toPath()
    extent = 1 << 20
    missing = jvm.io.pyspark.statestore.tables.HoleySst.withoutPuncher(directory, 8 * extent, jvm.java.util.Random(1))
    assert missing <= extent, "more than what it was tried with"
