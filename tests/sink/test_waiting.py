"""Rows that wait over several batches until they fill a file, or until the delay is over."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlparse

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from pyspark_statestore import Sink, StateStoreFilesError
from pyspark_statestore.sink import rewriter
from pyspark_statestore.sink.sink import TARGET_FILE_SIZE
from pyspark_statestore.sink.waiting import publish
from tests.class_data import MINOR
from tests.conftest import MakeSpark
from tests.jvm.harness import await_listeners
from tests.sink import manifest
from tests.sink.readers import seen
from tests.sink.sinks import TASKS, WAITING, FileSink, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="sinks")]

LONG = "10h"
"""No test lasts so long."""

NOW = datetime.timedelta(0)


@pytest.fixture
def spark(make_spark: MakeSpark) -> SparkSession:
    return make_spark()


def waiting(sink: FileSink) -> int:
    """How many rows wait by the manifest that counts. Spark reads no file where they wait, so copies are read."""
    files = [Path(unquote(urlparse(path).path)) for path in Sink(sink.files).waiting()["file_path"].to_pylist()]
    if not files:
        return 0
    with TemporaryDirectory(dir=sink.folder) as copies:
        for number, file in enumerate(files):
            shutil.copy(file, f"{copies}/{number}-{file.name}")
        return int(sink.spark.read.format(sink.format).options(**sink.options).load(copies).count())


def verified(sink: FileSink) -> None:
    found = Sink(sink.files).verify()
    assert found.is_clean, found.problems.to_pylist()


def in_waiting(sink: FileSink) -> list[str]:
    return [name for name in sink.present() if name.startswith(f"{WAITING}/")]


def age(sink: FileSink, by: datetime.timedelta) -> None:
    """Lets what waits have waited for longer."""
    (path,) = (sink.files / WAITING).glob("*.json")
    content = json.loads(path.read_text())
    for file in content["files"]:
        file["since"] -= int(by.total_seconds() * 1000)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    path.write_text(json.dumps(content))


def clear(sink: FileSink, name: str, field: str) -> None:
    """Empties what this process remembers."""
    loader = sink.spark._jsparkSession.sharedState().jarClassLoader()
    jvm: Any = sink.spark._jvm
    found = jvm.java.lang.Class.forName(f"io.pyspark.statestore.sink.{name}", True, loader).getDeclaredField(field)
    found.setAccessible(True)
    found.get(None).clear()


def forget(sink: FileSink) -> None:
    """Lets the next batch read the list, as in another driver."""
    clear(sink, "Waiting", "COMMITTED")


def test_rows_wait_until_they_fill_a_file(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(spark, tmp_path, "json", ("q",))
    seen = []
    for batch in range(6):
        sink.feed(rows_of(batch))
        sink.run(maxDelay=LONG, targetFileSize="6k")
        seen.append(len(sink.listed(batch)))
        verified(sink)
        published = sink.ids()
        assert len(published) == len(set(published))
        assert len(published) + waiting(sink) == 40 * (batch + 1)

    assert set(seen) == {0, 2}  # each time two partition values have enough
    sizes = [(sink.files / name).stat().st_size for batch in range(6) for name in sink.listed(batch)]
    assert min(sizes) >= 6 << 10
    # What is published does not stay where it waited, and of each batch and value there is one file.
    waits = Sink(sink.files).waiting()["file_path"].to_pylist()
    assert len(in_waiting(sink)) == len(waits) + 1
    assert len(waits) == 2 * (5 - max(batch for batch in range(6) if seen[batch]))


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("parquet", {}),
        ("orc", {}),
        ("json", {"compression": "gzip"}),
        ("csv", {"header": "true"}),
    ],
)
def test_each_row_is_published_once_when_the_delay_is_over(
    spark: SparkSession, tmp_path: Path, format: str, options: dict[str, str]
) -> None:
    sink = FileSink(spark, tmp_path / "ours", format, ("p", "q"), options)
    stock = FileSink(spark, tmp_path / "stock", format, ("p", "q"), options)
    for batch in range(3):
        sink.feed(rows_of(batch))
        sink.run(maxDelay=LONG)
        assert sink.listed(batch) == []
    age(sink, datetime.timedelta(hours=11))
    forget(sink)
    sink.feed(rows_of(3))
    sink.run(maxDelay=LONG)

    stock.feed(*map(rows_of, range(4)))
    stock.run(compacting=False)
    assert sink.read() == stock.read()
    assert len(sink.listed(3)) == 6
    assert len(in_waiting(sink)) == 1
    assert Sink(sink.files).waiting().num_rows == 0
    verified(sink)


def test_the_delay_counts_for_each_partition_value(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(spark, tmp_path, "parquet", ("q",))
    sink.feed([row for row in rows_of(0) if row["q"] == 0])
    sink.run(maxDelay=LONG)
    age(sink, datetime.timedelta(hours=11))
    forget(sink)
    sink.feed([row for row in rows_of(1) if row["q"] == 1])
    sink.run(maxDelay=LONG)

    # The file that waits alone is copied: the batch might have failed after that.
    assert [name.partition("/")[0] for name in sink.listed(1)] == ["q=0"]
    assert sink.ids() == list(range(0, 40, 2))
    assert waiting(sink) == 20
    verified(sink)


def test_what_waits_alone_is_copied_by_tasks(make_spark: MakeSpark, tmp_path: Path) -> None:
    """Also with a serializer that takes no class that it does not know."""
    of_sinks = "org.apache.spark.sql.execution.streaming." + ("sinks." if MINOR >= "4.1" else "")
    kryo = {
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrationRequired": "true",
        "spark.kryo.classesToRegister": f"{of_sinks}SinkFileStatus",  # what Spark's own sink needs
    }
    sink = FileSink(make_spark(kryo), tmp_path, "json", change=lambda rows: rows.coalesce(1))
    sink.feed(*map(rows_of, range(3)))
    sink.run(maxDelay=LONG)
    sink.feed(rows_of(3))

    # Files whose records are limited are not joined.
    with sink.running(maxDelay=LONG, maxRecordsPerFile="60") as query:
        query.awaitTermination()

    await_listeners(sink.spark)
    tracker = sink.spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(str(query.runId))]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    # A task writes the batch, and three copy the files that wait.
    assert sorted(stage.numTasks for stage in stages if stage) == [1, 3]
    assert len(sink.listed(3)) == 4
    assert sink.ids() == list(range(160))
    verified(sink)


def test_without_a_delay_what_waits_is_published_with_the_next_batch(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(spark, tmp_path, "parquet", ("q",))
    sink.feed(rows_of(0), rows_of(1))
    sink.run(maxDelay=LONG)
    forget(sink)
    sink.feed(rows_of(2), rows_of(3))
    sink.run()

    assert sink.ids() == list(range(160))
    assert [len(sink.listed(batch)) for batch in range(4)] == [0, 0, 2, 2]
    # Nothing waits, which is said once.
    assert [len(part.manifests) for part in parts_of(sink)] == [1, 1, 1, 0]


def parts_of(sink: FileSink) -> list[Any]:
    from pyspark_statestore.sink.file_list import read_list

    return read_list(Sink(sink.files)._directory)


def test_a_sink_without_a_delay_never_waits(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(spark, tmp_path, "parquet", ("q",))
    sink.feed(rows_of(0), rows_of(1))
    sink.run()

    assert not (sink.files / WAITING).exists()
    assert [part.manifests for part in parts_of(sink)] == [(), ()]


def test_stock_spark_goes_on_and_what_waits_still_waits(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(spark, tmp_path, "parquet", ("q",))
    sink.feed(rows_of(0))
    sink.run(maxDelay=LONG)
    # So many batches that Spark repeats its list.
    sink.feed(*map(rows_of, range(1, 12)))
    sink.run(compacting=False)
    assert sink.ids() == list(range(40, 480))
    assert waiting(sink) == 40
    verified(sink)

    sink.feed(rows_of(12))
    sink.run()

    assert sink.ids() == list(range(520))


def test_the_list_is_repeated_while_rows_wait(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(spark, tmp_path, "parquet", ("q",))
    sink.feed(*map(rows_of, range(10)))
    sink.run(maxDelay=LONG)
    assert sink.ids() == []
    assert [(part.info.name, len(part.manifests)) for part in parts_of(sink)] == [("9.compact", 10)]
    forget(sink)
    sink.feed(rows_of(10))
    sink.run(maxDelay="1s")

    assert sink.ids() == list(range(440))


def test_a_batch_that_is_run_again_finds_what_waited_before_it(spark: SparkSession, tmp_path: Path) -> None:
    """As after a crash before the list named the batch: an attempt's manifest counts only if the list names it."""
    sink = FileSink(spark, tmp_path, "parquet", ("q",))
    sink.feed(rows_of(0), rows_of(1))
    sink.run(maxDelay=LONG)
    kept = tmp_path / "kept"
    shutil.copytree(sink.folder, kept, ignore=shutil.ignore_patterns("kept"))
    sink.feed(rows_of(2))
    sink.run()
    assert sink.ids() == list(range(120))

    # The files of the attempt stay, and what it deleted comes back.
    for name in ("_spark_metadata/2", "_spark_metadata/.2.crc"):
        (sink.files / name).unlink(missing_ok=True)
    (sink.checkpoint / "commits" / "2").unlink()
    (sink.checkpoint / "commits" / ".2.crc").unlink(missing_ok=True)
    shutil.copytree(kept / "files" / WAITING, sink.files / WAITING, dirs_exist_ok=True)
    assert waiting(sink) == 80
    sink.run()

    assert sink.ids() == list(range(120))
    verified(sink)


