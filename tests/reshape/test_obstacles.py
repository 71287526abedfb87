"""What stands in the way of a reshape is found before anything is written; and sessions that write data with Kryo."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint
from pyspark_statestore.migration import split
from tests.conftest import MakeSpark
from tests.copies import copy_stopped
from tests.inspect.builders import refused
from tests.maintenance.harness import live_files
from tests.reshape.harness import (
    SNAPSHOTS,
    at,
    everything,
    given_out,
    go_on,
    keys_of,
    partitions,
    since,
    state_of,
)
from tests.reshape.test_splits import forked, split_in_place, tables
from tests.streaming.runs import Run, Setting, unload_stores

pytestmark = [pytest.mark.spark, since, pytest.mark.sweep(1, files="reshape")]

ONLY_DATA = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
JOIN = "spark.sql.streaming.join.stateFormatVersion"
JOIN_4 = {JOIN: "4", "spark.sql.streaming.join.stateFormatV4.enabled": "true"}
KRYO = {"spark.serializer": "org.apache.spark.serializer.KryoSerializer", "spark.kryo.registrationRequired": "true"}


@pytest.mark.parametrize(("door", "n"), [("path", 1), ("provider", 3)])
def test_state_of_a_join_whose_keys_spark_cannot_take_apart(
    make_spark: MakeSpark, tmp_path: Path, door: str, n: int
) -> None:
    """Of its fourth format Spark does not know where a key belongs; from one partition, rows would be lost silently."""
    run = Run(make_spark(mode=door), "outer_join", Setting(door, "rocksdb"), tmp_path / "query")
    conf = {**ONLY_DATA, **JOIN_4}
    go_on(run, range(2), {**conf, **partitions(n)})
    before = everything(run.checkpoint)
    for number in (4, 6):
        with refused("PSS_CANNOT_REPARTITION", "state format 4"):
            at(run).repartition(number, spark=run.spark)
    with refused("PSS_CANNOT_REPARTITION", "state format 4"):
        forked(run, tmp_path / "fork", 4)
    assert everything(run.checkpoint) == before
    go_on(run, [2], conf)


@pytest.mark.parametrize("version", [2, 3])
def test_state_of_a_join_in_a_format_that_spark_knows(make_spark: MakeSpark, tmp_path: Path, version: int) -> None:
    run = Run(make_spark(mode="path"), "outer_join", Setting("path", "rocksdb"), tmp_path / "query")
    conf = {**ONLY_DATA, JOIN: str(version)}
    always = Run(run.spark, run.workload, Setting("stock", "rocksdb"), tmp_path / "always", run.input)
    go_on(run, range(2), {**conf, **partitions(1)})
    at(run).repartition(3, spark=run.spark)
    go_on(always, (), {**conf, **partitions(3)})
    assert state_of(run) == state_of(always)
    go_on(run, [2], conf)
    go_on(always, (), conf)
    assert given_out(run)[-1] == given_out(always)[-1]
    assert state_of(run) == state_of(always)


def test_a_snapshot_of_an_attempt_that_was_not_committed(
    make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is newer than the one that the committed version follows; new partitions could not be restored with it."""
    monkeypatch.setattr(split, "SMALLEST_ROW", 0)
    spark = make_spark(mode="path")
    run = Run(spark, "aggregation", Setting("path", "rocksdb", 2), tmp_path / "query")
    always = Run(spark, "aggregation", Setting("stock", "rocksdb", 2), tmp_path / "always", run.input)
    go_on(run, [0, 1], {**ONLY_DATA, **SNAPSHOTS, **partitions(2)})
    first = copy_stopped(run.checkpoint, tmp_path / "first")
    go_on(run, [2], {**ONLY_DATA, **SNAPSHOTS})  # an attempt at batch 2 that leaves snapshots
    attempt = copy_stopped(run.checkpoint, tmp_path / "attempt")
    for log in ("offsets", "commits", "sources"):
        shutil.rmtree(run.checkpoint / log)
        shutil.copytree(first / log, run.checkpoint / log)
    for batch in [each for each in run.rows if each > 1]:
        del run.rows[batch]
    unload_stores(spark)
    go_on(run, (), ONLY_DATA)  # and the one that was committed, with changelogs
    paths = live_files(run.checkpoint)
    attempts = [path for path in live_files(attempt) if "/3_" in path and path.endswith(".zip") and path in paths]
    assert attempts
    assert [path for path in paths if "/3_" in path and path.endswith(".changelog")]

    split_in_place(run, 4)

    assert any(files - {None} for partition, files in tables(run).items() if partition >= 2), "by reference"
    go_on(always, (), {**ONLY_DATA, **partitions(4)})
    assert state_of(run) == state_of(always)
    assert at(run).maintenance.verify().is_clean
    go_on(run, [3], ONLY_DATA)
    go_on(always, (), ONLY_DATA)
    assert state_of(run) == state_of(always)


@pytest.mark.parametrize("workload", ["aggregation", "outer_join"])
@pytest.mark.parametrize("store", ["rocksdb", "heap"])
def test_a_session_whose_serializer_is_kryo(
    make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str, workload: str
) -> None:
    """It writes no records, and here no class that nobody has registered: in one job, split, and through a shuffle."""
    monkeypatch.setattr(split, "SMALLEST_ROW", 0)
    spark = make_spark(mode="provider", store=store)
    run = go_on(Run(spark, workload, Setting("provider", store), tmp_path / "query"), range(2), partitions(2))
    state = keys_of(run)
    spark = make_spark(KRYO, mode="provider", store=store)
    run = replace(run, spark=spark)
    for n in (3, 6, 25, 2):
        Checkpoint(run.checkpoint).repartition(n, spark=spark, force=True)
    Checkpoint(run.checkpoint).convert(store="heap" if store == "rocksdb" else "rocksdb", spark=spark, force=True)
    spark = make_spark(mode="provider", store=store)
    run = replace(run, spark=spark)
    assert keys_of(run) == state
    assert at(run).maintenance.verify().is_clean
