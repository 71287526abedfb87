"""What readers of each kind find at every step: while rows wait, after a compaction, and when it is cleaned up."""

from __future__ import annotations

import datetime
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pyspark_statestore import Sink, StateStoreFilesError, maintain
from pyspark_statestore.background import MaintenanceRun
from tests.conftest import MakeSpark
from tests.sink import manifest
from tests.sink.readers import BY_DIRECTORY, Follower, Ids, by_list, seen
from tests.sink.sinks import REPLACED, STAGING, WAITING, FileSink, rows_of
from tests.sink.test_old_sinks import AT_ONCE, DAY, INTERVAL, old_sink, with_times
from tests.sink.test_waiting import forget

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="sinks")]

WEEK = datetime.timedelta(days=7)
LONG = "10h"


@pytest.fixture
def spark(make_spark: MakeSpark) -> SparkSession:
    return make_spark()


def rows(batches: int, times: int = 1) -> Ids:
    """The ids of so many batches."""
    return Counter(dict.fromkeys(range(40 * batches), times))


def everyone(found: Ids, others: Ids | None = None) -> dict[str, Ids]:
    """What all readers find, or those that do not go by the list."""
    return {"list": found, **dict.fromkeys(BY_DIRECTORY, found if others is None else others)}


def leave_staged(sink: FileSink) -> None:
    """Lets an attempt at a batch have died, which leaves what its tasks have written."""
    [file, *_] = [path for path in sink.files.rglob("part-*") if STAGING not in str(path)]
    left = sink.files / STAGING / "9-0123456789abcdef" / file.parent.name / file.name
    left.parent.mkdir(parents=True)
    shutil.copy(file, left)


def make_older(sink: FileSink, folder: str, by: datetime.timedelta) -> None:
    """Lets files that are there, and notes of compactions, be older."""
    for path in [*(sink.files / folder).rglob("*.json"), *sink.files.rglob("part-*")]:
        os.utime(path, (path.stat().st_mtime - by.total_seconds(),) * 2)


def test_a_compaction_removes_what_earlier_ones_have_replaced(spark: SparkSession, tmp_path: Path) -> None:
    sink = old_sink(spark, tmp_path / "sink", batches=3)
    day = datetime.timedelta(days=1)
    with pytest.raises(StateStoreFilesError, match=r"PSS_INVALID_OPTION.*remove_after.*at least an hour"):
        Sink(sink.files).compact(older_than=AT_ONCE, remove_after=datetime.timedelta(minutes=59))
    first = Sink(sink.files).compact(older_than=AT_ONCE, remove_after=day)
    assert (first.rewritten_data_files_count, first.removed_files_count) == (24, 0)
    assert seen(sink) == everyone(rows(3), rows(3, times=2))
    make_older(sink, REPLACED, 2 * day)

    planned = Sink(sink.files).compact(older_than=AT_ONCE, remove_after=day, dry_run=True)
    assert (planned.removed_files_count, seen(sink)["glob"]) == (25, rows(3, times=2))
    second = Sink(sink.files).compact(older_than=AT_ONCE, remove_after=day)

    assert second.rewritten_data_files_count == 0
    assert second.removed_files_count == 25  # with the note
    assert second.removed_bytes_count == planned.removed_bytes_count > first.rewritten_bytes_count
    assert seen(sink) == everyone(rows(3))


def test_the_maintenance_of_a_session_compacts_sinks_and_cleans_them(spark: SparkSession, tmp_path: Path) -> None:
    sink = old_sink(spark, tmp_path / "sink", batches=3)
    week = {"older_than": AT_ONCE, "remove_after": WEEK}
    with pytest.raises(StateStoreFilesError, match=r"PSS_UNKNOWN_OPTION.*older.*arguments of Sink.compact are"):
        maintain(spark, sinks={sink.files: {"older": WEEK}})
    with pytest.raises(StateStoreFilesError, match=r"PSS_INVALID_OPTION.*dry_run"):
        maintain(spark, sinks={sink.files: {"dry_run": True}})
    with pytest.raises(StateStoreFilesError, match=r"PSS_INVALID_OPTION.*a list of paths"):
        maintain(spark, sinks=str(sink.files))
    done: Queue[MaintenanceRun] = Queue()
    often = datetime.timedelta(milliseconds=10)

    with maintain(spark, often, sinks={sink.files: week, tmp_path: {}}, listener=done.put):
        first = done.get(timeout=60)
        make_older(sink, REPLACED, 2 * WEEK)
        since = datetime.datetime.now(datetime.timezone.utc)
        for _ in range(2):  # the first of them may have listed the files before
            while done.get(timeout=60).started_at < since:
                pass

    [joined, failed] = first.sinks
    assert joined.result is not None
    assert joined.result.rewritten_data_files_count == 24
    assert (joined.location, joined.error) == (f"file://{sink.files}", None)
    assert "PSS_NOT_A_SINK" in str(failed.error)
    assert first.failed
    assert seen(sink) == everyone(rows(3))


