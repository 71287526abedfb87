"""One checkpoint, repartitioned again and again, forked, copied, and taken back."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_statestore import Checkpoint, StateStoreFilesError
from tests.conftest import MakeSpark
from tests.inspect.builders import refused
from tests.reshape.harness import (
    at,
    everything,
    given_out,
    go_on,
    partitions,
    partitions_with_files,
    rows_said,
    since,
    state_of,
)
from tests.streaming.runs import Run, Setting, assert_state_is_merged, plain_state_files
from tests.streaming.workloads import WORKLOADS, Workload

pytestmark = [pytest.mark.spark, since, pytest.mark.sweep(1, files="reshape")]

ONLY_DATA = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
PROVIDER = Setting("provider", "rocksdb")
STOCK = Setting("stock", "rocksdb")


def started(spark: SparkSession, folder: Path, setting: Setting = PROVIDER, n: int = 3) -> Run:
    run = Run(spark, "aggregation", setting, folder)
    return go_on(run, range(2), {**ONLY_DATA, **partitions(n)})


def expected(run: Run, folder: Path) -> list[list[str]]:
    """What stock Spark gives out for the same input, with a number of its own."""
    stock = Run(run.spark, run.workload, STOCK, folder, run.input)
    stock.run({**ONLY_DATA, **partitions(2)})
    return given_out(stock)


@pytest.mark.parametrize("store", ["rocksdb", "heap"])
def test_back_before_the_query_has_gone_on(make_spark: MakeSpark, tmp_path: Path, store: str) -> None:
    spark = make_spark(mode="provider", store=store)
    run = started(spark, tmp_path / "query", Setting("provider", store))
    before, state = everything(run.checkpoint), state_of(run)
    done = at(run).repartition(5, spark=spark)
    assert everything(run.checkpoint) != before

    back = at(run).undo_repartition()

    assert (back.batch, back.partitions_before, back.partitions) == (done.batch, 5, 3)
    assert back.removed_bytes_count == done.written_bytes_count
    assert back.kept_copy is not None
    assert everything(run.checkpoint) == before
    assert state_of(run) == state
    go_on(run, [2], ONLY_DATA)
    assert sorted(run.rows) == [0, 1, 2]
    assert given_out(run) == expected(run, tmp_path / "stock")
    with refused("PSS_CANNOT_UNDO_REPARTITION"):
        at(run).undo_repartition()


def test_again_and_again(make_spark: MakeSpark, tmp_path: Path) -> None:
    """Also without a batch between; and Spark's reader of state, and ours, know the number of each batch."""
    spark = make_spark(mode="provider")
    run = started(spark, tmp_path / "query")
    keys = at(run).state().num_rows
    assert at(run).repartition(4, spark=spark).batch == 2
    assert rows_said(run, 3) == keys
    assert at(run).repartition(2, spark=spark).batch == 3
    assert at(run).repartition(2, spark=spark).batch is None, "it has that number already"
    assert at(run).state().num_rows == keys
    assert at(run).state(version=2).num_rows == keys
    go_on(run, [2], ONLY_DATA)
    with refused("PSS_CANNOT_UNDO_REPARTITION"):
        at(run).undo_repartition(force=True)
    fork = Checkpoint(run.checkpoint).fork(tmp_path / "old", version=2)
    assert fork.version == 2
    assert at(run).maintenance.remove_old_partitions().removed_partitions_count == 2
    assert at(run).maintenance.remove_old_partitions(dry_run=False).removed_partitions_count == 2
    assert at(run).maintenance.remove_old_partitions(dry_run=False).removed_files_count == 0
    assert partitions_with_files(run.checkpoint) == {0, 1}
    for partition in (2, 3):  # as somebody does who tidies up
        (run.checkpoint / "state" / "0" / str(partition)).rmdir()
    keys_now = at(run).state().num_rows
    for n in (4, 3):  # Spark's reader finds all that it has written
        at(run).repartition(n, spark=spark)
        assert at(run).state().num_rows == len(state_of(run)["{}"]) == keys_now
    go_on(run, [3], ONLY_DATA)
    assert given_out(run) == expected(run, tmp_path / "stock")
    assert Checkpoint(tmp_path / "old").state().num_rows == keys, "the fork has pinned what it needs"


