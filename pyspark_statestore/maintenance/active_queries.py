"""One run of maintenance for all queries that are active in a session."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark_statestore.checkpoint import Checkpoint
from pyspark_statestore.errors import StateStoreFilesError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

_log = logging.getLogger(__name__)

POOL_KEY = "spark.scheduler.pool"

NOT_MERGED = "it has no merged files"


@dataclass(frozen=True)
class MaintainedQuery:
    """What a run did for one query.

    Attributes:
        id: Spark's, which is the same after a restart.
        name: As given with ``queryName``, or None.
        location: Of its checkpoint; empty where it could not be told.
        results: What ``compact``, ``consolidate_index`` and ``remove_orphan_files`` returned, by these names, as far as
            it came.
        skipped: Why nothing was to be done; empty where something was.
        error: What ended the work on this query, or None.
    """

    id: str
    name: str | None
    location: str = ""
    results: Mapping[str, Any] = field(default_factory=dict)
    skipped: str = ""
    error: Exception | None = None


@dataclass(frozen=True)
class MaintenanceRun:
    """A run of maintenance in the background.

    Attributes:
        number: From 1 on.
        started_at: In UTC.
        ended_at: In UTC.
        queries: Those that were active.
        error: What kept the run from finding out which these are, or None.
    """

    number: int
    started_at: datetime.datetime
    ended_at: datetime.datetime
    queries: tuple[MaintainedQuery, ...]
    error: Exception | None = None

    @property
    def failed(self) -> bool:
        """Whether anything went wrong; :attr:`queries` tell what."""
        return self.error is not None or any(query.error is not None for query in self.queries)


@dataclass(frozen=True)
class ActiveQueries:
    """The queries of a session, and what is done for each.

    Attributes:
        spark: The session, a classic one.
        verbs: Arguments of the methods of ``Checkpoint.maintenance`` that are called, by their names, in that order.
        pool: Scheduler pool of their Spark jobs.
        job_group: Of their Spark jobs.
        storage_options: For the fsspec file system.
        closed_after: As the queries' ``closedAfter``.
    """

    spark: SparkSession
    verbs: Mapping[str, Mapping[str, Any]]
    pool: str
    job_group: str
    closed_after: datetime.timedelta
    storage_options: Mapping[str, Any] = field(repr=False)  # it may hold passwords

    def run(self, number: int, is_over: Callable[[], bool]) -> MaintenanceRun:
        """Maintains the checkpoints of all queries that are active now, one after the other.

        Args:
            number: Of the run.
            is_over: Asked before each step; what is left is left out then.
        """
        started_at = _now()
        done: list[MaintainedQuery] = []
        failure: Exception | None = None
        try:
            for query in self.spark.streams.active:
                if is_over():
                    break
                done.append(self._maintained(query, is_over))
        except Exception as error:  # py4j's, mostly
            failure = error
            _tell("Which queries are active could not be asked", error, is_over())
        return MaintenanceRun(number, started_at, _now(), tuple(done), failure)

    def _maintained(self, query: StreamingQuery, is_over: Callable[[], bool]) -> MaintainedQuery:
        done = MaintainedQuery(str(query.id), query.name)
        location, results = "", {}
        try:
            checkpoint = Checkpoint.of(query, self.storage_options, closed_after=self.closed_after)
            location = checkpoint.url
            if not checkpoint.is_merged:
                _log.debug("Nothing to maintain in %s: %s", location, NOT_MERGED)
                return MaintainedQuery(done.id, done.name, location, skipped=NOT_MERGED)
            for verb, result in self._results(checkpoint, is_over):
                results[verb] = result
        except Exception as error:
            _tell(f"Maintenance of {location or f'query {done.id}'} failed", error, is_over())
            return MaintainedQuery(done.id, done.name, location, results, error=error)
        return MaintainedQuery(done.id, done.name, location, results)

    def _results(self, checkpoint: Checkpoint, is_over: Callable[[], bool]) -> Iterable[tuple[str, Any]]:
        for verb, options in self.verbs.items():
            if is_over():
                return
            on_spark = {"spark": self.spark} if verb == "compact" else {}
            with self._jobs(f"{verb} {checkpoint.url}"):
                result = getattr(checkpoint.maintenance, verb)(**options, **on_spark)
            _log.info("%s of %s: %s", verb, checkpoint.url, result)
            yield verb, result

    @contextmanager
    def _jobs(self, description: str) -> Iterator[None]:
        """Around what starts Spark jobs: in their own pool, and with a name for who looks at the UI."""
        if not has_own_properties():
            yield
            return
        context = self.spark.sparkContext
        context.setJobGroup(self.job_group, description)
        context.setLocalProperty(POOL_KEY, self.pool)
        yield


def has_own_properties() -> bool:
    """Whether what a Python thread says of its Spark jobs holds for these alone: not with PYSPARK_PIN_THREAD=false."""
    from py4j.clientserver import ClientServer
    from pyspark import SparkContext

    return isinstance(SparkContext._gateway, ClientServer)


def _tell(what: str, error: Exception, is_over: bool) -> None:
    # At the end of a session or of the process everything may fail.
    level = logging.DEBUG if is_over else logging.WARNING
    _log.log(level, "%s: %s", what, error, exc_info=None if isinstance(error, StateStoreFilesError) else error)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
