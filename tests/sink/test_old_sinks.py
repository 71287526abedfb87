"""Sinks that stock Spark has written: looked at, compacted, and rid of what no list names."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pyspark_statestore import Sink, StateStoreFilesError
from pyspark_statestore.sink import notes, orphans, rewriter
from pyspark_statestore.storage import Directory
from tests.class_data import MINOR
from tests.conftest import MakeSpark
from tests.meanwhile import meanwhile
from tests.sampling import sampled
from tests.sink import manifest
from tests.sink.sinks import REPLACED, STAGING, TASKS, FileSink, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="sinks")]

INTERVAL = {"spark.sql.streaming.fileSink.log.compactInterval": "3"}
AT_ONCE = datetime.timedelta(0)
DAY = 24 * 3600
FORMATS: dict[str, tuple[str, dict[str, str]]] = {
    "parquet": ("parquet", {}),
    "orc": ("orc", {}),
    "json-gzip": ("json", {"compression": "gzip"}),
    "csv-header": ("csv", {"header": "true"}),
}


def old_sink(spark: SparkSession, folder: Path, batches: int = 5, **of_sink: Any) -> FileSink:
    """A sink as stock Spark leaves it: with five batches its list is ``2.compact``, ``3`` and ``4``."""
    sink = FileSink(spark, folder, **{"partition_by": ("q",), **of_sink})
    sink.feed(*(rows_of(batch) for batch in range(batches)))
    sink.run(compacting=False, conf=INTERVAL)
    return sink


@pytest.fixture(scope="module")
def kept(make_spark: MakeSpark, tmp_path_factory: pytest.TempPathFactory) -> FileSink:
    """A sink that stays as stock Spark left it, below ``kept``; its list has the paths of its first place."""
    sink = old_sink(make_spark(), tmp_path_factory.mktemp("old") / "sink")
    shutil.copytree(sink.folder, sink.folder.with_name("kept"))
    return sink


@pytest.fixture
def old(kept: FileSink) -> FileSink:
    """A sink as stock Spark has left it, anew for each test."""
    shutil.rmtree(kept.folder)
    shutil.copytree(kept.folder.with_name("kept"), kept.folder)
    return replace(kept)


def sparks_name(letter: str) -> str:
    """A name that Spark gives."""
    return f"part-00000-{letter * 8}-{letter * 4}-4000-8000-{letter * 12}.c000.snappy.parquet"


def listed(sink: FileSink) -> list[str]:
    """All listed files, below the sink's directory."""
    return sorted(str(path.relative_to(sink.files)) for paths in manifest.listed(sink.files).values() for path in paths)


@pytest.mark.parametrize("name", sampled([*FORMATS], 2))
def test_few_files_have_the_rows_and_the_query_goes_on(make_spark: MakeSpark, tmp_path: Path, name: str) -> None:
    spark = make_spark()
    format, options = FORMATS[name]
    sink = old_sink(spark, tmp_path, format=format, options=options)
    before, rows = listed(sink), sink.read()

    done = Sink(sink.files).compact(older_than=AT_ONCE, options=options, spark=spark)

    # Of each of the three files of the list and each of the two values.
    assert done.rewritten_data_files_count == len(before) == 5 * TASKS * 2
    assert done.added_data_files_count == len(listed(sink)) == 6
    assert done.added_bytes_count == sum((sink.files / file).stat().st_size for file in listed(sink))
    assert set(done.files["file_path"].to_pylist()) == {f"file://{sink.files / file}" for file in before}
    assert sink.read() == rows
    assert set(before) <= set(sink.present())  # for who has the old list
    for batch, compacting in ((5, False), (6, True)):  # 5.compact, and 6
        sink.feed(rows_of(batch))
        sink.run(compacting=compacting, conf=INTERVAL)
        assert set(before) & set(listed(sink)) == set()
    assert sum(sink.read().values()) == 7 * 40
    assert rows <= sink.read()
    assert Sink(sink.files).verify().is_clean


def test_a_second_compaction_joins_what_has_come_since(old: FileSink) -> None:
    sink = old
    Sink(sink.files).compact(older_than=AT_ONCE)
    assert Sink(sink.files).compact(older_than=AT_ONCE).rewritten_data_files_count == 0
    sink.feed(rows_of(5))
    sink.run(conf=INTERVAL)  # 5.compact

    done = Sink(sink.files).compact(older_than=AT_ONCE)

    assert (done.rewritten_data_files_count, done.added_data_files_count) == (8, 2)
    assert sink.ids() == list(range(240))


