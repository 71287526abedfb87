"""Spark's own logs on real S3A: what an entry and a batch cost, killed drivers, and stock Spark that goes on."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.conftest import MakeSpark
from tests.jvm.harness import begun, in_time, java_error, result_in_time
from tests.s3.conftest import MakeQuery
from tests.s3.harness import CONF, S3Place, query_process
from tests.s3.local_s3 import class_path_settings
from tests.s3.proxy import Fault, Request, Rule
from tests.streaming import logs
from tests.streaming.logs import COUNTED, TAKEN, WARM, Asked, CommitLog

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(0, files="Spark's own logs")]


@pytest.fixture
def conf(place: S3Place) -> dict[str, str]:
    return {**place.s3.spark_settings(), **logs.FEW_KEPT}


@pytest.fixture
def spark(make_spark: MakeSpark, conf: dict[str, str]) -> SparkSession:
    return make_spark(conf, mode="provider")


@pytest.fixture
def opened(spark: SparkSession, place: S3Place) -> Callable[[], CommitLog]:
    """Opens a commit log as one more driver does."""
    return lambda: CommitLog(spark, place.location("commits"))


def by_log(requests: list[Request], key: str) -> Asked:
    """Requests about the logs below a key, by log and kind."""
    found: Asked = Counter()
    for request in requests:
        if request.key.startswith(f"{key}/") and (log := logs.log_of(f"/{request.key}")):
            found[log, request.kind] += 1
    return found


WRITTEN = {"PUT": 1, "COPY": 1, "DELETE": 1, "HEAD": 4, "LIST": 2}
"""Stock Spark's have 12 HEAD and 9 LIST."""


def test_what_an_entry_costs(opened: Callable[[], CommitLog], place: S3Place) -> None:
    log = opened()
    for batch in range(2):
        log.add(batch, batch)
    begun = len(place.s3.proxy.requests)
    log.add(2, 20)
    assert logs.each(by_log(place.s3.proxy.since(begun), place.key)) == {"commits": WRITTEN}
    assert opened().watermark(2) == 20


def test_the_later_of_two_drivers_fails(opened: Callable[[], CommitLog], place: S3Place) -> None:
    """What the first one remembers of the log is old by then."""
    mine = opened()
    for batch in range(2):
        mine.add(batch, 1)
    other = opened()
    assert other.add(2, 2)
    with java_error(TAKEN):
        mine.add(2, 1)
    assert opened().watermark(2) == 2
    assert [key for key in place.s3.keys(f"{place.key}/commits/") if key.endswith(".tmp")] == []


def cached(spark: SparkSession, place: S3Place, changed: Mapping[str, str]) -> Any:
    """The file system that Hadoop gives to whoever asks in this process."""
    conf = spark._jvm.org.apache.hadoop.conf.Configuration(spark._jsc.hadoopConfiguration())
    for key, value in changed.items():
        conf.set(key, value)
    return spark._jvm.org.apache.hadoop.fs.Path(place.location()).getFileSystem(conf)


def test_a_file_system_that_others_close_is_not_that_of_a_log(
    spark: SparkSession, opened: Callable[[], CommitLog], place: S3Place
) -> None:
    log = opened()
    for batch in range(2):
        log.add(batch, batch)
    cached(spark, place, {}).close()
    assert log.add(2, 20)
    assert opened().watermark(2) == 20


def test_a_log_has_the_settings_of_its_session(
    spark: SparkSession, opened: Callable[[], CommitLog], place: S3Place
) -> None:
    """Others in the process may have been first, with other ones."""
    spark._jvm.org.apache.hadoop.fs.FileSystem.closeAll()
    others = cached(spark, place, {"fs.s3a.endpoint": "http://127.0.0.1:1", "fs.s3a.attempts.maximum": "1"})
    try:
        assert in_time(opened().add, 0, 1)
    finally:
        others.close()


def test_what_a_batch_costs(spark: SparkSession, place: S3Place, tmp_path: Path) -> None:
    root = place.location()
    found = logs.steady(spark, tmp_path / "input", root, lambda: by_log(place.s3.proxy.requests, place.key))
    written = {kind: count * COUNTED for kind, count in WRITTEN.items()}
    purged = {log: found.pop((log, "BULK_DELETE"), 0) for log in logs.LOGS}
    assert logs.each(found) == {
        "offsets": written,
        "commits": written,
        # It is repeated from memory, if it is still there.
        "sources": {**written, "LIST": 2 * COUNTED + 2, "HEAD": 4 * COUNTED + 2},
        # A list of files may be joined from outside, so it is read where Spark repeats it: ten entries of it, twice.
        # And in each batch Spark lists it, if its directory is there.
        "_spark_metadata": {**written, "LIST": 4 * COUNTED + 2, "HEAD": 6 * COUNTED, "GET": COUNTED},
    }
    # Twenty entries go with one request.
    assert all(1 <= count <= 2 for count in purged.values()), purged
    assert logs.ids(spark, root) == list(range(5 * (WARM + COUNTED)))


def test_a_query_that_stops_waits_for_what_it_purges(spark: SparkSession, place: S3Place, tmp_path: Path) -> None:
    """Else the request would delete entries of the query that begins at this path next."""
    source = tmp_path / "input"
    query = logs.start(spark, source, place.location(), available_now=False)
    try:
        with place.s3.proxy.fault(Fault.HOLD, Rule({"BULK_DELETE"})) as held:
            for batch in range(WARM + 3):
                logs.feed(source, batch)
                query.processAllAvailable()
            held.reached()
            stopped = begun(query.stop)
            with pytest.raises(TimeoutError):
                stopped.result(3)
            held.release()
            result_in_time(stopped, query.stop)
    finally:
        query.stop()
    # All that is left is what the query keeps, and what waited for a full page.
    assert len(place.s3.keys(f"{place.key}/checkpoint/offsets/")) < WARM


def test_stock_spark_goes_on(make_spark: MakeSpark, conf: dict[str, str], place: S3Place, tmp_path: Path) -> None:
    source, root = tmp_path / "input", place.location()
    sessions = [partial(make_spark, conf, mode=mode) for mode in ("provider", None, "provider")]
    fed = logs.take_turns(sessions, source, root)
    assert logs.ids(make_spark(conf), root) == fed


@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_driver_killed_before_the_rename(make_query: MakeQuery, jars: list[Path], tmp_path: Path, log: str) -> None:
    """The entry's temporary object is there. The next run adds the entry, and gives out each row once."""
    query = make_query("provider", "rocksdb")
    query.feed(3)
    settings = {**query.s3.spark_settings(), **class_path_settings(jars), **CONF, "spark.ui.enabled": "false"}
    with (
        query.s3.proxy.fault(Fault.HOLD_AND_REFUSE, Rule({"COPY"}, key=f"{query.key}/{log}/", skip=1)) as held,
        query_process(query, "rocksdb", settings, tmp_path) as (process, _),
    ):
        held.reached(120)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert [key for key in query.keys(log) if key.endswith(".tmp")] != []
    assert f"{log}/1" not in query.keys(log)
    query.run(1)
    query.check()
