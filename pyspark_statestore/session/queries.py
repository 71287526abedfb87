"""What the Spark of this process knows of its streaming queries: which run, and which have ended.

``EndedQueries`` of the shim hears of ends, in sessions that were set up with ``configure`` or ``attach``.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark_statestore.session.jvm import call_static, is_running

_ENDED_QUERIES = "io.pyspark.statestore.spark.EndedQueries"

IsHere = Callable[[str], bool]
"""Whether the checkpoint that a run names is the one that is asked about. Copies of it have the same query id."""


@dataclass(frozen=True)
class EndedRun:
    """A run of a query that has ended.

    Attributes:
        last_batch: The last batch that it has finished; -1 without one.
        at: When its end was heard.
        app_id: Spark's id of the application, which the merged files that it writes have, too.
    """

    last_batch: int
    at: datetime.datetime
    app_id: str


def active_run(query_id: str, is_here: IsHere, session: Any = None) -> str | None:
    """The run of a query that is active in any session of this process's application; None without one.

    Args:
        query_id: Spark's id of the query.
        is_here: As its name says.
        session: The JVM's object of a session; that of this process if not given.
    """
    if session is None:
        spark = _session_here()
        if spark is None:
            return None
        session = spark._jsparkSession
    active = session.sharedState().activeStreamingQueries()
    for key in list(active):
        run = active.get(key) if str(key) == query_id else None  # it may have ended meanwhile
        if run is not None and is_here(str(run.resolvedCheckpointRoot())):
            return str(run.runId())
    return None


def ended_run(query_id: str, is_here: IsHere) -> EndedRun | None:
    """The run of a query that was the last one in this process's application, if all of them are known to have ended.

    Ask this after :func:`active_run`: it waits for the news of an end.
    """
    spark = _session_here()
    if spark is None:
        return None
    from py4j.protocol import Py4JError

    try:
        ended_queries = spark._jsparkSession.sharedState().jarClassLoader().loadClass(_ENDED_QUERIES)
        lines = str(call_static(spark._jvm, ended_queries, "runsOf", ("java.lang.String", query_id)))
    except Py4JError:  # a session without the jar
        return None
    runs = [line.split(" ", 2) for line in lines.splitlines()]
    here = [(int(last), int(at)) for last, at, checkpoint in runs if is_here(checkpoint)]
    if not here or not all(at for _, at in here):
        return None
    # A run that found nothing to do says nothing of batches.
    last_batch = next((last for last, _ in reversed(here) if last >= 0), -1)
    at = datetime.datetime.fromtimestamp(here[-1][1] / 1000, datetime.timezone.utc)
    return EndedRun(last_batch, at, str(spark.sparkContext.applicationId))


def own_runs() -> frozenset[str]:
    """The names of the files by which runs of this process say that they go on, of all checkpoints."""
    spark = _session_here()
    if spark is None:
        return frozenset()
    from py4j.protocol import Py4JError

    try:
        ended_queries = spark._jsparkSession.sharedState().jarClassLoader().loadClass(_ENDED_QUERIES)
        return frozenset(str(call_static(spark._jvm, ended_queries, "filesOfRuns")).split())
    except Py4JError:  # a session without the jar
        return frozenset()


def _session_here() -> Any:
    """A classic session of this process that runs; None without one. It starts nothing, and imports no Spark."""
    sql = sys.modules.get("pyspark.sql")
    spark = None if sql is None else sql.SparkSession._instantiatedSession
    return spark if spark is not None and is_running(spark) else None
