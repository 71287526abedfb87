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
    assert list(found) == [True, True, False]


def test_where_nothing_can_be_given_back_nothing_counts_as_missing(jvm: Any, tmp_path: Path) -> None:
    """No python3 is there. It would be fetched again for each read, though it is on the disk."""
    directory = jvm.java.io.File(str(tmp_path)).toPath()
    extent = 1 << 20
    missing = jvm.io.pyspark.statestore.tables.HoleySst.withoutPuncher(directory, 8 * extent, jvm.java.util.Random(1))
    assert missing <= extent, "more than what it was tried with"
