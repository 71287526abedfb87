"""Whether the query of a checkpoint is stopped: the one rule of all verbs that need it.

A query that has ended says so in its checkpoint, if its session merges state (:mod:`~pyspark_statestore.log.ended`).
One that was killed does not, nor does stock Spark: what a stopped query leaves there, one that waits for data has, too.
Then either this process knows, since the query ran here and has ended, and nobody has gone on since; or nothing was
written for ``closedAfter``.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyspark_statestore import rendering
from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.ended import Ended, running
from pyspark_statestore.log.entries import time_of
from pyspark_statestore.log.merged_log import Clocks, LogSnapshot, MergedLog, ask_file_system
from pyspark_statestore.log.scan import Scan, our_files
from pyspark_statestore.log.spark_logs import COMMITS, OFFSETS, content_of, entries
from pyspark_statestore.parsing import parse_object
from pyspark_statestore.session.queries import active_run, ended_run, own_runs
from pyspark_statestore.storage import Directory, Location
from pyspark_statestore.storage.directory import FileInfo

_SEALED_AFTER = datetime.timedelta(hours=1)
"""The shim seals a merged file after so long at most."""

_SAME_CLOCK = datetime.timedelta(seconds=1)
"""To ask a file system for its time takes a moment: less than this is no difference of clocks."""


def require_stopped(
    log: MergedLog,
    snapshot: LogSnapshot,
    plain: Iterable[FileInfo],
    action: str,
    *,
    query: Any = None,
    ours: Collection[str] = (),
) -> Ended | None:
    """Refuses to go on where the query seems to be running.

    A query's thread writes the logs and has ended when the query is not active any more. What its tasks and the
    maintenance of its stores still write are files of versions that are there, which the verbs do not touch.

    Args:
        log: This process's work on the checkpoint.
        snapshot: The checkpoint's merged files.
        plain: The checkpoint's other state files.
        action: What needs a stopped query, for the message.
        query: The ``StreamingQuery`` that the checkpoint was found by; None without one.
        ours: Files of the query's logs that this package wrote last, such as ``offsets/7``: no sign of a query.

    Returns:
        What the query itself has said of its end, for those that rewrite its state; None where it has said nothing.

    Raises:
        StateStoreFilesError: PSS_QUERY_RUNNING, or the checkpoint cannot be read.
    """
    seen = _Seen(log.directory, snapshot, tuple(plain), frozenset(ours))
    run = _active_run(log.directory, query)
    if run is not None:
        override = "stop it, or wait for its last batch, and try again"
        raise _running(log, action, f"its run {run} is active in this session", override)
    said = Ended.found(log.directory, snapshot.scan, seen.plain, _id_of(log.directory), seen.ours)
    if said is not None:
        return said
    known = any(end.was_last(log, seen) for end in _known_ends(log.directory, query))
    if known and not _others_running(log.directory):
        return None
    _require_silence(log, seen, Clocks(log.clock()), action)
    if not log.dry_run:
        _require_silence(log, seen, ask_file_system(log), action)
    return None


def said_end(directory: Directory, scan: Scan, plain: Iterable[FileInfo]) -> datetime.datetime | None:
    """When the query ended, by what it has said itself and nobody has gone on since: for those who only look.

    Args:
        directory: The checkpoint's directory.
        scan: Its merged files.
        plain: Its other state files.

    Raises:
        StateStoreFilesError: Something cannot be read.
    """
    said = Ended.found(directory, scan, plain, _id_of(directory), ())
    return None if said is None else datetime.datetime.fromtimestamp(said.end.ended_ms / 1000, datetime.timezone.utc)


def require_still_stopped(log: MergedLog, said: Ended | None, action: str) -> None:
    """Refuses to go on where a run has begun since :func:`require_stopped` has answered; call it before any change.

    Args:
        log: This process's work on the checkpoint.
        said: What :func:`require_stopped` has returned. Without it, nothing tells but what the run writes.
        action: What needs a stopped query, for the message.

    Raises:
        StateStoreFilesError: PSS_QUERY_RUNNING.
    """
    if said is not None and not said.stands(log.directory):
        raise _running(log, action, "a run of it has begun meanwhile", "try again")


def _others_running(directory: Directory) -> list[FileInfo]:
    """What runs in other processes have left that have not said that they ended, perhaps before their first batch."""
    begun = running(our_files(directory))
    own = own_runs() if begun else ()
    return [info for info in begun if info.name not in own]


@dataclass(frozen=True)
class _Seen:
    """What is in a checkpoint that a query writes."""

    directory: Directory
    snapshot: LogSnapshot
    plain: tuple[FileInfo, ...]
    ours: frozenset[str]

    def entries(self, spark_log: str) -> dict[int, FileInfo]:
        """The files of a log of the query, except those that this package wrote."""
        found = entries(self.directory, spark_log)
        return {batch: info for batch, info in found.items() if f"{spark_log}/{info.name}" not in self.ours}


def _running(log: MergedLog, action: str, reason: str, override: str) -> StateStoreFilesError:
    parameters = {"action": action, "path": log.directory.location.url, "reason": reason, "override": override}
    return StateStoreFilesError("PSS_QUERY_RUNNING", parameters)


# What this process knows.


@dataclass(frozen=True)
class _End:
    """The end of a query's run in this process.

    Attributes:
        last: The last batch that it has finished.
        at: When it ended, where that is known.
        app_id: Spark's id of this process's application, where ``at`` is known.
        planned: The batch that it had begun then, and the time in its entry of the offset log, where that is known.
    """

    last: int
    at: datetime.datetime | None = None
    app_id: str | None = None
    planned: tuple[int, int] | None = None

    def was_last(self, log: MergedLog, seen: _Seen) -> bool:
        """Whether nobody has gone on since.

        A process that has written nothing yet is not noticed, as where only silence tells.
        """
        commits = seen.entries(COMMITS)
        # A repartitioning, which this package has entered and committed, is no batch of the query.
        offsets = {
            batch: info
            for batch, info in entries(seen.directory, OFFSETS).items()
            if f"{COMMITS}/{batch}" not in seen.ours
        }
        newest = max(offsets, default=-1)
        if max(commits, default=-1) != self.last or newest > self.last + 1:
            return False
        return newest <= self.last or self._has_begun(log, seen, offsets[newest])

    def _has_begun(self, log: MergedLog, seen: _Seen, entry: FileInfo) -> bool:
        """Whether nobody but this run has worked on the batch that is begun and not committed.

        The entry may be of the run, which was stopped or failed in that batch; of another process; or of the run, and
        another process does the batch again. So nothing may be newer than the end.
        """
        is_rewritten = f"{OFFSETS}/{entry.name}" in seen.ours
        written = [info.modified for batch, info in seen.entries(OFFSETS).items() if batch != int(entry.name)]
        written += [info.modified for info in (*seen.entries(COMMITS).values(), *seen.plain)]
        scan = seen.snapshot.scan
        for name, info in scan.infos.items():
            header = scan.files[name].header if name in scan.files else None
            # This process still seals and cleans its own files.
            if self.app_id is None or header is None or header.meta.get("app_id") != self.app_id:
                written.append(info.modified)
        at, late = self.at, datetime.timedelta(0)
        if at is not None:
            if not is_rewritten:
                written.append(entry.modified)
            now = Clocks(log.clock()) if log.dry_run else ask_file_system(log)
            slow = late if now.there is None else now.here - now.there
            late = slow if slow > _SAME_CLOCK else late
        elif self.planned == (int(entry.name), _time_in(seen.directory, entry)) and not is_rewritten:
            # What is written for the batch is newer than its entry, by the same clock.
            at = entry.modified
        return at is not None and all(each is not None and each + late <= at for each in written)


def _known_ends(directory: Directory, query: Any) -> Iterator[_End]:
    """What is known of the end of the checkpoint's query in this process."""
    query_id = _id_of(directory)
    if query_id is None:
        return
    ended = ended_run(query_id, _is_at(directory))
    if query is not None and str(query.id) == query_id:
        progress, planned = query.lastProgress, _planned_by(query)
        last = None
        if progress:
            # A trigger without data reports the next batch. One that was planned then made no progress.
            last = int(progress["batchId"]) - ("addBatch" not in progress["durationMs"])
        elif planned is not None:
            last = planned[0] - 1  # it failed in its first batch
        if last is not None:
            yield _End(last, planned=planned)
            if ended is not None:
                yield _End(last, ended.at, ended.app_id)
    if ended is not None:
        yield _End(ended.last_batch, ended.at, ended.app_id)


