"""With groupCommit.scope=batch, what Spark enters into its commit log is durable, whatever a query does."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark import InheritableThread
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.class_data import MINOR
from tests.cluster.sums import expected, query, write_input
from tests.conftest import MakeSpark
from tests.jvm.harness import until
from tests.streaming.runs import NO_FILE_CHECKSUMS, STATE_STORE, Run, Setting, writes_checksums
from tests.streaming.test_metrics import log_lines
from tests.streaming.workloads import write_batches

pytestmark = pytest.mark.spark

LOG = "io.pyspark.statestore.write.Commits"


FORMAT = 1 if MINOR == "4.1" else 2
"""Of the checkpoint: 4.1 writes checksums with any, later versions with the second."""


@pytest.mark.skipif(not writes_checksums(FORMAT), reason="this Spark writes no checksum files")
@pytest.mark.parametrize("checksums", [True, False], ids=["checksums", "bare"])
def test_a_warning_says_that_checksums_leave_no_batch(make_spark: MakeSpark, tmp_path: Path, checksums: bool) -> None:
    spark = make_spark({f"{STATE_STORE}fileMerging.groupCommit.scope": "batch"}, mode="provider")
    run = Run(spark, "aggregation", Setting("provider", "rocksdb", FORMAT, checksums=checksums), tmp_path)
    write_batches(run.input, range(2))

    with log_lines(spark.sparkContext._jvm, LOG) as lines:
        run.run()
        said = [line for line in lines() if "groupCommit.scope=batch has no effect" in line]

    assert len(said) == int(checksums)
    assert all(str(run.checkpoint) in line and "fileChecksum.enabled=false" in line for line in said)


BATCHES = 3
SETTINGS = {
    **NO_FILE_CHECKSUMS,
    f"{STATE_STORE}fileMerging.groupCommit.scope": "batch",
    f"{STATE_STORE}rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
}
INHERITED = ("streaming.sql.batchId", "sql.streaming.queryId", "spark.jobGroup.id")
"""Local properties that Spark sets in a query's thread."""


class Sums:
    """Sums by key, of which a function takes each batch."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root
        self.checkpoint = root / "checkpoint"
        self._before = self._left()
        write_input(root / "input", range(BATCHES))

    def start(self, take: Callable[[DataFrame, int], None]) -> StreamingQuery:
        writer = query(self.spark, self.root / "input").writeStream.outputMode("update").trigger(availableNow=True)
        return writer.option("checkpointLocation", str(self.checkpoint)).foreachBatch(take).start()

    def run(self, take: Callable[[DataFrame, int], None] = lambda batch, number: batch.collect() and None) -> None:
        started = self.start(take)
        try:
            assert started.awaitTermination(120)
        finally:
            started.stop()

    @property
    def committed(self) -> int:
        return len(list((self.checkpoint / "commits").glob("[0-9]*")))

    def assert_right(self, batches: int = BATCHES) -> None:
        """What another process would load is all there, of each batch."""
        assert self.committed == batches
        self.scope.forget(str(self.checkpoint))
        for batch in range(batches):
            rows = self.spark.read.format("statestore").option("batchId", batch).load(str(self.checkpoint))
            found = {row[0]: (row[1], row[2]) for row in rows.selectExpr("key.k", "value.*").collect()}
            assert found == expected(batch + 1)

    @property
    def scope(self) -> Any:
        return self.spark.sparkContext._jvm.io.pyspark.statestore.log.BatchScope

    def _left(self) -> tuple[int, int]:
        return self.scope.remembered(), self.scope.waiting()

    def assert_nothing_waits(self) -> None:
        """Tests before this one may have left what they had."""
        until(lambda: all(now <= was for now, was in zip(self._left(), self._before, strict=True)), "debts to end")


@pytest.fixture(params=["rocksdb", "heap"])
def sums(make_spark: MakeSpark, tmp_path: Path, request: pytest.FixtureRequest) -> Sums:
    return Sums(make_spark(SETTINGS, mode="provider", store=request.param), tmp_path)


def test_a_batch_that_is_computed_more_than_once(sums: Sums) -> None:
    def take(batch: DataFrame, number: int) -> None:
        assert batch.count() == len(batch.collect()) == 30
        batch.write.parquet(str(sums.root / "out" / str(number)))

    sums.run(take)
    sums.assert_right()
    sums.assert_nothing_waits()


@pytest.mark.parametrize("kind", [threading.Thread, InheritableThread])
def test_a_job_that_its_batch_does_not_wait_for(sums: Sums, kind: type[threading.Thread]) -> None:
    """What its tasks commit would never become durable, and the next batch would count on it. From 4.1 on Spark itself
    stops then, since the batch's stores have committed nothing, but it has entered the batch by that time."""
    entered, failures = threading.Event(), list[str]()
    late: list[threading.Thread] = []

    def compute(batch: DataFrame) -> None:
        entered.wait(60)
        try:
            batch.collect()
        except Exception as error:
            failures.append(str(error))

    def take(batch: DataFrame, number: int) -> None:
        if number == 0:
            late.append(kind(target=compute, args=[batch]))
            late[0].start()
            return
        entered.set()
        late[0].join(60)
        batch.collect()

    with pytest.raises(StreamingQueryException):
        sums.run(take)
    entered.set()
    late[0].join(60)
    if kind is threading.Thread:  # it knows of no batch, so what its job commits is durable before its tasks end
        assert failures == []
        sums.run()
        sums.assert_right()
    else:
        assert len(failures) == 1
        assert "ended without this task" in failures[0]
        assert sums.committed == 1
    sums.assert_nothing_waits()


