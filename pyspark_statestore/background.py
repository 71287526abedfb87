"""``maintain``: maintenance in the background of a PySpark driver."""

from __future__ import annotations

import atexit
import datetime
import inspect
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark_statestore.checkpoint import Checkpoint
from pyspark_statestore.conf import OPTIONS
from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.maintenance.maintenance import Maintenance
from pyspark_statestore.session.configure import check_running, is_running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


# docs/keep-it-small.md names the logger: it stays what it was when this module was elsewhere.
_log = logging.getLogger("pyspark_statestore.maintenance.background")

KEPT_RUNS = 100

_LOOK_S = 1.0
"""How often it is seen to that the session still runs: nobody tells Python when it is stopped."""

_one_at_a_time = threading.Lock()
_by_session: dict[str, BackgroundMaintenance] = {}

Options = Mapping[str, Any] | bool


def maintain(
    spark: SparkSession,
    interval: datetime.timedelta = datetime.timedelta(minutes=10),
    *,
    compact: Options = True,
    consolidate_index: Options = True,
    remove_orphan_files: Options = False,
    pool: str = "pyspark-statestore-maintenance",
    storage_options: Mapping[str, Any] | None = None,
    closed_after: datetime.timedelta | None = None,
    listener: Callable[[MaintenanceRun], object] | None = None,
) -> BackgroundMaintenance:
    """Keeps the checkpoints of all queries that are active in a session small, in the background.

    After each interval it calls ``compact``, ``consolidate_index`` and, if asked for, ``remove_orphan_files`` of
    ``Checkpoint.maintenance`` for each active query with merged state. Files are rewritten in Spark jobs of a scheduler
    pool of their own; the rest is done here. What fails is logged and tried again after the next interval. All of it
    ends with the session, with the process, or with ``stop()``.

    Args:
        spark: The session of the queries, a classic one. Called again for it, the former maintenance ends.
        interval: From the end of a run to the start of the next one, and before the first.
        compact: Whether, or the arguments of ``maintenance.compact``, such as ``{"max_space_amplification": 1.2}``.
        consolidate_index: Whether.
        remove_orphan_files: The arguments of ``maintenance.remove_orphan_files``, ``"dry_run": False`` among them.
        pool: The scheduler pool; Spark takes notice of it with ``spark.scheduler.mode=FAIR``.
        storage_options: For the fsspec file system of all checkpoints.
        closed_after: As the queries' ``closedAfter``; the session's setting if not given.
        listener: Called with the report of each run, in the thread of the maintenance.

    Returns:
        What can be asked for its runs and stopped; also a context manager, which stops it at its end.

    Raises:
        StateStoreFilesError: PSS_SPARK_NOT_RUNNING where the session is stopped or one of Spark Connect;
            PSS_INVALID_OPTION or PSS_UNKNOWN_OPTION for an argument.

    Example:
        >>> with maintain(spark, datetime.timedelta(minutes=5)) as maintenance:
        ...     query.awaitTermination()
    """
    if not isinstance(interval, datetime.timedelta) or interval <= datetime.timedelta(0):
        raise _invalid("interval", interval, "a datetime.timedelta of more than no time")
    asked = {"compact": compact, "consolidate_index": consolidate_index, "remove_orphan_files": remove_orphan_files}
    verbs = {verb: _arguments(verb, options) for verb, options in asked.items() if options is not False}
    check_running(
        spark,
        why_not_connect="which can neither tell where its queries have their checkpoints nor choose a scheduler pool",
        action="Call maintain() in the driver of a classic session, or Checkpoint(path).maintenance, whose methods "
        "take a Spark Connect session, as often as you like",
    )
    maintenance = BackgroundMaintenance(
        ActiveQueries(
            spark,
            verbs,
            pool,
            job_group="pyspark-statestore maintenance",
            closed_after=_closed_after(spark) if closed_after is None else closed_after,
            storage_options=storage_options or {},
        ),
        interval,
        listener,
    )
    session = str(spark._jsparkSession.sessionUUID())
    former = _by_session.get(session)
    if former is not None:
        former._ending.set()
    _by_session[session] = maintenance
    maintenance._start()
    return maintenance


