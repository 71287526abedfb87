"""One directory of merged files, and the plain dictionary that says what must be in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pyspark_statestore.format import Entry, Kind

Key = tuple[int, int]

CLOSED = 10_000
"""``closedAfter``, in milliseconds of simulated time."""
IDLE = CLOSED // 10
"""How long a writer may leave a file alone, as in the jar's ``Options``."""


@dataclass
class Group:
    """What one flush made durable."""

    entries: list[Entry]
    stamp: int

    def __str__(self) -> str:
        return ", ".join(
            f"{e.kind.name} {e.path} key={e.key} generation={e.generation} write={e.crc32c}" for e in self.entries
        )


@dataclass
class File:
    """A merged file on the simulated disk."""

    groups: list[Group] = field(default_factory=list)
    sealed: bool = False
    repeats: dict[str, list[Group]] = field(default_factory=dict)
    """The groups of other files, in an index-only file."""

    @property
    def index_only(self) -> bool:
        return bool(self.repeats)


@dataclass(frozen=True)
class Pin:
    """What a fork has left, or a split.

    Attributes:
        files: That must not be unlinked; None for all of them.
        own: Whether the checkpoint itself needs them.
    """

    files: frozenset[str] | None
    own: bool = False

    @property
    def is_begun(self) -> bool:
        """Whether the fork has not yet said what it needs."""
        return self.files is None


class Truth:
    """What a reader must find, whatever has been copied, compacted and unlinked: a dictionary that forgets nothing.

    Every write has an id, which entries carry as ``crc32c``: copies have the same bytes.
    """

    def __init__(self) -> None:
        self._keys: dict[str, dict[int, Key]] = {}
        self._deleted_to: dict[str, Key] = {}
        self._saw: dict[tuple[str, Key], Key] = {}

    def will_delete(self, tombstone: Entry, saw: Key) -> None:
        """A process deletes what it saw, whatever its tombstone says."""
        self._saw[tombstone.path, tombstone.key] = saw

    def copy(self) -> Truth:
        """The same, as of now."""
        other = Truth()
        other._keys = {path: dict(keys) for path, keys in self._keys.items()}
        other._deleted_to = dict(self._deleted_to)
        other._saw = self._saw
        return other

    def durable(self, entries: Iterable[Entry]) -> None:
        """A group can be read by others."""
        for entry in entries:
            if entry.kind is Kind.PUT:
                self._keys.setdefault(entry.path, {}).setdefault(entry.crc32c, entry.key)
            else:
                saw = self._saw.get((entry.path, entry.key), entry.key)
                self._deleted_to[entry.path] = max(saw, self._deleted_to.get(entry.path, saw))

    def give(self, entry: Entry) -> None:
        """A write is going to be at a path under a new key, whatever became of it there."""
        self._keys.setdefault(entry.path, {})[entry.crc32c] = entry.key

    def expected(self, path: str) -> int | None:
        """Id of the write that is read."""
        keys = self._keys.get(path)
        if not keys:
            return None
        newest = max(keys, key=lambda content: keys[content])
        return newest if keys[newest] > self._deleted_to.get(path, (-1, -1)) else None

    def is_deleted(self, path: str, key: Key) -> bool:
        """Whether somebody has deleted what was written under a key."""
        return self._deleted_to.get(path, (-1, -1)) >= key

    def newest(self, path: str) -> Key:
        """The highest key that was written."""
        return max(self._keys.get(path, {}).values(), default=(-1, -1))

    def may_find(self, path: str, at_least: Truth) -> set[int | None]:
        """What a reader may find who knows another truth, and any part of what is in this one beyond that."""
        known = at_least.expected(path)
        keys = self._keys.get(path, {})
        least = at_least.newest(path)
        found: set[int | None] = {c for c, key in keys.items() if key >= least and not at_least.is_deleted(path, key)}
        return found | {None} if known is None or self.is_deleted(path, least) else found

    def key(self, path: str, content: int) -> Key:
        """The key that a write had first."""
        return self._keys[path][content]

    def highest(self) -> dict[str, Key]:
        """The highest key of each path that anybody could have read."""
        highest = {path: max(keys.values()) for path, keys in self._keys.items()}
        return highest | {path: max(key, highest.get(path, key)) for path, key in self._deleted_to.items()}


@dataclass
class Window:
    """What a refresh may find: all that was durable when it began, and any part of what became so since."""

    allowed: dict[str, set[int | None]]