def test_paths_are_compared_as_paths(old: FileSink) -> None:
    """Who calls need not write the sink's path as Spark's list does."""
    sink = old
    other = Sink(f"file://{sink.folder}/../{sink.folder.name}//./{sink.files.name}")

    done = other.compact(older_than=AT_ONCE)

    assert (done.rewritten_data_files_count, done.failed_data_files_count) == (5 * TASKS * 2, 0)
    assert sink.ids() == list(range(200))
    assert other.verify().is_clean


def test_a_dry_run_says_what_it_would_do(old: FileSink) -> None:
    sink = old
    before, present = manifest.listed(sink.files), sink.present()

    planned = Sink(sink.files).compact(older_than=AT_ONCE, dry_run=True)

    assert planned.dry_run
    assert (manifest.listed(sink.files), sink.present()) == (before, present)
    done = Sink(sink.files).compact(older_than=AT_ONCE)
    assert planned.files == done.files
    assert planned.added_data_files_count == done.added_data_files_count


def test_large_files_stay_and_new_ones_have_the_target_size(make_spark: MakeSpark, tmp_path: Path) -> None:
    sink = old_sink(make_spark(), tmp_path, format="json", partition_by=())
    sizes = [(sink.files / file).stat().st_size for file in listed(sink)]
    target = 2 * max(sizes)
    Sink(sink.files).compact(older_than=AT_ONCE, target_file_size=target)

    assert len(listed(sink)) < len(sizes)
    assert max((sink.files / file).stat().st_size for file in listed(sink)) < 2 * target
    assert Sink(sink.files).compact(older_than=AT_ONCE, target_file_size=1024).rewritten_data_files_count == 0


def test_columns_that_came_later_are_null_before(make_spark: MakeSpark, tmp_path: Path) -> None:
    sink = old_sink(make_spark(), tmp_path, batches=1, change=lambda rows: rows.select("id", "q").repartition(TASKS))
    sink.change = lambda rows: rows.select("id", "word", "q").repartition(TASKS)
    sink.feed(rows_of(1), rows_of(2))
    sink.run(compacting=False, conf=INTERVAL)
    rows = sink.read(mergeSchema="true")

    Sink(sink.files).compact(older_than=AT_ONCE)

    assert len(listed(sink)) == 2
    assert sink.read() == rows


def with_times(sink: FileSink, seconds_ago: Callable[[int], float]) -> None:
    """Lets the files of the list be older, by the number of their batch's place in the list."""
    now = time.time()
    for at, entry in enumerate(sorted(manifest.listed(sink.files), key=lambda name: int(name.partition(".")[0]))):
        part = sink.files / "_spark_metadata" / entry
        version, *lines = part.read_text().splitlines()
        changed = [{**json.loads(line), "modificationTime": int(1000 * (now - seconds_ago(at)))} for line in lines]
        part.write_text("\n".join([version, *map(json.dumps, changed)]))
        (part.parent / f".{entry}.crc").unlink(missing_ok=True)


def test_a_stream_that_reads_the_sink_gets_no_row_twice(old: FileSink, tmp_path: Path) -> None:
    spark, sink = old.spark, old
    with_times(sink, lambda at: DAY * (15 if at == 0 else 1))
    follower = FileSink(spark, tmp_path / "follower")

    def follow() -> list[int]:
        rows = spark.readStream.schema("id long, q int").parquet(sink.location)
        writer = rows.writeStream.option("checkpointLocation", str(follower.checkpoint)).format("parquet")
        writer.trigger(availableNow=True).start(follower.location).awaitTermination()
        return follower.ids()

    sink.feed(rows_of(5))
    sink.run(conf={**INTERVAL, "spark.sql.streaming.fileSink.log.compactInterval": "100"})
    assert follow() == list(range(240))

    done = Sink(sink.files).compact()

    # What is older than the newest file by fourteen days: the three batches of 2.compact.
    assert (done.rewritten_data_files_count, done.added_data_files_count) == (3 * TASKS * 2, 2)
    assert sink.ids() == list(range(240))
    sink.feed(rows_of(6))
    sink.run(conf=INTERVAL)
    assert follow() == list(range(280))


def age(paths: Sequence[Path], seconds: float) -> None:
    for path in paths:
        os.utime(path, (time.time() - seconds,) * 2)