@pytest.mark.parametrize("mode", ["no_claim", "copy"])
def test_a_fork_with_another_number(make_spark: MakeSpark, tmp_path: Path, mode: str) -> None:
    spark = make_spark(mode="provider")
    run = started(spark, tmp_path / "query")
    before = everything(run.checkpoint)
    fork = Run(spark, run.workload, run.setting, tmp_path / "fork", run.input)

    made = Checkpoint(run.checkpoint).fork(fork.checkpoint, mode, partitions=5, spark=spark)

    assert made.version == 2
    assert everything(run.checkpoint) == before
    go_on(fork, [2], ONLY_DATA)
    go_on(run, (), ONLY_DATA)
    assert given_out(fork) == given_out(run)[2:] == expected(run, tmp_path / "stock")[2:]
    assert partitions_with_files(fork.checkpoint) == set(range(5))
    assert_state_is_merged(fork)


@pytest.fixture
def limited(make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A query whose operator Spark does not know how to repartition."""
    monkeypatch.setitem(WORKLOADS, "limit", Workload(lambda stream: stream().select("key").limit(7), "append"))
    run = Run(make_spark(mode="provider"), "limit", PROVIDER, tmp_path / "query")
    return go_on(run, range(2), ONLY_DATA)


def test_an_operator_that_spark_does_not_know(limited: Run) -> None:
    """Spark itself notices when the query is barred already."""
    before = everything(limited.checkpoint)
    with refused("PSS_CANNOT_REPARTITION", "Spark says of operator 0"):
        at(limited).repartition(5, spark=limited.spark)
    assert everything(limited.checkpoint) == before
    go_on(limited, [2], ONLY_DATA)
    assert sum(map(len, given_out(limited))) == 7


def test_a_fork_that_cannot_be_repartitioned_is_not_made(limited: Run, tmp_path: Path) -> None:
    before = everything(limited.checkpoint)
    with refused("PSS_CANNOT_REPARTITION", "Spark says of operator 0"):
        Checkpoint(limited.checkpoint).fork(tmp_path / "fork", partitions=5, spark=limited.spark)
    assert not list((tmp_path / "fork").rglob("*.merged"))
    assert not (tmp_path / "fork" / "metadata").exists()
    assert everything(limited.checkpoint) == before
    assert Checkpoint(limited.checkpoint).inspect.summary().to_pylist()[0]["fork_count"] == 0


def test_a_row_that_is_not_where_it_should_be(make_spark: MakeSpark, tmp_path: Path) -> None:
    """No new partition would read it, and it would be lost: a log that is wrong about the number must not do that."""
    spark = make_spark(mode="provider")
    run = started(spark, tmp_path / "query", n=4)
    newest = max((run.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.write_text(newest.read_text().replace('shuffle.partitions":"4"', 'shuffle.partitions":"3"'))
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    with refused("PSS_REPARTITION_FAILED", "belongs into partition"):
        at(run).repartition(6, spark=spark)


def test_state_that_stock_spark_has_written(make_spark: MakeSpark, tmp_path: Path) -> None:
    """It stays stock; old partitions are plain files, which go."""
    spark = make_spark(mode="provider")
    run = started(spark, tmp_path / "query", STOCK, n=4)
    at(run).repartition(2, spark=spark)
    go_on(run, [2], ONLY_DATA)
    assert {path.split("/")[1] for path in plain_state_files(run.checkpoint)} == {"0", "1", "2", "3"}
    removed = at(run).maintenance.remove_old_partitions(dry_run=False)
    assert removed.removed_files_count > 0
    assert partitions_with_files(run.checkpoint) == {0, 1}
    assert not (run.checkpoint / "state" / "_merged").exists()
    go_on(run, [3], ONLY_DATA)
    assert given_out(run) == expected(run, tmp_path / "stock")


def test_a_session_without_the_jar(make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark = make_spark(mode="provider")
    run = started(spark, tmp_path / "query")
    before = everything(run.checkpoint)
    monkeypatch.setattr("pyspark_statestore.migration.spark_side.loaded_jar", lambda *_: None)
    with refused("PSS_JAR_MISSING"):
        at(run).repartition(5, spark=spark)
    monkeypatch.undo()
    monkeypatch.setattr("pyspark_statestore.migration.spark_side.FIRST_SPARK", "9.9")
    monkeypatch.setattr("pyspark_statestore.migration.spark_side.SUPPORTED_SPARK", ("4.3", "9.9"))
    with refused("PSS_CANNOT_REPARTITION", "9.9"):
        at(run).repartition(5, spark=spark)
    assert everything(run.checkpoint) == before


def test_a_running_query(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark = make_spark(mode="provider")
    run = started(spark, tmp_path / "query")
    query = run.start(ONLY_DATA, available_now=False)
    query.processAllAvailable()
    try:
        for checkpoint in (Checkpoint(run.checkpoint), Checkpoint.of(query)):
            with pytest.raises(StateStoreFilesError, match="PSS_QUERY_RUNNING"):
                checkpoint.repartition(5, spark=spark)
    finally:
        query.stop()
