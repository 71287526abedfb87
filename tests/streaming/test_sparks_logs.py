"""Spark's own logs with fewer calls: of two drivers one adds an entry, and any Spark goes on with the files.

The file systems are of the tests, and said to be like HDFS or S3A. tests/hdfs and tests/s3 have the real ones.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from benchmarks.filesystems import METADATA_CALLS, PACKAGE, filesystem_settings
from tests.conftest import MakeSpark
from tests.jvm.harness import java_error
from tests.streaming import logs
from tests.streaming.logs import TAKEN, CommitLog
from tests.streaming.runs import session_conf

pytestmark = pytest.mark.spark

KINDS = {"counting": "renames", "objectstore": "copies", "bulk": "copies"}
PAGE = 4
INTERVAL = 3
CONF = {
    **filesystem_settings(),
    # Spark takes its manager for file systems without FileContext.
    "spark.hadoop.fs.bulk.impl": f"{PACKAGE}.BulkDeletingFileSystem",
    "spark.hadoop.fs.bulk.page.size": str(PAGE),
    **{f"spark.hadoop.io.pyspark.statestore.logs.{scheme}": kind for scheme, kind in KINDS.items()},
    **logs.FEW_KEPT,
    "spark.sql.streaming.fileSource.log.compactInterval": str(INTERVAL),
    "spark.sql.streaming.fileSink.log.compactInterval": str(INTERVAL),
}

PURGED_AT_ONCE = {**CONF, "spark.sql.streaming.asyncLogPurge.enabled": "false"}
"""Spark leaves a purge out while the one before it goes on in its thread."""


@pytest.fixture
def spark(make_spark: MakeSpark) -> SparkSession:
    return make_spark(CONF, mode="provider")


Opened = Callable[[], CommitLog]


@pytest.fixture(params=["counting", "objectstore"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def opened(spark: SparkSession, scheme: str, tmp_path: Path) -> Opened:
    """Opens a commit log as one more driver does."""
    return lambda: CommitLog(spark, f"{scheme}:{tmp_path}/commits")


@pytest.fixture
def counted(spark: SparkSession, tmp_path: Path) -> Callable[[], Counter[str]]:
    """Counts calls below the test's directory since the last question, by kind."""
    java: Any = getattr(spark._jvm, f"{PACKAGE}.CountingFileSystem")
    java.registerRoot(tmp_path.name, str(tmp_path))
    before: Counter[str] = Counter()

    def since() -> Counter[str]:
        now: Counter[str] = Counter()
        for categories in json.loads(java.snapshotJson()).get(tmp_path.name, {}).values():
            for operations in categories.values():
                now.update({kind: n for kind, n in operations.items() if kind in (*METADATA_CALLS, "bulkDelete")})
        new = now - before
        before.clear()
        before.update(now)
        return new

    return since


CALLS = {
    "counting": {"create": 1, "addBlock": 1, "complete": 1, "rename": 1},
    "objectstore": {"create": 1, "complete": 1, "rename": 1},
}


def test_what_an_entry_costs(opened: Opened, scheme: str, counted: Callable[[], Counter[str]]) -> None:
    log = opened()
    for batch in range(3):
        assert log.add(batch, batch)
    counted()
    assert log.add(3, 30)
    assert counted() == CALLS[scheme]
    assert (log.watermark(3), opened().watermark(3), opened().newest()) == (30, 30, 3)


def test_the_later_of_two_drivers_fails(opened: Opened, tmp_path: Path) -> None:
    """What the first one remembers of the log is old by then."""
    mine = opened()
    for batch in range(3):
        mine.add(batch, 1)
    other = opened()
    assert other.add(3, 2)
    assert other.add(4, 2)
    for _ in range(2):
        with java_error(TAKEN):
            mine.add(3, 1)
    # One that does not know where the log ends asks, and is told.
    assert mine.add(4, 1) is False
    assert [opened().watermark(batch) for batch in range(5)] == [1, 1, 1, 2, 2]


