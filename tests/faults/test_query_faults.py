"""Queries that fail in the middle: nothing of the failed batch shows, and a restart gives the right result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.copies import remove
from tests.faults.queries import CONF, MASTER, Query, said_by
from tests.jvm.harness import TESTING, View, in_time
from tests.streaming.ends import of_runs, until

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="calls that fail")]

DOORS = [("path", "rocksdb"), ("provider", "rocksdb"), ("provider", "heap")]


@pytest.fixture(scope="module")
def session(make_spark: Any) -> SparkSession:
    spark: SparkSession = make_spark(CONF, mode="path", master=MASTER)
    return spark


@pytest.fixture
def helpers(jvm: Any) -> Iterator[Any]:
    """The test classes in the JVM, unarmed."""
    helpers = getattr(jvm, TESTING)
    yield helpers
    helpers.FaultyFileSystem.clear()
    helpers.Tripwire.arm("", 0)
    helpers.Gate.releaseAll()


@pytest.fixture
def new_query(session: SparkSession, tmp_path: Path, helpers: Any) -> Callable[..., Query]:
    def make(name: str = "query", **arguments: Any) -> Query:
        return Query(session, tmp_path / name, **arguments)

    return make


def in_doors(test: Any) -> Any:
    return pytest.mark.parametrize(("door", "store"), DOORS, ids=["-".join(door) for door in DOORS])(test)


@in_doors
def test_a_batch_whose_task_fails_for_good(
    new_query: Callable[..., Query], helpers: Any, door: str, store: str
) -> None:
    query = new_query(door=door, store=store, operator="dedup")
    query.feed(0, 1, 2)
    helpers.Tripwire.arm("102", 2)

    assert "tripped over 102" in query.failure()

    assert helpers.Tripwire.left() == 0
    assert query.versions() == {1, 2}
    query.feed(3)
    query.run()
    assert query.versions() == {1, 2, 3, 4}
    query.assert_right()


@pytest.mark.parametrize("operator", ["dedup", "sum"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_task_that_fails_before_or_after_its_commit(
    new_query: Callable[..., Query], helpers: Any, operator: str, times: int
) -> None:
    """A sum's state is committed when its rows come out; what its batch left is written anew when it is repeated."""
    query = new_query(operator=operator)
    query.feed(0, 1, 2)
    helpers.Tripwire.arm("101", times)

    if times == 1:
        query.run()
    else:
        assert "tripped over 101" in query.failure()
        query.run()

    assert helpers.Tripwire.left() == 0
    assert query.versions() == {1, 2, 3}
    query.assert_right()


def test_a_python_function_that_raises_once(
    new_query: Callable[..., Query], session: SparkSession, tmp_path: Path
) -> None:
    marker = str(tmp_path / "raised")

    def raises_once(key: int) -> int:
        if key == 101 and not Path(marker).exists():
            Path(marker).touch()
            raise ValueError("once")
        return key

    session.udf.register("raises_once", F.udf(raises_once, "long"))
    query = new_query(operator="dedup", through="raises_once(k)")
    query.feed(0, 1, 2)

    query.run()

    assert Path(marker).exists()
    query.assert_right()


@in_doors
@pytest.mark.parametrize("how", ["stop", "cancel"])
def test_a_batch_that_is_killed(
    new_query: Callable[..., Query], session: SparkSession, helpers: Any, door: str, store: str, how: str
) -> None:
    query = new_query(door=door, store=store, operator="dedup")
    query.feed(0, 1, 2)
    helpers.Gate.hold("row", "102")
    running = query.start()
    assert in_time(helpers.Gate.awaitHeld, "row", seconds=100)

    if how == "stop":
        in_time(running.stop)
    else:
        session.sparkContext.cancelJobGroup(str(running.runId))
        with pytest.raises(StreamingQueryException, match="cancelled|killed"):
            in_time(running.awaitTermination)

    assert query.versions() == {1, 2}
    helpers.Gate.releaseAll()
    query.run()
    query.assert_right()


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("create", "permission"),
        ("write", "no_space"),
        ("hflush", "torn"),
        ("hflush", "fs_error"),
        ("hflush", "success_but_error"),
    ],
)
def test_a_commit_that_fails_once_is_repeated(
    new_query: Callable[..., Query], helpers: Any, operation: str, kind: str
) -> None:
    query = new_query()
    query.feed(0, 1, 2)
    helpers.FaultyFileSystem.addRule(operation, f"{query.state}/_merged", 1 if operation == "create" else 2, kind)

    query.run()

    assert helpers.FaultyFileSystem.fired() == 1
    query.assert_right()
    query.feed(3)
    query.run()
    query.assert_right()


