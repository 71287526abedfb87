"""The Spark session of the commands that need one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsspec.callbacks import Callback
    from pyspark.sql import SparkSession


@contextmanager
def session(master: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """Starts a session with the jar for the block, and stops it.

    Args:
        master: Where it runs.
        conf: Settings.
    """
    from pyspark.sql import SparkSession

    from pyspark_statestore.session.configure import configure

    builder = SparkSession.builder.master(master).appName("pyspark-statestore")
    builder = builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR").config(map=dict(conf))
    spark = configure(builder).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def task_progress(what: str, spark: SparkSession | None) -> Iterator[None]:
    """Shows how many of a job's tasks are done while the block runs jobs, where stderr is a terminal.

    Args:
        what: The words before the bar.
        spark: The session that runs the jobs; None in a dry run, which runs none.
    """
    from pyspark_statestore.cli.output import progress

    with progress(what, "tasks" if spark else "") as bar:
        if bar is None or spark is None:
            yield
        else:
            with tasks_counted(spark, bar):
                yield


@contextmanager
def tasks_counted(spark: SparkSession, callback: Callback, every_seconds: float = 0.5) -> Iterator[None]:
    """Tells a callback how many tasks the job has that runs, and how many of them are done.

    Args:
        spark: The session.
        callback: Hears of each new job, and of its tasks.
        every_seconds: How often Spark is asked.
    """
    from py4j.protocol import Py4JError

    ended = Event()

    def ask() -> None:
        # A JVM that is gone fails the jobs, and that says more.
        with suppress(Py4JError):
            follow()

    def follow() -> None:
        tracker = spark.sparkContext.statusTracker()
        counted, told = (-1, 0), 0
        while not ended.wait(every_seconds):
            job = max(tracker.getActiveJobsIds(), default=-1)
            info = tracker.getJobInfo(job)
            stages = [stage for stage in map(tracker.getStageInfo, info.stageIds if info else ()) if stage]
            # Spark may know a stage a moment later than its job.
            size = sum(stage.numTasks for stage in stages)
            if not size:
                continue
            if (job, size) != counted:
                counted, told = (job, size), 0
                callback.set_size(size)
            done = sum(stage.numCompletedTasks for stage in stages)
            callback.relative_update(done - told)
            told = done

    asks = Thread(target=ask, name="task-progress", daemon=True)
    asks.start()
    try:
        yield
    finally:
        ended.set()
        asks.join()