def test_a_driver_that_begins_asks(opened: Opened) -> None:
    opened().add(0, 1)
    assert opened().add(0, 2) is False
    assert opened().watermark(0) == 1


def test_an_entry_that_is_gone_is_not_remembered(opened: Opened) -> None:
    log = opened()
    for batch in range(6):
        log.add(batch, batch)
    log.purge(4)
    assert opened().newest() == 5
    assert log._log.get(0).isEmpty()
    # Going back before a batch, as a run does that begins, takes effect at once.
    opened()._log.purgeAfter(4)
    assert opened().newest() == 4


@pytest.mark.parametrize("kept", ["true", "false"])
@pytest.mark.parametrize("scheme", ["objectstore"])
def test_nothing_is_kept_where_spark_may_keep_nothing(
    spark: SparkSession, opened: Opened, counted: Callable[[], Counter[str]], kept: str
) -> None:
    with session_conf(spark, {"spark.sql.streaming.metadataCache.enabled": kept}):
        log = opened()
        for batch in range(3):
            log.add(batch, batch)
        counted()
        assert log.watermark(2) == 2
    assert bool(counted()["open"]) == (kept == "false")


def test_what_a_killed_driver_left_is_in_nobodys_way(opened: Opened, tmp_path: Path) -> None:
    """It has written the temporary file of an entry, and not renamed it."""
    log = opened()
    for batch in range(2):
        log.add(batch, 1)
    left = tmp_path / "commits" / ".2.0b0a3c9e-5f0d-4b57-9b6c-9b8a6a0f8f11.tmp"
    left.write_text("v1\n")
    begins = opened()
    assert begins.newest() == 1
    assert begins.add(2, 2)
    assert begins.add(3, 2)
    assert opened().watermark(2) == 2


@pytest.mark.parametrize("scheme", ["objectstore"])
def test_a_users_own_manager_is_left_alone(
    spark: SparkSession, opened: Opened, counted: Callable[[], Counter[str]]
) -> None:
    own = {"spark.sql.streaming.stateStore.fileMerging.fileManagerClass": _sparks_manager()}
    with session_conf(spark, own):
        log = opened()
        log.add(0, 0)
        counted()
        log.add(1, 1)
        assert counted()["getFileStatus"] >= 1


@pytest.mark.since("4.0", "Hadoop deletes many files at once from 3.4.1 on, which came with Spark 4.0")
@pytest.mark.parametrize("scheme", ["bulk"])
def test_purged_entries_go_with_few_requests(
    opened: Opened, counted: Callable[[], Counter[str]], tmp_path: Path
) -> None:
    log = opened()
    for batch in range(11):
        log.add(batch, batch)
    counted()
    log.purge(10)
    assert len(os.listdir(tmp_path / "commits")) == 11 - 2 * PAGE
    asked = counted()
    assert (asked["bulkDelete"], asked["delete"]) == (2, 0)
    # Those that wait for a page are in the directory, and not in the log.
    assert list(log._log.listBatchesOnDisk()) == [10]
    log.add(11, 11)
    begins = opened()
    # What a run takes back when it begins is gone at once.
    begins._log.purgeAfter(10)
    assert not (tmp_path / "commits" / "11").exists()
    begins.add(11, 12)
    begins.add(12, 12)
    begins.purge(12)
    # This run has found what an earlier one has left.
    assert sorted(os.listdir(tmp_path / "commits")) == ["12"]