@pytest.mark.parametrize("other", [None, "100"], ids=["earlier", "another-query"])
def test_a_batch_that_is_computed_in_a_thread_of_a_pool(sums: Sums, other: str | None) -> None:
    """Such a thread keeps the properties with which it was made: of an earlier batch, or of another query's."""
    context = sums.spark.sparkContext
    with ThreadPoolExecutor(1) as pool:

        def inherit(properties: dict[str, str | None]) -> None:
            for name, value in properties.items():
                context.setLocalProperty(name, value)

        def take(batch: DataFrame, number: int) -> None:
            if number == 0:
                batch_of_thread = {INHERITED[0]: other} if other else {}
                pool.submit(
                    inherit, {key: context.getLocalProperty(key) for key in INHERITED} | batch_of_thread
                ).result()
            assert pool.submit(batch.count).result() == 30

        sums.run(take)
    sums.assert_right()


def test_a_query_whose_thread_has_another_name(sums: Sums) -> None:
    def take(batch: DataFrame, number: int) -> None:
        batch.collect()
        sums.spark.sparkContext._jvm.java.lang.Thread.currentThread().setName(f"mine {number}")

    sums.run(take)
    sums.assert_right()
    sums.assert_nothing_waits()


def test_a_batch_that_fails_after_its_tasks(sums: Sums) -> None:
    def take(batch: DataFrame, number: int) -> None:
        batch.collect()
        assert number < 1, "by the test"

    with pytest.raises(StreamingQueryException, match="by the test"):
        sums.run(take)
    assert sums.committed == 1
    sums.assert_nothing_waits()
    sums.run()
    sums.assert_right()


def test_a_checkpoint_that_is_begun_anew_after_its_first_batch_has_failed(sums: Sums) -> None:
    """As in a notebook: the same session and path. Spark's reader of state goes by the partitions' directories."""

    def fails(batch: DataFrame, number: int) -> None:
        assert batch.count() == 30
        raise ValueError("the user's mistake")

    with pytest.raises(StreamingQueryException):
        sums.run(fails)
    shutil.rmtree(sums.checkpoint)
    sums.run()
    sums.assert_right()


def test_a_query_that_is_stopped_after_the_tasks_of_a_batch(sums: Sums) -> None:
    reached, goes_on = threading.Event(), threading.Event()

    def take(batch: DataFrame, number: int) -> None:
        batch.collect()
        if number == 1:
            reached.set()
            assert goes_on.wait(60)

    started = sums.start(take)
    assert reached.wait(60)
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(started.stop)
        goes_on.set()
        stopping.result(60)
    committed = sums.committed
    sums.assert_right(committed)
    sums.assert_nothing_waits()
    sums.run()
    sums.assert_right()
