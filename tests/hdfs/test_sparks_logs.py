"""Spark's own logs on a real NameNode: what an entry and a batch cost, and of two drivers one adds an entry."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.local_hdfs import LocalHdfs
from tests.conftest import MakeSpark
from tests.hdfs.harness import Hdfs
from tests.jvm.harness import begun, java_error
from tests.streaming import logs
from tests.streaming.logs import COUNTED, TAKEN, WARM, Asked, CommitLog

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(0, files="Spark's own logs")]


@pytest.fixture
def conf(hdfs: LocalHdfs) -> dict[str, str]:
    return {**hdfs.client_settings(), **logs.FEW_KEPT}


@pytest.fixture
def spark(make_spark: MakeSpark, conf: dict[str, str]) -> SparkSession:
    return make_spark(conf, mode="provider")


def asked(hdfs: LocalHdfs, root: str) -> Asked:
    """Requests about the logs below a directory, by log and kind.

    Without those that complete a file: each is repeated until a DataNode has said that it has the block.
    """
    found: Asked = Counter()
    for call, count in hdfs.calls().items():
        if call.path.startswith(f"{root}/") and call.kind != "Complete" and (log := logs.log_of(call.path)):
            found[log, call.kind] += count
    return found


@pytest.fixture
def opened(spark: SparkSession, on_hdfs: Hdfs) -> Callable[[], CommitLog]:
    """Opens a commit log as one more driver does."""
    return lambda: CommitLog(spark, on_hdfs.location("commits"))


WRITTEN = {"Create": 1, "AddBlock": 1, "Rename2": 1}
"""And one that completes the file. No call makes a file that is whole when it can be seen."""


def test_what_an_entry_costs(opened: Callable[[], CommitLog], hdfs: LocalHdfs, on_hdfs: Hdfs) -> None:
    log = opened()
    for batch in range(2):
        log.add(batch, batch)
    before = asked(hdfs, on_hdfs.checkpoint)
    log.add(2, 20)
    assert logs.each(asked(hdfs, on_hdfs.checkpoint) - before) == {"commits": WRITTEN}
    assert opened().watermark(2) == 20


def test_the_later_of_two_drivers_fails(opened: Callable[[], CommitLog]) -> None:
    """What the first one remembers of the log is old by then."""
    mine = opened()
    for batch in range(2):
        mine.add(batch, 1)
    other = opened()
    assert other.add(2, 2)
    with java_error(TAKEN):
        mine.add(2, 1)
    assert opened().watermark(2) == 2


ROUNDS = 10


def test_of_two_drivers_at_once_one_adds_the_entry(opened: Callable[[], CommitLog], on_hdfs: Hdfs) -> None:
    """Both have added the entry before, as nobody else can have: neither asks whether the next one is there."""
    both = [opened(), opened()]
    fs, path = on_hdfs.fs, on_hdfs.path
    for log in both:
        for batch in range(2):
            log.add(batch, 0)
            fs.delete(path(f"commits/{batch}"), False)
    won: list[int] = []
    for batch in range(2, 2 + ROUNDS):
        start = threading.Barrier(2)

        def add(number: int, batch: int = batch, start: threading.Barrier = start) -> bool:
            start.wait(30)
            return both[number].add(batch, number)

        done = [begun(add, number) for number in (0, 1)]
        winners = [number for number in (0, 1) if done[number].exception(60) is None]
        assert len(winners) == 1
        won += winners
        assert opened().watermark(batch) == won[-1]
        # The other one goes on from an entry that it believes to be its own.
        aside = path(f"commits/kept-{batch}")
        fs.rename(path(f"commits/{batch}"), aside)
        both[1 - won[-1]].add(batch, 1 - won[-1])
        fs.delete(path(f"commits/{batch}"), False)
        fs.rename(aside, path(f"commits/{batch}"))
    assert [opened().watermark(batch) for batch in range(2, 2 + ROUNDS)] == won


def test_what_a_batch_costs(spark: SparkSession, hdfs: LocalHdfs, on_hdfs: Hdfs, tmp_path: Path) -> None:
    root = on_hdfs.location()
    found = logs.steady(spark, tmp_path / "input", root, lambda: asked(hdfs, on_hdfs.checkpoint))
    purged = {log: found.pop((log, "Delete")) for log in logs.LOGS}
    written = dict.fromkeys(WRITTEN, COUNTED)
    assert logs.each(found) == {
        "offsets": written,
        "commits": written,
        # It is repeated from memory, if it is still there.
        "sources": {**written, "GetListing": 2, "GetFileInfo": 2},
        # A list of files may be joined from outside, so it is read where Spark repeats it: ten entries of it, twice.
        # And in each batch Spark lists it, if its directory is there.
        "_spark_metadata": {
            **written,
            "GetFileInfo": COUNTED,
            "GetListing": COUNTED + 2,
            "GetBlockLocations": COUNTED,
        },
    }
    # Another thread purges; it may be late with the last batch.
    assert all(abs(count - COUNTED) <= 2 for log, count in purged.items() if log in ("offsets", "commits")), purged
    assert logs.ids(spark, root) == list(range(5 * (WARM + COUNTED)))


def test_stock_spark_goes_on(make_spark: MakeSpark, conf: dict[str, str], on_hdfs: Hdfs, tmp_path: Path) -> None:
    source, root = tmp_path / "input", on_hdfs.location()
    sessions = [partial(make_spark, conf, mode=mode) for mode in ("provider", None, "provider")]
    fed = logs.take_turns(sessions, source, root)
    assert logs.ids(make_spark(conf), root) == fed
