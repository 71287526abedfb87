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
