"""A stream of checkpoint_files, as Spark runs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_statestore import Checkpoint
from tests.conftest import MakeSpark
from tests.jvm import harness
from tests.jvm.harness import until
from tests.streaming.runs import Run, Setting
from tests.streaming.workloads import write_batch

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="a table as a stream")]

BYTES = b"x" * 4000


@dataclass
class Follower:
    """A streaming query over the segments of a checkpoint, and what it has given out, batch by batch."""

    spark: SparkSession
    source: Path
    folder: Path
    options: dict[str, str] = field(default_factory=dict)
    batches: dict[int, list[str]] = field(default_factory=dict)
    fail_in: int | None = None

    @property
    def rows(self) -> list[str]:
        return [path for batch in sorted(self.batches) for path in self.batches[batch]]

    def start(self, *, available_now: bool = True) -> StreamingQuery:
        options = {"table": "segments", "settledAfter": "0s", **self.options}
        stream = self.spark.readStream.format("checkpoint_files").options(**options).load(str(self.source))
        writer = stream.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self.folder))
        trigger: dict[str, Any] = {"availableNow": True} if available_now else {"processingTime": "200 milliseconds"}
        return writer.trigger(**trigger).start()

    def run(self) -> None:
        self.start().awaitTermination()

    def _take(self, batch: DataFrame, batch_id: int) -> None:
        rows = [row["logical_path"] for row in batch.collect()]
        if self.fail_in == batch_id:
            raise RuntimeError("on purpose")
        self.batches[batch_id] = rows


@pytest.fixture
def new_checkpoint(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., harness.Checkpoint]]:
    made: list[harness.Checkpoint] = []

    def make(**options: str) -> harness.Checkpoint:
        made.append(harness.Checkpoint(spark.sparkContext._jvm, tmp_path / "source", **options))
        return made[-1]

    cleaning = spark.sparkContext._jvm.io.pyspark.statestore.log.Cleaning
    cleaning.byHand()
    yield make
    cleaning.byItself()
    for checkpoint in made:
        checkpoint.forget()


def test_each_segment_comes_once_over_restarts_and_relocations(
    spark: SparkSession, tmp_path: Path, new_checkpoint: Callable[..., harness.Checkpoint]
) -> None:
    source = new_checkpoint(maxFileSize="64k", maxOpenFiles="1")
    follower = Follower(spark, tmp_path / "source", tmp_path / "followed", {"maxSegmentsPerTrigger": "40"})
    written: list[str] = []
    gone: set[str] = set()

    def churn(first: int, last: int) -> None:
        """Commits versions and deletes most of the older ones, so that files have to be emptied."""
        for version in range(first, last):
            path = f"0/0/{version}.changelog"
            source.write(path, BYTES)
            written.append(path)
            if version >= 10 and version % 7:
                source.delete(f"0/0/{version - 10}.changelog")
        source.clean()

    churn(1, 60)
    follower.run()
    seen_before = len(follower.rows)
    files_before = set(source.files())
    # It fails in the middle of a batch, and everything is moved before it goes on.
    churn(60, 90)
    follower.fail_in = max(follower.batches) + 1
    with pytest.raises(Exception, match="on purpose"):
        follower.run()
    churn(90, 220)
    follower.fail_in = None
    follower.run()

    segments = Checkpoint(tmp_path / "source").inspect.segments().to_pylist()
    moved = {row["logical_path"] for row in segments if row["generation"] > 0}
    gone = set(written) - {row["logical_path"] for row in segments}
    assert moved & set(written[:59])
    assert moved & set(written[59:])
    assert files_before - set(source.files())
    assert seen_before > 0
    assert max(Counter(follower.rows).values()) == 1
    assert set(written) - set(follower.rows) <= gone
    assert all(len(batch) <= 40 for batch in follower.batches.values())
    assert len(follower.batches) > 3


def test_a_stream_follows_a_running_query_batch_by_batch(spark: SparkSession, tmp_path: Path) -> None:
    running = Run(spark, "aggregation", Setting("provider", "rocksdb"), tmp_path / "followed")
    write_batch(running.input, 0)
    query = running.start(available_now=False)
    follower = Follower(spark, running.checkpoint, tmp_path / "follower", {"storeName": "default"})
    try:
        until(lambda: 0 in running.rows, "the first batch")
        following = follower.start(available_now=False)
        until(lambda: {f"0/{p}/1.changelog" for p in range(3)} <= set(follower.rows), "the first batch's segments")
        write_batch(running.input, 1)
        until(lambda: {f"0/{p}/2.changelog" for p in range(3)} <= set(follower.rows), "the second batch's segments")
        following.stop()
    finally:
        query.stop()
    follower.run()

    assert sorted(follower.rows) == sorted(
        row["logical_path"] for row in Checkpoint(running.checkpoint).inspect.segments().to_pylist()
    )


def test_available_now_ends_with_what_was_there_in_batches_of_the_size_asked_for(
    spark: SparkSession, tmp_path: Path, new_checkpoint: Callable[..., harness.Checkpoint]
) -> None:
    source = new_checkpoint()
    paths = [f"0/{partition}/1.changelog" for partition in range(10)]
    for path in paths:
        source.write(path)
    follower = Follower(spark, tmp_path / "source", tmp_path / "followed", {"maxSegmentsPerTrigger": "4"})

    follower.run()

    assert follower.rows == paths
    assert [len(follower.batches[number]) for number in sorted(follower.batches)] == [4, 4, 2]


def test_available_now_waits_until_what_is_there_has_settled(
    spark: SparkSession, tmp_path: Path, new_checkpoint: Callable[..., harness.Checkpoint]
) -> None:
    source = new_checkpoint()
    source.write("0/0/1.changelog")
    follower = Follower(spark, tmp_path / "source", tmp_path / "followed", {"settledAfter": "2s"})

    follower.run()

    assert follower.rows == ["0/0/1.changelog"]


def test_young_segments_of_an_open_file_wait(
    spark: SparkSession, tmp_path: Path, new_checkpoint: Callable[..., harness.Checkpoint]
) -> None:
    from tests.sql.histories import Follower as Driven

    source = new_checkpoint()
    source.write("0/0/1.changelog")
    driven = Driven(tmp_path / "source", settledAfter="1h")

    assert driven.batch() == []
    source.forget()
    driven = Driven(tmp_path / "source", settledAfter="0s")
    assert driven.batch() == ["0/0/1.changelog"]


def test_the_rows_of_a_stream_are_those_of_the_table(
    make_spark: MakeSpark, spark: SparkSession, tmp_path: Path
) -> None:
    run = Run(spark, "aggregation", Setting("provider", "rocksdb"), tmp_path)
    write_batch(run.input, 0)
    run.run()
    options = {"table": "segments", "settledAfter": "0s"}
    stream = spark.readStream.format("checkpoint_files").options(**options).load(str(run.checkpoint))
    writer = stream.writeStream.format("memory").queryName("followed").trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "follower")).start().awaitTermination()

    table = spark.read.format("checkpoint_files").options(table="segments").load(str(run.checkpoint))
    assert spark.table("followed").exceptAll(table).count() == 0
    assert table.exceptAll(spark.table("followed")).count() == 0
    assert table.count() > 0
