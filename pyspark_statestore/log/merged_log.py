"""One process's work on the merged files of one checkpoint: snapshots, new files, and the clocks behind both.

A snapshot is safe to act on because it is complete: the index of each file was read from the file itself, after a
listing, and one unreadable file ends it (rule 8). Maintenance adds no entries of its own: copies keep their keys, and
tombstones name what they kill. So no clock has to be right for what is read (rule 3). Where time decides whether a
file is closed or a marker has expired, two clocks have to agree, this process's and the file system's, and the one
that says less counts (docs/guarantees.md, "What if a clock is wrong, or steps?").
"""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

from fsspec.callbacks import Callback

from pyspark_statestore._version import __version__
from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format import MergedFile, MergedFileWriter, file_name
from pyspark_statestore.format.layout import META_WHOLE
from pyspark_statestore.log import FileState, closed_tombstones, is_closed, is_expired
from pyspark_statestore.log.entries import CLOCK_BITS
from pyspark_statestore.log.pins import ORIGIN_SUFFIX, is_own_pin, is_pin
from pyspark_statestore.log.scan import INDEX_SUFFIX, MERGED, Scan, retry_if_gone, scan
from pyspark_statestore.log.state_files import STATE
from pyspark_statestore.storage import Directory
from pyspark_statestore.storage.changes import file_system_time, is_temporary, publish

TARGET_FILE_SIZE = 128 << 20
"""Bytes of the files that maintenance writes, unless it is told otherwise."""


ABANDONED_AFTER = datetime.timedelta(days=1)
"""How old an unsealed file has to be to count as closed; as in the shim. Its process seals it after an hour at most."""


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def _rests_on_references(name: str) -> bool:
    """Whether a file of this name says that there is a reference file, or was: its pins are here, or elsewhere."""
    return is_own_pin(name) or name.endswith(ORIGIN_SUFFIX)


def _stamp(file: MergedFile) -> int:
    return max((group.trailer.group_stamp for group in file.groups), default=0)


@dataclass(frozen=True)
class LogSnapshot:
    """What was in the merged files at one moment, and what the rules need to know of them.

    Attributes:
        scan: The indexes of all merged files, each read from the file itself.
        states: What :mod:`pyspark_statestore.log.rules` needs to know of each file, by name.
        expired: Names of relocation markers that nobody waits for any more, of empty pins whose forks were never made,
            and of temporary files that their writers left.
        old_pins: Names of the checkpoint's own pins that are as old: what they were made for is in ``scan``.
    """

    scan: Scan
    states: dict[str, FileState]
    expired: frozenset[str]
    old_pins: frozenset[str] = frozenset()

    @property
    def relocation_markers(self) -> frozenset[str]:
        """The relocation markers that count: copies of their relocations may still turn up."""
        return self.scan.relocation_markers - self.expired

    @property
    def closed_tombstones(self) -> dict[str, int]:
        """The number of tombstones in each closed file, by name."""
        return closed_tombstones(self.scan.resolution, self.states)

    @property
    def highest_stamp(self) -> int:
        """The highest stamp in any file; files that are written from now on repeat it (rule 3)."""
        return max((state.stamp for state in self.states.values()), default=0)

    @property
    def plain(self) -> bool:
        """Whether the checkpoint may have state files that are not merged."""
        return self.scan.may_have_plain


