"""A checkpoint opened through another door than it was written through: it goes on, or the start says why not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from pyspark_statestore import Checkpoint
from pyspark_statestore.session.doors import MERGED_PROVIDERS, STOCK_PROVIDERS
from tests.conftest import MakeSpark
from tests.migration.builders import NOW
from tests.sampling import sampled
from tests.streaming.runs import (
    PROVIDER,
    Run,
    Setting,
    assert_state_is_merged,
    merged_files,
    plain_state_files,
    session_conf,
)
from tests.streaming.test_metrics import log_lines
from tests.streaming.workloads import WORKLOADS, Workload, write_batches

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="sessions and processes of their own")]

DOOR_CHECK = "io.pyspark.statestore.fs.DoorCheck"
ONLY_DATA = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
STORES = ("rocksdb", "heap")
FIRST, SECOND, THIRD = (range(n, n + 1) for n in range(3))


def go_on(run: Run, batches: range) -> Run:
    write_batches(run.input, batches)
    run.run(ONLY_DATA)
    assert set(batches) <= run.rows.keys()
    return run


def through(run: Run, door: str, spark: SparkSession | None = None, workload: str = "") -> Run:
    """The same query, through another door."""
    setting = Setting(door, run.setting.store, changelog=run.setting.changelog)
    return Run(spark or run.spark, workload or run.workload, setting, run.folder)


def rows_of_stock(spark: SparkSession, run: Run, folder: Path) -> dict[int, list[str]]:
    """What stock Spark gives out for the same input."""
    stock = Run(spark, run.workload, Setting("stock", run.setting.store), folder, run.input)
    stock.run(ONLY_DATA)
    return stock.rows


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    """All files with when they were written and their length."""
    # What a run says when it ends comes a moment later, and what it has said before goes then.
    of_state = (file for file in folder.rglob("*") if file.suffix not in (".running", ".ended") and file.is_file())
    stats = ((file, file.stat()) for file in of_state)
    return {str(file.relative_to(folder)): (stat.st_mtime_ns, stat.st_size) for file, stat in stats}


@pytest.fixture(autouse=True, scope="module")
def stateless() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(WORKLOADS, "stateless", Workload(lambda stream: stream().select("key"), "update"))
        yield


@pytest.mark.parametrize("store", sampled(STORES, 1))
def test_a_query_that_stays_stock_is_told_the_two_ways_in(make_spark: MakeSpark, tmp_path: Path, store: str) -> None:
    spark = make_spark(mode="provider", store=store)
    stock = go_on(Run(spark, "aggregation", Setting("stock", store), tmp_path), FIRST)

    with log_lines(spark._jvm, DOOR_CHECK) as lines:
        run = go_on(through(stock, "provider"), SECOND)

    assert merged_files(run.checkpoint) == []
    (line,) = lines()
    assert line.startswith("[PSS_STAYS_STOCK] ")
    assert str(run.checkpoint) in line
    assert "pyspark-statestore convert" in line
    assert "--to merged" in line
    assert f"merged+file:{run.checkpoint}" in line


@pytest.mark.parametrize(
    ("mode", "begun"), sampled([("provider", "rocksdb"), ("path", "rocksdb"), ("path", "heap")], 1)
)
def test_a_query_that_keeps_its_store_is_told_so(make_spark: MakeSpark, tmp_path: Path, mode: str, begun: str) -> None:
    [asked] = {*STORES} - {begun}
    spark = make_spark(mode="provider")
    classes = {"provider": MERGED_PROVIDERS, "path": STOCK_PROVIDERS}[mode]  # as configure() sets them
    own = Run(spark, "aggregation", Setting(mode, begun), tmp_path)
    with log_lines(spark._jvm, DOOR_CHECK) as lines:
        with session_conf(spark, {PROVIDER: classes[begun]}):
            go_on(own, FIRST)
            go_on(own, SECOND)
        assert lines() == []
        with session_conf(spark, {PROVIDER: classes[asked]}):
            go_on(own, THIRD)

    (line,) = lines()
    assert line.startswith(f"[PSS_KEEPS_STORE] The query of file:{own.checkpoint} goes on with its {begun} store")
    assert f'store="{begun}" to configure()' in line
    assert line.endswith(f"pyspark-statestore convert file:{own.checkpoint} --store {asked})")


@pytest.mark.slow
def test_queries_that_are_merged_or_have_no_state_or_are_meant_to_be_stock_are_told_nothing(
    make_spark: MakeSpark, tmp_path: Path
) -> None:
    spark = make_spark(mode="provider")
    settings = {"merged": Setting("provider", "rocksdb"), "none": Setting("stock", "rocksdb")}
    runs = [Run(spark, "aggregation", settings["merged"], tmp_path / "merged")]
    runs.append(Run(spark, "stateless", settings["none"], tmp_path / "stateless"))
    runs.append(Run(spark, "aggregation", settings["none"], tmp_path / "stock"))
    with log_lines(spark._jvm, DOOR_CHECK) as lines:
        for run in runs:
            go_on(run, FIRST)
        go_on(runs[0], SECOND)
        go_on(through(runs[1], "provider"), SECOND)
        go_on(runs[2], SECOND)
    assert lines() == []


@pytest.mark.sweep(2)
@pytest.mark.parametrize("mode", ["provider", "path"])
@pytest.mark.parametrize("store", STORES)
def test_a_path_door_checkpoint_is_refused_by_its_plain_location(
    make_spark: MakeSpark, tmp_path: Path, store: str, mode: str
) -> None:
    spark = make_spark(mode="path", store=store)
    run = go_on(Run(spark, "aggregation", Setting("path", store), tmp_path / "query"), FIRST)
    spark = make_spark(mode=mode, store=store)
    before = files_of(run.checkpoint)
    write_batches(run.input, SECOND)

    with pytest.raises(IllegalArgumentException, match="PSS_WRONG_DOOR") as caught:
        Run(spark, run.workload, Setting("plain", store), run.folder).start()

    assert files_of(run.checkpoint) == before
    message = str(caught.value)
    assert f"merged+file:{run.checkpoint}" in message
    assert "pyspark-statestore convert" in message
    assert "pyspark-statestore export" in message
    again = through(run, "path", spark)
    again.run(ONLY_DATA)
    assert {**run.rows, **again.rows} == rows_of_stock(spark, run, tmp_path / "stock")


@pytest.mark.slow
def test_after_an_export_the_plain_location_is_right(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark = make_spark(mode="path")
    run = go_on(Run(spark, "aggregation", Setting("path", "rocksdb"), tmp_path), FIRST)
    Checkpoint(run.checkpoint, closed_after=NOW).export()

    go_on(through(run, "stock"), SECOND)

    assert plain_state_files(run.checkpoint)


@pytest.mark.parametrize("store", sampled(STORES[::-1], 1))
def test_a_merged_path_is_served_in_a_provider_session(make_spark: MakeSpark, tmp_path: Path, store: str) -> None:
    begun = go_on(
        Run(make_spark(mode="path", store=store), "aggregation", Setting("path", store), tmp_path / "query"), FIRST
    )
    spark = make_spark(mode="provider", store=store)
    again = go_on(through(begun, "path", spark), SECOND)
    (again.checkpoint / "commits" / "1").unlink()
    (again.checkpoint / "commits" / ".1.crc").unlink()

    redone = go_on(through(again, "path"), range(1, 3))

    assert redone.rows[1] == again.rows[1]
    assert {**begun.rows, **redone.rows} == rows_of_stock(spark, begun, tmp_path / "stock")
    assert_state_is_merged(redone)


@pytest.mark.slow
@pytest.mark.parametrize("store", sampled(STORES, 1))
def test_a_query_may_begin_on_a_merged_path_of_a_provider_session(
    make_spark: MakeSpark, tmp_path: Path, store: str
) -> None:
    """Then it goes on by either name, in sessions of either mode."""
    spark = make_spark(mode="provider", store=store)
    begun = go_on(Run(spark, "aggregation", Setting("path", store), tmp_path / "query"), FIRST)
    plain = go_on(through(begun, "provider"), SECOND)
    spark = make_spark(mode="path", store=store)
    merged = go_on(through(begun, "path", spark), THIRD)
    write_batches(begun.input, range(3, 4))
    last = through(begun, "provider", spark)
    last.run(ONLY_DATA)
    assert_state_is_merged(last)
    rows = {**begun.rows, **plain.rows, **merged.rows, **last.rows}
    assert rows == rows_of_stock(spark, begun, tmp_path / "stock")


@pytest.mark.since("4.2", "offline repartitioning came with Spark 4.2")
@pytest.mark.parametrize("store", sampled(STORES[::-1], 1))
def test_offline_repartitioning_of_the_provider_door_is_refused_before_anything_is_written(
    make_spark: MakeSpark, tmp_path: Path, store: str
) -> None:
    spark = make_spark(mode="provider", store=store)
    run = go_on(Run(spark, "aggregation", Setting("provider", store), tmp_path), FIRST)
    before = files_of(run.checkpoint)
    for location in (run.location, f"merged+file:{run.checkpoint}"):
        with pytest.raises(IllegalArgumentException, match="PSS_CANNOT_REPARTITION") as caught:
            spark._streamingCheckpointManager.repartition(location, 5)
        advice = "pyspark-statestore repartition" if store == "rocksdb" else "does not know heap stores"
        assert advice in str(caught.value)
        assert files_of(run.checkpoint) == before
    go_on(run, SECOND)
    assert spark.conf.get(PROVIDER).startswith("io.pyspark")


@pytest.mark.since("4.2", "offline repartitioning came with Spark 4.2")
@pytest.mark.slow
def test_the_path_door_is_repartitioned_by_its_merged_path_only(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark = make_spark(mode="path")
    run = go_on(Run(spark, "aggregation", Setting("path", "rocksdb"), tmp_path / "query"), FIRST)
    before = files_of(run.checkpoint)
    with pytest.raises(IllegalArgumentException, match="PSS_WRONG_DOOR"):
        spark._streamingCheckpointManager.repartition(str(run.checkpoint), 5)
    assert files_of(run.checkpoint) == before

    spark._streamingCheckpointManager.repartition(run.location, 5)

    write_batches(run.input, SECOND)
    run.run(ONLY_DATA)
    expected = rows_of_stock(spark, run, tmp_path / "stock")
    assert [run.rows[0], run.rows[2]] == [expected[0], expected[1]], "batch 1 was the repartitioning"
    assert_state_is_merged(run)


@pytest.mark.since("4.2", "offline repartitioning came with Spark 4.2")
@pytest.mark.slow
def test_a_detour_through_the_path_door_works(make_spark: MakeSpark, tmp_path: Path) -> None:
    """To the path door, repartition there by Spark's own call, and back."""
    spark = make_spark(mode="provider")
    run = go_on(Run(spark, "aggregation", Setting("provider", "rocksdb"), tmp_path / "query"), FIRST)
    checkpoint = Checkpoint(run.checkpoint, closed_after=NOW)
    checkpoint.convert("merged", door="path")
    spark._streamingCheckpointManager.repartition(f"merged+file:{run.checkpoint}", 5)
    checkpoint.convert("merged")
    write_batches(run.input, SECOND)
    run.run(ONLY_DATA)
    expected = rows_of_stock(spark, run, tmp_path / "stock")
    assert [run.rows[0], run.rows[2]] == [expected[0], expected[1]]
    assert_state_is_merged(run)