def test_orphans_go_when_they_are_old(old: FileSink) -> None:
    sink = old
    before = listed(sink)
    Sink(sink.files).compact(older_than=AT_ONCE)
    new = f"q=1/{sparks_name('b')}"
    in_vain, young, staged = (sink.files / name for name in (f"q=1/{sparks_name('a')}", new, f"{STAGING}/3-a/x"))
    hidden = sink.files / "_other" / "file"
    for path in (in_vain, young, staged, hidden):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"data")
    age([in_vain, staged, hidden, *(sink.files / file for file in before)], 10 * DAY)
    half_a_day = datetime.timedelta(hours=12)

    # What has been replaced is old, and has not been replaced for long.
    done = Sink(sink.files).remove_orphan_files(half_a_day, dry_run=False)
    assert {Path(path).name for path in done.files["file_path"].to_pylist()} == {in_vain.name, staged.name}
    assert set(before) <= set(sink.present())

    age(list((sink.files / REPLACED).iterdir()), DAY)
    planned = Sink(sink.files).remove_orphan_files(half_a_day)
    assert planned.dry_run
    assert planned.removed_files_count == len(before) + 3  # a note for each file of the list
    assert set(before) <= set(sink.present())
    done = Sink(sink.files).remove_orphan_files(half_a_day, dry_run=False)
    assert done.files == planned.files
    assert sorted(sink.present()) == sorted([*listed(sink), new, "_other/file"])
    young.unlink()
    assert sink.ids() == list(range(200))
    assert all((path.parent / path.name[1:-4]).exists() for path in sink.files.rglob(".*.crc"))