@dataclass
class MergedLog:
    """One process's work on one checkpoint.

    Attributes:
        directory: The checkpoint's directory.
        closed_after: The query's ``closedAfter``. Relocations begin no copy after half of it.
        abandoned_after: How old an unsealed file has to be, by its stamps and by its modification time, to count as
            closed.
        clock: Returns the time in UTC.
        dry_run: Whether nothing may be written, not even to ask the file system for the time.
        writer: The id under which this process writes here, a random number of 63 bits.
    """

    directory: Directory
    closed_after: datetime.timedelta
    abandoned_after: datetime.timedelta = ABANDONED_AFTER
    clock: Callable[[], datetime.datetime] = _now
    dry_run: bool = False
    writer: int = field(default_factory=lambda: secrets.randbits(63))
    _time_there: datetime.datetime | None = field(default=None, repr=False)
    _accounted_for: set[str] = field(default_factory=set, repr=False)
    _known: Mapping[str, MergedFile] = field(default_factory=dict, repr=False)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1), repr=False)

    def __reduce__(self) -> tuple[type[MergedLog], tuple[object, ...]]:
        # A copy that travels to a task gets an id of its own there: no two processes write under the same id.
        return type(self), (self.directory, self.closed_after, self.abandoned_after, self.clock, self.dry_run)

    @property
    def now_ms(self) -> int:
        """The time by this process's clock, in Unix milliseconds."""
        return int(self.clock().timestamp() * 1000)

    def snapshot(self, callback: Callback | None = None) -> LogSnapshot:
        """Lists the merged files and reads all of their indexes; sealed files only when it sees them first.

        Args:
            callback: Gets the number of files, and one more for each file that was read.

        Raises:
            StateStoreFilesError: A file cannot be read, so that nothing may be deleted (rule 8); there is no checkpoint
                (PSS_NOT_A_CHECKPOINT); or its state is being exported, or was (PSS_EXPORTED).
        """
        found = retry_if_gone(self.directory, lambda: scan(self.directory, known=self._known, callback=callback))
        self._known = found.files
        if found.exports:
            parameters = {"path": self.directory.location.url, "file": found.exports[0]}
            raise StateStoreFilesError("PSS_EXPORTED", parameters)
        return self.snapshot_of(found)

    def snapshot_of(self, found: Scan) -> LogSnapshot:
        """Adds what the rules need to know of each file.

        Args:
            found: What was read. Where something is changed on the strength of it, every file has to be in it.
        """
        begun = {name for name, info in found.others.items() if is_pin(name) and not info.size}
        waiting = found.relocation_markers | begun | {name for name in found.others if is_temporary(name)}
        own = {name for name in found.others if is_own_pin(name)} - begun
        newest = self._newest(found, waiting | own)
        states = {name: self._state(found, name, newest) for name in found.files}
        expired, old = ({name for name in each if self._is_expired(found, name, newest)} for each in (waiting, own))
        return LogSnapshot(found, states, frozenset(expired), frozenset(old))

    def _newest(self, found: Scan, waiting: Collection[str]) -> datetime.datetime | None:
        """A time that the file system's clock has shown: that of the last change, or a later one where it matters."""
        modified = [info.modified for info in (*found.infos.values(), *found.others.values()) if info.modified]
        newest = max(modified + ([self._time_there] if self._time_there else []), default=None)
        now = self.clock()
        # Where nobody has written for long, the last change does not say for how long: the file system is asked.
        if any(
            self._is_closed(found, name, now) and not self._is_closed(found, name, newest) for name in found.files
        ) or any(self._is_expired(found, name, now) and not self._is_expired(found, name, newest) for name in waiting):
            self._time_there = now if self.dry_run else ask_file_system(self).there
            newest = max(time for time in (newest, self._time_there) if time)
        return newest

    def _state(self, found: Scan, name: str, newest: datetime.datetime | None) -> FileState:
        file = found.files[name]
        closed = self._is_closed(found, name, newest)
        # The beginning of a header may be all that is left of a reference file, which pins rest on.
        is_doubtful = file.header is None and file.size > 0 and any(map(_rests_on_references, found.others))
        accounted = (file.accounted and not is_doubtful) or name in self._accounted_for
        return FileState(closed, True, _stamp(file), name.endswith(INDEX_SUFFIX), accounted)

    def _is_closed(self, found: Scan, name: str, newest: datetime.datetime | None) -> bool:
        """Rule 7 for an observer that looks only once: it asks its own clock and the file system's.

        HDFS shows the creation of an open file as its last change, so a modification time alone says nothing.
        """
        file, modified = found.files[name], found.infos[name].modified
        by_stamp = datetime.timedelta(milliseconds=self.now_ms - (_stamp(file) >> CLOCK_BITS))
        by_change = None if modified is None or newest is None else newest - modified
        patience = max(self.closed_after, self.abandoned_after)
        return is_closed(sealed=file.sealed, unchanged=[by_stamp, by_change], closed_after=patience)

    def _is_expired(self, found: Scan, name: str, newest: datetime.datetime | None) -> bool:
        """Whether a marker, a pin or a temporary file is old enough by both clocks: one of them may have stepped."""
        # The age at the time of the listing: what has come since is not in what was read.
        listed = self.clock() - (_now() - found.at)
        # A temporary file may take long to be written. Nobody waits for it, so there is no hurry.
        patience = max(self.closed_after, self.abandoned_after) if is_temporary(name) else self.closed_after
        return newest is not None and is_expired(Clocks(listed, newest).ages(found.others[name].modified), patience)

    def account_for(self, names: Iterable[str]) -> None:
        """Notes that nobody needs the bytes in these files that no group accounts for, as a verification has shown."""
        self._accounted_for.update(names)

    def next_name(self, suffix: str = ".merged", after: str = "") -> str:
        """Returns a name that no other file has.

        Args:
            suffix: The name's ending: ``.merged``, ``.index.merged``, ``.relocating``, ``.fork``,
                ``.own`` or ``.origin``.
            after: A name that it has to follow in listings, whatever the clocks say: of a pin that it replaces.
        """
        created_ms = max(self.now_ms, int(after[:13]) + 1 if after else 0)
        return file_name(created_ms, self.writer, next(self._numbers)).removesuffix(".merged") + suffix

    def too_slow(self, what: str) -> StateStoreFilesError:
        """Makes the error that this process was not done before others stop waiting for it.

        Args:
            what: What it did, as the beginning of a sentence.
        """
        reason = f"{what} takes longer than half of closedAfter ({self.closed_after}); raise it, for the query too"
        where = self.directory.location.display(MERGED)
        return StateStoreFilesError("PSS_WRITE_FAILED", {"path": where, "reason": reason})

    @contextmanager
    def new_file(self, snapshot: LogSnapshot, suffix: str = ".merged") -> Iterator[tuple[str, MergedFileWriter]]:
        """Begins a merged file, which has to be sealed in the block. After the block the file is there and durable.

        Args:
            snapshot: The checkpoint; the file's header repeats whether it may have plain files.
            suffix: As for :meth:`next_name`.

        Yields:
            The file's name and its writer.

        Raises:
            StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED.
        """
        name = self.next_name(suffix)
        created_ms = int(name[:13])
        meta: dict[str, str | bool] = {"app_id": "", "executor_id": "maintenance", "query_run_id": ""}
        meta |= {"shim": __version__, "plain": snapshot.plain, META_WHOLE: True}
        with publish(self.directory, f"{MERGED}/{name}", is_new=True) as out:
            yield name, MergedFileWriter(out, writer=self.writer, created_ms=created_ms, meta=meta)


