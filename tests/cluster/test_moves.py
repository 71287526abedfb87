"""Partitions that move to another executor with every batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming import StreamingQuery

from tests.cluster.sums import MASTER, OPTIONS, PARTITIONS, Sums, await_gone, executor_counts, settings
from tests.jvm.harness import TESTING, until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(0, files="clusters")]

BATCHES = 8


@pytest.mark.parametrize("index_service", [True, pytest.param(False, marks=[pytest.mark.sweep, pytest.mark.left_out])])
def test_partitions_that_move_with_every_batch(
    make_spark: Callable[..., Any], main_jar: Path, test_jar: Path, tmp_path: Path, index_service: bool
) -> None:
    options = {**OPTIONS, "index_service_enabled": str(index_service).lower()}
    spark = make_spark(
        settings((main_jar, test_jar), spark__locality__wait="60s"), mode="provider", master=MASTER, **options
    )
    sums = Sums(spark, tmp_path)
    sums.feed(range(BATCHES))
    mover = getattr(spark.sparkContext._jvm, f"{TESTING}.PartitionMover")
    running: list[StreamingQuery] = []

    def move(batch: int) -> None:
        until(lambda: running, "the query's start")
        # Spark's own reasons are load, locality waits that run out, and lost executors.
        assert mover.move(f"{sums.location}/state", PARTITIONS, str(running[0].runId), ["0", "1"]) == PARTITIONS

    sums.after = move
    running.append(sums.start(available_now=False))
    running[0].processAllAvailable()

    versions = range(1, BATCHES + 1)
    moves = [
        (partition, version)
        for partition in range(PARTITIONS)
        for version in versions[1:]
        if sums.owners[partition, version] != sums.owners[partition, version - 1]
    ]
    assert len(moves) >= 0.9 * PARTITIONS * (BATCHES - 1), sums.owners
    listings = {}
    for executor, by_root in executor_counts(spark).items():
        merged = by_root[""].get("task", {}).get("merged", {})
        listings[executor] = merged.get("listStatus", 0)
    print(f"{len(moves)} moves, listings by tasks: {listings}")
    if index_service:
        assert all(count == 0 for count in listings.values()), listings
    else:
        # One listing for each batch and executor, however many partitions come; and one to open the log.
        assert all(BATCHES - 2 <= count <= BATCHES + 2 for count in listings.values()), listings
    sums.assert_right(BATCHES)
    await_gone(sums, running[0], BATCHES)
    running[0].stop()


@pytest.mark.since("4.1", "SSTs are uploaded as they are made from Spark 4.1 on")
def test_partitions_that_move_while_their_ssts_are_uploaded(
    make_spark: Callable[..., Any], main_jar: Path, test_jar: Path, tmp_path: Path
) -> None:
    """What an executor has uploaded for a snapshot of its own is of no use to the next, and does it no harm."""
    plugin = {"spark__plugins": f"{TESTING}.EarlyPlugin"}
    spark = make_spark(
        settings((main_jar, test_jar), spark__locality__wait="60s", **plugin),
        mode="provider",
        master=MASTER,
        upload="created",
        **OPTIONS,
    )
    sums = Sums(spark, tmp_path)
    sums.feed(range(BATCHES))
    mover = getattr(spark.sparkContext._jvm, f"{TESTING}.PartitionMover")
    running: list[StreamingQuery] = []
    uploaded: set[str] = set()

    def move(batch: int) -> None:
        until(lambda: running, "the query's start")
        if batch % 2:
            # Long enough for a snapshot to be published where its store is.
            uploaded.update(until(lambda: ssts(sums) - uploaded, "another SST"))
        assert mover.move(f"{sums.location}/state", PARTITIONS, str(running[0].runId), ["0", "1"]) == PARTITIONS

    sums.after = move
    running.append(sums.start(available_now=False))
    running[0].processAllAvailable()
    assert uploaded
    # A lane of its own wrote them, and no zip.
    files = sums.look().files.values()
    assert {"sst"} in [{entry.path.rpartition(".")[2] for entry in file if entry.length} for file in files]
    sums.assert_right(BATCHES)


def ssts(sums: Sums) -> set[str]:
    """All SSTs that live."""
    return {path for path in sums.look().live if path.endswith(".sst")}
