"""What a simulated process knows, and what follows from it; here with the Python index."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from pyspark_statestore.format import Entry, Kind
from pyspark_statestore.log import (
    Entries,
    FileState,
    Resolution,
    TombstoneWatch,
    closed_tombstones,
    is_closed,
    is_expired,
    next_generation,
    plan_unlinks,
    relocatable,
    resolve,
)
from tests.model.rules import Rules
from tests.model.world import CLOSED, Key


@dataclass(frozen=True)
class Found:
    """What a path leads to."""

    file: str
    entry: Entry


class View(Protocol):
    """One process's index. The decisions are taken here, the steps between them in the process."""

    def next_stamp(self, wall: int, now: int) -> int:
        """Of the hybrid clock."""

    def opened(self, name: str, now: int) -> None:
        """This process begins a file."""

    def appended(self, name: str, entries: Sequence[Entry], stamp: int, now: int) -> None:
        """A group of this process is durable."""

    def sealed(self, name: str) -> None:
        """This process has sealed a file of its own."""

    def given_up(self, name: str) -> None:
        """A flush has failed: what is in the file has to be read back."""

    def listed(self, name: str, now: int) -> None:
        """A file of another process exists."""

    def read(
        self,
        name: str,
        entries: Sequence[Entry],
        stamp: int,
        *,
        sealed: bool,
        index_only: bool,
        now: int,
        repeats: Collection[str] = (),
    ) -> None:
        """The tail of a file has been read, up to its end; an index-only file repeats the indexes of others."""

    def remove(self, name: str) -> None:
        """A file does not exist any more."""

    def names(self) -> set[str]:
        """The files that exist as far as is known."""

    def needs_read(self, name: str) -> bool:
        """Whether there may be more in a file than is known."""

    def delete(self, path: str) -> Key | None:
        """Deletes what is seen of a path, in this view at once; the key of what was seen."""

    def find(self, path: str) -> Found | None:
        """What a path leads to."""

    def relocatable(self, name: str) -> list[Entry]:
        """The live segments of a file."""

    def copies(self, name: str) -> list[Entry]:
        """What a relocation of a file's live segments writes."""

    def begin_refresh(self, now: int) -> None:
        """A listing is made."""

    def counting(self, markers: Collection[str], now: int) -> Collection[str]:
        """The relocation markers of a listing that are not expired."""

    def expired(self, markers: Collection[str], now: int) -> list[str]:
        """The relocation markers that cleaning deletes, because they are expired."""

    def refreshed(self, markers: Collection[str], *, complete: bool, now: int) -> None:
        """A refresh has ended; the markers that count in its listing."""

    def plan(self, now: int) -> list[str]:
        """The files that may go, right after a refresh."""

    def carry(self, name: str) -> list[Entry]:
        """What has to be written again before a planned file goes: its tombstones, with a generation more."""


class ServedView(View, Protocol):
    """What an index service and those whom it serves ask besides."""

    def learn(self, name: str, entries: Sequence[Entry], now: int) -> None:
        """The service says what is in a file, some of which may be known."""

    def observe(self, stamp: int) -> None:
        """The clock has to stay above this stamp."""

    def entries(self, partition: str) -> dict[str, list[Entry]]:
        """All entries of a partition, by file."""

    def revision(self, partition: str) -> int:
        """Another number whenever an entry of the partition was added."""

    def forget(self, partition: str) -> None:
        """Drops the entries of a partition."""


@dataclass
class _Known:
    own: bool
    changed_at: int
    entries: list[Entry] = field(default_factory=list)
    read_at: int = -1
    whole: bool = False
    sealed: bool = False
    index_only: bool = False
    stamp: int = -1


