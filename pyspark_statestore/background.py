"""``maintain``: keeps the checkpoints of a session's queries small, in a thread of the PySpark driver."""

from __future__ import annotations

import atexit
import datetime
import inspect
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark_statestore import rendering
from pyspark_statestore.checkpoint import Checkpoint
from pyspark_statestore.conf import OPTIONS
from pyspark_statestore.errors import StateStoreFilesError, not_allowed
from pyspark_statestore.maintenance.maintenance import Maintenance
from pyspark_statestore.session.jvm import check_running, is_running
from pyspark_statestore.sink.orphans import check_age
from pyspark_statestore.sink.sink import Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from pyspark_statestore.sink.compaction import SinkCompaction


# docs/keep-it-small.md names the logger: it stays what it was when this module was elsewhere.
_log = logging.getLogger("pyspark_statestore.maintenance.background")

KEPT_RUNS = 100
"""How many reports are kept."""

POOL_KEY = "spark.scheduler.pool"
NOT_MERGED = "it has no merged files"

_POLL_S = 1.0
"""How often the thread looks whether the session still runs: Spark does not tell Python when it is stopped."""

_one_at_a_time = threading.Lock()
_by_session: dict[str, BackgroundMaintenance] = {}

Options = Mapping[str, Any] | bool

Sinks = Iterable["str | os.PathLike[str] | Sink"] | Mapping[Any, Mapping[str, Any]]


