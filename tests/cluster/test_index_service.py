"""Executors ask the driver over an RPC that is late, loses answers, doubles questions, or never answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from pyspark_statestore import Checkpoint
from pyspark_statestore.conf import OPTIONS as OPTIONS_BY_NAME
from pyspark_statestore.migration import split
from tests.cluster.sums import MASTER, OPTIONS, PARTITIONS, Sums, await_gone, executor_counts, expected, settings
from tests.jvm.harness import TESTING
from tests.reshape.harness import SNAPSHOTS, since
from tests.streaming.runs import NO_FILE_CHECKSUMS, session_conf

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(0, files="clusters")]

BATCHES = 6
SERVICE = OPTIONS_BY_NAME["indexService.enabled"].key


@pytest.fixture
def sums(make_spark: Callable[..., Any], main_jar: Path, test_jar: Path, tmp_path: Path) -> Sums:
    conf = settings((main_jar, test_jar), spark__task__maxFailures="20", spark__stage__maxConsecutiveAttempts="20")
    return Sums(make_spark(conf, mode="provider", master=MASTER, **OPTIONS), tmp_path)


@pytest.fixture
def gate(sums: Sums) -> Iterator[Any]:
    """What stands before the service."""
    context = sums.spark.sparkContext
    gate = getattr(context._jvm, f"{TESTING}.IndexServiceGate")
    conf = sums.spark._jsparkSession.sessionState().newHadoopConf()
    gate.install(sums.location, conf)
    yield gate
    gate.tell(0, 0)


def run_beside_cleaning(sums: Sums, batches: int) -> None:
    query = sums.start(available_now=False)
    query.processAllAvailable()
    sums.assert_right(batches)
    await_gone(sums, query, batches)
    query.stop()


def merged_calls(sums: Sums) -> dict[str, int]:
    """Calls of tasks in executors on the directory of merged files that are not for data."""
    calls: dict[str, int] = {}
    for by_root in executor_counts(sums.spark).values():
        for kind, count in by_root[""].get("task", {}).get("merged", {}).items():
            calls[kind] = calls.get(kind, 0) + count
    return {kind: calls.get(kind, 0) for kind in ("listStatus", "getFileStatus", "exists")}


def test_tasks_ask_no_file_system_what_there_is(sums: Sums) -> None:
    sums.feed(range(BATCHES))
    sums.run()
    sums.assert_right(BATCHES)
    assert merged_calls(sums) == {"listStatus": 0, "getFileStatus": 0, "exists": 0}


@since
@pytest.mark.parametrize("service", ["true", "false"], ids=["service", "files"])
@pytest.mark.parametrize("place", ["fork", "own"])
def test_executors_split_partitions_by_what_python_has_just_written(
    sums: Sums, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: str, place: str
) -> None:
    monkeypatch.setattr(split, "SMALLEST_ROW", 0)
    sums.feed([0, 1])
    fork = Sums(sums.spark, tmp_path / "fork", "file") if place == "fork" else sums
    with session_conf(sums.spark, {**SNAPSHOTS, SERVICE: service}):
        sums.run()
        if place == "fork":
            Checkpoint(sums.checkpoint).fork(fork.checkpoint)
        assert fork.state() == expected(2), "all processes have looked into the fork"
        Checkpoint(fork.checkpoint).repartition(2 * PARTITIONS, spark=sums.spark, force=True)
        rows = Checkpoint(fork.checkpoint).inspect.segments().to_pylist()
        foreign = {row["logical_path"].split("/")[1] for row in rows if row["foreign_path"]}
        assert foreign == {str(partition) for partition in range(0 if place == "fork" else PARTITIONS, 2 * PARTITIONS)}
        fork.feed([2])
        fork.run()
    assert fork.state() == expected(3)


def test_answers_that_come_late(sums: Sums, gate: Any) -> None:
    sums.feed(range(3))
    gate.tell(2_000, 0)
    sums.run()
    asked = gate.asked()
    gate.tell(0, 0)
    sums.feed(range(3, BATCHES))
    run_beside_cleaning(sums, BATCHES)
    assert asked >= 6, "the service was hardly asked"


def test_a_task_goes_on_while_its_report_is_under_way_and_the_batch_does_not(
    sums: Sums, gate: Any, request: pytest.FixtureRequest
) -> None:
    # Without snapshots, deletions and seals, whose reports are waited for at once.
    for name, value in {
        "stateStore.minDeltasForSnapshot": "100",
        "minBatchesToRetain": "100",
        "stateStore.fileMerging.closedAfter": "600s",
    }.items():
        key = f"spark.sql.streaming.{name}"
        before = sums.spark.conf.get(key)
        request.addfinalizer(partial(sums.spark.conf.set, key, before))
        sums.spark.conf.set(key, value)
    under_way: list[int] = []
    sums.after = lambda batch: under_way.append(gate.reportsUnderWay())
    gate.tell(5_000, 0)
    sums.feed(range(1))
    with session_conf(sums.spark, NO_FILE_CHECKSUMS):
        query = sums.start()
    assert query.awaitTermination(300)
    (batch,) = [progress for progress in query.recentProgress if progress.numInputRows]
    # Four tasks commit, and each would wait for five seconds.
    assert sum(state.commitTimeMs for state in batch.stateOperators) < 15_000
    assert under_way == [0], "the batch ended before the driver had heard of its commits"
    sums.assert_right(1)


def test_questions_that_are_refused_and_doubled(sums: Sums, gate: Any) -> None:
    sums.feed(range(3))
    sums.run()
    gate.tell(0, 2)
    sums.feed(range(3, BATCHES))
    sums.run()
    gate.tell(0, 0)
    sums.feed(range(BATCHES, BATCHES + 2))
    run_beside_cleaning(sums, BATCHES + 2)


def test_a_service_that_never_answers_fails_the_query_and_nothing_is_lost(
    sums: Sums, gate: Any, make_spark: Callable[..., Any]
) -> None:
    sums.feed(range(3))
    sums.run()
    gate.tell(0, 10)
    sums.feed(range(3, 4))
    with pytest.raises(StreamingQueryException, match="PSS_INDEX_SERVICE_FAILED"):
        sums.run()
    sums.spark.conf.set("spark.sql.streaming.stateStore.fileMerging.indexService.enabled", "false")
    try:
        sums.run()
        sums.assert_right(4)
    finally:
        sums.spark.conf.unset("spark.sql.streaming.stateStore.fileMerging.indexService.enabled")
