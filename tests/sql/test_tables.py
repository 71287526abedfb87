"""The tables of checkpoint_files in SQL are those of Checkpoint.inspect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_statestore import Checkpoint
from pyspark_statestore.inspect import TABLES, spark_schema_of
from tests.conftest import MakeSpark
from tests.inspect.builders import plain_file
from tests.jvm.harness import until
from tests.streaming.runs import Run, Setting, session_conf
from tests.streaming.workloads import write_batch, write_batches

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="a table in SQL")]

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def run(make_spark: MakeSpark, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A stream-stream join, with four stores in each partition, after three batches."""
    setting = Setting("provider", "rocksdb", changelog=False)
    run = Run(make_spark(mode="provider"), "outer_join", setting, tmp_path_factory.mktemp("join"))
    write_batches(run.input, range(3))
    run.run()
    return run


def read(spark: SparkSession, path: object, **options: object) -> DataFrame:
    return spark.read.format("checkpoint_files").options(**options).load(str(path))


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return found


@pytest.mark.parametrize("table", TABLES)
def test_a_table_in_sql_is_the_one_in_python(spark: SparkSession, run: Run, table: str) -> None:
    frame = read(spark, run.checkpoint, table=table)

    assert rows(frame) == Checkpoint(run.checkpoint).inspect.table(table).to_pylist()
    assert (frame.count() > 0) == (table != "plain_files")  # all of this query's state is merged
    assert [f"{name} {type_}" for name, type_ in frame.dtypes] == spark_schema_of(table).split(", ")


def test_plain_files_in_sql(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    for path in ("0/0/1.changelog", "0/0/1.zip", "0/1/left-keyToNumValues/2_abc.delta"):
        plain_file(tmp_path, path)

    found = rows(read(spark, tmp_path, table="plain_files").orderBy("file_path"))

    assert found == Checkpoint(tmp_path).inspect.plain_files().to_pylist()
    assert [row["version"] for row in found] == [1, 1, 2]


def test_files_is_what_is_read_without_the_option(spark: SparkSession, run: Run) -> None:
    assert rows(read(spark, run.checkpoint)) == Checkpoint(run.checkpoint).inspect.files().to_pylist()


@pytest.mark.parametrize("table", ["segments", "versions"])
def test_options_narrow_what_is_read_in_any_case(spark: SparkSession, run: Run, table: str) -> None:
    store = "left-keyToNumValues"
    narrowed = {"OPERATORID": "0", "partitionid": "1", "storeName": store}
    expected = Checkpoint(run.checkpoint).inspect.table(table, operator_id=0, partition_id=1, store_name=store)

    assert rows(read(spark, run.checkpoint, table=table, **narrowed)) == expected.to_pylist()
    assert 0 < len(expected) < len(Checkpoint(run.checkpoint).inspect.table(table))


@pytest.mark.sweep(6)
@pytest.mark.parametrize("table", ["segments", "versions"])
@pytest.mark.parametrize(
    "condition",
    [
        "partition_id = 1",
        "operator_id = 0 AND partition_id = 2 AND store_name = 'default'",
        "store_name = 'right-keyToNumValues' AND version >= 2",
        "partition_id <=> 0",
        "partition_id = 0 AND partition_id = 1",
        "partition_id IN (0, 2)",
        "partition_id <> 0",
        "store_name = 'no such store'",
    ],
)
def test_filters_that_are_pushed_down_change_no_row(spark: SparkSession, run: Run, table: str, condition: str) -> None:
    with session_conf(spark, {PUSH_DOWN: "false"}):
        expected = rows(read(spark, run.checkpoint, table=table).where(condition))
    with session_conf(spark, {PUSH_DOWN: "true"}):
        assert rows(read(spark, run.checkpoint, table=table).where(condition)) == expected


@pytest.mark.since("4.1", "Spark hands filters over to Python from 4.1 on")
def test_spark_hands_equalities_over_where_it_may(spark: SparkSession, run: Run) -> None:
    def plan(condition: str) -> str:
        frame = read(spark, run.checkpoint, table="segments").where(condition)
        return str(frame._jdf.queryExecution().optimizedPlan().toString())

    with session_conf(spark, {PUSH_DOWN: "true"}):
        assert "Filter" in plan("partition_id > 1")
        assert "Filter" not in plan("partition_id = 1 AND store_name = 'default'")
    with session_conf(spark, {PUSH_DOWN: "false"}):
        assert "Filter" in plan("partition_id = 1 AND store_name = 'default'")


@pytest.mark.sweep(5)
@pytest.mark.parametrize("push_down", ["true", "false"])
@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_read_with_push_down_on_or_off(
    spark: SparkSession, run: Run, table: str, push_down: str
) -> None:
    with session_conf(spark, {PUSH_DOWN: push_down}):
        assert rows(read(spark, run.checkpoint, table=table)) == rows(read(spark, run.checkpoint, table=table))
        assert read(spark, run.checkpoint, table=table).where("1 = 0").count() == 0


def test_a_view_shows_what_is_there_when_it_is_asked(spark: SparkSession, tmp_path: Path) -> None:
    followed = Run(spark, "aggregation", Setting("provider", "rocksdb"), tmp_path)
    write_batch(followed.input, 0)
    followed.run()
    options = f"(path '{followed.checkpoint}', table 'versions')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW versions_of_it USING checkpoint_files OPTIONS {options}")
    view = spark.table("versions_of_it")
    before = rows(view)
    write_batch(followed.input, 1)
    followed.run()

    assert rows(spark.sql("SELECT * FROM versions_of_it")) == rows(view)
    assert rows(view) == Checkpoint(followed.checkpoint).inspect.versions().to_pylist()
    assert max(row["version"] for row in rows(view)) > max(row["version"] for row in before)


