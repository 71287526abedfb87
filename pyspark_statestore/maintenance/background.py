"""``maintain``: maintenance in the background of a PySpark driver."""

from __future__ import annotations

import atexit
import datetime
import inspect
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark_statestore.classic import check_running, is_running
from pyspark_statestore.conf import OPTIONS
from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.maintenance.active_queries import ActiveQueries, MaintenanceRun, has_own_properties
from pyspark_statestore.maintenance.maintenance import Maintenance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

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