@pytest.mark.parametrize("partition_by", [("q",), ()])
def test_each_step_for_each_reader(spark: SparkSession, tmp_path: Path, partition_by: tuple[str, ...]) -> None:
    sink = old_sink(spark, tmp_path / "sink", batches=3, partition_by=partition_by)
    assert seen(sink) == everyone(rows(3))
    sink.feed(rows_of(3))
    sink.run(conf=INTERVAL, maxDelay=LONG)
    leave_staged(sink)
    assert Sink(sink.files).waiting().num_rows == max(1, 2 * len(partition_by))
    assert seen(sink) == everyone(rows(3))

    Sink(sink.files).compact(older_than=AT_ONCE, spark=spark)

    # Who does not go by the list reads what was replaced, and what has replaced it, until the former goes.
    assert seen(sink) == everyone(rows(3), rows(3, times=2))
    Sink(sink.files).remove_orphan_files(AT_ONCE, dry_run=False, force=True)
    assert seen(sink) == everyone(rows(3))
    sink.feed(rows_of(4))
    sink.run(conf=INTERVAL)
    assert seen(sink) == everyone(rows(5))


def test_a_glob_of_every_depth_as_others_have_it(spark: SparkSession, tmp_path: Path) -> None:
    """DuckDB looks into all directories for ``**``, and only then."""
    duckdb: Any = pytest.importorskip("duckdb")
    sink = old_sink(spark, tmp_path / "sink", batches=2)
    sink.feed(rows_of(2))
    sink.run(maxDelay=LONG)
    Sink(sink.files).compact(older_than=AT_ONCE, spark=spark)
    Sink(sink.files).remove_orphan_files(AT_ONCE, dry_run=False, force=True)
    leave_staged(sink)

    def count(glob: str) -> int:
        [[found]] = duckdb.sql(f"select count(*) from read_parquet('{sink.files}/{glob}')").fetchall()
        return int(found)

    assert count("*/*.parquet") == 80
    assert count("**/*.parquet") > 120


def move_waiting(sink: FileSink) -> None:
    """Puts what waits to where it waited before."""
    shutil.move(sink.files / WAITING, sink.files / "_waiting")
    for part in (sink.files / "_spark_metadata").glob("[0-9]*"):
        part.write_text(part.read_text().replace(f"/{WAITING}/", "/_waiting/"))
        (part.parent / f".{part.name}.crc").unlink(missing_ok=True)


def publish_by_a_batch(sink: FileSink) -> int:
    sink.feed(rows_of(2))
    sink.run(maxDelay=LONG)
    assert Sink(sink.files).waiting().num_rows == 0
    return 3


def publish_by_hand(sink: FileSink) -> int:
    Sink(sink.files).publish(idle_for=AT_ONCE, force=True, spark=sink.spark)
    return 2


@pytest.mark.parametrize("publish", [publish_by_a_batch, publish_by_hand])
def test_what_waits_in_the_former_place_is_published_once(
    make_spark: MakeSpark, tmp_path: Path, publish: Callable[[FileSink], int]
) -> None:
    spark = make_spark()
    sink = FileSink(spark, tmp_path, "parquet", ("q",))
    sink.feed(rows_of(0), rows_of(1))
    sink.run(maxDelay=LONG)
    move_waiting(sink)
    forget(sink)
    assert Sink(sink.files).waiting().num_rows == 4
    assert Sink(sink.files).verify().is_clean

    batches = publish(sink)

    assert by_list(sink) == rows(batches)
    assert Sink(sink.files).verify().is_clean
    Sink(sink.files).remove_orphan_files(AT_ONCE, dry_run=False, force=True)
    assert [path for path in (sink.files / "_waiting").rglob("*") if path.is_file()] == []
    sink.feed(rows_of(batches))
    sink.run()
    assert seen(sink) == everyone(rows(batches + 1))


def test_notes_and_staging_in_the_former_places_still_count(spark: SparkSession, tmp_path: Path) -> None:
    sink = old_sink(spark, tmp_path / "sink", batches=1)
    Sink(sink.files).compact(older_than=AT_ONCE, spark=spark)
    leave_staged(sink)
    shutil.move(sink.files / REPLACED, sink.files / "_replaced")
    shutil.move(sink.files / STAGING, sink.files / "_staging")

    kept = Sink(sink.files).remove_orphan_files(datetime.timedelta(hours=1), dry_run=False)
    assert kept.removed_files_count == 0
    gone = Sink(sink.files).remove_orphan_files(AT_ONCE, dry_run=False, force=True)

    assert gone.removed_files_count == 8 + 1 + 1  # what was replaced, its note, and what was staged
    assert sorted(sink.present()) == sorted(str(p.relative_to(sink.files)) for p in manifest.listed(sink.files)["0"])