def test_a_driver_that_another_has_overtaken_does_not_publish(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(spark, tmp_path, "parquet", ("q",))
    sink.feed(rows_of(0))
    sink.run(maxDelay=LONG)
    before = tmp_path / "before"
    shutil.copytree(sink.checkpoint, before)
    sink.feed(rows_of(1))
    sink.run(maxDelay=LONG)
    # The other driver's batch 1 is in the list; this one's checkpoint has not heard of it.
    shutil.rmtree(sink.checkpoint)
    shutil.copytree(before, sink.checkpoint)
    sink.run(maxDelay=LONG)
    sink.feed(rows_of(2))
    sink.run()

    assert sink.ids() == list(range(120))


def test_a_driver_that_remembers_nothing_that_waits_asks_the_list(spark: SparkSession, tmp_path: Path) -> None:
    """The sink was begun anew, or put back from a copy, and another driver has had its batch before."""
    sink = FileSink(spark, tmp_path, "parquet", ("q",))
    sink.feed(rows_of(0))
    sink.run()
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    memory = jvm.java.lang.Class.forName("io.pyspark.statestore.sink.Waiting").getDeclaredField("COMMITTED")
    memory.setAccessible(True)
    path, remembered = jvm.org.apache.hadoop.fs.Path(sink.location), memory.get(None)
    key = next(each for each in remembered.keySet() if each.toUri().getPath() == path.toUri().getPath())
    known = remembered.get(key)
    for folder in (sink.checkpoint, sink.files):
        shutil.rmtree(folder)
    sink.run(maxDelay=LONG)
    assert waiting(sink) == 40
    remembered.put(key, known)
    sink.feed(rows_of(1))
    sink.run(maxDelay=LONG)
    assert waiting(sink) == 80
    sink.feed(rows_of(2))
    sink.run()
    assert sink.ids() == list(range(120))
    verified(sink)


def test_what_was_written_with_another_schema_is_published_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(spark, tmp_path, "parquet", ("q",))
    sink.feed(rows_of(0), rows_of(1))
    sink.run(maxDelay=LONG)
    forget(sink)

    def narrowed(rows: DataFrame) -> DataFrame:
        return rows.drop("word").repartition(TASKS, "id")

    sink.change = narrowed
    sink.feed(rows_of(2))
    sink.run(maxDelay=LONG)

    # Two files of each of two values: they were not read as if they had the new columns.
    assert len(sink.listed(2)) == 4
    words = sink.read(mergeSchema="true")
    assert sum(words.values()) == 80
    assert sum(count for row, count in words.items() if '"word"' in row) == sum(
        row["word"] is not None for batch in range(2) for row in rows_of(batch)
    )
    assert waiting(sink) == 40
    verified(sink)


def test_files_that_cannot_be_joined_do_not_wait(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(spark, tmp_path, "json", options={"encoding": "UTF-16", "lineSep": "\n"})
    sink.feed(rows_of(0))
    sink.run(maxDelay=LONG)

    assert len(sink.listed(0)) == TASKS
    assert not (sink.files / WAITING).exists()


def test_what_waits_is_published_where_files_cannot_be_joined_any_more(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(spark, tmp_path, "json")
    sink.feed(rows_of(0), rows_of(1))
    sink.run(maxDelay=LONG)
    sink.feed(rows_of(2))
    sink.run(maxDelay=LONG, maxRecordsPerFile="60")

    assert sink.ids() == list(range(120))
    assert len(sink.listed(2)) == 2 + TASKS


def test_a_lower_target_lets_go_what_waits(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(spark, tmp_path, "parquet", ("q",))
    sink.feed(rows_of(0), rows_of(1))
    sink.run(maxDelay=LONG)
    sink.feed(rows_of(2))
    sink.run(maxDelay=LONG, targetFileSize="1k")

    assert sink.ids() == list(range(120))
    assert Sink(sink.files).waiting().num_rows == 0


def test_a_lost_manifest_stops_the_query_and_is_damage(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(spark, tmp_path, "parquet", ("q",))
    sink.feed(rows_of(0))
    sink.run(maxDelay=LONG)
    (path,) = (sink.files / WAITING).glob("*.json")
    path.rename(tmp_path / path.name)
    sink.feed(rows_of(1))
    with pytest.raises(StreamingQueryException, match="PSS_SINK_COMPACTION_FAILED.*rows wait to be published"):
        sink.run(maxDelay=LONG)
    found = Sink(sink.files).verify()
    assert [row["kind"] for row in found.problems.to_pylist() if row["severity"] == "damage"] == ["missing_manifest"]
    with pytest.raises(StateStoreFilesError, match=f"{path.name}: Spark's list names it"):
        Sink(sink.files).remove_orphan_files(NOW, dry_run=False, force=True)

    (tmp_path / path.name).rename(path)
    sink.run()

    assert sink.ids() == list(range(80))


@pytest.mark.parametrize("way", ["up", "absolute", "twice"])
def test_a_manifest_names_only_files_that_wait_and_each_once(spark: SparkSession, tmp_path: Path, way: str) -> None:
    """Whoever may write to the sink must not make its driver take or delete somebody else's files."""
    sink = FileSink(spark, tmp_path, "json", ("q",))
    sink.feed(rows_of(0))
    sink.run(maxDelay=LONG)
    victim = tmp_path / "victim" / "part-00000-1b4e28ba-2fa1-11d2-883f-0016d3cca427-c000.json"
    victim.parent.mkdir()
    victim.write_text('{"id":-1}\n')
    (path,) = (sink.files / WAITING).glob("*.json")
    original = path.read_text()
    content = json.loads(original)
    first = content["files"][0]
    up = f"../../victim/{victim.name}"
    names = {"up": up, "absolute": str(victim), "twice": first["path"]}
    size = first["size"] if way == "twice" else victim.stat().st_size
    content["files"].append({**first, "path": names[way], "size": size})
    reason = "it names a file twice" if way == "twice" else "no path of a file that waits"
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    path.write_text(json.dumps(content))
    forget(sink)
    sink.feed(rows_of(1))

    with pytest.raises(StreamingQueryException, match=f"PSS_SINK_COMPACTION_FAILED.*{reason}"):
        sink.run()

    assert victim.read_text() == '{"id":-1}\n'
    calls: list[Any] = [
        Sink(sink.files).waiting,
        lambda: Sink(sink.files).remove_orphan_files(NOW, dry_run=False, force=True),
        lambda: Sink(sink.files).publish(spark=spark, idle_for=NOW, force=True),
    ]
    for call in calls:
        with pytest.raises(StateStoreFilesError, match=f"PSS_READ_FAILED.*{reason}"):
            call()
    assert not Sink(sink.files).verify().is_clean
    path.write_text(original)
    sink.run()
    assert sink.ids() == list(range(80))
    assert victim.read_text() == '{"id":-1}\n'


def test_a_copy_of_a_sink_leaves_alone_what_waits_in_the_sink(spark: SparkSession, tmp_path: Path) -> None:
    """Its list names the manifest of the sink that was copied."""
    sink = FileSink(spark, tmp_path / "first", "json", ("q",))
    sink.feed(rows_of(0))
    sink.run(maxDelay=LONG)
    before = in_waiting(sink)
    shutil.copytree(sink.files, tmp_path / "copy" / "files")
    copy = FileSink(spark, tmp_path / "copy", "json", ("q",))
    copy.feed(rows_of(0), rows_of(1))  # the list has the first batch already

    with pytest.raises(StreamingQueryException, match="PSS_SINK_COMPACTION_FAILED.*is in another directory"):
        copy.run()

    assert in_waiting(sink) == before
    assert Sink(copy.files).verify().problems["kind"].to_pylist()[-1:] == ["waits_elsewhere"]
    assert Sink(copy.files).report().html
    with pytest.raises(StateStoreFilesError, match="PSS_SINK_ELSEWHERE"):
        Sink(copy.files).waiting()
    with pytest.raises(StateStoreFilesError, match="PSS_SINK_ELSEWHERE"):
        Sink(copy.files).remove_orphan_files(NOW, dry_run=False, force=True)
    sink.feed(rows_of(1))
    sink.run()
    assert sink.ids() == list(range(80))


def test_a_lost_file_is_damage_and_stops_the_query(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(spark, tmp_path, "parquet", ("q",))
    sink.feed(rows_of(0))
    sink.run(maxDelay=LONG)
    file = sorted((sink.files / WAITING).rglob("part-*"))[0]
    file.rename(tmp_path / "kept")
    problems = Sink(sink.files).verify().problems.to_pylist()
    assert [row["kind"] for row in problems if row["severity"] == "damage"] == ["missing_waiting_file"]
    sink.feed(rows_of(1))
    with pytest.raises(StreamingQueryException, match="PSS_SINK_COMPACTION_FAILED"):
        sink.run()
    (tmp_path / "kept").rename(file)
    sink.run()

    assert sink.ids() == list(range(80))


def test_orphans_are_what_does_not_wait(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(spark, tmp_path, "parquet", ("q",))
    sink.feed(rows_of(0))
    sink.run(maxDelay=LONG)
    for name in ("q=0/part-00000-left.snappy.parquet", "0-00000000deadbeef.json"):
        (sink.files / WAITING / name).write_bytes(b"{}")

    removed = Sink(sink.files).remove_orphan_files(NOW, dry_run=False, force=True)

    assert removed.removed_files_count == 2
    verified(sink)
    assert waiting(sink) == 40


def test_batches_delete_what_failed_attempts_have_left_to_wait(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(spark, tmp_path, "parquet", ("q",))
    sink.feed(rows_of(0))
    sink.run(maxDelay=LONG)
    old, young = (sink.files / WAITING / "q=1" / f"part-00000-{name}.snappy.parquet" for name in ("old", "young"))
    for left in (old, young):
        left.write_bytes(b"left")
    for path in (old, *(sink.files / Path(name) for name in in_waiting(sink) if "young" not in name)):
        os.utime(path, (time.time() - 2 * 24 * 3600,) * 2)
    clear(sink, "Staging", "LAST_SWEEP")
    sink.feed(rows_of(1))
    sink.run(maxDelay=LONG)

    assert not old.exists()
    assert young.exists()
    assert waiting(sink) == 80
    verified(sink)


def test_a_stream_reads_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(spark, tmp_path, "parquet")
    seen: Counter[int] = Counter()

    def read() -> None:
        name = f"seen_{len(list(tmp_path.glob('out-*')))}"
        out = tmp_path / f"out-{name}"
        rows = spark.readStream.schema(spark.read.parquet(sink.location).schema if sink.ids() else "id long").parquet(
            sink.location
        )
        rows.select("id").writeStream.format("json").option("checkpointLocation", str(tmp_path / "reader")).trigger(
            availableNow=True
        ).start(str(out)).awaitTermination()
        if (out / "_spark_metadata").exists():
            seen.update(row["id"] for row in spark.read.schema("id long").json(str(out)).collect())

    for batch in range(4):
        sink.feed(rows_of(batch))
        sink.run(maxDelay=LONG if batch != 2 else "0s")
        read()
        assert sorted(seen) == sink.ids()
    assert seen == Counter(range(120))


def test_publishing_what_waits_after_the_query_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(spark, tmp_path, "parquet", ("p", "q"))
    sink.feed(rows_of(0), rows_of(1))
    sink.run(maxDelay=LONG)
    made = Sink(sink.files)

    with pytest.raises(StateStoreFilesError, match="PSS_SINK_IN_USE"):
        made.publish(spark=spark)
    with pytest.raises(StateStoreFilesError, match="PSS_INVALID_OPTION"):
        made.publish(spark=spark, idle_for=NOW)
    dry = made.publish(spark=spark, dry_run=True)
    assert (dry.published_data_files_count, sink.ids()) == (12, [])

    done = made.publish(spark=spark, idle_for=NOW, force=True)

    assert done.published_data_files_count == 6
    assert sink.ids() == list(range(80))
    assert made.waiting().num_rows == 0
    assert made.publish(spark=spark, idle_for=NOW, force=True).published_data_files_count == 0
    verified(sink)
    # The query goes on, also where its driver still remembers what waited.
    sink.feed(rows_of(2))
    sink.run(maxDelay=LONG)
    sink.feed(rows_of(3))
    sink.run()
    assert sink.ids() == list(range(160))
    assert Counter(manifest.ids(sink.files, "id").values()) == {1: 160}
    made.remove_orphan_files(NOW, dry_run=False, force=True)
    assert not in_waiting(sink)[1:]


@pytest.mark.parametrize(
    ("format", "options"), [("orc", {}), ("json", {}), ("csv", {"header": "true"}), ("xml", {"rowTag": "r"})]
)
def test_each_format_is_published_with_the_columns_of_its_manifest(
    spark: SparkSession, tmp_path: Path, format: str, options: dict[str, str]
) -> None:
    """Spark looks into no file where it waits, so nothing is found out from the files."""
    if format == "xml" and MINOR < "4.0":
        pytest.skip("Spark 3.5 has no XML")

    def named(rows: DataFrame) -> DataFrame:
        name = "line\nand line" if format == "csv" else "word"
        return rows.selectExpr("id", "'00' || q as code", "q", f"word as `{name}`").repartition(TASKS, "id")

    sink = FileSink(spark, tmp_path / "ours", format, ("q",), options, change=named)
    stock = FileSink(spark, tmp_path / "stock", format, ("q",), options, change=named)
    for each in (sink, stock):
        each.feed(rows_of(0), rows_of(1))
    sink.run(maxDelay=LONG)
    stock.run(compacting=False)

    Sink(sink.files).publish(spark=spark, idle_for=NOW, force=True, options=options)

    several = {"multiLine": "true"} if format == "csv" else {}
    assert sink.read(**several) == stock.read(**several)
    assert sum(sink.read(**several).values()) == 80
    verified(sink)


def test_a_batch_while_what_waits_is_joined_stops_the_publication(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query was idle when the publication began."""
    sink = FileSink(spark, tmp_path, "parquet", ("q",))
    sink.feed(rows_of(0), rows_of(1))
    sink.run(maxDelay=LONG)
    join = rewriter.Rewriter.publish

    def slow_join(*arguments: Any) -> Any:
        made = join(*arguments)
        sink.feed(rows_of(2))
        sink.run()
        return made

    monkeypatch.setattr(rewriter.Rewriter, "publish", slow_join)
    with pytest.raises(StateStoreFilesError, match="PSS_SINK_LIST_CHANGED"):
        Sink(sink.files).publish(spark=spark, idle_for=NOW, force=True)

    assert sink.ids() == list(range(120))
    # What was joined in vain does not stay, for those who read directories.
    assert seen(sink) == {reader: Counter(range(120)) for reader in seen(sink)}
    verified(sink)


def test_a_publication_that_is_killed_has_published_or_not(spark: SparkSession, tmp_path: Path) -> None:
    """It dies when the list names what it has published; the driver of the query still remembers what waited."""
    sink = FileSink(spark, tmp_path, "parquet", ("q",))
    sink.feed(rows_of(0), rows_of(1))
    sink.run(maxDelay=LONG)
    kept = tmp_path / "kept"
    shutil.copytree(sink.files / WAITING, kept)
    Sink(sink.files).publish(spark=spark, idle_for=NOW, force=True)
    shutil.copytree(kept, sink.files / WAITING, dirs_exist_ok=True)  # it has not come to deleting this

    sink.feed(rows_of(2))
    sink.run(maxDelay=LONG)
    assert sink.ids() == list(range(80))
    assert waiting(sink) == 40
    sink.feed(rows_of(3))
    sink.run()

    assert sink.ids() == list(range(160))
    verified(sink)


def test_compaction_keeps_the_manifest_that_counts(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(spark, tmp_path, "parquet", ("q",))
    sink.feed(*map(rows_of, range(3)))
    sink.run(compacting=False)
    sink.feed(*map(rows_of, range(3, 10)))
    sink.run(maxDelay=LONG)
    assert [(part.info.name, len(part.manifests)) for part in parts_of(sink)] == [("9.compact", 7)]

    Sink(sink.files).compact(older_than=NOW, spark=spark)

    assert [len(part.manifests) for part in parts_of(sink)] == [1]
    assert waiting(sink) == 7 * 40
    verified(sink)
    forget(sink)
    sink.feed(rows_of(10))
    sink.run()
    assert sink.ids() == list(range(440))


def test_a_clock_that_is_ahead_publishes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """By the file system's clock the query has committed a batch just now."""
    sink = FileSink(spark, tmp_path, "parquet", ("q",))
    sink.feed(rows_of(0))
    sink.run(maxDelay=LONG)
    ahead = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=2)
    with pytest.raises(StateStoreFilesError, match="PSS_SINK_IN_USE"):
        publish(
            Sink(sink.files)._directory,
            target_file_size=TARGET_FILE_SIZE,
            idle_for=datetime.timedelta(hours=1),
            format=None,
            options={},
            dry_run=False,
            force=False,
            spark=spark,
            now=ahead,
        )
    assert sink.ids() == []
    assert waiting(sink) == 40
