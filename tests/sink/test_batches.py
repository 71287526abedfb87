"""Batches that are restarted, given up, empty, large or limited."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from pyspark_statestore.conf import SINK_OPTIONS
from tests.conftest import MakeSpark
from tests.sink.sinks import STAGING, TASKS, FileSink, both, rows_of
from tests.streaming.test_metrics import log_lines

pytestmark = pytest.mark.spark

TARGET = SINK_OPTIONS["targetFileSize"].key
MAX_DELAY = SINK_OPTIONS["maxDelay"].key


def test_a_sink_goes_on_with_another_target_with_stock_spark_and_back(make_spark: MakeSpark, tmp_path: Path) -> None:
    sink = FileSink(make_spark(), tmp_path, partition_by=("q",))
    sink.feed(rows_of(0))
    sink.run()
    sink.feed(rows_of(1))
    sink.run(conf={TARGET: "1k"})
    sink.feed(rows_of(2))
    sink.run(compacting=False)
    sink.feed(rows_of(3))
    sink.run(targetFileSize="1m")

    assert sink.ids() == list(range(160))
    assert [len(sink.listed(batch)) for batch in range(4)] == [2, 2 * TASKS, 2 * TASKS, 2]


def test_a_batch_that_the_list_has_is_not_written_again(make_spark: MakeSpark, tmp_path: Path) -> None:
    sink = FileSink(make_spark(), tmp_path)
    sink.feed(rows_of(0), rows_of(1))
    sink.run()
    before = sink.present()
    # As after a crash between the sink's commit and the query's.
    for name in ("1", ".1.crc"):
        (sink.checkpoint / "commits" / name).unlink(missing_ok=True)

    sink.run()

    assert sink.ids() == list(range(80))
    assert sink.present() == before


def test_an_empty_batch_has_one_file_without_rows(make_spark: MakeSpark, tmp_path: Path) -> None:
    sink = FileSink(make_spark(), tmp_path, change=lambda rows: rows.where("id < 0").repartition(TASKS))
    sink.feed(rows_of(0))
    sink.run()

    assert sink.ids() == []
    assert len(sink.listed(0)) == 1


def test_files_that_are_large_enough_are_renamed_and_not_written_again(make_spark: MakeSpark, tmp_path: Path) -> None:
    sink = FileSink(make_spark(), tmp_path)
    sink.feed(rows_of(0, 4000))
    sink.run(targetFileSize="1k")

    listed = sink.listed(0)
    assert len(listed) == TASKS
    # Their names are those that tasks gave them: the number of the task, and the first file of it.
    assert sorted(name[:11] for name in listed) == [f"part-{task:05}-" for task in range(TASKS)]
    assert sink.ids() == list(range(4000))


def test_files_have_about_the_target_size(make_spark: MakeSpark, tmp_path: Path) -> None:
    sink = FileSink(make_spark(), tmp_path, change=lambda rows: rows.repartition(32, "id"), format="json")
    sink.feed(rows_of(0, 4000))
    sink.run(targetFileSize="64k")

    sizes = [(sink.files / name).stat().st_size for name in sink.listed(0)]
    assert len(sizes) == -(-sum(sizes) // (64 << 10))
    assert max(sizes) < 2 * (64 << 10)
    assert min(sizes) > 32 << 10
    assert sink.ids() == list(range(4000))


def test_the_order_inside_of_a_file_stays(make_spark: MakeSpark, tmp_path: Path) -> None:
    ours, stock = both(make_spark(), tmp_path, [rows_of(0, 400)])

    parts = [pq.ParquetFile(stock.files / name).read()["id"].to_pylist() for name in stock.listed(0)]
    (whole,) = (pq.ParquetFile(ours.files / name).read()["id"].to_pylist() for name in ours.listed(0))
    assert len(parts) == TASKS
    assert whole == [row for part in parts for row in part]


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_the_most_records_of_a_file_stay_a_limit(make_spark: MakeSpark, tmp_path: Path, format: str) -> None:
    sink = FileSink(make_spark(), tmp_path, format)
    sink.feed(rows_of(0, 200))
    sink.run(maxRecordsPerFile="60")

    counts = [sink.spark.read.format(format).load(str(sink.files / name)).count() for name in sink.listed(0)]
    assert max(counts) <= 60
    assert sum(counts) == 200
    assert len(counts) == {"parquet": 4, "json": TASKS}[format]


def test_files_of_an_unusual_charset_are_not_joined(make_spark: MakeSpark, tmp_path: Path) -> None:
    options = {"encoding": "UTF-16", "lineSep": "\n"}
    ours, stock = both(make_spark(), tmp_path, [rows_of(0)], format="json", options=options)

    assert len(ours.listed(0)) == len(stock.listed(0)) == TASKS
    assert Counter(map(len, ((ours.files / name).read_bytes() for name in ours.listed(0)))) == Counter(
        map(len, ((stock.files / name).read_bytes() for name in stock.listed(0)))
    )


def test_a_column_whose_name_has_two_lines_is_in_the_header_once(make_spark: MakeSpark, tmp_path: Path) -> None:
    def odd(rows: DataFrame) -> DataFrame:
        return rows.repartition(TASKS, "id").withColumnRenamed("word", "two\nlines").drop("at")

    spark = make_spark()
    options = {"header": "true", "multiLine": "true"}
    sink = FileSink(spark, tmp_path, "csv", (), options, odd)
    sink.feed(rows_of(0))
    sink.run()

    (name,) = sink.listed(0)
    assert (sink.files / name).read_text().count('"two\nlines"') == 1
    assert sum(sink.read().values()) == 40


def test_what_a_failed_attempt_has_left_goes_when_it_is_old(make_spark: MakeSpark, tmp_path: Path) -> None:
    sink = FileSink(make_spark(), tmp_path)
    old, young, growing = (sink.files / STAGING / f"0-{name}" / "q=1" for name in ("old", "young", "growing"))
    for folder in (old, young, growing):
        folder.mkdir(parents=True)
        for name in ("a.parquet", "b.parquet"):
            (folder / name).write_bytes(b"staged")
    for folder, hours in ((old, 25), (young, 23), (growing, 25)):
        for path in (folder / "a.parquet", folder / "b.parquet", folder, folder.parent):
            os.utime(path, (time.time() - hours * 3600,) * 2)
    os.utime(growing / "b.parquet")

    sink.feed(rows_of(0))
    sink.run()

    left = sorted(path.name for path in (sink.files / STAGING).iterdir())
    assert left == ["0-growing", "0-young"]
    assert sink.ids() == list(range(40))


@pytest.mark.parametrize("partition_by", [(), ("q",)])
def test_a_first_batch_without_rows_says_nothing_and_leaves_nothing_staged(
    make_spark: MakeSpark, jvm: Any, tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    sink = FileSink(make_spark(), tmp_path, partition_by=partition_by, change=lambda rows: rows.where("id >= 40"))
    sink.feed(rows_of(0))
    with log_lines(jvm, "io.pyspark.statestore.sink", "WARN") as lines:
        sink.run()
        assert not (sink.files / STAGING).exists()
        sink.feed(rows_of(1))
        sink.run()
        assert lines() == []
    assert sink.ids() == list(range(40, 80))
    assert not (sink.files / STAGING).exists()


def test_attempts_side_by_side_keep_the_directory_that_both_are_in(
    make_spark: MakeSpark, jvm: Any, tmp_path: Path
) -> None:
    conf = make_spark().sparkContext._jsc.hadoopConfiguration()
    (tmp_path / "_staging").mkdir()  # where it was before, and empty

    def attempt(number: int) -> Any:
        """An attempt of a query, or of a compaction beside it, whose tasks have written nothing yet."""
        staging = tmp_path / STAGING / f"{number}-a"
        made = of_shim(jvm, "sink.Staging", None, str(tmp_path), str(staging), conf)
        of_shim(jvm, "sink.Staging", "begin", made)
        assert staging.is_dir()
        return made

    one, other = attempt(1), attempt(2)
    of_shim(jvm, "sink.Staging", "delete", one, jvm.java.util.ArrayList())
    assert os.listdir(tmp_path / STAGING) == ["2-a"]
    (tmp_path / STAGING / "2-a" / "part-0").write_bytes(b"staged")
    of_shim(jvm, "sink.Staging", "sweep", other, 0)
    assert sorted(os.listdir(tmp_path)) == ["_spark_metadata"]
    of_shim(jvm, "sink.Staging", "delete", other, jvm.java.util.ArrayList())
    assert os.listdir(tmp_path / "_spark_metadata") == []
    of_shim(jvm, "sink.Staging", "delete", attempt(3), jvm.java.util.ArrayList())
    of_shim(jvm, "sink.Staging", "sweep", other, 0)
    assert os.listdir(tmp_path / "_spark_metadata") == []


def of_shim(jvm: Any, name: str, method: str | None, *arguments: Any) -> Any:
    """Calls a method of the shim that the package alone may call; the constructor where none is named."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    made = loader.loadClass(f"io.pyspark.statestore.{name}")
    target, *given = (None, *arguments) if method is None else arguments
    methods = made.getDeclaredConstructors() if method is None else made.getDeclaredMethods()
    [found] = [each for each in methods if each.getParameterCount() == len(given) and method in (None, each.getName())]
    found.setAccessible(True)
    values = SparkContext._gateway.new_array(jvm.java.lang.Object, len(given))
    for at, value in enumerate(given):
        values[at] = jvm.java.lang.Long.valueOf(value) if isinstance(value, int) else value
    return found.newInstance(values) if method is None else found.invoke(target, values)