# Clocks: how old files are, and how long things take.


@dataclass(frozen=True)
class Clocks:
    """The time by two clocks.

    Attributes:
        here: The time by this process's clock.
        there: A time that the file system's clock has shown, where it is known; it may be later there.
    """

    here: datetime.datetime
    there: datetime.datetime | None = None

    def age(self, modified: datetime.datetime | None) -> datetime.timedelta:
        """How old a file is at least: by the clock that says less. Zero where its modification time is not known."""
        return min(self.ages(modified))

    def ages(self, modified: datetime.datetime | None) -> list[datetime.timedelta]:
        """How old a file is by each clock; zero where its modification time is not known."""
        if modified is None:
            return [datetime.timedelta(0)]
        return [now - modified for now in (self.here, self.there) if now is not None]


class Stopwatch:
    """Measures how long something has taken at most.

    A clock that does not jump may stand still while the machine sleeps, and a wall clock may be put forward. By the
    clock that says more, things only end early.

    Args:
        clock: Returns seconds of a clock that does not jump.
        wall: Returns the time.
    """

    def __init__(self, clock: Callable[[], float], wall: Callable[[], datetime.datetime]) -> None:
        self._clock, self._wall = clock, wall
        self._begun, self._begun_at = clock(), wall()

    @property
    def seconds(self) -> float:
        """Seconds since it was made."""
        return max(self._clock() - self._begun, (self._wall() - self._begun_at).total_seconds())


def ask_file_system(log: MergedLog) -> Clocks:
    """The time by both clocks: the file system is asked below ``state/`` (:func:`file_system_time`).

    Raises:
        StateStoreFilesError: The file system fails.
    """
    there = file_system_time(log.directory, STATE)
    return Clocks(log.clock(), there)