class World:
    """The disk, the time, and the truth.

    Args:
        paths: That are written.
    """

    def __init__(self, paths: tuple[str, ...]) -> None:
        self.paths = paths
        self.now = 1_000_000
        self.files: dict[str, File] = {}
        self.markers: dict[str, int] = {}
        """When each was created."""
        self.pins: dict[str, Pin] = {}
        self.forked: dict[str, list[tuple[str, Entry]]] = {}
        """By its pin, the files and entries that a fork reads."""
        self.missed: dict[str, int] = {}
        """By its pin, since when a fork has been looked for in vain."""
        self.second: dict[tuple[str, str], tuple[str, Entry]] = {}
        """By a reference file and a path, the file and the entry in it that have the bytes."""
        self.truth = Truth()
        self.counted = Truth()
        """What the query of this run counts on: what was acknowledged in it, and all that was durable before it."""
        self.epoch = 0
        """Of the service of this run; what others acknowledge, no query counts on."""
        self.late: set[int] = set()
        """Writes by those who are served that were deleted before they became durable: they may live or not."""
        self.windows: list[Window] = []
        self.history: list[str] = []
        self._contents = 0

    def say(self, what: str) -> None:
        """Notes what happens, for whoever reads a counterexample."""
        self.history.append(f"{self.now:>6} {what}")

    def new_content(self) -> int:
        """An id for a write."""
        self._contents += 1
        return self._contents

    def append(self, name: str, group: Group) -> None:
        """A group becomes durable; in a file that has been unlinked nobody ever sees it."""
        file = self.files.get(name)
        if file is None:
            return
        file.groups.append(group)
        self.truth.durable(group.entries)
        for window in self.windows:
            for entry in group.entries:
                window.allowed[entry.path].add(entry.crc32c if entry.kind is Kind.PUT else None)

    def is_forgotten(self, put: Entry) -> bool:
        """Whether a write that is not durable yet was deleted, and the tombstone has gone since."""
        killed = any(e.kind is Kind.DELETE and e.path == put.path and e.key >= put.key for _, e in self.entries())
        return self.truth.is_deleted(put.path, put.key) and not killed

    def check_found(self, path: str, content: int | None, counted: Truth, own: Key, who: str) -> None:
        """Whoever has to know what counts has found this.

        Args:
            path: That was looked up.
            content: The write that was found.
            counted: What has to be known.
            own: The key that the process has deleted itself.
            who: For the message.
        """
        allowed = self.truth.may_find(path, counted)
        right = content in allowed or content in self.late or (content is None and own >= counted.newest(path))
        assert right, f"{who} sees write {content} of {path}, where one of {allowed} is right\n" + self.story()

    def begin_window(self) -> Window:
        """For a refresh: remembers from now on what it may find."""
        window = Window({path: {self.truth.expected(path)} for path in self.paths})
        self.windows.append(window)
        return window

    def end_window(self, window: Window) -> None:
        """The refresh has ended."""
        self.windows = [w for w in self.windows if w is not window]

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """All that can be read."""
        for name, file in self.files.items():
            for group in file.groups:
                for entry in group.entries:
                    yield name, entry

    def read(self) -> dict[str, tuple[str, int]]:
        """What somebody finds who knows nothing and reads everything, in the plainest way: the file and the write."""
        best: dict[str, tuple[Key, int, str, int]] = {}
        deleted_to: dict[str, Key] = {}
        for name, entry in self.entries():
            if entry.kind is Kind.PUT:
                candidate = (entry.key, entry.generation, name, entry.crc32c)
                best[entry.path] = max(candidate, best.get(entry.path, candidate))
            else:
                deleted_to[entry.path] = max(entry.key, deleted_to.get(entry.path, entry.key))
        return {path: found[2:] for path, found in best.items() if found[0] > deleted_to.get(path, (-1, -1))}

    def needed(self) -> set[str]:
        """The files that have to stay: something is read from them, or a tombstone in them holds something down."""
        puts = [(name, entry) for name, entry in self.entries() if entry.kind is Kind.PUT]
        holding = {
            name
            for name, tombstone in self.entries()
            if tombstone.kind is Kind.DELETE
            and any(n != name and e.path == tombstone.path and e.key <= tombstone.key for n, e in puts)
        }
        index_only = {name for name, file in self.files.items() if file.index_only}
        read = {(name, path) for path, (name, _) in self.read().items()}
        holders = {self.second[each][0] for each in read & self.second.keys()}
        return {name for name, _ in read} | holders | holding | index_only

    def check(self) -> None:
        """Nothing is lost, nothing comes back."""
        read = self.read()
        for path in self.paths:
            expected = self.truth.expected(path)
            _, found = read.get(path, ("", None))
            if found != expected and found not in self.late:
                what = "came back" if expected is None else "is lost"
                raise AssertionError(f"{path} {what}: write {found} is read, it should be {expected}\n" + self.story())

        for pin, needed in self.forked.items():
            for name, entry in needed:
                self._check_there(name, entry, pin)
        for path, (name, _) in read.items():
            if (name, path) in self.second:
                self._check_there(*self.second[name, path], path)

    def _check_there(self, name: str, entry: Entry, who: str) -> None:
        there = [e for group in self.files.get(name, File()).groups for e in group.entries]
        if not any((e.path, e.offset, e.crc32c) == (entry.path, entry.offset, entry.crc32c) for e in there):
            raise AssertionError(f"{entry.path} of {who} is lost: {name} has gone\n" + self.story())

    def story(self) -> str:
        """What has happened, and what is on the disk."""
        files = [
            f"  {name}{' sealed' if file.sealed else ''}: {'; '.join(map(str, file.groups))}"
            for name, file in self.files.items()
        ]
        return "\n".join([*self.history, "files:", *files, f"markers: {sorted(self.markers)}", f"pins: {self.pins}"])