@pytest.mark.parametrize("scheme", ["counting"])
def test_an_entry_of_a_sinks_list_that_was_replaced_is_read(spark: SparkSession, scheme: str, tmp_path: Path) -> None:
    """As Sink.compact does while the query runs. Spark repeats entries in one, by what they say then."""
    source, root = tmp_path / "input", f"{scheme}:{tmp_path}"
    query = logs.start(spark, source, root, available_now=False)
    try:
        for batch in range(6):
            if batch == 5:
                entry = tmp_path / "sink" / "_spark_metadata" / "3"
                old = Path(json.loads(entry.read_text().splitlines()[1])["path"]).name
                (tmp_path / "sink" / old).rename(tmp_path / "sink" / f"new-{old}")
                changed = entry.with_name(".changed")
                changed.write_text(entry.read_text().replace(old, f"new-{old}"))
                changed.rename(entry)
            logs.feed(source, batch)
            query.processAllAvailable()
    finally:
        query.stop()
    assert (tmp_path / "sink" / "_spark_metadata" / "5.compact").exists()
    assert logs.ids(spark, root) == list(range(30))


@pytest.mark.parametrize("scheme", ["counting"])
def test_a_source_log_that_was_deleted_is_missed(spark: SparkSession, scheme: str, tmp_path: Path) -> None:
    """When Spark repeats it: a query whose checkpoint is gone must not go on as if it were there."""
    source = tmp_path / "input"
    query = logs.start(spark, source, f"{scheme}:{tmp_path}", available_now=False)
    try:
        for batch in range(5):
            logs.feed(source, batch)
            query.processAllAvailable()
        for entry in (tmp_path / "checkpoint" / "sources" / "0").iterdir():
            entry.unlink()
        logs.feed(source, 5)
        with pytest.raises(StreamingQueryException, match=r"sources/0/2\.compact"):
            query.processAllAvailable()
    finally:
        query.stop()


@pytest.mark.parametrize("scheme", ["counting"])
def test_a_superseded_driver_adds_no_batch_to_a_sinks_list_again(
    spark: SparkSession, scheme: str, tmp_path: Path
) -> None:
    """Another driver has added later batches while this one was paused, and entries have expired meanwhile."""
    source, root = tmp_path / "input", f"{scheme}:{tmp_path}"
    query = logs.start(spark, source, root, available_now=False)
    listed = tmp_path / "sink" / "_spark_metadata"
    try:
        for batch in range(4):
            if batch == 3:
                (listed / "5.compact").write_text((listed / "2.compact").read_text())
            logs.feed(source, batch)
            query.processAllAvailable()
    finally:
        query.stop()
    assert not (listed / "3").exists()
    assert logs.ids(spark, root) == list(range(15))


def _sparks_manager() -> str:
    package = logs._STREAMING + (".checkpointing" if logs._MOVED else "")
    return f"{package}.FileContextBasedCheckpointFileManager"


def files(root: Path) -> dict[str, list[str]]:
    """The names in each log, without checksum files."""
    found: dict[str, list[str]] = {}
    for log in ("checkpoint/offsets", "checkpoint/commits", "checkpoint/sources/0", "sink/_spark_metadata"):
        found[log] = sorted(name for name in os.listdir(root / log) if not name.startswith(("_", ".")))
    return found


@pytest.mark.parametrize("scheme", ["counting"])
def test_stock_spark_goes_on_and_back(make_spark: MakeSpark, scheme: str, tmp_path: Path) -> None:
    """Over compactions of the source's log and of the sink's list, which repeat what was written before."""
    sides = {"ours": tmp_path / "ours", "stock": tmp_path / "stock"}
    for root in sides.values():
        root.mkdir()
    source = tmp_path / "input"
    fed = 0
    for lives in ({"ours": "provider", "stock": None}, {"ours": None, "stock": None}, {"ours": "path", "stock": None}):
        for _ in range(4):
            logs.feed(source, fed)
            fed += 1
        for side, mode in lives.items():
            logs.run(make_spark(PURGED_AT_ONCE, mode=mode), source, f"{scheme}:{sides[side]}")
    spark = make_spark(CONF)
    assert [logs.ids(spark, f"{scheme}:{root}") for root in sides.values()] == [list(range(5 * fed))] * 2
    # What is purged is purged a little later by ours, and nothing else differs.
    ours, stock = (files(root) for root in sides.values())
    for log, names in stock.items():
        assert set(names) <= set(ours[log]), log
        assert len(ours[log]) <= len(names) + 11, log
