"""A copy of a checkpoint without its empty directories, as rclone, S3 sync or git make it, loses no row of state."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_statestore import Checkpoint, attach, merged_path
from tests.conftest import MakeSpark
from tests.sampling import marked
from tests.streaming.ends import of_runs, until

pytestmark = [pytest.mark.spark, pytest.mark.since("4.0", "Spark's reader of state came with Spark 4.0")]

KEYS = range(7)


def copy_files(source: Path, target: Path) -> Path:
    """Copies what a store of objects has: files, and no directory that has none."""
    for file in sorted(source.rglob("*")):
        if file.is_file():
            copied = target / file.relative_to(source)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copied)
    return target


def run(spark: SparkSession, root: Path) -> Path:
    """Runs a query that counts; each key is in one of three partitions."""
    (root / "input").mkdir(exist_ok=True)
    (root / "input" / "0.json").write_text("".join(f'{{"n": {n}}}\n' for n in KEYS))
    rows = spark.readStream.schema("n int").json(str(root / "input")).groupBy("n").count()
    writer = rows.writeStream.outputMode("update").format("noop").option("checkpointLocation", str(root / "q1"))
    assert writer.trigger(availableNow=True).start().awaitTermination(60)
    until(lambda: of_runs(root) == [".ended"], "it did not say that it has ended")
    return root / "q1"


def rows_of(spark: SparkSession, location: Path | str) -> list[int]:
    found = spark.read.format("statestore").load(str(location)).selectExpr("key.n").collect()
    return sorted(row.n for row in found)


@pytest.mark.parametrize(
    ("how", "store"),
    marked([("configure", "rocksdb"), ("attach", "rocksdb"), ("configure", "heap")], lambda case: case[1] == "rocksdb"),
)
def test_the_plain_path_answers_right(make_spark: MakeSpark, tmp_path: Path, how: str, store: str) -> None:
    spark = attach(make_spark(), store=store) if how == "attach" else make_spark(mode="provider", store=store)
    checkpoint = run(spark, tmp_path)
    assert rows_of(spark, checkpoint) == [*KEYS]
    copy = copy_files(checkpoint, tmp_path / "copy")
    assert len(list((copy / "state/0").glob("[0-9]*"))) < 3
    assert rows_of(spark, merged_path(str(copy))) == [*KEYS]
    assert rows_of(spark, copy) == [*KEYS]
    assert len(list((copy / "state/0").glob("[0-9]*"))) == 3


def test_where_they_cannot_be_made_it_is_refused(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark = make_spark(mode="provider")
    copy = copy_files(run(spark, tmp_path), tmp_path / "copy")
    (copy / "state/0/2").write_text("in the way")
    with pytest.raises(Exception, match=r"\[PSS_MISSING_DIRECTORIES\].*cannot be made.*merged_path"):
        rows_of(spark, copy)


def test_what_is_made_of_such_a_copy_has_them(make_spark: MakeSpark, tmp_path: Path) -> None:
    """A fork, and what is exported: Spark's reader finds all partitions in both."""
    spark = make_spark(mode="provider")
    copy = copy_files(run(spark, tmp_path), tmp_path / "copy")
    Checkpoint(copy).fork(str(tmp_path / "fork"))
    assert {path.name for path in (tmp_path / "fork/state/0").glob("[0-9]*")} == {"0", "1", "2"}
    Checkpoint(copy).export(str(tmp_path / "stock"))
    copied_again = copy_files(tmp_path / "stock", tmp_path / "stock-again")
    Checkpoint(copy).export()
    in_place = copy_files(copy, tmp_path / "in-place")
    stock = make_spark()
    assert rows_of(stock, copied_again) == [*KEYS]
    assert rows_of(stock, in_place) == [*KEYS]
