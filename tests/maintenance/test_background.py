"""``maintain``: maintenance in the background of a driver, on queries that run."""

from __future__ import annotations

import datetime
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_statestore import Checkpoint, maintain
from pyspark_statestore.background import NOT_MERGED, BackgroundMaintenance, MaintainedQuery, MaintenanceRun
from pyspark_statestore.log.on_spark import run_on_spark
from tests.conftest import ROOT, MakeSpark
from tests.inspect.builders import refused
from tests.jvm.harness import await_listeners
from tests.sampling import sampled
from tests.scripts import run_to_the_end
from tests.streaming.runs import Run, Setting, merged_files
from tests.streaming.workloads import write_batch

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="sessions and processes of their own")]

OFTEN = datetime.timedelta(milliseconds=50)
IN_TIME = 120
SETTINGS = {"spark.scheduler.mode": "FAIR", "spark.sql.streaming.stateStore.maintenanceInterval": "1h"}


@pytest.fixture(scope="module")
def shared(make_spark: MakeSpark) -> Iterator[SparkSession]:
    """A session whose executors leave the cleaning to others."""
    spark = make_spark(SETTINGS, mode="provider")
    spark.sparkContext._jvm.io.pyspark.statestore.log.Cleaning.byHand()
    yield spark
    spark.sparkContext._jvm.io.pyspark.statestore.log.Cleaning.byItself()


@pytest.fixture
def spark(shared: SparkSession) -> Iterator[SparkSession]:
    """The session; no query of a test goes on in the next one."""
    yield shared
    for query in shared.streams.active:
        query.stop()


@pytest.fixture
def reports() -> Queue[MaintenanceRun]:
    """Gets the report of each run, where it is the listener."""
    return Queue()


Background = Callable[..., BackgroundMaintenance]


@pytest.fixture
def background(reports: Queue[MaintenanceRun]) -> Iterator[Background]:
    """Starts maintenance that tells ``reports``, and ends with the test."""
    with ExitStack() as stack:

        def start(spark: SparkSession, interval: datetime.timedelta = OFTEN, **more: Any) -> BackgroundMaintenance:
            return stack.enter_context(maintain(spark, interval, **{"listener": reports.put, **more}))

        yield start


def small_files(spark: SparkSession, folder: Path, batches: int = 3) -> tuple[Run, StreamingQuery]:
    """A query that runs, and has left a sealed file with each batch."""
    run = Run(spark, "aggregation", Setting("provider", "rocksdb"), folder)
    query = run.start(available_now=False)
    for batch in range(batches):
        add_batch(run, query, batch)
    return run, query


def add_batch(run: Run, query: StreamingQuery, batch: int) -> None:
    """Lets the query read one more batch, and seal what it wrote."""
    write_batch(run.input, batch)
    query.processAllAvailable()
    logs = dict(run.spark.sparkContext._jvm.io.pyspark.statestore.log.MergedLogs.all())
    logs[f"file:{run.checkpoint}/state"].seal()


def of(report: MaintenanceRun, query: StreamingQuery) -> MaintainedQuery:
    """What a run did for a query."""
    [found] = [each for each in report.queries if each.id == query.id]
    return found


def run_with(reports: Queue[MaintenanceRun], wanted: Callable[[MaintenanceRun], bool]) -> MaintenanceRun:
    """Waits for a report of this kind."""
    while True:
        report = reports.get(timeout=IN_TIME)
        if wanted(report):
            return report


def jobs(spark: SparkSession, maintenance: BackgroundMaintenance) -> list[int]:
    """Its Spark jobs so far."""
    return sorted(spark.sparkContext.statusTracker().getJobIdsForGroup(maintenance.job_group))


@contextmanager
def ended(maintenance: BackgroundMaintenance) -> Iterator[None]:
    """Expects that it ends by itself in the block."""
    [thread] = [each for each in threading.enumerate() if each is maintenance._thread]
    yield
    thread.join(IN_TIME)
    assert not maintenance.is_active


def test_a_query_that_runs_is_kept_small(
    spark: SparkSession, tmp_path: Path, background: Background, reports: Queue[MaintenanceRun]
) -> None:
    run, query = small_files(spark, tmp_path)
    before = {file.name for file in merged_files(run.checkpoint)}
    maintenance = background(spark)

    report = run_with(reports, lambda report: not report.failed)

    done = of(report, query)
    assert done.location == f"file://{run.checkpoint}"
    assert done.results["compact"].rewritten_files_count == len(before) >= 3
    assert not before & {file.name for file in merged_files(run.checkpoint)}
    assert "consolidate_index" in done.results
    assert "remove_orphan_files" not in done.results
    assert report in maintenance.runs
    assert maintenance.last_run is not None
    assert maintenance.last_run.number >= report.number
    assert report.started_at <= report.ended_at
    maintenance.stop()
    add_batch(run, query, 3)
    assert query.exception() is None
    assert Checkpoint(run.checkpoint).inspect.versions()["is_restorable"].to_pylist().count(False) == 0


