"""Every call to the file system in a sink's batches fails once: each row is in the sink once all the same."""

from __future__ import annotations

import datetime
import json
import os
import shutil
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_statestore import Sink, StateStoreFilesError
from pyspark_statestore.storage import Directory
from tests.conftest import MakeSpark
from tests.faults.queries import CONF, MASTER
from tests.jvm.harness import TESTING, in_time, until
from tests.sampling import sample
from tests.sink.sinks import STAGING, WAITING, FileSink, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="calls that fail")]

FAULTS = [
    ("create", "ioexception"),
    ("create", "success_but_error"),
    ("open", "ioexception"),
    ("read", "ioexception"),
    ("write", "no_space"),
    ("close", "torn"),
    ("close", "success_but_error"),
    ("getFileStatus", "permission"),
    ("rename", "ioexception"),
    ("rename", "success_but_error"),
    ("mkdirs", "ioexception"),
    ("delete", "ioexception"),
    ("delete", "success_but_error"),
    ("listStatus", "ioexception"),
]
SAMPLE = 2
"""So many calls of each operation fail in a sample."""


@pytest.fixture(scope="module")
def session(make_spark: MakeSpark) -> SparkSession:
    return make_spark(CONF, master=MASTER)


def new_sink(session: SparkSession, folder: Path, format: str) -> FileSink:
    """A sink with input for two batches, each of two tasks and two partition values."""
    sink = FileSink(session, folder, format, ("q",), change=lambda rows: rows.repartition(2, "id"), scheme="faulty")
    sink.feed(rows_of(0), rows_of(1))
    return sink


@pytest.fixture(scope="module", params=["parquet", "json"])
def undisturbed(
    request: pytest.FixtureRequest, session: SparkSession, jvm: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Counter[str]]:
    """A format, and how many calls of each operation the batches make where none fails."""
    faulty = getattr(jvm, f"{TESTING}.FaultyFileSystem")
    sink = new_sink(session, tmp_path_factory.mktemp(request.param), request.param)
    faulty.registerRoot(request.param, str(sink.files))
    sink.run()
    return request.param, counted(faulty, request.param)