@in_doors
@pytest.mark.parametrize(("operation", "kind"), [("hflush", "no_space"), ("create", "permission")])
def test_a_commit_that_cannot_be_repeated(
    new_query: Callable[..., Query], helpers: Any, door: str, store: str, operation: str, kind: str
) -> None:
    query = new_query(door=door, store=store)
    query.feed(0, 1)
    query.run()
    # The files of the first run stay open, so that the second needs no new one; the third does.
    helpers.FaultyFileSystem.addRule("hflush", f"{query.state}/_merged", 1, 1, "torn")
    helpers.FaultyFileSystem.addRule(operation, f"{query.state}/_merged", 1, 1000, kind)
    query.feed(2)

    said = query.failure()

    assert "PSS_WRITE_FAILED" in said
    assert f"faulty:{query.state}/_merged/" in said
    assert query.versions() == {1, 2}
    helpers.FaultyFileSystem.clear()
    query.run()
    query.assert_right()


@pytest.mark.parametrize("operation", ["create", "close"])
def test_a_run_whose_file_was_made_when_its_thread_was_interrupted(
    new_query: Callable[..., Query], helpers: Any, operation: str
) -> None:
    """The file system made it and reported a failure; the run's end takes it away all the same."""
    query = new_query()
    query.feed(0, 1)
    helpers.FaultyFileSystem.addRule(operation, ".running", 1, "success_but_error")

    query.run()

    assert helpers.FaultyFileSystem.fired() == 1
    until(lambda: of_runs(query.root, "checkpoint") == [".ended"], "it did not say that it has ended")
    query.assert_right()


def test_snapshots_that_cannot_be_uploaded(
    new_query: Callable[..., Query], session: SparkSession, helpers: Any
) -> None:
    """Without changelogs every commit is a snapshot: its SSTs and its zip in one group."""
    key = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
    session.conf.set(key, "false")
    try:
        query = new_query()
        query.feed(0, 1, 2)
        helpers.FaultyFileSystem.addRule("hflush", f"{query.state}/_merged", 2, "torn")
        query.run()
        assert helpers.FaultyFileSystem.fired() == 1
        query.assert_right()
        live = View.of(query.state).live
        assert {path.rsplit("/", 1)[-1] for path in live if path.endswith(".zip")} == {"1.zip", "2.zip", "3.zip"}
        assert any(path.endswith(".sst") for path in live)
    finally:
        session.conf.set(key, "true")


def test_two_queries_do_not_touch_each_other(new_query: Callable[..., Query], helpers: Any) -> None:
    healthy, failing = new_query("healthy"), new_query("failing")
    for query in (healthy, failing):
        query.feed(0, 1, 2, 3)
    helpers.FaultyFileSystem.addRule("hflush", f"{failing.state}/_merged", 2, 1000, "torn")

    started = [healthy.start(), failing.start()]
    in_time(started[0].awaitTermination, seconds=100)
    with pytest.raises(StreamingQueryException) as caught:
        in_time(started[1].awaitTermination, seconds=100)
    assert "PSS_WRITE_FAILED" in said_by(caught.value)

    healthy.assert_right()
    assert failing.versions() == {1}
    helpers.FaultyFileSystem.clear()
    failing.run()
    failing.assert_right()
    run_ids = []
    for query, first in zip((healthy, failing), started, strict=True):
        headers = [file.header for file in View.of(query.state).files.values()]
        run_ids.append({header.meta["query_run_id"] for header in headers if header})
        assert str(first.runId) in run_ids[-1]
    assert not run_ids[0] & run_ids[1]


@in_doors
def test_a_checkpoint_that_was_removed_and_is_begun_again(
    new_query: Callable[..., Query], door: str, store: str
) -> None:
    """In one session, one right after the other, as in a notebook."""
    query = new_query(door=door, store=store)
    query.feed(0, 1)
    query.run()
    remove(query.checkpoint)

    query.run()
    query.feed(2)
    query.run()

    assert query.versions() == {1, 2, 3}
    query.assert_right()