def test_what_a_compaction_replaces_meanwhile_is_not_removed(old: FileSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers have taken the old list, and the removal has looked for notes before the compaction wrote one."""
    sink, before, look = old, listed(old), notes.read_notes
    age([sink.files / file for file in before], 10 * DAY)

    def look_and_compact(directory: Directory) -> object:
        found = look(directory)
        Sink(sink.files).compact(older_than=AT_ONCE)
        return found

    monkeypatch.setattr(orphans, "read_notes", look_and_compact)
    assert Sink(sink.files).remove_orphan_files(dry_run=False).removed_files_count == 0
    assert set(before) <= set(sink.present())


def test_nothing_is_removed_of_a_copy(tmp_path: Path, old: FileSink) -> None:
    """Its list names the files of the sink that was copied."""
    sink = old
    copy = tmp_path / "copy"
    shutil.copytree(sink.files, copy)
    with pytest.raises(StateStoreFilesError, match=r"PSS_SINK_ELSEWHERE.*/files/q="):
        Sink(copy).remove_orphan_files(AT_ONCE, dry_run=False, force=True)
    assert len([*copy.rglob("*.parquet")]) == 40
    assert Sink(copy).compact(older_than=AT_ONCE).rewritten_data_files_count == 0


def test_nothing_is_removed_where_the_list_is_damaged(old: FileSink) -> None:
    sink = old
    part = sink.files / "_spark_metadata" / "2.compact"
    whole = part.read_text()
    lines = whole.splitlines()
    age([sink.files / file for file in sink.present()], 10 * DAY)
    present = sink.present()
    for damaged, line in (
        ("\n".join([*lines[:-1], lines[-1][:40]]), len(lines)),
        ("v2" + whole[2:], 1),
        ("", 1),
        ("\n".join([lines[0], "{}", *lines[1:]]), 2),
        ("\n".join([lines[0], lines[1].replace('"add"', '"delete"')]), 2),
    ):
        part.write_text(damaged)
        calls: list[Callable[[], object]] = [
            lambda: Sink(sink.files).remove_orphan_files(dry_run=False),
            lambda: Sink(sink.files).compact(older_than=AT_ONCE),
            Sink(sink.files).verify,
            Sink(sink.files).files,
        ]
        for call in calls:
            with pytest.raises(StateStoreFilesError, match=rf"PSS_DAMAGED_SINK_LIST.*2\.compact.* line {line}:"):
                call()
    assert sink.present() == present


def test_tables(old: FileSink) -> None:
    sink = old
    files, log = Sink(sink.files).files().to_pylist(), Sink(sink.files).log().to_pylist()

    assert sorted(row["file_path"] for row in files) == [f"file://{sink.files / name}" for name in listed(sink)]
    assert Counter(row["listed_in"] for row in files) == {"2.compact": 24, "3": 8, "4": 8}
    assert {row["directory"] for row in files} == {"q=0", "q=1"}
    assert all(row["file_size_in_bytes"] == os.stat(row["file_path"][7:]).st_size for row in files)
    current = [(row["batch_id"], row["is_compact"], row["entry_count"]) for row in log if row["is_current"]]
    assert current == [(2, True, 24), (3, False, 8), (4, False, 8)]
    assert {row["batch_id"] for row in log if not row["is_current"]} == {0, 1}
    assert sum(row["listed_bytes"] for row in log if row["is_current"]) == sum(r["file_size_in_bytes"] for r in files)
    if MINOR >= "4.0":
        for table, expected in (("sink_files", files), ("sink_log", log)):
            found = sink.spark.read.format("checkpoint_files").option("table", table).load(str(sink.files))
            assert found.count() == len(expected)
            assert sorted(row["file_path"] for row in found.collect()) == sorted(row["file_path"] for row in expected)


def test_verification_finds_what_is_wrong(old: FileSink) -> None:
    sink = old
    clean = Sink(sink.files).verify()
    assert clean.is_clean
    assert (clean.listed_files_count, clean.problems.num_rows) == (40, 0)
    # Not of the last batch, whose files are named twice below.
    missing, cut = sorted(manifest.listed(sink.files)["2.compact"])[:2]
    missing.unlink()
    cut.write_bytes(cut.read_bytes()[:-1])
    (sink.files / "q=1" / "stray.parquet").write_bytes(b"")
    log = sink.files / "_spark_metadata"
    four = (log / "4").read_text().splitlines()
    (log / "6").write_text("\n".join([*four, four[-1].replace(str(sink.files), "/elsewhere")]))

    found = Sink(sink.files).verify()

    assert not found.is_clean
    kinds = Counter((row["severity"], row["kind"]) for row in found.problems.to_pylist())
    twice = ("damage", "listed_twice")
    assert kinds.pop(twice) == 2 * 8
    assert kinds == {
        ("damage", "missing_file"): 1,
        ("damage", "wrong_size"): 1,
        ("damage", "missing_batch"): 1,
        ("note", "unlisted"): 1,
        ("note", "elsewhere"): 1,
    }
    by_kind = {row["kind"]: row["path"] for row in found.problems.to_pylist()}
    assert by_kind["missing_file"] == f"file://{missing}"
    assert by_kind["wrong_size"] == f"file://{cut}"
    assert by_kind["missing_batch"].endswith("/_spark_metadata/5")


def test_a_stray_number_is_one_problem(old: FileSink) -> None:
    """A file with a date for its name looks like a batch; so many batches were not there."""
    log = old.files / "_spark_metadata"
    last = max(int(path.name) for path in log.iterdir() if path.name.isdigit())
    (log / "999999999999999999").write_text("v1\n")
    [problem] = [row for row in Sink(old.files).verify().problems.to_pylist() if row["kind"] == "missing_batch"]
    assert problem["path"].endswith(f"/{last + 1}")
    assert f"{999999999999999999 - last - 2:,} after it" in problem["reason"]


def test_what_is_no_sink_is_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a home directory."""
    monkeypatch.setattr(Directory, "find", None)
    sink = Sink(tmp_path)
    for verb in (sink.verify, sink.remove_orphan_files, lambda: sink.remove_orphan_files(dry_run=False)):
        with pytest.raises(StateStoreFilesError, match="PSS_NOT_A_SINK"):
            verb()
    assert not list(tmp_path.iterdir())


def test_the_list_may_change_meanwhile(monkeypatch: pytest.MonkeyPatch, old: FileSink) -> None:
    sink = old
    join = rewriter.Rewriter.join

    def slow_join(*arguments: Any) -> Any:
        made = join(*arguments)
        if sink.fed == 5:
            sink.feed(rows_of(5))
            sink.run(compacting=False, conf=INTERVAL)  # 5.compact
        return made

    monkeypatch.setattr(rewriter.Rewriter, "join", slow_join)
    with pytest.raises(StateStoreFilesError, match="PSS_SINK_LIST_CHANGED"):
        Sink(sink.files).compact(older_than=AT_ONCE)
    assert sink.ids() == list(range(240))
    unlisted = [row["path"] for row in Sink(sink.files).verify().problems.to_pylist()]
    assert len(unlisted) == 2  # what was joined in vain

    done = Sink(sink.files).compact(older_than=AT_ONCE)
    assert (done.rewritten_data_files_count, done.added_data_files_count) == (48, 2)
    assert sink.ids() == list(range(240))


def test_a_part_of_the_list_is_never_gone(make_spark: MakeSpark, tmp_path: Path) -> None:
    """Hadoop's rename deletes what it replaces first on a local disk, and keeps a checksum file beside each file."""
    spark = make_spark()
    sink = old_sink(spark, tmp_path, batches=1)
    part = sink.files / "_spark_metadata" / "0"
    lists = rewriter.Rewriter(Sink(sink.files)._directory, spark)
    lines = part.read_text().splitlines()
    texts = ["\n".join(lines), "\n".join([lines[0], *reversed(lines[1:])])]
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    hadoop = jvm.org.apache.hadoop.fs.Path(str(part))
    fs = hadoop.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    wrong = []

    def read() -> None:
        try:
            assert part.read_text() in texts
            stream = fs.open(hadoop)
            read_by_hadoop = bytes(stream.readAllBytes()).decode()
            stream.close()
            assert read_by_hadoop in texts
        except Exception as error:
            wrong.append(repr(error)[:300])

    with meanwhile(read, 0):
        for turn in range(300):
            lists.replace_list(part.name, texts[turn % 2])
    assert wrong == []
    assert sum(sink.read().values()) == 40
    assert [file.name for file in part.parent.iterdir() if file.name.endswith(".tmp")] == []


def test_readers_and_the_query_go_on_meanwhile(make_spark: MakeSpark, tmp_path: Path) -> None:
    sink = FileSink(make_spark(), tmp_path)
    sink.feed(rows_of(0))
    sink.run(compacting=False, conf=INTERVAL)
    with manifest.reader(sink.files, "id", most_files=TASKS) as wrong:
        for batch in range(1, 12):
            sink.feed(rows_of(batch))
            with sink.running(compacting=False, conf=INTERVAL) as query:
                try:
                    Sink(sink.files).compact(older_than=AT_ONCE)
                except StateStoreFilesError as error:
                    assert "PSS_SINK_LIST_CHANGED" in str(error)
                query.awaitTermination()
            assert sink.ids() == list(range(40 * (batch + 1)))
    assert wrong == []
    Sink(sink.files).compact(older_than=AT_ONCE)
    Sink(sink.files).remove_orphan_files(AT_ONCE, dry_run=False, force=True)
    assert sink.ids() == list(range(480))
    assert sink.present() == listed(sink)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"target_file_size": 0}, "PSS_INVALID_OPTION.*target_file_size"),
        ({"older_than": datetime.timedelta(-1)}, "PSS_INVALID_OPTION.*older_than"),
        ({"format": "orc"}, "PSS_SINK_REWRITE_FAILED.*ORC"),
        ({"format": "no such format"}, "PSS_SINK_REWRITE_FAILED.*no such format"),
    ],
)
def test_wrong_arguments(old: FileSink, arguments: dict[str, Any], words: str) -> None:
    present = old.present()
    with pytest.raises(StateStoreFilesError, match=words):
        Sink(old.files).compact(**{"older_than": AT_ONCE, **arguments})
    assert old.present() == present


