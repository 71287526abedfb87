"""The Spark session of the commands that need one."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING

from pyspark_statestore.errors import StateStoreFilesError, first_line

if TYPE_CHECKING:
    from fsspec.callbacks import Callback
    from pyspark.sql import SparkSession


LOG_LEVEL = "spark.log.level"
"""Who sets it wants to see Spark's log."""

_WORTH_SAYING = re.compile(r"JAVA_HOME|Exception|[Ee]rror|not found|No such")


@contextmanager
def session(master: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """Starts a session with the jar for the block, and stops it.

    Nothing that Spark logs comes to the terminal, as little as of the other commands: what failed is in the error. Who
    sets ``spark.log.level`` sees it.

    Args:
        master: Where it runs.
        conf: Settings.

    Raises:
        StateStoreFilesError: PSS_SPARK_NOT_RUNNING where Spark does not start, or as ``configure``.
    """
    from pyspark.sql import SparkSession

    from pyspark_statestore.session.configure import configure

    builder = SparkSession.builder.master(master).appName("pyspark-statestore")
    builder = builder.config("spark.ui.enabled", "false").config(LOG_LEVEL, "ERROR")
    # Spark draws bars of its own where a JVM was started from Python; ours say what they are of.
    builder = configure(builder.config("spark.ui.showConsoleProgress", "false").config(map=dict(conf)))
    with tempfile.TemporaryFile() as log:
        try:
            with nullcontext() if LOG_LEVEL in conf else _written_to(log.fileno()):
                spark = builder.getOrCreate()
        except Exception as error:
            log.seek(0)
            reason = f"Spark did not start: {_why(error, log.read().decode(errors='replace'))}"
            action = f"Remove the cause; with --conf {LOG_LEVEL}=WARN the command shows Spark's log"
            raise StateStoreFilesError("PSS_SPARK_NOT_RUNNING", {"reason": reason, "action": action}) from error
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _written_to(descriptor: int) -> Iterator[None]:
    """Has processes that are started in the block write to a file, for as long as they live.

    A JVM's first lines come before it knows how much it is to log, and its own warnings at any time.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    kept = [(number, os.dup(number)) for number in (1, 2)]
    try:
        for number, _ in kept:
            os.dup2(descriptor, number)
        yield
    finally:
        for number, copy in kept:
            os.dup2(copy, number)
            os.close(copy)


def _why(error: Exception, log: str) -> str:
    """The line that says why Spark did not start: where the JVM ended, only its own output says it."""
    from py4j.protocol import Py4JJavaError

    if isinstance(error, Py4JJavaError):
        return str(error.java_exception).partition("\n")[0].rstrip(".")
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    said = next(filter(_WORTH_SAYING.search, lines), lines[-1] if lines else "")
    return (said or first_line(error)).rstrip(".")


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
