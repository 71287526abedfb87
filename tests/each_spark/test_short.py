"""The short set for each minor version of Spark: both doors and stores give out what stock Spark of that version does.

`make test-spark VERSION=4.1` runs all tests on another version; this is what continuous integration runs on each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_statestore import Checkpoint, Sink
from tests.class_data import MINOR
from tests.cluster.application import Application, application
from tests.cluster.application import Setting as Cluster
from tests.conftest import MakeSpark
from tests.migration.builders import NOW
from tests.sink.sinks import FileSink, rows_of
from tests.streaming.runs import STATE_STORE, Run, Setting, assert_state_is_merged, unload_stores
from tests.streaming.workloads import write_batches

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.each_spark]

CONF = {f"{STATE_STORE}maintenanceInterval": "300ms", f"{STATE_STORE}minDeltasForSnapshot": "1"}
NAMES = ("aggregation", "dedup", "outer_join")
PARTS = range(2), range(2, 4), range(4, 5)
"""The batches before a restart, after it, and after an export."""

SETTINGS = [
    Setting("provider", "rocksdb", changelog=True),
    Setting("path", "rocksdb", changelog=False),
    Setting("provider", "heap"),
    Setting("path", "heap"),
]


def run_part(runs: dict[str, Run], part: range) -> None:
    """Runs queries side by side over a part of the input, and waits for maintenance, which would write more."""
    queries = {}
    for name, run in runs.items():
        write_batches(run.input, part)
        queries[name] = run.start()
    for name, run in runs.items():
        run.finish(queries[name])
    unload_stores(next(iter(runs.values())).spark)


def new_runs(spark: SparkSession, setting: Setting, folder: Path, names: tuple[str, ...] = NAMES) -> dict[str, Run]:
    """A query of each workload, not begun yet."""
    return {name: Run(spark, name, setting, folder / name) for name in names}


@pytest.fixture(scope="module")
def stock(make_spark: MakeSpark, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Run]]:
    """The queries on stock Spark, by store."""
    spark = make_spark(CONF)
    unload_stores(spark)
    found = {}
    for store in ("rocksdb", "heap"):
        found[store] = new_runs(spark, Setting("stock", store), tmp_path_factory.mktemp(f"stock-{store}"))
        for part in PARTS:
            run_part(found[store], part)
    return found


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_aggregation_join_and_deduplication_over_a_restart_and_an_export(
    make_spark: MakeSpark, stock: dict[str, dict[str, Run]], setting: Setting, tmp_path: Path
) -> None:
    spark = make_spark(CONF, mode=setting.door, store=setting.store)
    unload_stores(spark)
    merged = new_runs(spark, setting, tmp_path)
    for part in PARTS[:2]:
        run_part(merged, part)
    again = {}
    for name, run in merged.items():
        paths = assert_state_is_merged(run)
        assert {path.split("/")[1] for path in paths} == {"0", "1", "2"}
        summary = Checkpoint(run.checkpoint).inspect.summary().to_pylist()[0]
        assert summary["live_segment_count"] > 0
        Checkpoint(run.checkpoint, closed_after=NOW).export()
        by_stock = replace(setting, door="stock")
        again[name] = Run(run.spark, name, by_stock, run.folder, run.input, run.rows, run.metrics)
    run_part(again, PARTS[2])
    for name, run in again.items():
        assert run.rows == stock[setting.store][name].rows
        assert run.metrics == stock[setting.store][name].metrics


@pytest.mark.parametrize("store", ["rocksdb", "heap"])
def test_the_progress_says_what_was_written(make_spark: MakeSpark, tmp_path: Path, store: str) -> None:
    spark = make_spark({f"{STATE_STORE}maintenanceInterval": "10m"}, mode="provider", store=store)
    run = Run(spark, "aggregation", Setting("provider", store), tmp_path)
    write_batches(run.input, range(1))
    query = run.start()
    run.finish(query)
    operators = [operator for progress in query.recentProgress for operator in progress["stateOperators"]]
    written = [operator["customMetrics"]["fileMergingWrittenSegments"] for operator in operators]
    assert sum(written) == Checkpoint(run.checkpoint).inspect.segments().num_rows > 0
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    assert list(jvm.io.pyspark.statestore.spark.PassedOn.notPassedOn()) == []


@pytest.mark.since("4.0", "transformWithState came with Spark 4.0")
def test_transform_with_state_through_the_path_door(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark = make_spark(CONF, mode="path")
    unload_stores(spark)
    found = {}
    for door in ("stock", "path"):
        runs = new_runs(spark, Setting(door, "rocksdb"), tmp_path / door, ("transform_with_state",))
        for part in PARTS:
            run_part(runs, part)
        found[door] = runs["transform_with_state"]
    assert_state_is_merged(found["path"])
    assert found["path"].rows == found["stock"].rows
    assert any("timer" in row for rows in found["path"].rows.values() for row in rows)


@pytest.mark.since("4.0", "Python data sources came with Spark 4.0")
def test_checkpoint_files_in_sql_and_as_a_stream(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark = make_spark(CONF, mode="path")
    runs = new_runs(spark, Setting("path", "rocksdb"), tmp_path, ("aggregation",))
    run_part(runs, PARTS[0])
    run = runs["aggregation"]
    segments = spark.read.format("checkpoint_files").option("table", "segments").load(str(run.checkpoint))
    paths = {row["logical_path"] for row in segments.where("operator_id = 0").collect()}
    assert paths == {row["logical_path"] for row in Checkpoint(run.checkpoint).inspect.segments().to_pylist()}

    stream = spark.readStream.format("checkpoint_files").option("table", "segments").option("settledAfter", "0s")
    seen: list[str] = []

    def follow() -> list[str]:
        begun = len(seen)
        writer = stream.load(str(run.checkpoint)).select("logical_path", "written_at", "crc32c").writeStream
        writer = writer.foreachBatch(lambda batch, _: seen.extend(str(tuple(row)) for row in batch.collect()))
        location = str(tmp_path / "follower")
        writer.option("checkpointLocation", location).trigger(availableNow=True).start().awaitTermination()
        return seen[begun:]

    assert follow()
    run_part(runs, PARTS[1])
    assert follow()
    assert len(set(seen)) == len(seen), "each write comes once"
    assert follow() == []


@pytest.mark.skipif(MINOR != "3.5", reason="Python data sources came with Spark 4.0, so the question has an answer")
def test_who_asks_for_checkpoint_files_is_told_what_to_do(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark = make_spark(CONF, mode="path")
    with pytest.raises(Exception, match=r"PSS_UNSUPPORTED_SPARK.*Spark 4\.0"):
        spark.read.format("checkpoint_files").load(str(tmp_path))
    with pytest.raises(Exception, match=r"PSS_UNSUPPORTED_SPARK.*4\.0 or newer"):
        from pyspark_checkpoint_files import DefaultSource  # noqa: F401


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_a_file_sink_without_small_files(make_spark: MakeSpark, tmp_path: Path, format: str) -> None:
    spark = make_spark(CONF)
    ours, stock = (FileSink(spark, tmp_path / side, format, ("q", "p")) for side in ("ours", "stock"))
    for sink in (ours, stock):
        for batch in range(2):  # with a restart
            sink.feed(rows_of(batch))
            sink.run(compacting=sink is ours)

    assert ours.read() == stock.read()
    assert [len(ours.listed(batch)) for batch in range(2)] == [6, 6]
    assert len(stock.listed(0)) > 6
    assert ours.present() == sorted(file for batch in range(2) for file in ours.listed(batch))
    done = Sink(stock.files).compact(older_than=timedelta(0), options={"header": "false"}, spark=spark)
    assert done.added_data_files_count == 2 * 6
    assert [len(stock.listed(batch)) for batch in range(2)] == [6, 6]
    assert ours.read() == stock.read()
    for batch, delay in ((2, "10h"), (3, "0s")):  # the rows of the one wait for the other
        for sink in (ours, stock):
            sink.feed(rows_of(batch))
            sink.run(compacting=sink is ours, maxDelay=delay)
        assert len(ours.listed(batch)) == (batch - 2) * 6
    assert ours.read() == stock.read()


@pytest.mark.skipif(MINOR != "3.5", reason="Spark 4.0 and newer come with one Scala")
def test_a_file_sink_refuses_the_scala_that_it_would_not_hear_of_commits_in(make_spark: MakeSpark) -> None:
    jvm = make_spark(CONF).sparkContext._jvm
    assert jvm is not None
    scala = jvm.io.pyspark.statestore.sink.SinkScala
    scala.check("2.12.18")
    with pytest.raises(Exception, match=r"PSS_SINK_COMPACTION_FAILED.*2\.13\.8"):
        scala.check("2.13.8")


@pytest.fixture
def app(main_jar: Path, test_jar: Path, tmp_path: Path) -> Iterator[Application]:
    """An application whose executors are processes of their own."""
    with application(tmp_path, Cluster(), (main_jar, test_jar)) as made:
        made.feed(2)
        made.start()
        made.finish()
        yield made


def test_an_executor_is_killed_in_the_middle_of_a_commit(app: Application) -> None:
    order = app.order("flush.commit", fraction=0.6, process="executor")
    app.feed_until_killed(order)
    app.feed()
    app.finish()
    assert order.dead
    assert app.given_out() == app.batch_result() == app.workload.result(app.rows())
    app.stop()
    assert Checkpoint(app.checkpoint).maintenance.verify().damages == ()


def test_maps_that_share_rows_or_one_warning(make_spark: MakeSpark, tmp_path: Path) -> None:
    """The heap store's maps are ours where Spark lets us choose them."""
    spark = make_spark(CONF, mode="provider", store="heap")
    runs = new_runs(spark, Setting("provider", "heap"), tmp_path, ("aggregation",))
    run_part(runs, PARTS[0])
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    stock = loader.loadClass("org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider")
    missing = jvm.io.pyspark.statestore.heap.MapFactoryHook.whatIsMissing(stock)
    number = tuple(int(part) for part in MINOR.split("."))
    assert (missing is None) == (number >= (4, 2)), missing
    report = json.dumps(runs["aggregation"].metrics)
    assert re.search(r"\d", report)
