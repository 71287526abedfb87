"""Compaction as an INSERT, on a real Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceWriter
from pyspark.sql.types import StructType
from pyspark_checkpoint_files import DefaultSource
from pyspark_checkpoint_files.options import ReadOptions
from pyspark_checkpoint_files.writer import CompactionWriter, Rewritten

from pyspark_statestore import Checkpoint
from pyspark_statestore.format import read_merged_file
from pyspark_statestore.format.reader import BytesSource
from tests.conftest import MakeSpark
from tests.inspect.builders import STAMP, merged_file, merged_paths, refused, simple_checkpoint
from tests.maintenance.harness import dead_files, live_files
from tests.sampling import sampled

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="a table in SQL")]


@pytest.fixture
def spark(make_spark: MakeSpark) -> SparkSession:
    """Tasks get a second attempt."""
    return make_spark(master="local[2,2]")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Twenty small files, in three of which nothing lives."""
    folder = simple_checkpoint(tmp_path / "checkpoint", files=20)
    with merged_file(folder, 50) as file:
        for partition in range(2):
            for number in (3, 4, 5):
                file.delete(f"0/{partition}/{number}.changelog", stamp=STAMP + number, writer=7)
    return folder


@pytest.fixture
def view(spark: SparkSession, checkpoint: Path) -> str:
    """A view of the checkpoint's files."""
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING checkpoint_files OPTIONS (path '{checkpoint}')")
    return "v"


def test_rows_that_are_inserted_are_files_that_are_rewritten(spark: SparkSession, checkpoint: Path, view: str) -> None:
    before, oldest = live_files(checkpoint), merged_paths(checkpoint)[0]

    spark.sql("INSERT INTO v SELECT * FROM v WHERE file_size_in_bytes < 1048576 AND file_path NOT LIKE '%-1.merged'")

    assert live_files(checkpoint) == before
    assert oldest in merged_paths(checkpoint), "it was not asked for"
    assert len(merged_paths(checkpoint)) == 2
    assert [row.n for row in spark.sql("SELECT count(*) AS n FROM v WHERE generation = 1").collect()] == [1]


def test_repartition_spreads_the_work(spark: SparkSession, checkpoint: Path, view: str) -> None:
    before = live_files(checkpoint)

    spark.sql("INSERT INTO v SELECT /*+ REPARTITION(4) */ * FROM v")

    assert live_files(checkpoint) == before
    writers = {path.name.split("-")[1] for path in merged_paths(checkpoint)}
    assert len(merged_paths(checkpoint)) == len(writers) == 4, "each task writes under an id of its own"
    assert dead_files(checkpoint) == []


class DiesOnce(DefaultSource):
    """The first attempt of each task dies when all is done, so that nobody hears of it."""

    @classmethod
    def name(cls) -> str:
        return "dies_once"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return DyingWriter(self._parsed)


