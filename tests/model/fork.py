"""A simulated fork, and a split: what they do to the directory, and what they need there from then on.

What lets go of a fork's files is decided by the rules that production calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from pyspark_statestore.format import Entry, SegmentType, file_name
from pyspark_statestore.log import is_timely, lets_go, released
from tests.model.base_process import BaseProcess
from tests.model.rules import Rules
from tests.model.views import Found, View
from tests.model.world import CLOSED, File, Group, Pin, World


@dataclass
class _Names:
    first: str
    second: str


def _look(reader: BaseProcess, choose: Callable[[], None], *, at_once: bool) -> None:
    """Looks at all, or begins to, or goes on with it; ``choose`` takes what is found."""
    if not reader.refreshing:
        reader.begin_refresh(choose)
    while reader.refreshing:
        reader.read_next()
        if not at_once:
            break


class Fork:
    """One fork of the checkpoint: pin, look, pin, and no more pin when it is given up.

    Args:
        world: With the checkpoint.
        name: For the story.
        rules: That it abides by.
        view: A new one.
    """

    def __init__(self, world: World, name: str, rules: Rules, view: View) -> None:
        self.world = world
        self.rules = rules
        self._names = _Names(f"{name}-1.fork", f"{name}-2.fork")
        self._reader = BaseProcess(world, name, 0, 0, rules, view)
        self._created = world.now
        self._found: list[Found] | None = None
        self._pins_count = 2
        self.is_away = False
        if rules.forks_announce:
            world.pins[self._names.first] = Pin(None)
        world.say(f"{name} begins")

    @property
    def has_looked(self) -> bool:
        """Whether it knows what it needs."""
        return self._found is not None

    @property
    def is_named(self) -> bool:
        """Whether its pin says what it needs."""
        return self._names.second in self.world.pins

    def look(self, *, at_once: bool = True) -> None:
        """Looks at all, or begins to."""

        def choose() -> None:
            found = [self._reader.view.find(path) for path in self.world.paths]
            self._found = [each for each in found if each is not None]
            self.world.say(f"{self._reader.name} needs {[(f.entry.path, f.file) for f in self._found]}")

        _look(self._reader, choose, at_once=at_once)

    def name_files(self) -> bool:
        """Pins what it needs, where it is still in time; whether it was."""
        assert self._found is not None
        if is_timely(self.world.now - self._created, CLOSED) or not self.rules.forks_are_timely:
            self.world.pins[self._names.second] = Pin(frozenset(found.file for found in self._found))
            self.world.forked[self._names.second] = [(found.file, found.entry) for found in self._found]
            self.world.say(f"{self._reader.name} pins {sorted({found.file for found in self._found})}")
        self.world.pins.pop(self._names.first, None)
        return self.is_named

    def release(self) -> None:
        """Needs nothing any more."""
        self.world.forked.pop(self._names.second, None)
        self._drop()

    def _drop(self) -> None:
        self.world.pins.pop(self._names.second, None)
        self.world.missed.pop(self._names.second, None)
        self.world.say(f"{self._reader.name} has no pin any more")

    def read_less(self) -> None:
        """Something of it is dead there, and whoever cleans it lets go of the file if nothing else is in it."""
        world = self.world
        before, pin = self._names.second, world.pins[self._names.second]
        rest = world.forked[before][1:]
        needed = {file for file, _ in rest} if self.rules.forks_keep_what_lives else set()
        world.forked[before] = rest
        for still in released([pin], needed).values():
            self._pins_count += 1
            self._names.second = f"{self._reader.name}-{self._pins_count}.fork"
            if still:
                world.pins[self._names.second] = Pin(still)
            world.forked[self._names.second] = world.forked.pop(before)
            world.pins.pop(before)
            world.missed.pop(before, None)
            world.say(f"{self._reader.name} pins {sorted(still)}")

    def is_looked_for(self) -> None:
        """Somebody removes orphans in the source: a fork that needs nothing, or was missed for long, has no pin."""
        name = self._names.second
        needs = None if self.is_away else bool(self.world.forked[name])
        since = self.world.missed.get(name)
        away = [] if since is None else [self.world.now - since]
        if lets_go(needs, away if self.rules.absences_are_counted else [self.world.now - self._created], CLOSED):
            if away and away[0] >= CLOSED:
                self.world.forked.pop(name)  # nobody waits for it any longer
            self._drop()
        elif needs is None:
            self.world.missed.setdefault(name, self.world.now)
        else:
            self.world.missed.pop(name, None)

    def crash(self) -> None:
        """Dies; an empty pin stays."""
        self._reader.crash()


def named(forks: Collection[Fork]) -> list[Fork]:
    """Those that have a pin that says what they need."""
    return [fork for fork in forks if fork.is_named]


class Split:
    """Second paths for what lives at some paths: pin, look, pin, say so, and no more pin that keeps everything.

    Args:
        world: With the checkpoint.
        number: Of the split; others have other ones.
        seconds: The second path of each path.
        rules: That it abides by.
        view: A new one.
    """

    def __init__(self, world: World, number: int, seconds: Mapping[str, str], rules: Rules, view: View) -> None:
        self.world = world
        self.rules = rules
        self._name = f"S{number}"
        self._names = _Names(f"{self._name}-1.own", f"{self._name}-2.own")
        self._seconds = seconds
        self._writer = 1_000 + number
        self._reader = BaseProcess(world, self._name, 0, 0, rules, view)
        self._created = world.now
        self._found: dict[str, Found] | None = None
        world.pins[self._names.first] = Pin(None, own=True)
        world.say(f"{self._name} begins")

    @property
    def has_looked(self) -> bool:
        """Whether it knows what gets second paths."""
        return self._found is not None

    @property
    def is_named(self) -> bool:
        """Whether its pin says which files it needs."""
        return self._names.second in self.world.pins

    def look(self, *, at_once: bool = True) -> None:
        """Looks at all, or begins to."""

        def choose() -> None:
            view = self._reader.view
            found = {second: view.find(path) for path, second in self._seconds.items() if view.find(second) is None}
            self._found = {second: each for second, each in found.items() if each is not None}

        _look(self._reader, choose, at_once=at_once)

    def name_files(self) -> None:
        """Pins the files with the segments."""
        assert self._found is not None
        files = frozenset(each.file for each in self._found.values())
        self.world.pins[self._names.second] = Pin(files if self.rules.own_pins_come_first else frozenset(), own=True)
        self.world.say(f"{self._name} pins {sorted(files)}")

    def refer(self) -> None:
        """Says which second paths there are, if it is still in time; and ends."""
        assert self._found is not None
        if self._found and (self._is_timely() or not self.rules.own_pins_are_timely):
            name = file_name(self.world.now, self._writer, 1)
            entries: list[Entry] = []
            for second, found in self._found.items():
                stamp = self._reader.view.next_stamp(self.world.now, self.world.now)
                entry = replace(found.entry, path=second, stamp=stamp, writer=self._writer, generation=0)
                entries.append(replace(entry, type=SegmentType.of(second)))
                self.world.second[name, second] = (found.file, found.entry)
            for entry in entries:
                self.world.truth.give(entry)
            self.world.files[name] = File(sealed=True)
            self.world.append(name, Group(entries, max(entry.stamp for entry in entries)))
            self.world.say(f"{self._name} says in {name} where {sorted(self._found)} are")
        self.world.pins.pop(self._names.first, None)
        self.world.say(f"{self._name} ends")

    def crash(self) -> None:
        """Dies; its pins stay."""
        self._reader.crash()

    def _is_timely(self) -> bool:
        return is_timely(self.world.now - self._created, CLOSED)