def test_the_jobs_are_in_their_pool_and_say_what_they_do(
    spark: SparkSession, tmp_path: Path, background: Background, reports: Queue[MaintenanceRun]
) -> None:
    run, query = small_files(spark, tmp_path)
    maintenance = background(spark, pool="slow", compact={"max_space_amplification": 1.1})
    before = jobs(spark, maintenance)
    run_with(reports, lambda report: "compact" in of(report, query).results)
    add_batch(run, query, 3)
    maintenance.stop()
    await_listeners(spark)

    new = [job for job in jobs(spark, maintenance) if job not in before]

    store = spark.sparkContext._jsc.sc().statusStore()
    assert new
    for job in new:
        assert store.job(job).description().get() == f"compact file://{run.checkpoint}"
        for stage in spark.sparkContext.statusTracker().getJobInfo(job).stageIds:
            assert store.lastStageAttempt(stage).schedulingPool() == "slow"
    in_pool = {job for job in range(max(new) + 2) if pool_of(spark, job) == "slow"}
    assert in_pool == set(new)
    assert spark.sparkContext.getLocalProperty("spark.scheduler.pool") is None


def pool_of(spark: SparkSession, job: int) -> str | None:
    info = spark.sparkContext.statusTracker().getJobInfo(job)
    if info is None:
        return None
    pool: str = spark.sparkContext._jsc.sc().statusStore().lastStageAttempt(info.stageIds[0]).schedulingPool()
    return pool


def test_what_fails_for_one_query_is_done_for_the_others(
    spark: SparkSession, tmp_path: Path, background: Background, reports: Queue[MaintenanceRun]
) -> None:
    (broken_run, broken), (_, sound) = (small_files(spark, tmp_path / name) for name in ("a", "b"))
    foreign = broken_run.checkpoint / "state" / "_merged" / "1700000000000-00000000000000ff-1.merged"
    foreign.write_bytes(b"no merged file" * 10)
    maintenance = background(spark)

    first, second = (reports.get(timeout=IN_TIME) for _ in range(2))

    for report in (first, second):
        assert report.failed
        assert "[PSS_CORRUPT_FILE]" in str(of(report, broken).error)
        assert of(report, broken).results == {}
        assert of(report, sound).error is None
    assert of(first, sound).results["compact"].rewritten_files_count >= 3
    foreign.unlink()
    assert not run_with(reports, lambda report: not report.failed).failed
    assert maintenance.is_active


def test_nothing_is_done_where_nothing_is_active(
    spark: SparkSession, background: Background, reports: Queue[MaintenanceRun]
) -> None:
    maintenance = background(spark)
    before = jobs(spark, maintenance)

    first, second = (reports.get(timeout=IN_TIME) for _ in range(2))

    assert (first.queries, first.failed, first.number) == ((), False, 1)
    assert (second.queries, second.number) == ((), 2)
    assert jobs(spark, maintenance) == before


def test_a_query_without_merged_files_is_skipped(
    spark: SparkSession, tmp_path: Path, background: Background, reports: Queue[MaintenanceRun]
) -> None:
    rate = spark.readStream.format("rate").load().writeStream.format("noop")
    query = rate.option("checkpointLocation", str(tmp_path / "rate")).queryName("stateless").start()
    background(spark)

    done = of(run_with(reports, lambda report: bool(report.queries)), query)

    assert done == MaintainedQuery(query.id, "stateless", f"file://{tmp_path / 'rate'}", skipped=NOT_MERGED)


def test_orphans_are_removed_where_that_is_asked_for(
    spark: SparkSession, tmp_path: Path, background: Background, reports: Queue[MaintenanceRun]
) -> None:
    run, query = small_files(spark, tmp_path)
    orphan = run.checkpoint / "state" / "_merged" / "1700000000000-00000000000000ff-1.merged"
    orphan.write_bytes(b"")
    os.utime(orphan, (1_700_000_000, 1_700_000_000))
    options = {"older_than": datetime.timedelta(days=1), "dry_run": False}
    background(spark, compact=False, consolidate_index=False, remove_orphan_files=options)

    done = of(reports.get(timeout=IN_TIME), query)

    assert list(done.results) == ["remove_orphan_files"]
    assert done.results["remove_orphan_files"].removed_files_count == 1
    assert not orphan.exists()
    assert len(merged_files(run.checkpoint)) >= 3


def test_a_listener_that_fails_is_not_the_end(spark: SparkSession, background: Background) -> None:
    told = Queue[int]()

    def listener(report: MaintenanceRun) -> None:
        told.put(report.number)
        raise ValueError("on purpose")

    background(spark, listener=listener)

    assert [told.get(timeout=IN_TIME) for _ in range(3)] == [1, 2, 3]


