"""A simulated process that writes, deletes and refreshes.

What it does is cut into steps, between which others do theirs, time passes, or it dies.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark_statestore.format import Entry, Kind, SegmentType, file_name
from pyspark_statestore.log import is_expired, pinned, released
from tests.model.rules import Rules
from tests.model.views import Found, View
from tests.model.world import CLOSED, IDLE, File, Group, Key, Window, World


class Flush(enum.Enum):
    """How a flush ends."""

    OK = "ok"
    FAILED = "failed"
    AMBIGUOUS = "failed, but readable"
    CRASHED = "crashed before it"
    CRASHED_AFTER = "crashed after it, before anything was acknowledged"


@dataclass
class Flight:
    """A group on its way."""

    file: str
    group: Group
    tombstones: list[Entry]
    puts: list[Entry]
    previous_append: int


@dataclass
class Refresh:
    """A look that is under way."""

    listing: dict[str, File]
    markers: frozenset[str]
    to_read: list[str]
    known: set[str]
    floor: dict[str, Key]
    window: Window
    then: Callable[[], None]
    missing: bool = False


class BaseProcess:
    """One process on the checkpoint.

    Args:
        world: That it shares with others.
        name: For the story.
        writer: Its id.
        skew: Of its wall clock.
        rules: That it abides by.
        view: Its index.
    """

    def __init__(self, world: World, name: str, writer: int, skew: int, rules: Rules, view: View) -> None:
        self.world = world
        self.name = name
        self.writer = writer
        self.skew = skew
        self.rules = rules
        self.view = view
        self.alive = True
        self.owned: set[str] = set()
        self.refreshing: Refresh | None = None
        self.flight: Flight | None = None
        self._ready = False
        self._file: str | None = None
        self._last_append = 0
        self._numbers = 0
        self._pending: list[Entry] = []
        self._read: dict[str, int] = {}
        self._floor: dict[str, Key] = {}
        self._deleted: dict[str, Key] = {}
        self._pins_seen: dict[str, int] = {}

    def _say(self, what: str) -> None:
        self.world.say(f"{self.name} {what}")

    @property
    def idle(self) -> bool:
        """Whether it can begin to append something."""
        return self.alive and self._ready and self.flight is None

    @property
    def wall(self) -> int:
        """What its clock shows."""
        return self.world.now + self.skew

    def _new_name(self) -> str:
        self._numbers += 1
        return file_name(self.wall, self.writer, self._numbers)

    # ---- appending

    def _begin(self, puts: Sequence[Entry], tombstones: Sequence[Entry]) -> None:
        """Takes what waits into a group. ``puts`` with a negative stamp are new writes."""
        now = self.world.now
        if self._file and self.rules.leaves_idle_files and now - self._last_append >= IDLE:
            self.seal()
        if self._file is None:
            self._file = self._new_name()
            self.world.files[self._file] = File()
            self.view.opened(self._file, now)
            self._read[self._file] = 0
            self._last_append = now
        entries = []
        for number, put in enumerate(puts):
            if put.stamp < 0:
                put = replace(put, stamp=self.view.next_stamp(self.wall, self.world.now), writer=self.writer)
                floor = self._floor.get(put.path, (-1, -1))
                if put.path.rpartition("/")[0] in self.owned:
                    assert put.key > floor, (
                        f"{self.name} took {put.path} over, where {floor} had been used; it writes {put.key}\n"
                        + self.world.story()
                    )
            entries.append(replace(put, offset=1 + 10 * (len(puts) * len(self.world.history) + number), length=1))
        group = Group([*entries, *tombstones], self.view.next_stamp(self.wall, self.world.now))
        self.flight = Flight(self._file, group, list(tombstones), entries, self._last_append)

    def end_append(self, flush: Flush) -> bool:
        """The flush has ended."""
        flight, now = self.flight, self.world.now
        assert flight is not None
        if any(put.generation == 0 and self.world.is_forgotten(put) for put in flight.puts):
            # A zombie's late commit is a new file, as in stock Spark: see the limits in docs/guarantees.md.
            flush = Flush.FAILED if flush in (Flush.OK, Flush.AMBIGUOUS) else flush
            flush = Flush.CRASHED if flush is Flush.CRASHED_AFTER else flush
        late = now - flight.previous_append > CLOSED // 2
        if late and self.rules.late_flushes_fail and flush in (Flush.OK, Flush.AMBIGUOUS, Flush.CRASHED_AFTER):
            # What appears after such a time is nothing that anybody can rule out; see docs/guarantees.md.
            flush = Flush.FAILED if flush is not Flush.CRASHED_AFTER else Flush.CRASHED
        wrote = ", ".join(
            f"{e.kind.name} {e.path} {e.key} gen {e.generation} write {e.crc32c}" for e in flight.group.entries
        )
        self._say(f"flushes [{wrote}] at {flight.group.stamp} to {flight.file}: {flush.value}")
        if flush in (Flush.OK, Flush.AMBIGUOUS, Flush.CRASHED_AFTER):
            self.world.append(flight.file, flight.group)
        self.flight = None
        if flush in (Flush.CRASHED, Flush.CRASHED_AFTER):
            self.crash()
            return False
        if flush is not Flush.OK:
            if self._file == flight.file:
                # Where it hung for long, others have unlinked the file by now, and a refresh has missed it.
                if flight.file in self.view.names():
                    self.view.given_up(flight.file)
                self._file = None
            self._pending += [t for t in flight.tombstones if t.generation == 0]
            return False
        self._last_append = now
        if flight.file in self.view.names():
            self.view.appended(flight.file, flight.group.entries, flight.group.stamp, now)
            self._read[flight.file] += 1
        for put in flight.puts:
            if self.refreshing:
                self.refreshing.window.allowed[put.path].add(put.crc32c)
        self._is_durable(flight)
        return True

    def _is_durable(self, flight: Flight) -> None:
        """The group is in the file and in this process's index."""
        for put in flight.puts:
            self._acknowledged(put)

    def _acknowledged(self, put: Entry) -> None:
        if self.world.truth.expected(put.path) == put.crc32c:
            found = self.view.find(put.path)
            seen = found is not None and found.entry.crc32c == put.crc32c
            assert seen or self._deleted.get(put.path, (-1, -1)) >= put.key, (
                f"{self.name} does not see its own write {put.crc32c} of {put.path}\n" + self.world.story()
            )

    def _append(self, puts: Sequence[Entry], tombstones: Sequence[Entry], flush: Flush) -> bool:
        self._begin(puts, tombstones)
        return self.end_append(flush)

    def _take_pending(self) -> list[Entry]:
        taken, self._pending = self._pending, []
        return taken

    def begin_put(self, paths: Sequence[str]) -> None:
        """Tasks commit together; deletions ride along."""
        puts = []
        for path in paths:
            content = self.world.new_content()
            puts.append(Entry(Kind.PUT, SegmentType.of(path), 0, content, -1, 0, 0, 0, 0, path))
            self._say(f"writes {path}: write {content}")
        self._begin(puts, self._take_pending())

    def delete(self, path: str) -> None:
        """Spark deletes an old version, or what a stale view shows as one."""
        saw = self.view.delete(path)
        if saw is None:
            return
        stamp, writer = saw
        if not self.rules.deletes_kill_what_they_saw:
            stamp, writer = self.view.next_stamp(self.wall, self.world.now), self.writer
        tombstone = Entry(Kind.DELETE, SegmentType.of(path), 0, 0, stamp, writer, 0, 0, 0, path)
        self.world.truth.will_delete(tombstone, saw)
        self._pending.append(tombstone)
        self._deleted[path] = max(saw, self._deleted.get(path, saw))
        self._say(f"deletes {path}, of which it sees {saw}")

    def flush_tombstones(self, flush: Flush) -> None:
        """Nobody has committed for a while."""
        if self._pending:
            self._append([], self._take_pending(), flush)

    def seal(self) -> None:
        """Ends the open file."""
        if self._file:
            if self._file in self.world.files:
                self.world.files[self._file].sealed = True
            if self._file in self.view.names():
                self.view.sealed(self._file)
            self._say(f"seals {self._file}")
            self._file = None

    # ---- refreshing

    def begin_refresh(self, then: Callable[[], None] = lambda: None) -> None:
        """Lists."""
        world = self.world
        self.view.begin_refresh(world.now)
        listing = dict(world.files)
        self.list_pins()
        markers = frozenset(self.view.counting(world.markers, world.now))
        to_read = [name for name in listing if self._must_read(name)]
        # Index-only files first: what they cover need not be opened.
        to_read.sort(key=lambda name: (listing[name].index_only, name), reverse=True)
        to_read.sort(key=lambda name: not listing[name].index_only)
        self.refreshing = Refresh(
            listing, markers, to_read, self.view.names(), world.truth.highest(), world.begin_window(), then
        )
        self._say("lists")

    def _must_read(self, name: str) -> bool:
        """Whether a refresh opens a file that it has listed."""
        return self.view.needs_read(name)

    def read_next(self) -> None:
        """Reads one file; after the last, the refresh is complete."""
        refresh = self.refreshing
        assert refresh is not None
        if refresh.to_read:
            name = refresh.to_read.pop(0)
            if name in self.world.files:
                self._read_file(name, refresh)
            else:
                self._say(f"finds {name} gone")
                refresh.missing = True
                self._missing(name)
        if not refresh.to_read:
            self._end_refresh(refresh)

    def _read_file(self, name: str, refresh: Refresh | None = None) -> None:
        file = self.world.files[name]
        now = self.world.now
        self._say(f"reads {name}")
        groups = file.groups[self._read.get(name, 0) :]
        self._read[name] = len(file.groups)
        entries = [entry for group in groups for entry in group.entries]
        stamp = max((group.stamp for group in groups), default=-1)
        cache = file.index_only and self.rules.index_only_is_a_cache
        repeats = tuple(file.repeats)
        self.view.read(name, entries, stamp, sealed=file.sealed, index_only=cache, now=now, repeats=repeats)
        for other, repeated in file.repeats.items():
            if refresh and other in refresh.listing and other in refresh.to_read and self._read.get(other, 0) == 0:
                entries = [entry for group in repeated for entry in group.entries]
                stamp = max(group.stamp for group in repeated)
                self.view.read(other, entries, stamp, sealed=True, index_only=False, now=now)
                self._read[other] = len(repeated)
                refresh.to_read.remove(other)

    def _end_refresh(self, refresh: Refresh) -> None:
        self.world.end_window(refresh.window)
        self.refreshing = None
        if refresh.missing and self.rules.refresh_starts_again:
            self.begin_refresh(refresh.then)
            return
        for name in refresh.known - set(refresh.listing):
            self._gone(name)
        self._floor = refresh.floor
        self._ready = True
        self._tell_view(refresh)
        self._say("has refreshed")
        self._check_view(refresh)
        refresh.then()

    def _tell_view(self, refresh: Refresh) -> None:
        """What the listing has shown besides files."""
        self.view.refreshed(refresh.markers, complete=True, now=self.world.now)

    def _missing(self, name: str) -> None:
        """A listed file was unlinked before it was read."""
        self.view.remove(name)

    def _gone(self, name: str) -> None:
        self.view.remove(name)
        if name == self._file and self.flight is None:
            self._file = None

    def _check_view(self, refresh: Refresh) -> None:
        for path, allowed in refresh.window.allowed.items():
            found = self.view.find(path)
            content = found.entry.crc32c if found else None
            if content in allowed or content in self.world.late:
                continue
            own = self._deleted.get(path, (-1, -1))
            deleted_here = any(a is not None and self.world.truth.key(path, a) <= own for a in allowed)
            right = content is None and deleted_here
            assert right, (
                f"{self.name} has refreshed and sees write {content} of {path}, where one of {allowed} is right\n"
                + self.world.story()
            )

    def refresh(self, then: Callable[[], None] = lambda: None) -> None:
        """A refresh that nothing comes between."""
        self._abandon_refresh()
        self.begin_refresh(then)
        while self.refreshing:
            self.read_next()

    def _abandon_refresh(self) -> None:
        if self.refreshing:
            self.world.end_window(self.refreshing.window)
            self.refreshing = None

    def refresh_listing(self) -> None:
        """What maintenance does most of the time: sees what has come and gone, and reads none of it."""
        world = self.world
        self.view.begin_refresh(world.now)
        self.list_pins()
        markers = self.view.counting(world.markers, world.now)
        for name in self.view.names() - set(world.files):
            # What lived in it lives in a tail that is not read now.
            if not self.view.relocatable(name):
                self._gone(name)
        for name in world.files:
            self.view.listed(name, world.now)
        self._say("lists only")
        self.view.refreshed(markers, complete=False, now=self.world.now)

    def list_pins(self) -> Callable[[str], bool]:
        """Sees the pins that are there now; says which files they keep."""
        now = self.world.now
        for name in self.world.pins:
            self._pins_seen.setdefault(name, now)
        pins = dict(self.world.pins)
        expired = [name for name in pins if is_expired([now - self._pins_seen[name]], CLOSED)]
        return lambda file: bool(pinned([file], pins, expired))

    def old_pins(self) -> list[str]:
        """The checkpoint's own pins that this process has seen for so long that what they were made for is there."""
        self.list_pins()
        now = self.world.now
        named = [name for name, pin in self.world.pins.items() if pin.own and not pin.is_begun]
        wait = self.rules.own_pins_wait
        return [name for name in named if not wait or is_expired([now - self._pins_seen[name]], CLOSED)]

    def drop_pins(self, old: Sequence[str]) -> None:
        """Drops those of them that nothing needs, after a complete refresh that began when they were old."""
        found = [(path, self.view.find(path)) for path in self.world.paths]
        holders = [self.world.second.get((each.file, path)) for path, each in found if each is not None]
        needed = {holder[0] for holder in holders if holder is not None}
        if not self.rules.own_pins_are_needed:
            needed = set()
        pins = {self.world.pins[name]: name for name in old if name in self.world.pins}
        for pin, rest in released(pins, needed).items():
            if not rest:
                del self.world.pins[pins[pin]]
                self._say(f"drops {pins[pin]}")

    def read_tail(self, number: int) -> None:
        """Reads what is new in one file."""
        names = sorted(name for name in self.view.names() if name in self.world.files and self.view.needs_read(name))
        if names:
            self._read_file(names[number % len(names)])

    def take_over(self, partition: str) -> None:
        """A partition comes to this process; whoever had it need not notice."""
        self.owned.add(partition)
        self._say(f"takes {partition} over")
        self._floor = self.world.truth.highest()

    def look_up(self, path: str) -> None:
        """Reads a path: what the view points to is there, or is after one refresh."""
        found = self.view.find(path)
        if found is None:
            return
        if found.file not in self.world.files:
            self.refresh()
            found = self.view.find(path)
        if found is not None:
            self._check_place(found)

    def _check_place(self, found: Found) -> None:
        file = self.world.files.get(found.file)
        entry = found.entry
        there = file is not None and any(
            e.path == entry.path and e.offset == entry.offset and e.crc32c == entry.crc32c
            for group in file.groups
            for e in group.entries
        )
        assert there, f"{self.name} is led to {found}, where there is no such segment\n" + self.world.story()

    # ---- ends

    def crash(self) -> None:
        """Killed: what was flushed stays."""
        if self.flight is not None:
            self.flight = None
        self._abandon_refresh()
        self.alive = False
        self._say("dies")

    def stop(self) -> None:
        """Ends as it should."""
        if self._pending:
            self._append([], self._take_pending(), Flush.OK)
        if self.alive:
            self.seal()
            self.crash()