class BackgroundMaintenance:
    """Maintenance that goes on in the background; :func:`maintain` makes one.

    Args:
        queries: That are maintained.
        interval: Between runs.
        listener: Called with the report of each run.
    """

    def __init__(
        self,
        queries: ActiveQueries,
        interval: datetime.timedelta,
        listener: Callable[[MaintenanceRun], object] | None,
    ) -> None:
        self._queries = queries
        self._interval_s = interval.total_seconds()
        self._listener = listener
        self._runs: deque[MaintenanceRun] = deque(maxlen=KEPT_RUNS)
        self._ending = threading.Event()
        # A daemon: it never keeps a process from ending.
        self._thread = threading.Thread(target=self._work, name="pyspark-statestore-maintenance", daemon=True)

    @property
    def runs(self) -> tuple[MaintenanceRun, ...]:
        """Reports of the last hundred runs, oldest first."""
        return tuple(self._runs)

    @property
    def last_run(self) -> MaintenanceRun | None:
        """The report of the last run, or None before the first."""
        return self._runs[-1] if self._runs else None

    @property
    def is_active(self) -> bool:
        """Whether there will be more runs, or one is under way."""
        return self._thread.is_alive()

    @property
    def job_group(self) -> str:
        """The group of its Spark jobs."""
        return self._queries.job_group

    @property
    def pool(self) -> str:
        """The scheduler pool of its Spark jobs."""
        return self._queries.pool

    def stop(self, timeout: float | None = None) -> bool:
        """Ends it, and waits for the step that is under way, such as the compaction of one checkpoint.

        Args:
            timeout: Wait at most so many seconds.

        Returns:
            Whether nothing is under way any more.
        """
        self._ending.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def __enter__(self) -> BackgroundMaintenance:
        """Returns itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Stops it."""
        self.stop()

    def _start(self) -> None:
        atexit.register(self._ending.set)
        if not has_own_properties():
            _log.warning("Maintenance has no scheduler pool of its own: PYSPARK_PIN_THREAD is false")
        self._thread.start()

    def _work(self) -> None:
        number = 0
        try:
            while self._wait(self._interval_s):
                while not _one_at_a_time.acquire(timeout=_LOOK_S):
                    if self._is_over():
                        return
                number += 1
                try:
                    report = self._queries.run(number, self._is_over)
                finally:
                    _one_at_a_time.release()
                self._runs.append(report)
                self._tell(report)
        finally:
            atexit.unregister(self._ending.set)
            for session in [key for key, one in _by_session.items() if one is self]:
                _by_session.pop(session, None)
            _log.debug("Maintenance has ended after %d runs", number)

    def _wait(self, seconds: float) -> bool:
        """Returns whether, after so long, it is to go on."""
        end = time.monotonic() + seconds
        while not self._is_over():
            left = end - time.monotonic()
            if left <= 0:
                return True
            self._ending.wait(min(left, _LOOK_S))
        return False

    def _is_over(self) -> bool:
        # Once the main thread has ended, thread pools take no more work.
        return self._ending.is_set() or not threading.main_thread().is_alive() or not is_running(self._queries.spark)

    def _tell(self, report: MaintenanceRun) -> None:
        if self._listener is None:
            return
        try:
            self._listener(report)
        except Exception:
            _log.warning("The listener of the maintenance failed", exc_info=True)


def _arguments(verb: str, options: Options) -> Mapping[str, Any]:
    """Checks the names now: later nobody would see that they are wrong but in the log."""
    given = {} if options is True else options
    if not isinstance(given, Mapping):
        raise _invalid(verb, options, "True, False, or arguments by name")
    parameters = inspect.signature(getattr(Maintenance, verb)).parameters
    known = [name for name in parameters if name not in ("self", "spark", "callback")]
    for name in given:
        if name not in known:
            hint = f"The arguments of {verb} are: {', '.join(known)}."
            raise StateStoreFilesError("PSS_UNKNOWN_OPTION", {"key": name, "hint": hint})
    if verb == "remove_orphan_files" and given.get("dry_run") is not False:
        raise _invalid(verb, options, "False, or arguments with 'dry_run': False among them, since nobody would look")
    return dict(given)


def _closed_after(spark: SparkSession) -> datetime.timedelta:
    option = OPTIONS["closedAfter"]
    return datetime.timedelta(milliseconds=int(option.parse(spark.conf.get(option.key, option.default))))


def _invalid(key: str, value: object, allowed: str) -> StateStoreFilesError:
    return StateStoreFilesError("PSS_INVALID_OPTION", {"key": key, "value": value, "allowed": allowed})


# One run of maintenance for all queries that are active in a session.


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
