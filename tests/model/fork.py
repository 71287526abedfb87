"""A simulated fork: what it does to the directory that it is made of, and what it needs there from then on."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_statestore.log import is_timely
from tests.model.member import Member
from tests.model.rules import Rules
from tests.model.views import Found, View
from tests.model.world import CLOSED, Pin, World


@dataclass
class _Names:
    first: str
    second: str


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
        self._reader = Member(world, name, 0, 0, rules, view)
        self._created = world.now
        self._found: list[Found] | None = None
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

        if not self._reader.refreshing:
            self._reader.begin_refresh(choose)
        while self._reader.refreshing:
            self._reader.read_next()
            if not at_once:
                break

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
        self.world.pins.pop(self._names.second, None)
        self.world.say(f"{self._reader.name} lets go")

    def crash(self) -> None:
        """Dies; an empty pin stays."""
        self._reader.crash()
