"""Entries of a sink's list that no batch of the query writes: for repartitionings, and for batches before a fork.

Spark's list has an entry for each batch. Readers, and the query when it repeats the list, fail where one is missing
(Spark: ``CompactibleFileStreamLog.allFiles`` and ``compact``; ``BATCH_METADATA_NOT_FOUND``). Two things leave holes:

* **A repartitioning** is a batch in the query's logs that writes nothing to a sink. Its entry is empty; where Spark
  would repeat the list with that batch, it is a ``.compact`` that repeats what the list names, and names nothing new.
  The query's driver writes it with the next batch's entry (``ListHoles`` of the jar). What is here mends the list of a
  query that has gone on without the package.
* **A query that goes on from a fork** begins with a batch other than 0. Its own sink gets empty entries for the batches
  before: with a ``.compact``, so that they are few.

An entry is written only before one that there is. After the last one it would make a query skip its own batch of that
number, whose rows would be lost: the list of another query may have come as far, and a repartitioning may be taken
back. And it is written only where the query's own logs show that the batch is a repartitioning, never for an entry that
was lost. It never takes the place of a file. Nothing depends on the query being stopped: it writes no entry of that
number.

Which batches repeat the list, Spark finds out by the ``.compact`` that there are, and by the query's setting where
there is one at most. That setting is nowhere on the disk, so it has to be given then.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_statestore.errors import StateStoreFilesError, not_allowed
from pyspark_statestore.log.repartitionings import BatchLogs
from pyspark_statestore.log.scan import retry_if_gone
from pyspark_statestore.sink.file_list import LIST, ListPart, compact_batches, read_list, start_of, text_of
from pyspark_statestore.sink.notes import Intent
from pyspark_statestore.storage.changes import create_new, delete
from pyspark_statestore.storage.directory import Directory
from pyspark_statestore.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPACT_INTERVAL = 10
"""Spark's default: so many batches after another one repeats the list."""


_INTERVAL_KEY = "spark.sql.streaming.fileSink.log.compactInterval"


def interval_of_session(spark: SparkSession | None = None) -> int:
    """The ``compactInterval`` of a session, or of the active one; Spark's default without one."""
    if spark is None and "pyspark.sql" in sys.modules:
        from pyspark.sql import SparkSession

        spark = SparkSession.getActiveSession()
    return COMPACT_INTERVAL if spark is None else int(str(spark.conf.get(_INTERVAL_KEY, str(COMPACT_INTERVAL))))


def check_interval(interval: object) -> None:
    """Refuses what cannot be Spark's ``compactInterval``.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION.
    """
    if not isinstance(interval, int) or isinstance(interval, bool) or interval < 1:
        raise not_allowed("compact_interval", interval, "a whole number of at least 1")