class PythonView:
    """A view that decides with :mod:`pyspark_statestore.log`.

    Args:
        rules: Those that are off are broken here, where they are rules of the index.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._files: dict[str, _Known] = {}
        self._deletions: dict[str, Key] = {}
        self._highest = 0
        self._resolved: Resolution | None = None
        self._watch = _watch(rules)
        self._droppable: frozenset[str] = frozenset()
        self._carried: dict[str, list[Entry]] = {}
        self._markers_seen: dict[str, int] = {}
        self._revisions: dict[str, int] = {}

    def next_stamp(self, wall: int, now: int) -> int:
        self._highest = max(wall << 16, self._highest + 1)
        return self._highest

    def opened(self, name: str, now: int) -> None:
        self._files[name] = _Known(True, now, whole=True)
        self._resolved = None

    def appended(self, name: str, entries: Sequence[Entry], stamp: int, now: int) -> None:
        self._add(name, entries, stamp)

    def sealed(self, name: str) -> None:
        self._files[name].sealed = True

    def given_up(self, name: str) -> None:
        self._files[name].own = False
        self._files[name].sealed = True
        self._files[name].whole = False

    def listed(self, name: str, now: int) -> None:
        if name not in self._files:
            self._files[name] = _Known(False, now)
            self._resolved = None

    def read(
        self,
        name: str,
        entries: Sequence[Entry],
        stamp: int,
        *,
        sealed: bool,
        index_only: bool,
        now: int,
        repeats: Collection[str] = (),
    ) -> None:
        self.listed(name, now)
        known = self._files[name]
        if stamp >= 0 or (sealed and not known.sealed):
            known.changed_at = now
        known.read_at = now
        known.whole = True
        known.sealed |= sealed
        known.index_only = index_only
        self._add(name, entries, stamp)

    def _add(self, name: str, entries: Sequence[Entry], stamp: int) -> None:
        known = self._files[name]
        entries = [entry for entry in entries if entry not in known.entries]
        known.entries += entries
        for partition in {partition_of(entry.path) for entry in entries}:
            self._revisions[partition] = self._revisions.get(partition, 0) + 1
        known.stamp = max(known.stamp, stamp)
        self._highest = max(self._highest, stamp)
        for entry in entries:
            if entry.kind is Kind.DELETE:
                self._remember(entry.path, entry.key)
        self._resolved = None

    def _remember(self, path: str, key: Key) -> None:
        self._deletions[path] = max(key, self._deletions.get(path, key))

    def remove(self, name: str) -> None:
        if self._files.pop(name, None):
            self._resolved = None

    def names(self) -> set[str]:
        return set(self._files)

    def needs_read(self, name: str) -> bool:
        known = self._files.get(name)
        return known is None or (not known.own and not (known.sealed and known.whole))

    def delete(self, path: str) -> Key | None:
        found = self.find(path)
        if found is None:
            return None
        self._remember(path, found.entry.key)
        self._resolved = None
        return found.entry.key

    def find(self, path: str) -> Found | None:
        resolution = self._resolution()
        at = np.flatnonzero(resolution.live & (resolution.entries.path.to_numpy() == path))
        assert len(at) <= 1, "two segments are read of one path"
        return self._row(int(at[0])) if len(at) else None

    def relocatable(self, name: str) -> list[Entry]:
        # As if it were closed: what follows has to hold for a file that its writer appends to meanwhile, too.
        rows = relocatable(self._resolution(), {name: FileState(closed=True)})
        return [self._row(int(i)).entry for i in rows]

    def copies(self, name: str) -> list[Entry]:
        return [copied(entry) for entry in self.relocatable(name)]

    def counting(self, markers: Collection[str], now: int) -> Collection[str]:
        for marker in markers:
            self._markers_seen.setdefault(marker, now)
        return [marker for marker in markers if not self._is_expired(marker, now)]

    def expired(self, markers: Collection[str], now: int) -> list[str]:
        return [marker for marker in markers if self._is_expired(marker, now)]

    def _is_expired(self, marker: str, now: int) -> bool:
        return is_expired([now - self._markers_seen.get(marker, now)], CLOSED)

    def begin_refresh(self, now: int) -> None:
        self._watch.begin(closed_tombstones(self._resolution(), self._states(now)))

    def refreshed(self, markers: Collection[str], *, complete: bool, now: int) -> None:
        self._droppable = frozenset()
        if complete:
            self._droppable = self._watch.refreshed(self._resolution(), markers)
        elif isinstance(self._watch, _LiteralWatch):
            self._droppable = self._watch.listed(markers)

    def plan(self, now: int) -> list[str]:
        resolution = self._resolution()
        plan = plan_unlinks(resolution, self._states(now), self._droppable)
        self._carried = {u.name: [copied(self._row(int(i)).entry) for i in u.carry] for u in plan.unlink}
        if not self._rules.total_order:
            self._carried = {n: [t for t in c if not self._repeated(t, n)] for n, c in self._carried.items()}
        return [u.name for u in plan.unlink]

    def carry(self, name: str) -> list[Entry]:
        return self._carried[name]

    def learn(self, name: str, entries: Sequence[Entry], now: int) -> None:
        self.listed(name, now)
        self._add(name, entries, -1)

    def observe(self, stamp: int) -> None:
        self._highest = max(self._highest, stamp)

    def entries(self, partition: str) -> dict[str, list[Entry]]:
        by_file = {n: [e for e in f.entries if partition_of(e.path) == partition] for n, f in self._files.items()}
        return {name: entries for name, entries in by_file.items() if entries}

    def revision(self, partition: str) -> int:
        return self._revisions.get(partition, 0)

    def forget(self, partition: str) -> None:
        for known in self._files.values():
            known.entries = [e for e in known.entries if partition_of(e.path) != partition]
        self._deletions = {p: key for p, key in self._deletions.items() if partition_of(p) != partition}
        self._resolved = None

    def _states(self, now: int) -> dict[str, FileState]:
        states = {name: self._state(known, now) for name, known in self._files.items()}
        if not self._rules.highest_stamp_stays:
            states["~"] = FileState(False, stamp=1 << 62)
        return states

    def _state(self, known: _Known, now: int) -> FileState:
        until = known.read_at if self._rules.closed_is_confirmed else now
        closed = is_closed(sealed=known.sealed, unchanged=[until - known.changed_at], closed_after=CLOSED)
        whole = known.whole or not self._rules.reads_the_whole_index
        if not self._rules.reads_the_whole_index:
            closed = True
        return FileState(closed and not (known.own and not known.sealed), whole, known.stamp, known.index_only)

    def _repeated(self, tombstone: Entry, name: str) -> bool:
        return any(
            e.kind is Kind.DELETE and e.path == tombstone.path and e.key >= tombstone.key
            for other, known in self._files.items()
            if other != name
            for e in known.entries
        )

    def _resolution(self) -> Resolution:
        if self._resolved is None:
            files = {name: known.entries for name, known in self._files.items()}
            if not self._rules.highest_stamp_stays:
                files["~"] = []
            entries = Entries.of(files, distinct=True)
            gone = [Entry(Kind.DELETE, 0, 0, 0, *key, 0, 0, 0, path) for path, key in self._deletions.items()]  # type: ignore[arg-type]
            self._resolved = resolve(entries, deletions=Entries.of({"": gone}))
        return self._resolved

    def _row(self, row: int) -> Found:
        entries = self._resolution().entries
        name = entries.files[entries.file[row]]
        first = int(np.searchsorted(entries.file, entries.file[row]))
        return Found(name, self._files[name].entries[row - first])


class _HastyWatch(TombstoneWatch):
    """Believes that a tombstone which it has just read was there when the listing was made."""

    def refreshed(self, resolution: Resolution, markers: Collection[str]) -> frozenset[str]:
        counts = resolution.totals.tombstone_count
        self._known = {name: int(count) for name, count in zip(resolution.entries.files, counts, strict=True)}
        return super().refreshed(resolution, markers)


class _LiteralWatch(TombstoneWatch):
    """Decides after a listing: no marker that is still there was there at the last refresh without victims."""

    def __init__(self) -> None:
        super().__init__()
        self._free: dict[str, frozenset[str]] = {}

    def refreshed(self, resolution: Resolution, markers: Collection[str]) -> frozenset[str]:
        super().refreshed(resolution, ())
        self._free = {name: frozenset(markers) for name in self._waiting_for}
        return self.listed(markers)

    def listed(self, markers: Collection[str]) -> frozenset[str]:
        return frozenset(name for name, there in self._free.items() if not there & frozenset(markers))


def _watch(rules: Rules) -> TombstoneWatch:
    if not rules.drops_after_complete_refresh:
        return _LiteralWatch()
    return TombstoneWatch() if rules.knows_before_it_watches else _HastyWatch()


def partition_of(path: str) -> str:
    """``<operator>/<partition>`` of a path."""
    return path.rpartition("/")[0]


def copied(entry: Entry) -> Entry:
    """The same entry, copied once more."""
    return replace(entry, generation=int(next_generation(entry.generation)))