EARLIER = {"spark.sql.streaming.fileSink.log.compactInterval": "100"}


@pytest.mark.sweep(4)
@pytest.mark.parametrize("behind", [0, 2, 6.9])
@pytest.mark.parametrize("old", [14, 15, 20, 30])
def test_a_stream_that_lags_reads_each_row_once(spark: SparkSession, tmp_path: Path, behind: float, old: float) -> None:
    """Its newest file is older than the sink's by so many days; what is joined is older by so many."""
    sink = old_sink(spark, tmp_path / "sink", batches=4)  # 2.compact and 3
    with_times(sink, lambda at: DAY * (old if at == 0 else behind))
    follower = Follower(sink, tmp_path / "follower")
    assert follower.follow() == rows(4)
    sink.feed(rows_of(4))
    sink.run(compacting=False, conf=EARLIER)
    with_times(sink, lambda at: DAY * (old, behind, 0)[at])

    done = Sink(sink.files).compact(spark=spark)

    assert done.added_data_files_count == 2
    assert by_list(sink) == rows(5)
    assert follower.follow() == rows(5)
    sink.feed(rows_of(5))
    sink.run(conf=INTERVAL)
    assert follower.follow() == rows(6)


def test_a_stream_that_is_further_behind_misses_no_row(spark: SparkSession, tmp_path: Path) -> None:
    """It gets again what it had read of a file that was joined; docs/file-sink.md says so."""
    sink = old_sink(spark, tmp_path / "sink", batches=2)
    with_times(sink, lambda at: DAY * (20 - at))
    follower = Follower(sink, tmp_path / "follower")
    assert follower.follow() == rows(2)
    sink.feed(rows_of(2), rows_of(3))
    sink.run(compacting=False, conf=INTERVAL)  # 2.compact and 3
    with_times(sink, lambda at: DAY * (20, 0)[at])

    Sink(sink.files).compact(spark=spark)

    assert follower.follow() == rows(4) + rows(2)
    assert Follower(sink, tmp_path / "new").follow() == rows(4)


def test_a_stream_with_another_age(spark: SparkSession, tmp_path: Path) -> None:
    """``older_than`` is to be more than the ``maxFileAge`` of a stream and what it is behind."""
    sink = old_sink(spark, tmp_path / "sink", batches=4)
    with_times(sink, lambda at: DAY * (70 if at == 0 else 29))
    follower = Follower(sink, tmp_path / "follower", {"maxFileAge": "30d"})
    assert follower.follow() == rows(4)
    sink.feed(rows_of(4))
    sink.run(compacting=False, conf=EARLIER)
    with_times(sink, lambda at: DAY * (70, 29, 0)[at])

    Sink(sink.files).compact(older_than=datetime.timedelta(days=60), spark=spark)

    assert len(manifest.listed(sink.files)["2.compact"]) == 2
    assert follower.follow() == rows(5)


def test_no_file_gets_a_younger_time(spark: SparkSession, tmp_path: Path) -> None:
    """A new stream reads the sink from its oldest file on, so that a joined file keeps the time of its files."""
    sink = old_sink(spark, tmp_path / "sink", batches=4)
    with_times(sink, lambda at: DAY * (100, 0)[at])
    Sink(sink.files).compact(spark=spark)
    times = [
        json.loads(line)["modificationTime"]
        for name in ("2.compact", "3")
        for line in (sink.files / "_spark_metadata" / name).read_text().splitlines()[1:]
    ]
    assert 99 * DAY * 1000 < max(times) - times[0] < 101 * DAY * 1000


def test_sparks_retention_takes_out_of_the_list_what_it_would_without(spark: SparkSession, tmp_path: Path) -> None:
    """Spark leaves out of the next ``.compact`` what is older than the query's option ``retention``."""
    sink = old_sink(spark, tmp_path / "sink", batches=3)  # 2.compact
    with_times(sink, lambda at: DAY * 8)
    sink.feed(rows_of(3))
    sink.run(compacting=False, conf=INTERVAL, retention="10d")
    done = Sink(sink.files).compact(older_than=WEEK, spark=spark)
    assert done.rewritten_data_files_count == 24
    sink.feed(rows_of(4), rows_of(5))
    sink.run(compacting=False, conf=INTERVAL, retention="10d")  # 5.compact
    assert by_list(sink) == rows(6)
