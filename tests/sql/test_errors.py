"""What people read in SQL where something is wrong: an id, where it is, what to do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark_checkpoint_files import DefaultSource
from pyspark_checkpoint_files.options import ReadOptions
from pyspark_checkpoint_files.plain_errors import HIDE

from pyspark_statestore import StateStoreFilesError
from pyspark_statestore.format import MergedFileWriter, file_name
from pyspark_statestore.inspect import comments_of

pytestmark = pytest.mark.sweep(1, files="a table in SQL")

NAME = file_name(1_700_000_000_000, 7, 0)


def healthy(directory: Path) -> Path:
    """A checkpoint with one merged file."""
    merged = directory / "state" / "_merged"
    merged.mkdir(parents=True)
    with (merged / NAME).open("wb") as out:
        log = MergedFileWriter(out, writer=7, created_ms=1_700_000_000_000)
        log.put("0/0/1.changelog", b"abc", stamp=1)
        log.end_group()
        log.put("0/0/2.changelog", b"abc", stamp=2)
        log.end_group()
    return merged / NAME


def newer(directory: Path) -> None:
    file = healthy(directory)
    file.write_bytes(b"PSSMERG2" + file.read_bytes()[8:])


def corrupt(directory: Path) -> None:
    # The first group's trailer, to which the second one's points.
    file = healthy(directory)
    data = bytearray(file.read_bytes())
    at = data.index(b"PSSGROUP")
    data[at + 9] ^= 0xFF
    file.write_bytes(bytes(data))


def forbidden(directory: Path) -> None:
    healthy(directory).chmod(0)


def something_else(directory: Path) -> None:
    directory.mkdir()
    (directory / "part-0.parquet").touch()


@pytest.mark.spark
@pytest.mark.sweep(8)
@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda _: None, ["PSS_NOT_A_CHECKPOINT", "it does not exist or is empty", "checkpointLocation"]),
        (something_else, ["PSS_NOT_A_CHECKPOINT", "it has none of", "checkpointLocation"]),
        (newer, ["PSS_UNSUPPORTED_FORMAT_VERSION", NAME, "format version 2", "version 1"]),
        (corrupt, ["PSS_CORRUPT_INDEX", NAME, "at offset", "Restore the file"]),
        pytest.param(
            forbidden,
            ["PSS_NO_PERMISSION", NAME, "Grant it"],
            marks=pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything"),
        ),
    ],
)
@pytest.mark.parametrize("table", ["files", "segments", "versions", "summary"])
def test_what_cannot_be_read_says_why(
    spark: SparkSession, tmp_path: Path, prepare: Callable[[Path], object], words: list[str], table: str
) -> None:
    prepare(tmp_path / "it")

    with pytest.raises(PySparkException) as caught:
        spark.read.format("checkpoint_files").option("table", table).load(str(tmp_path / "it")).collect()

    said = str(caught.value)
    assert "Traceback" not in said
    assert [word for word in [*words, str(tmp_path / "it")] if word not in said] == []


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"table": "snapshots"}, ["PSS_INVALID_OPTION", "'snapshots'", "files, segments, versions, summary"]),
        ({"tabel": "files"}, ["PSS_UNKNOWN_OPTION", "tabel", "Did you mean table?"]),
        ({"frobnicate": "x"}, ["PSS_UNKNOWN_OPTION", "frobnicate", "path, table, operatorId", "storage.<key>"]),
        ({"operatorId": "0"}, ["PSS_INVALID_OPTION", "operatorId", "segments or versions; this is files"]),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.read.format("checkpoint_files").options(**options).load(str(tmp_path))

    said = str(caught.value)
    assert "Traceback" not in said
    assert [word for word in words if word not in said] == []


@pytest.mark.spark
@pytest.mark.parametrize("name", ["it ", " it", "a+b %20 \u65e5#?"])
def test_a_path_is_taken_as_it_is(spark: SparkSession, tmp_path: Path, name: str) -> None:
    healthy(tmp_path / name)
    read = spark.read.format("checkpoint_files").load(str(tmp_path / name)).collect()
    assert {row.file_path.rpartition("/state/")[0] for row in read} == {f"file://{tmp_path}/{name}"}


@pytest.mark.spark
@pytest.mark.parametrize("table", ["files", "sink_files"])
def test_a_view_on_a_wrong_path_says_so_when_it_is_made(spark: SparkSession, tmp_path: Path, table: str) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.sql(
            f"CREATE TEMPORARY VIEW wrong USING checkpoint_files OPTIONS (path '{tmp_path / 'no'}', table '{table}')"
        )

    said = str(caught.value)
    assert ("[PSS_NOT_A_SINK]" if table == "sink_files" else "[PSS_NOT_A_CHECKPOINT]") in said
    assert "Traceback" not in said


@pytest.mark.spark
def test_describe_explains_the_columns(spark: SparkSession, tmp_path: Path) -> None:
    healthy(tmp_path / "it")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW it USING checkpoint_files OPTIONS (path '{tmp_path / 'it'}')")

    described = {row["col_name"]: row["comment"] for row in spark.sql("DESCRIBE it").collect()}

    assert described == comments_of("files")


def test_only_a_worker_hides_tracebacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIDE, "")
    with pytest.raises(StateStoreFilesError):
        DefaultSource({"table": "nope"})
    assert os.environ[HIDE] == ""
    monkeypatch.setattr("pyspark_checkpoint_files.plain_errors._is_worker", lambda: True)
    with pytest.raises(StateStoreFilesError):
        DefaultSource({"table": "nope"})
    assert os.environ[HIDE] == "1"


@pytest.mark.spark
def test_a_read_without_a_path_says_where_to_give_it(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=r"(?s)PSS_BAD_PATH.*path is missing.*WITH \(path"):
        spark.read.format("checkpoint_files").load().collect()


@pytest.mark.spark
def test_a_view_without_a_path_is_refused_when_it_is_made(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=r"(?s)PSS_BAD_PATH.*path is missing.*OPTIONS \(path"):
        spark.sql("CREATE TEMPORARY VIEW without_a_path USING checkpoint_files OPTIONS (table 'versions')")


@pytest.mark.spark
def test_a_table_with_options_that_spark_would_forget_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match=r"(?s)PSS_INVALID_OPTION.*FROM it WITH \(path"):
        spark.sql(f"CREATE TABLE with_options USING checkpoint_files OPTIONS (path '{tmp_path}')")


@pytest.mark.spark
def test_a_stream_of_another_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    healthy(tmp_path / "it")
    stream = spark.readStream.format("checkpoint_files").load(str(tmp_path / "it"))
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "out"))

    with pytest.raises(PySparkException, match=r"(?s)PSS_INVALID_OPTION.*only the table segments can be streamed"):
        writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.spark
def test_another_schema_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    reader = spark.read.format("checkpoint_files").schema("file_path string, size long")

    with pytest.raises(PySparkException, match=r"(?s)PSS_INVALID_OPTION.*no schema at all"):
        reader.load(str(tmp_path)).collect()


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"table": "segments", "operatorId": "one"}, "a whole number from 0"),
        ({"table": "segments", "partitionId": "-1"}, "a whole number from 0"),
        ({"table": "segments", "partitionId": "1.0"}, "a whole number from 0"),
        ({"table": "versions", "partitionId": "99999999999"}, "a whole number from 0"),
        ({"table": "summary", "storeName": "default"}, "segments or versions; this is summary"),
        ({"closedAfter": "10"}, "a duration from 5s with its unit"),
        ({"closedAfter": "soon"}, "a duration from 5s with its unit"),
        ({"closedAfter": "999999999999999d"}, "a duration from 5s with its unit"),
        ({"settledAfter": "2h"}, "a duration to 1h with its unit"),
        ({"maxSegmentsPerTrigger": "0"}, "a whole number from 1"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_allowed(options: dict[str, str], allowed: str) -> None:
    with pytest.raises(StateStoreFilesError) as caught:
        ReadOptions.parse({"path": "/x", **options})

    assert caught.value.getErrorClass() == "PSS_INVALID_OPTION"
    assert caught.value.getMessageParameters()["key"] == list(options)[-1]
    assert allowed in str(caught.value)


def test_storage_options_reach_the_file_system() -> None:
    given = {"storage.anon": "true", "storage.key": "12", "storage.client_kwargs": '{"endpoint_url": "http://x"}'}

    parsed = ReadOptions.parse(given)

    assert parsed.storage == {"anon": True, "key": "12", "client_kwargs": {"endpoint_url": "http://x"}}
    assert "12" not in repr(parsed)


def test_a_misspelled_option_or_table_is_recognized() -> None:
    with pytest.raises(StateStoreFilesError, match=r"PSS_UNKNOWN_OPTION.* Did you mean table\?"):
        ReadOptions.parse({"path": "/x", "tabel": "segments"})
    with pytest.raises(StateStoreFilesError, match=r"PSS_UNKNOWN_OPTION.* Did you mean operatorId\?"):
        ReadOptions.parse({"path": "/x", "operatorid_": "0"})
    with pytest.raises(StateStoreFilesError, match=r"PSS_INVALID_OPTION.*Did you mean segments\?"):
        ReadOptions.parse({"path": "/x", "table": "segment"})
    with pytest.raises(StateStoreFilesError, match=r"The options of checkpoint_files are: path, table"):
        ReadOptions.parse({"path": "/x", "whatever": "1"})