def test_csv_is_not_joined_by_guess(make_spark: MakeSpark, tmp_path: Path) -> None:
    sink = old_sink(make_spark(), tmp_path, batches=1, format="csv", options={"header": "true"})
    with pytest.raises(StateStoreFilesError, match=r"PSS_INVALID_OPTION.*header"):
        Sink(sink.files).compact(older_than=AT_ONCE)
    for other in ("text", "json"):  # as which headers would be lines like any other
        with pytest.raises(StateStoreFilesError, match=rf"PSS_INVALID_OPTION.*{other}.*csv"):
            Sink(sink.files).compact(older_than=AT_ONCE, format=other)


def test_what_is_no_sink(tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").write_bytes(b"")
    for call in (Sink(tmp_path).files, Sink(tmp_path).log, Sink(tmp_path).verify):
        with pytest.raises(StateStoreFilesError, match="PSS_NOT_A_SINK.*bring _spark_metadata back.*new directory"):
            call()
    (tmp_path / "empty").mkdir()
    with pytest.raises(StateStoreFilesError, match="PSS_NOT_A_SINK") as caught:
        Sink(tmp_path / "empty").files()
    assert "bring" not in str(caught.value)
    (tmp_path / "empty").rmdir()
    with pytest.raises(StateStoreFilesError, match="PSS_NOT_A_SINK"):
        Sink(tmp_path).remove_orphan_files(dry_run=False)
    assert [path.name for path in tmp_path.iterdir()] == ["part-0.parquet"]
    with pytest.raises(StateStoreFilesError, match=r"PSS_INVALID_OPTION.*older_than"):
        Sink(tmp_path).remove_orphan_files(datetime.timedelta(minutes=59))