def maintain(
    spark: SparkSession,
    interval: datetime.timedelta = datetime.timedelta(minutes=10),
    *,
    compact: Options = True,
    consolidate_index: Options = True,
    remove_orphan_files: Options = False,
    sinks: Sinks = (),
    pool: str = "pyspark-statestore-maintenance",
    storage_options: Mapping[str, Any] | None = None,
    closed_after: datetime.timedelta | None = None,
    listener: Callable[[MaintenanceRun], object] | None = None,
) -> BackgroundMaintenance:
    """Keeps the checkpoints of all active queries of a session small, in the background.

    After each interval, it calls ``compact``, ``consolidate_index`` and, if you ask for it, ``remove_orphan_files`` of
    ``Checkpoint.maintenance`` for each active query with merged state. Spark jobs in a scheduler pool of their own
    rewrite the files; the driver does the rest. Then it calls ``Sink.compact`` for each of ``sinks``. What fails is
    logged and tried again after the next interval. The maintenance ends with the session, with the process, or with
    ``stop()``.

    Args:
        spark: The queries' session, a classic one. A second call for the same session ends the first maintenance.
        interval: The time before the first run, and from the end of a run to the start of the next one.
        compact: True, False, or the arguments of ``maintenance.compact``, such as ``{"max_space_amplification": 1.2}``.
        consolidate_index: True or False.
        remove_orphan_files: False, or the arguments of ``maintenance.remove_orphan_files``, which must include
            ``"dry_run": False``.
        sinks: File sinks to be compacted, too: paths or ``Sink`` objects; or a mapping from each to the arguments of
            ``Sink.compact``, such as ``{"hdfs://nn/t1": {"remove_after": timedelta(days=3)}}``, which also removes what
            was replaced longer than that ago.
        pool: The scheduler pool of the Spark jobs. Spark heeds it with ``spark.scheduler.mode=FAIR``.
        storage_options: Options of the fsspec file system of all checkpoints.
        closed_after: The queries' ``closedAfter``; the session's setting if not given.
        listener: Called with the report of each run, in the thread of the maintenance.

    Returns:
        The maintenance, which has the reports of its runs and can be stopped. As a context manager, it stops at the
        end.

    Raises:
        StateStoreFilesError: PSS_SPARK_NOT_RUNNING where the session is stopped or one of Spark Connect;
            PSS_INVALID_OPTION or PSS_UNKNOWN_OPTION for an argument.

    Example:
        >>> with maintain(spark, datetime.timedelta(minutes=5)) as maintenance:
        ...     query.awaitTermination()
    """
    if not isinstance(interval, datetime.timedelta) or interval <= datetime.timedelta(0):
        raise not_allowed("interval", interval, "a datetime.timedelta of more than 0")
    asked = {"compact": compact, "consolidate_index": consolidate_index, "remove_orphan_files": remove_orphan_files}
    verbs = {verb: _arguments(verb, options) for verb, options in asked.items() if options is not False}
    check_running(
        spark,
        why_not_connect="which knows neither the checkpoints of its queries nor a scheduler pool",
        action="Call maintain() in the driver of a classic session. With Spark Connect, call the methods of "
        "Checkpoint(path).maintenance from time to time",
    )
    maintenance = BackgroundMaintenance(
        ActiveQueries(
            spark,
            verbs,
            pool,
            job_group="pyspark-statestore maintenance",
            closed_after=_closed_after(spark) if closed_after is None else closed_after,
            storage_options=storage_options or {},
            sinks=_sinks(sinks, storage_options),
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
    """Maintenance in the background, which :func:`maintain` starts."""

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
        # A daemon thread never keeps a process from ending.
        self._thread = threading.Thread(target=self._work, name="pyspark-statestore-maintenance", daemon=True)

    @property
    def runs(self) -> tuple[MaintenanceRun, ...]:
        """The reports of the last hundred runs, the oldest first."""
        return tuple(self._runs)

    @property
    def last_run(self) -> MaintenanceRun | None:
        """The report of the last run, or None before the first."""
        return self._runs[-1] if self._runs else None

    @property
    def is_active(self) -> bool:
        """Whether a run is under way or more runs will follow."""
        return self._thread.is_alive()

    @property
    def job_group(self) -> str:
        """The job group of the Spark jobs."""
        return self._queries.job_group

    @property
    def pool(self) -> str:
        """The scheduler pool of the Spark jobs."""
        return self._queries.pool

    def __repr__(self) -> str:
        """Says whether it works, how often, and what the last run did."""
        state = "active" if self.is_active else "stopped"
        interval = rendering.duration(datetime.timedelta(seconds=self._interval_s))
        last = self.last_run
        if last is None:
            return f"<BackgroundMaintenance: {state}, every {interval}, no run yet>"
        failed = len(last.errors)
        done = f"{len(last.queries):,} {'query' if len(last.queries) == 1 else 'queries'}"
        done += f", {rendering.counted(len(last.sinks), 'sink')}" if last.sinks else ""
        return (
            f"<BackgroundMaintenance: {state}, every {interval}, run {last.number} ended at "
            f"{rendering.time(last.ended_at)} UTC: {done}, {rendering.counted(failed, 'error')}>"
        )

    def stop(self, timeout: float | None = None) -> bool:
        """Stops the maintenance and waits for the current step, such as the compaction of one checkpoint.

        Args:
            timeout: How many seconds to wait at most.

        Returns:
            Whether the maintenance has ended.
        """
        self._ending.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def __enter__(self) -> BackgroundMaintenance:
        """Returns this maintenance."""
        return self

    def __exit__(self, *error: object) -> None:
        """Stops the maintenance."""
        self.stop()

    def _start(self) -> None:
        atexit.register(self._ending.set)
        if not has_own_properties():
            _log.warning(
                "Maintenance has no scheduler pool of its own: PYSPARK_PIN_THREAD is false. What to do: leave it out, "
                "or expect jobs of queries and of maintenance to wait for each other"
            )
        self._thread.start()

    def _work(self) -> None:
        number = 0
        try:
            while self._wait(self._interval_s):
                while not _one_at_a_time.acquire(timeout=_POLL_S):
                    if self._is_over():
                        return
                number += 1
                try:
                    report = self._queries.run(number, self._is_over)
                finally:
                    _one_at_a_time.release()
                self._runs.append(report)
                self._report(report)
        finally:
            atexit.unregister(self._ending.set)
            for session in [key for key, one in _by_session.items() if one is self]:
                _by_session.pop(session, None)
            _log.debug("Maintenance has ended after %d runs", number)

    def _wait(self, seconds: float) -> bool:
        """Waits so long, and returns whether another run is due: not where the maintenance is over."""
        end = time.monotonic() + seconds
        while not self._is_over():
            left = end - time.monotonic()
            if left <= 0:
                return True
            self._ending.wait(min(left, _POLL_S))
        return False

    def _is_over(self) -> bool:
        # Once the main thread has ended, thread pools take no more work.
        return self._ending.is_set() or not threading.main_thread().is_alive() or not is_running(self._queries.spark)

    def _report(self, report: MaintenanceRun) -> None:
        if self._listener is None:
            return
        try:
            self._listener(report)
        except Exception:
            _log.warning("The listener of the maintenance failed. What to do: mend the listener", exc_info=True)


@dataclass(frozen=True)
class MaintainedQuery:
    """What a run did for one query.

    Attributes:
        id: Spark's id of the query, which is the same after a restart.
        name: The name given with ``queryName``, or None.
        location: The checkpoint's URL; empty where the query did not tell it.
        results: The results of ``compact``, ``consolidate_index`` and ``remove_orphan_files`` by these names, as far as
            the run came.
        skipped: Why there was nothing to do; empty otherwise.
        error: The error that ended the work on this query, or None.
    """

    id: str
    name: str | None
    location: str = ""
    results: Mapping[str, Any] = field(default_factory=dict)
    skipped: str = ""
    error: Exception | None = None


@dataclass(frozen=True)
class MaintainedSink:
    """What a run did for one file sink.

    Attributes:
        location: The sink's URL.
        result: What ``Sink.compact`` returned; None where it failed.
        error: Its error, or None.
    """

    location: str
    result: SinkCompaction | None = None
    error: Exception | None = None


@dataclass(frozen=True)
class MaintenanceRun:
    """The report of a run.

    Attributes:
        number: The number of the run, from 1 on.
        started_at: When it started, in UTC.
        ended_at: When it ended, in UTC.
        queries: What it did for each query that was active.
        error: The error that kept it from finding out which queries are active, or None.
        sinks: What it did for each file sink.
    """

    number: int
    started_at: datetime.datetime
    ended_at: datetime.datetime
    queries: tuple[MaintainedQuery, ...]
    error: Exception | None = None
    sinks: tuple[MaintainedSink, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether anything went wrong, for which see :attr:`errors`."""
        return bool(self.errors)

    @property
    def errors(self) -> tuple[Exception, ...]:
        """All that went wrong: :attr:`error`, and the errors of :attr:`queries` and :attr:`sinks`."""
        found = [self.error, *(query.error for query in self.queries), *(sink.error for sink in self.sinks)]
        return tuple(error for error in found if error is not None)


@dataclass(frozen=True)
class ActiveQueries:
    """The active queries of a session, and how they are maintained.

    Attributes:
        spark: The session, a classic one.
        verbs: The methods of ``Checkpoint.maintenance`` to call, by name and in this order, with their arguments.
        pool: The scheduler pool of the Spark jobs.
        job_group: The job group of the Spark jobs.
        closed_after: The queries' ``closedAfter``.
        storage_options: Options of the fsspec file system.
        sinks: File sinks, each with the arguments of ``Sink.compact``.
    """

    spark: SparkSession
    verbs: Mapping[str, Mapping[str, Any]]
    pool: str
    job_group: str
    closed_after: datetime.timedelta
    storage_options: Mapping[str, Any] = field(repr=False)  # it may hold passwords
    sinks: tuple[tuple[Sink, Mapping[str, Any]], ...] = ()

    def run(self, number: int, is_over: Callable[[], bool]) -> MaintenanceRun:
        """Maintains the checkpoints of all queries that are active now, and the sinks, one after the other.

        Args:
            number: The number of the run.
            is_over: Called before each step; the run ends where it returns True.
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
            _log_failure("Spark did not say which queries are active", error, is_over())
        sinks: list[MaintainedSink] = []
        for sink, options in self.sinks:
            if is_over():
                break
            sinks.append(self._compacted(sink, options, is_over))
        return MaintenanceRun(number, started_at, _now(), tuple(done), failure, tuple(sinks))

    def _compacted(self, sink: Sink, options: Mapping[str, Any], is_over: Callable[[], bool]) -> MaintainedSink:
        try:
            with self._jobs(f"compact {sink.url}"):
                result = sink.compact(**options, spark=self.spark)
        except Exception as error:
            _log_failure(f"Maintenance of {sink.url} failed", error, is_over())
            return MaintainedSink(sink.url, error=error)
        _log.info("compact %s: %s", sink.url, result)
        return MaintainedSink(sink.url, result)

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
            _log_failure(f"Maintenance of {location or f'query {done.id}'} failed", error, is_over())
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
        """Puts the Spark jobs that start meanwhile into the pool, and describes them in Spark's UI."""
        if not has_own_properties():
            yield
            return
        context = self.spark.sparkContext
        context.setJobGroup(self.job_group, description)
        context.setLocalProperty(POOL_KEY, self.pool)
        yield


def _arguments(verb: str, options: Options) -> Mapping[str, Any]:
    """Checks the arguments of a verb now: later, mistakes would show in the log only."""
    given = {} if options is True else options
    if not isinstance(given, Mapping):
        raise not_allowed(verb, options, "True, False, or arguments by name")
    _check_known(verb, given, getattr(Maintenance, verb))
    if verb == "remove_orphan_files" and given.get("dry_run") is not False:
        allowed = "False, or arguments that include 'dry_run': False, since nobody would see what a dry run finds"
        raise not_allowed(verb, options, allowed)
    return dict(given)


def _check_known(verb: str, given: Mapping[str, Any], method: Callable[..., Any]) -> None:
    known = [name for name in inspect.signature(method).parameters if name not in ("self", "spark", "callback")]
    for name in given:
        if name not in known:
            hint = f"The arguments of {verb} are: {', '.join(known)}."
            raise StateStoreFilesError("PSS_UNKNOWN_OPTION", {"key": name, "hint": hint})


def _sinks(sinks: Sinks, storage_options: Mapping[str, Any] | None) -> tuple[tuple[Sink, Mapping[str, Any]], ...]:
    """Checks the sinks and their arguments now, and a dry run, of which nobody would see what it finds."""
    if isinstance(sinks, (str, os.PathLike, Sink)):
        raise not_allowed("sinks", sinks, "a list of paths, or a mapping from paths to arguments of Sink.compact")
    found = []
    for one in sinks:
        given = sinks[one] if isinstance(sinks, Mapping) else {}
        if not isinstance(given, Mapping) or given.get("dry_run"):
            raise not_allowed("sinks", given, "arguments of Sink.compact by name, without 'dry_run'")
        _check_known("Sink.compact", given, Sink.compact)
        if given.get("remove_after") is not None:
            check_age("remove_after", given["remove_after"], force=False)
        found.append((one if isinstance(one, Sink) else Sink(one, storage_options), dict(given)))
    return tuple(found)


def _closed_after(spark: SparkSession) -> datetime.timedelta:
    option = OPTIONS["closedAfter"]
    return datetime.timedelta(milliseconds=int(option.parse(spark.conf.get(option.key, option.default))))


def has_own_properties() -> bool:
    """Whether each Python thread has its own properties for Spark jobs. It has not with PYSPARK_PIN_THREAD=false."""
    from py4j.clientserver import ClientServer
    from pyspark import SparkContext

    return isinstance(SparkContext._gateway, ClientServer)


def _log_failure(what: str, error: Exception, is_over: bool) -> None:
    # While the session or the process ends, anything may fail.
    level = logging.DEBUG if is_over else logging.WARNING
    said = "%s: %s What to do: if it goes on, mend the cause; the next round tries again"
    _log.log(level, said, what, error, exc_info=None if isinstance(error, StateStoreFilesError) else error)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)