@pytest.mark.sweep(8)
@pytest.mark.parametrize(("operation", "kind"), FAULTS)
def test_any_call_may_fail(
    session: SparkSession, tmp_path: Path, faulty: Any, undisturbed: tuple[str, Counter[str]], operation: str, kind: str
) -> None:
    format, calls = undisturbed
    assert calls[operation] > 1
    fired = 0
    # What a batch does is the same each time but for a few calls.
    for n in sample(range(1, max(2, 3 * calls[operation] // 4)), SAMPLE):
        sink = new_sink(session, tmp_path / str(n), format)
        faulty.addRule(operation, str(sink.files), n, kind)
        try:
            in_time(sink.run, seconds=130)
        except (StreamingQueryException, Py4JJavaError) as error:
            assert "injected fault" in str(error), f"n = {n}: {error}"
        fired += faulty.fired()
        faulty.clear()
        sink.feed(rows_of(2))
        sink.run()

        assert sink.ids() == list(range(120)), f"n = {n}"
        listed = [file for batch in range(3) for file in sink.listed(batch)]
        assert len(listed) == 6
        others = [file for file in sink.present_outside_staging() if file not in listed]
        # Files that the list may name stay, as in stock Spark.
        assert len(others) in (0, 2), f"n = {n}: {others}"
        # What an attempt could not delete goes later.
        Sink(sink.files).remove_orphan_files(datetime.timedelta(0), dry_run=False, force=True)
        assert sink.present() == sorted(listed), f"n = {n}"
    assert fired, calls


def test_what_a_batch_that_failed_has_placed_already_goes(session: SparkSession, tmp_path: Path, faulty: Any) -> None:
    sink = new_sink(session, tmp_path, "parquet")
    faulty.addRule("rename", f"{sink.files}/q=", 2, "ioexception")

    with pytest.raises(StreamingQueryException, match="injected fault"):
        sink.run()

    assert faulty.fired()
    assert sink.present() == [], "all of its tasks had ended, so nothing is staged either"


def test_an_attempt_that_was_silent_for_long_looks_at_its_files_again(
    session: SparkSession, tmp_path: Path, faulty: Any, jvm: Any
) -> None:
    """Others may have taken it for one that has ended, and removed what it has placed."""
    signs = jvm.io.pyspark.statestore.sink.Signs
    for lease, looks in ((30 * 60_000, False), (-1, True)):
        sink = FileSink(session, tmp_path / str(lease), partition_by=("q",), scheme="faulty")
        sink.feed(rows_of(0))
        # Each of both files is looked at once when it is in its place.
        faulty.addRule("getFileStatus", f"{sink.files}/q=", 3, "ioexception")
        signs.lease(lease)
        try:
            with pytest.raises(StreamingQueryException, match="injected fault") if looks else nullcontext():
                sink.run()
        finally:
            signs.lease(30 * 60_000)
        assert bool(faulty.fired()) == looks
        faulty.clear()
        sink.run()
        assert sink.ids() == list(range(40))


def run_waiting(sink: FileSink) -> None:
    """Runs it so that the first batch waits, and fills files with the second."""
    sink.run(maxDelay="10h", targetFileSize="3k")


@pytest.fixture(scope="module")
def calls_where_rows_wait(session: SparkSession, jvm: Any, tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """How many calls of each operation the batches make where none fails."""
    faulty = getattr(jvm, f"{TESTING}.FaultyFileSystem")
    sink = new_sink(session, tmp_path_factory.mktemp("waiting"), "json")
    faulty.registerRoot("waiting", str(sink.files))
    run_waiting(sink)
    calls = counted(faulty, "waiting")
    assert [len(sink.listed(batch)) for batch in range(2)] == [0, 2]
    return calls


def counted(faulty: Any, root: str) -> Counter[str]:
    """The calls of each operation below a root, which is not counted any more."""
    calls: Counter[str] = Counter()
    for thread in json.loads(faulty.snapshotJson())[root].values():
        for of_thread in thread.values():
            calls.update(of_thread)
    faulty.clearRoots()
    return calls


@pytest.mark.sweep(6)
@pytest.mark.parametrize(("operation", "kind"), FAULTS)
def test_any_call_may_fail_where_rows_wait(
    session: SparkSession,
    tmp_path: Path,
    faulty: Any,
    calls_where_rows_wait: Counter[str],
    operation: str,
    kind: str,
) -> None:
    calls = calls_where_rows_wait
    fired = 0
    for n in sample(range(1, max(2, 3 * calls[operation] // 4)), SAMPLE):
        sink = new_sink(session, tmp_path / str(n), "json")
        faulty.addRule(operation, str(sink.files), n, kind)
        with suppress(StreamingQueryException, Py4JJavaError):
            in_time(lambda: run_waiting(sink), seconds=130)  # noqa: B023
        fired += faulty.fired()
        faulty.clear()
        seen = sink.ids()
        assert len(seen) == len(set(seen)), f"n = {n}"
        run_waiting(sink)
        sink.feed(rows_of(2))
        sink.run()

        assert sink.ids() == list(range(120)), f"n = {n}"
        made = Sink(sink.files)
        assert made.waiting().num_rows == 0
        assert made.verify().is_clean
        made.remove_orphan_files(datetime.timedelta(0), dry_run=False, force=True)
        left = [name for name in sink.present() if name.startswith(f"{WAITING}/")]
        assert len(left) == int((sink.files / WAITING).exists()), "the manifest, and nothing else"
        assert sink.ids() == list(range(120)), f"n = {n}"
    assert fired or not calls[operation], calls


def test_what_waits_alone_is_still_there_after_a_batch_that_failed(
    session: SparkSession, tmp_path: Path, faulty: Any
) -> None:
    """It has nothing to be joined with, and is needed again where the list does not take the batch."""
    sink = FileSink(
        session, tmp_path, "parquet", ("q",), change=lambda rows: rows.repartition(2, "id"), scheme="faulty"
    )
    sink.feed([row for row in rows_of(0) if row["q"] == 0])
    sink.run(maxDelay="10h")
    sink.feed([row for row in rows_of(0) if row["q"] == 1])
    faulty.addRule("rename", f"{sink.files}/_spark_metadata/1", 1, "ioexception")
    with pytest.raises(StreamingQueryException, match="injected fault"):
        sink.run()
    assert faulty.fired()
    faulty.clear()
    assert sink.ids() == []
    sink.run()

    assert sink.ids() == list(range(40))


def test_what_is_published_by_hand_while_a_batch_joins_it_is_not_published_again(
    session: SparkSession, tmp_path: Path, faulty: Any
) -> None:
    sink = new_sink(session, tmp_path, "json")
    sink.run(maxDelay="10h")
    sink.feed(rows_of(2))
    faulty.addRule("create", "/_joined/", 1, "hang")

    with sink.running() as query:
        until(lambda: faulty.fired() > 0, "the batch joins")
        by_hand = Sink(sink.files)
        by_hand._directory = Directory(replace(by_hand._directory.location, exact_url=sink.location))
        by_hand.publish(idle_for=datetime.timedelta(0), force=True, spark=session)
        faulty.clear()
        with pytest.raises(StreamingQueryException, match="PSS_SINK_COMPACTION_FAILED.*was published meanwhile"):
            query.awaitTermination()

    assert sink.ids() == list(range(80))
    sink.run()
    assert sink.ids() == list(range(120))


def compact(sink: FileSink) -> None:
    """Joins what is listed, with Spark in the file system that fails, and Python in the local one."""
    made = Sink(sink.files)
    made._directory = Directory(replace(made._directory.location, exact_url=sink.location))
    made.compact(older_than=datetime.timedelta(0), spark=sink.spark)


@pytest.fixture(scope="module")
def calls_of_a_compaction(
    session: SparkSession, jvm: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Counter[str]]:
    """A sink of stock Spark's to copy from, and how many calls of each operation its compaction makes."""
    faulty = getattr(jvm, f"{TESTING}.FaultyFileSystem")
    sink = new_sink(session, tmp_path_factory.mktemp("old") / "sink", "parquet")
    sink.run(compacting=False)
    kept = sink.folder.with_name("kept")
    shutil.copytree(sink.folder, kept)
    faulty.registerRoot("compaction", str(sink.files))
    compact(sink)
    calls = counted(faulty, "compaction")
    assert calls["create"], "none of its calls came to the file system that fails"
    assert len(sink.listed(0)) == len(sink.listed(1)) == 2
    return kept, calls


@pytest.mark.sweep(6)
@pytest.mark.parametrize(("operation", "kind"), FAULTS)
def test_any_call_of_a_compaction_may_fail(
    session: SparkSession,
    faulty: Any,
    calls_of_a_compaction: tuple[Path, Counter[str]],
    operation: str,
    kind: str,
) -> None:
    """Readers see each row once, whatever was done; and it can be done again."""
    kept, calls = calls_of_a_compaction
    sink = FileSink(session, kept.with_name("sink"), "parquet", ("q",), scheme="faulty")
    fired = 0
    for n in sample(range(1, calls[operation] + 1), SAMPLE):
        # In the same place, since the list has the paths.
        shutil.rmtree(sink.folder)
        shutil.copytree(kept, sink.folder)
        faulty.addRule(operation, str(sink.files), n, kind)
        with suppress(StateStoreFilesError):
            in_time(lambda: compact(sink), seconds=130)
        fired += faulty.fired()
        faulty.clear()

        assert sink.ids() == list(range(80)), f"n = {n}"
        compact(sink)
        assert sink.ids() == list(range(80)), f"n = {n}"
        assert [len(sink.listed(batch)) for batch in range(2)] == [2, 2]
        orphans = Sink(sink.files).remove_orphan_files(datetime.timedelta(0), dry_run=False, force=True)
        assert orphans.removed_files_count >= 8
        assert sink.present() == sorted(file for batch in range(2) for file in sink.listed(batch))
        assert sink.ids() == list(range(80)), f"n = {n}"
    assert fired or not calls[operation], calls


def test_a_query_that_is_stopped_while_it_compacts_has_not_failed(
    session: SparkSession, tmp_path: Path, faulty: Any
) -> None:
    sink = new_sink(session, tmp_path, "parquet")
    faulty.addRule("create", "/_joined/", 1, "hang")

    with sink.running() as query:
        until(lambda: faulty.fired() > 0, "the compaction")
        query.stop()

    assert query.exception() is None
    assert sink.present_outside_staging() == []
    faulty.clear()
    sink.run()
    assert sink.ids() == list(range(80))


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_a_staged_file_that_lost_its_end_is_not_joined(
    session: SparkSession, tmp_path: Path, faulty: Any, format: str
) -> None:
    sink = new_sink(session, tmp_path, format)
    faulty.addRule("open", "/_staging/", 1, "hang")

    with sink.running() as query:
        until(lambda: faulty.fired() > 0, "the compaction")
        for file in sink.files.glob(f"{STAGING}/*/q=*/part-*"):
            os.truncate(file, file.stat().st_size // 2)
        faulty.clear()
        with pytest.raises(StreamingQueryException, match="PSS_SINK_COMPACTION_FAILED"):
            query.awaitTermination()

    assert sink.present_outside_staging() == []
    sink.run()
    assert sink.ids() == list(range(80))