@pytest.mark.parametrize("table", TABLES)
def test_a_table_of_the_catalog_takes_its_path_with_each_question(spark: SparkSession, run: Run, table: str) -> None:
    spark.sql(f"CREATE TABLE any_checkpoint USING checkpoint_files OPTIONS (table '{table}')")
    try:
        frame = spark.sql(f"SELECT * FROM any_checkpoint WITH (path = '{run.checkpoint}')")
        assert rows(frame) == Checkpoint(run.checkpoint).inspect.table(table).to_pylist()
    finally:
        spark.sql("DROP TABLE any_checkpoint")


def test_a_running_query_is_read_beside_it(spark: SparkSession, tmp_path: Path) -> None:
    running = Run(spark, "aggregation", Setting("provider", "rocksdb"), tmp_path)
    write_batch(running.input, 0)
    query = running.start(available_now=False)
    try:
        until(lambda: 0 in running.rows, "the first batch")
        versions = read(spark, running.checkpoint, table="versions")
        first = {row["version"] for row in rows(versions)}
        write_batch(running.input, 1)
        until(lambda: max((row["version"] for row in rows(versions)), default=0) > max(first), "the second batch")
        assert rows(read(spark, running.checkpoint, table="files"))[0]["is_sealed"] is False
        assert query.isActive
    finally:
        query.stop()


def test_a_stock_checkpoint_has_versions_and_no_merged_files(spark: SparkSession, tmp_path: Path) -> None:
    stock = Run(spark, "aggregation", Setting("stock", "rocksdb"), tmp_path)
    write_batch(stock.input, 0)
    stock.run()

    assert rows(read(spark, stock.checkpoint)) == []
    assert rows(read(spark, stock.checkpoint, table="segments")) == []
    versions = rows(read(spark, stock.checkpoint, table="versions"))
    assert versions == Checkpoint(stock.checkpoint).inspect.versions().to_pylist()
    assert versions
    assert all(row["is_restorable"] for row in versions)