class DyingWriter(CompactionWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Rewritten:
        done = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            os._exit(1)
        return done


def test_task_that_died_is_run_again(spark: SparkSession, checkpoint: Path) -> None:
    before = live_files(checkpoint)
    spark.dataSource.register(DiesOnce)
    rows = [(f"file://{path}",) for path in merged_paths(checkpoint)]

    frame = spark.createDataFrame(rows, "file_path string").repartition(2)
    frame.write.format("dies_once").mode("append").save(str(checkpoint))

    assert live_files(checkpoint) == before
    assert len(merged_paths(checkpoint)) == 2, "what was copied was not copied again"
    assert dead_files(checkpoint) == []


@pytest.mark.parametrize(
    "path",
    sampled(
        ["NULL", "''", "'nonsense'", "'file:///elsewhere/state/_merged/1700000000001-0000000000000007-1.merged'"], 2
    ),
)
def test_rows_of_something_else_are_refused(spark: SparkSession, checkpoint: Path, view: str, path: str) -> None:
    before = {file: file.read_bytes() for file in merged_paths(checkpoint)}
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW w AS SELECT * FROM v LIMIT 1")
    columns = ", ".join(spark.table("v").columns[1:])

    with pytest.raises(PySparkException) as caught:
        spark.sql(f"INSERT INTO v SELECT {path} AS file_path, {columns} FROM w")

    assert "PSS_BAD_PATH" in str(caught.value)
    assert f"file://{checkpoint}" in str(caught.value)
    assert {file: file.read_bytes() for file in before if file.exists()} == before or dead_files(checkpoint) == []


def test_files_that_are_gone_meanwhile_do_not_count(spark: SparkSession, checkpoint: Path) -> None:
    before = live_files(checkpoint)
    gone = f"file://{checkpoint}/state/_merged/1600000000000-0000000000000007-1.merged"
    rows = spark.createDataFrame([(gone,)], "file_path string")

    rows.write.format("checkpoint_files").mode("append").save(str(checkpoint))

    assert live_files(checkpoint) == before


def test_overwrite_and_other_tables_are_refused(spark: SparkSession, checkpoint: Path, view: str) -> None:
    before = {file: file.read_bytes() for file in merged_paths(checkpoint)}
    with pytest.raises(PySparkException, match="PSS_INVALID_OPTION.*overwrite"):
        spark.table("v").write.format("checkpoint_files").mode("overwrite").save(str(checkpoint))
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW s USING checkpoint_files OPTIONS (path '{checkpoint}', table 'segments')"
    )
    with pytest.raises(PySparkException, match="PSS_INVALID_OPTION.*table files"):
        spark.sql("INSERT INTO s SELECT * FROM s")
    assert {file: file.read_bytes() for file in merged_paths(checkpoint)} == before


def test_corrupt_segment_is_named(spark: SparkSession, checkpoint: Path, view: str) -> None:
    broken = merged_paths(checkpoint)[9]
    data = bytearray(broken.read_bytes())
    data[next(iter(read_merged_file(BytesSource(bytes(data))))).offset] ^= 1
    broken.write_bytes(bytes(data))
    before = live_files(checkpoint)

    with pytest.raises(PySparkException) as caught:
        spark.sql("INSERT INTO v SELECT * FROM v")

    assert "PSS_CORRUPT_SEGMENT" in str(caught.value)
    assert str(broken) in str(caught.value)
    assert live_files(checkpoint) == before


def test_compact_with_a_session(spark: SparkSession, checkpoint: Path) -> None:
    before = live_files(checkpoint)

    done = Checkpoint(checkpoint).maintenance.compact(spark=spark, target_file_size=1500)

    assert live_files(checkpoint) == before
    assert done.added_files_count > 2
    assert {row["file_path"] for row in done.files.filter(pc.field("is_added")).to_pylist()} == {
        f"file://{path}" for path in merged_paths(checkpoint)
    }
    assert dead_files(checkpoint) == []
    where = "file_size_in_bytes < 100000"
    assert Checkpoint(checkpoint).maintenance.compact(spark=spark, where=where).added_files_count == 1
    assert live_files(checkpoint) == before
    with refused("PSS_INVALID_OPTION", "where", "nonsense"):
        Checkpoint(checkpoint).maintenance.compact(spark=spark, where="nonsense > 1")


def test_an_insert_tells_what_it_did(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = CompactionWriter(ReadOptions.parse({"path": str(checkpoint)}))
    paths = [file.as_uri() for file in merged_paths(checkpoint)]

    done = writer.write(iter([pa.record_batch({"file_path": paths})]))
    writer.commit([done, None])

    said = capsys.readouterr().err
    assert said.startswith(
        f"pyspark-statestore: INSERT into {checkpoint.as_uri()}: rows of {len(paths)} files came, 1 file added, "
        f"{len(paths)} files of "
    )
    assert said.endswith(" removed\n")