def interval_of(compacts: Collection[int], default: int) -> int:
    """After how many batches the list is repeated, as Spark finds it out (``CompactibleFileStreamLog``).

    Args:
        compacts: The batches that have repeated it.
        default: The query's setting.
    """
    newest = sorted(compacts, reverse=True)[:2]
    if len(newest) == 2:
        return newest[0] - newest[1]
    if not newest or newest[0] + 1 == default:
        return default
    count = newest[0] + 1
    if count > default and default < count // 2:
        divisors = (each for each in range(default, count // 2 + 1) if count % each == 0)
        return next(divisors, count)
    return count


def is_compact(batch: int, interval: int) -> bool:
    """Whether a batch repeats the list."""
    return (batch + 1) % interval == 0


def name_of(batch: int, interval: int) -> str:
    """The file of the list for a batch."""
    return f"{LIST}/{batch}.compact" if is_compact(batch, interval) else f"{LIST}/{batch}"


@dataclass(frozen=True)
class Holes:
    """What is missing in a sink's list, by the logs of its query.

    Attributes:
        sink: The sink's directory.
        parts: The list.
        interval: After how many batches it is repeated.
        missing: The batches to be mended, in ascending order.
        logs: The query's logs.
    """

    sink: Directory = field(repr=False)
    parts: tuple[ListPart, ...] = field(repr=False)
    interval: int
    missing: tuple[int, ...]
    logs: BatchLogs

    @classmethod
    def found(cls, sink: Directory, checkpoint: Directory, default_interval: int) -> Holes:
        """Looks for them.

        Raises:
            StateStoreFilesError: PSS_CANNOT_REPAIR_SINK where something else is missing, or the sink is another
                query's; PSS_NOT_A_SINK, PSS_DAMAGED_SINK_LIST, or something cannot be read.
        """
        # In this order: a query that runs enters a batch, adds it to the list, and commits it.
        before = retry_if_gone(checkpoint, lambda: BatchLogs.read(checkpoint))
        parts = tuple(read_list(sink))
        logs = retry_if_gone(checkpoint, lambda: BatchLogs.read(checkpoint))
        if logs.entered < 0 or before.committed < 0:
            raise cannot(sink, f"{checkpoint.location.url} is no checkpoint of a query that has committed a batch")
        listed = [part.batch_id for part in parts]
        missing = tuple(
            batch for batch in before.without_output if batch not in listed and start_of(parts) < batch < listed[-1]
        )
        _check_same_query(sink, checkpoint, listed[-1], before, logs)
        _check_explained(sink, parts, missing, logs)
        interval = interval_of(compact_batches(sink), default_interval)
        _check_interval(sink, parts, interval)
        return cls(sink, parts, interval, missing, logs)

    def mend(self, intent: Intent) -> None:
        """Writes the entries that are missing.

        Raises:
            StateStoreFilesError: Somebody else has changed the list, or an entry cannot be written.
        """
        for batch in self.missing:
            lines = self.lines_before(batch) if is_compact(batch, self.interval) else []
            intent.replaces([])
            create_new(self.sink, name_of(batch, self.interval), text_of(lines).encode())

    def lines_before(self, batch: int) -> list[str]:
        """The lines of all entries before a batch. Those that are mended themselves have none, or repeat these."""
        return [line for part in self.parts if part.batch_id < batch for line in lines_of(part)]


def lines_of(part: ListPart) -> list[str]:
    """The lines of a file of the list."""
    return [entry.line for entry in part.entries] + [manifest.line for manifest in part.manifests]


def _check_same_query(sink: Directory, checkpoint: Directory, newest: int, before: BatchLogs, logs: BatchLogs) -> None:
    # Repartitionings after which the query has not gone on have no entry yet.
    if before.first_in_row(before.committed + 1) - 1 <= newest <= logs.entered:
        return
    reason = (
        f"its last batch is {newest}, and the last one of the query at {checkpoint.location.url} is {logs.committed}: "
        "it is not the sink of this query"
    )
    raise cannot(sink, reason)


def _check_explained(sink: Directory, parts: Sequence[ListPart], mended: Collection[int], logs: BatchLogs) -> None:
    """Makes sure that nothing is missing but what is mended. A stray number may seem to be a batch of any size."""
    before = start_of(parts)
    for batch in sorted({part.batch_id for part in parts if part.batch_id > before} | set(mended)):
        if batch - before > 1:
            lost = before + 1
            why = "the query's logs do not show that it is a repartitioning"
            if lost < logs.first:
                why = (
                    f"the query's logs begin with batch {logs.first}, so they do not say whether it is a repartitioning"
                )
            where = sink.location.display(f"{LIST}/{lost}")
            raise cannot(sink, f"{where} is missing, and {why}. Restore it from a copy")
        before = batch


def _check_interval(sink: Directory, parts: Sequence[ListPart], interval: int) -> None:
    wrong = next((part for part in parts if part.is_compact is not is_compact(part.batch_id, interval)), None)
    if wrong is not None:
        reason = (
            f"its list cannot be one that is repeated after {interval} batches, as {wrong.info.name} shows. Give the "
            f"query's {_INTERVAL_KEY} as compact_interval"
        )
        raise cannot(sink, reason)


def cannot(sink: Directory, reason: str) -> StateStoreFilesError:
    """PSS_CANNOT_REPAIR_SINK."""
    return StateStoreFilesError("PSS_CANNOT_REPAIR_SINK", {"path": sink.location.display(), "reason": reason})


def mend(sink: Directory, checkpoint: Directory, default_interval: int, *, dry_run: bool = False) -> list[str]:
    """Writes the entries before others that repartitionings have left out; doing it again changes nothing.

    Returns:
        The entries' URLs.

    Raises:
        StateStoreFilesError: As :meth:`Holes.found`; PSS_CANNOT_REPAIR_SINK where somebody else is about to change the
            list, or the sink cannot be written.
    """
    check_interval(default_interval)
    holes = Holes.found(sink, checkpoint, default_interval)
    if dry_run or not holes.missing:
        return _urls(holes)

    try:
        with Intent(sink, name_of(holes.missing[0], holes.interval).rpartition("/")[2]) as intent:
            now = Holes.found(sink, checkpoint, default_interval)
            now.mend(intent)
            return _urls(now)
    except StateStoreFilesError as error:
        if error.getErrorClass() != "PSS_SINK_REWRITE_FAILED":
            raise
        raise cannot(sink, error.getMessageParameters()["reason"]) from error


def _urls(holes: Holes) -> list[str]:
    return [holes.sink.location.display(name_of(batch, holes.interval)) for batch in holes.missing]


@dataclass(frozen=True)
class SinksOfFork:
    """The sinks that a fork's query writes to, instead of those of its source's query.

    Attributes:
        sinks: Of each sink of the source's query, the directory that takes its place.
        default_interval: The query's ``compactInterval``.
    """

    sinks: tuple[tuple[Directory, Directory], ...]
    default_interval: int = COMPACT_INTERVAL

    def check(self, source: Directory, batch: int, fork: Location) -> None:
        """Finds every obstacle to :meth:`begin` that can be found before the fork is made.

        Args:
            source: The source's checkpoint.
            batch: The last batch of the fork, at least.
            fork: The fork's checkpoint.

        Raises:
            StateStoreFilesError: PSS_NOT_A_SINK, PSS_DAMAGED_SINK_LIST, PSS_NOT_EMPTY, PSS_BAD_PATH, or something
                cannot be read.
        """
        check_interval(self.default_interval)
        taken = [fork, source.location]
        logs = retry_if_gone(source, lambda: BatchLogs.read(source))
        last = logs.first_in_row(batch + 1) - 1
        for old, target in self.sinks:
            newest = read_list(old)[-1].batch_id
            if newest < last:
                reason = f"its last batch is {newest}, so it is no sink of a query whose last batch is {last} or later"
                raise StateStoreFilesError("PSS_BAD_PATH", {"path": old.location.url, "reason": reason})
            for other in (*taken, old.location):
                if _overlap(target.location, other):
                    reason = f"the fork's sink is, contains or lies in {other.url}"
                    raise StateStoreFilesError("PSS_BAD_PATH", {"path": target.location.url, "reason": reason})
            taken.append(target.location)
            _check_empty(target)

    def begin(self, fork: Directory) -> None:
        """Writes the lists with which the fork's query can go on. If that fails, they are gone again.

        Args:
            fork: The fork's checkpoint.

        Raises:
            StateStoreFilesError: As :meth:`check`, or something cannot be written.
        """
        logs = retry_if_gone(fork, lambda: BatchLogs.read(fork))
        # Repartitionings with which the fork's batches end can be taken back.
        last = logs.first_in_row(logs.committed + 1) - 1
        begun: list[Directory] = []
        try:
            for source, target in self.sinks:
                _check_empty(target)
                begun.append(target)
                interval = interval_of(compact_batches(source), self.default_interval)
                for name in names_until(last, interval):
                    create_new(target, name, text_of([]).encode())
        except BaseException:
            for target in begun:
                _remove(target)
            raise


def _remove(target: Directory) -> None:
    """Takes the list of a sink that was begun away again, as far as possible."""
    for info in target.find(LIST):
        with suppress(Exception):
            delete(target, f"{LIST}/{info.name}")
    with suppress(Exception):
        if not target.is_flat and not target.find(""):
            target.location.fs.rm(target.location.below(LIST), recursive=True)


def names_until(last: int, interval: int) -> list[str]:
    """The fewest entries with which a list that names nothing goes on after a batch.

    Two that repeat the list say how many batches are between them, whatever the query's setting.
    """
    newest = (last + 1) // interval * interval - 1
    compacts = [batch for batch in (newest - interval, newest) if batch >= 0]
    return [name_of(batch, interval) for batch in [*compacts, *range(newest + 1, last + 1)]]


def _check_empty(target: Directory) -> None:
    if target.is_file():
        raise StateStoreFilesError("PSS_BAD_PATH", {"path": target.location.url, "reason": "it is a file"})
    if names := sorted(target.names()):
        raise _not_empty(target, names)


def _not_empty(target: Directory, names: Sequence[str]) -> StateStoreFilesError:
    return StateStoreFilesError("PSS_NOT_EMPTY", {"path": target.location.url, "found": ", ".join(names[:5])})


def _overlap(one: Location, other: Location) -> bool:
    first, second = f"{one.real}/", f"{other.real}/"
    return one.shares_file_system(other) and (first.startswith(second) or second.startswith(first))