def test_stopped(spark: SparkSession, reports: Queue[MaintenanceRun]) -> None:
    with maintain(spark, OFTEN, listener=reports.put) as maintenance:
        reports.get(timeout=IN_TIME)
        assert maintenance.is_active

    assert not maintenance.is_active
    assert maintenance.last_run is not None
    assert maintenance.stop()


def test_stopped_by_its_own_listener(spark: SparkSession, background: Background) -> None:
    stopped = Queue[bool]()
    maintenance: BackgroundMaintenance = background(spark, listener=lambda report: stopped.put(maintenance.stop()))

    with ended(maintenance):
        assert stopped.get(timeout=IN_TIME) is False


def test_a_long_interval_does_not_hold_up_the_end(spark: SparkSession) -> None:
    maintenance = maintain(spark, datetime.timedelta(days=1000))

    assert maintenance.stop(IN_TIME)
    assert maintenance.runs == ()


def test_called_again_it_replaces_the_former(spark: SparkSession, background: Background) -> None:
    first = background(spark)

    with ended(first):
        second = background(spark)

    assert second.is_active


def test_two_runs_are_never_at_once(
    spark: SparkSession, tmp_path: Path, background: Background, reports: Queue[MaintenanceRun]
) -> None:
    other = spark.newSession()
    for session, name in ((spark, "a"), (other, "b")):
        small_files(session, tmp_path / name, batches=1)
    try:
        both = [background(session, datetime.timedelta(microseconds=1)) for session in (spark, other)]
        got = [reports.get(timeout=IN_TIME) for _ in range(12)]
        runs = sorted((each.started_at, each.ended_at) for each in got)
        assert all(maintenance.runs for maintenance in both)
    finally:
        for query in other.streams.active:
            query.stop()

    assert all(before[1] <= after[0] for before, after in itertools.pairwise(runs))


@pytest.mark.parametrize(
    ("arguments", "error_class", "words"),
    [
        ({"interval": datetime.timedelta(0)}, "PSS_INVALID_OPTION", ["interval"]),
        ({"interval": 5}, "PSS_INVALID_OPTION", ["timedelta"]),
        ({"compact": {"max_amplification": 2}}, "PSS_UNKNOWN_OPTION", ["max_amplification", "max_space_amplification"]),
        ({"compact": {"spark": None}}, "PSS_UNKNOWN_OPTION", ["spark"]),
        ({"consolidate_index": 3}, "PSS_INVALID_OPTION", ["consolidate_index"]),
        ({"remove_orphan_files": True}, "PSS_INVALID_OPTION", ["'dry_run': False"]),
        ({"remove_orphan_files": {"dry_run": True}}, "PSS_INVALID_OPTION", ["'dry_run': False"]),
    ],
)
def test_arguments_that_are_wrong(
    spark: SparkSession, arguments: dict[str, Any], error_class: str, words: list[str]
) -> None:
    with refused(error_class, *words):
        maintain(spark, **arguments)


_PROCESS = """
import datetime, queue, sys
from pyspark.sql import SparkSession
from pyspark_statestore import configure, maintain

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = configure(builder.config("spark.sql.shuffle.partitions", "2")).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
rate = spark.readStream.format("rate").load().groupBy("value").count().writeStream.format("noop")
query = rate.outputMode("update").option("checkpointLocation", sys.argv[1]).start()
while not query.lastProgress:
    query.awaitTermination(0.1)
reports = queue.Queue()
maintain(spark, datetime.timedelta(milliseconds=1), listener=reports.put)
while not (report := reports.get(timeout=60)).queries or not report.queries[0].results:
    assert not report.failed, report
print("maintained")
"""


@pytest.mark.slow
@pytest.mark.parametrize("pinned", sampled(["true", "false"], 1))
def test_it_does_not_keep_a_process_from_ending(main_jar: Path, tmp_path: Path, pinned: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PIN_THREAD": pinned}
    command = [sys.executable, "-c", _PROCESS, str(tmp_path / "q")]
    done = run_to_the_end(command, cwd=tmp_path, env=environment, timeout=500)

    assert done.stdout == "maintained\n", done.stderr
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert ("PYSPARK_PIN_THREAD" in done.stderr) == (pinned == "false")


def test_it_ends_with_the_session(
    make_spark: MakeSpark, tmp_path: Path, background: Background, reports: Queue[MaintenanceRun]
) -> None:
    """The last test: the session is gone after it."""
    from pyspark import SparkContext

    spark = make_spark(SETTINGS, mode="provider")
    small_files(spark, tmp_path)
    maintenance = background(spark)
    reports.get(timeout=IN_TIME)

    with ended(maintenance):
        for query in spark.streams.active:
            query.stop()
        spark.stop()

    assert SparkContext._active_spark_context is None
    with refused("PSS_SPARK_NOT_RUNNING", "stopped", "maintain()"):
        maintain(spark)
    with refused("PSS_SPARK_NOT_RUNNING", "stopped"):
        run_on_spark(spark, str, [1])
    assert SparkContext._active_spark_context is None