@pytest.mark.parametrize(
    ("conf", "options", "words"),
    [
        ({TARGET: "big"}, {}, ["PSS_INVALID_OPTION", TARGET, "'big'"]),
        ({}, {"targetFileSize": "0"}, ["PSS_INVALID_OPTION", TARGET, "'0'"]),
        ({TARGET.replace("target", "taget"): "1m"}, {}, ["PSS_UNKNOWN_OPTION", "tagetFileSize", "targetFileSize"]),
        ({MAX_DELAY: "soon"}, {}, ["PSS_INVALID_OPTION", MAX_DELAY]),
    ],
)
def test_nothing_is_published_with_settings_that_are_wrong(
    make_spark: MakeSpark, tmp_path: Path, conf: dict[str, str], options: dict[str, Any], words: list[str]
) -> None:
    sink = FileSink(make_spark(), tmp_path)
    sink.feed(rows_of(0))

    with pytest.raises(StreamingQueryException) as failed:
        sink.run(conf=conf, **options)

    assert all(word in str(failed.value) for word in words), failed.value
    assert sink.present() == []
    sink.run()
    assert sink.ids() == list(range(40))


def test_a_stream_that_reads_the_sink_gets_each_row_once(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark = make_spark()
    sink = FileSink(spark, tmp_path, partition_by=("q",))
    follower = FileSink(spark, tmp_path / "follower")

    def follow() -> None:
        rows = spark.readStream.schema("id long, q int").parquet(sink.location)
        writer = rows.writeStream.option("checkpointLocation", str(follower.checkpoint)).format("parquet")
        writer.trigger(availableNow=True).start(follower.location).awaitTermination()

    for batch in range(3):
        sink.feed(rows_of(batch))
        sink.run(compacting=batch != 1)
        follow()
        assert follower.ids() == list(range(40 * (batch + 1)))


def test_the_compaction_has_a_pool_of_its_own_and_keeps_nothing_in_memory(
    make_spark: MakeSpark, tmp_path: Path
) -> None:
    spark = make_spark({"spark.scheduler.mode": "FAIR"})
    sink = FileSink(spark, tmp_path, partition_by=("q",))
    sink.feed(rows_of(0), rows_of(1))
    sink.run()

    assert spark.sparkContext._jsc.sc().getPoolForName("fileSinkCompaction").isDefined()
    assert sink.ids() == list(range(80))
    loader = spark.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    contents = loader.loadClass("io.pyspark.statestore.sink.join.FetchedFileSystem").getDeclaredField("CONTENTS")
    contents.setAccessible(True)
    assert contents.get(None).isEmpty()


def test_any_name_of_a_directory_will_do(make_spark: MakeSpark, tmp_path: Path) -> None:
    sink = FileSink(make_spark(), tmp_path / "a table, 100% ünlike=%20this", partition_by=("p",))
    sink.feed(rows_of(0))
    sink.run()

    assert sink.ids() == list(range(40))
    assert len(sink.listed(0)) == len(sink.present()) == 3