def _active_run(directory: Directory, query: Any) -> str | None:
    """The run of the checkpoint's query that is active in this process; None without one."""
    if query is not None and query.isActive:
        return str(query.runId)
    query_id = _id_of(directory) if query is None else str(query.id)
    if query_id is None:
        return None
    session = None if query is None else query._jsq.sparkSession()
    return active_run(query_id, _is_at(directory), session)


def _planned_by(query: Any) -> tuple[int, int] | None:
    """The batch that a query has planned last, with the time in its entry; None where Spark does not say."""
    with suppress(Exception):  # what Spark keeps to itself
        execution = query._jsq.streamingQuery().lastExecution()
        return int(execution.currentBatchId()), int(execution.offsetSeqMetadata().batchTimestampMs())
    return None


def _time_in(directory: Directory, entry: FileInfo) -> int | None:
    try:
        return int(content_of(directory.read(f"{OFFSETS}/{entry.name}", entry.size))["batchTimestampMs"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _is_at(directory: Directory) -> Callable[[str], bool]:
    def is_at(checkpoint: str) -> bool:
        try:
            there = Location.of(checkpoint)
        except StateStoreFilesError:  # such as a file system that needs options
            return False
        here = directory.location
        return there.url.rstrip("/") == here.url.rstrip("/") or (
            there.shares_file_system(here) and here.is_at(there.absolute)
        )

    return is_at


def _id_of(directory: Directory) -> str | None:
    """The id of the query that a checkpoint belongs to; None where it has none that can be read."""
    try:
        found = [info for info in directory.files("") if info.name == "metadata"]
        if not found:
            return None
        return str(parse_object(directory.read("metadata", found[0].size).decode())["id"])
    except (FileNotFoundError, ValueError, KeyError):
        return None


# What silence tells.


def _require_silence(log: MergedLog, seen: _Seen, now: Clocks, action: str) -> None:
    """Refuses to go on where anything in the checkpoint is so new that a query may have written it just now."""
    signs = list(_signs(log, seen, now))
    if not signs:
        return
    # What takes longest says when all of them will have gone.
    reason, left = max(signs, key=lambda sign: sign[1])
    at = now.here + left
    override = (
        f"it has not said so, as a killed one does not, and only silence tells: wait {rendering.duration(left)}, until "
        f"{at:%H:%M:%S} UTC. The session that ran it knows when it has ended, and need not wait. Where you know that "
        "no process runs it, say so with force=True (--force)"
    )
    raise _running(log, action, reason, override)


def _signs(log: MergedLog, seen: _Seen, now: Clocks) -> Iterator[tuple[str, datetime.timedelta]]:
    """What a running query may have written lately, each with the time after which it will not count any more."""

    def left(infos: Iterable[FileInfo], within: datetime.timedelta) -> datetime.timedelta:
        ages = [now.age(info.modified) for info in infos]
        return within - min(ages, default=within)

    nothing = datetime.timedelta(0)
    for spark_log in (COMMITS, OFFSETS):
        if (wait := left(seen.entries(spark_log).values(), log.closed_after)) > nothing:
            yield f"a file in {spark_log} was written in the last {rendering.duration(log.closed_after)}", wait
    begun = running(our_files(log.directory))
    if (wait := left(begun, log.closed_after)) > nothing:
        yield f"a run began in the last {rendering.duration(log.closed_after)} and has not said that it ended", wait
    # HDFS shows the time of its creation as that of an open file's last change.
    within = log.closed_after + (_SEALED_AFTER if log.directory.lists_old_lengths else nothing)
    scan = seen.snapshot.scan
    for name, file in scan.files.items():
        if not file.sealed and (wait := left([scan.infos[name]], within)) > nothing:
            yield f"{name} is not sealed and was changed in the last {rendering.duration(within)}", wait
    newest = time_of(seen.snapshot.highest_stamp)
    if (wait := log.closed_after - (now.here - newest)) > nothing:
        yield f"the newest segment was written at {newest:%Y-%m-%d %H:%M:%S} UTC", wait
    if (wait := left(seen.plain, log.closed_after)) > nothing:
        yield f"a state file was written in the last {rendering.duration(log.closed_after)}", wait
