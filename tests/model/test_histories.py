"""For each rule the shortest history that goes wrong without it, and right with it.

The random machine finds some of these within seconds and others within hours; a history takes milliseconds. They also
say, for a rule that looks superfluous, what it is for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from tests.model.fork import Fork, Split
from tests.model.java_view import JavaView
from tests.model.process import Flush, Process
from tests.model.rules import Rules
from tests.model.views import PythonView, View
from tests.model.world import CLOSED, IDLE, World

ONE, TWO, THREE = "0/0/1.changelog", "0/1/1.changelog", "0/2/1.changelog"
SECOND = "0/9/1.changelog"
FAST, SLOW = 100_000, -100_000


class Play:
    """Processes on a directory, and the stage directions for them."""

    def __init__(self, rules: Rules, make_view: Callable[[Rules], View]) -> None:
        self.rules = rules
        self.world = World((ONE, TWO, THREE, SECOND))
        self._make_view = make_view
        self._started = 0

    def start(self, skew: int = 0, *, refreshes: bool = True) -> Process:
        """A process; those that are started first have the lower ids."""
        self._started += 1
        name = "ABCDEFGH"[self._started - 1]
        process = Process(self.world, name, self._started, skew, self.rules, self._make_view(self.rules))
        if refreshes:
            process.refresh()
        return process

    def fork(self) -> Fork:
        """A fork that is begun."""
        return Fork(self.world, "F", self.rules, self._make_view(self.rules))

    def split(self) -> Split:
        """A split that has pinned what it needs."""
        split = Split(self.world, 1, {ONE: SECOND}, self.rules, self._make_view(self.rules))
        split.look()
        split.name_files()
        return split

    def refer(self, split: Split) -> None:
        split.refer()
        self.world.check()

    def name_files(self, fork: Fork) -> None:
        fork.name_files()
        self.world.check()

    def write(self, process: Process, *paths: str, seals: bool = False) -> None:
        self.begin_write(process, *paths)
        assert process.end_append(Flush.OK), "a commit is lost, though nothing has failed"
        if seals:
            process.seal()
        self.world.check()

    def begin_write(self, process: Process, *paths: str) -> None:
        for path in paths:
            if path.rpartition("/")[0] not in process.owned:
                if self.rules.take_over_refreshes:
                    process.refresh()
                process.take_over(path.rpartition("/")[0])
        process.begin_put(paths)

    def delete(self, process: Process, path: str, *, refreshes: bool = True, seals: bool = False) -> None:
        if refreshes:
            process.refresh()
        process.delete(path)
        process.flush_tombstones(Flush.OK)
        if seals:
            process.seal()
        self.world.check()

    def clean(self, process: Process, *, complete: bool = True, only_first: bool = False) -> None:
        process.begin_cleaning(complete=complete, at_once=True)
        if only_first and process.cleaning:
            del process.cleaning.files[1:]
        self.go_on(process)

    def only(self, process: Process, *, of: Process) -> None:
        """Of the files that a process would unlink, those of one writer alone."""
        assert process.cleaning
        process.cleaning.files = [name for name in process.cleaning.files if f"-{of.writer:016x}-" in name]

    def go_on(self, process: Process) -> None:
        while process.cleaning:
            process.clean_next(Flush.OK)
        self.world.check()

    def write_copies(self, process: Process) -> None:
        process.begin_copies()
        if process.flight:
            process.end_append(Flush.OK)
        self.world.check()

    def wait(self, time: int) -> None:
        self.world.now += time


def take_over_refreshes(play: Play) -> None:
    """B's clock is behind A's: without a look at A's writes, its own are older."""
    a, b = play.start(FAST), play.start(SLOW)
    play.write(a, ONE)
    play.write(b, ONE)


def deletes_kill_what_they_saw(play: Play) -> None:
    """C deletes what A wrote, late; B has written anew."""
    a, b, c = play.start(), play.start(), play.start(FAST)
    play.write(a, ONE)
    c.refresh()
    play.write(b, ONE)
    play.delete(c, ONE, refreshes=False)


def copies_keep_their_key(play: Play) -> None:
    """C copies what A wrote, late; B has written anew."""
    a, b, c = play.start(), play.start(), play.start(FAST)
    play.write(a, ONE, seals=True)
    c.begin_relocation(0, at_once=True)
    play.write(b, ONE)
    play.write_copies(c)


def carries_tombstones(play: Play) -> None:
    """What B deleted is in a file that lives, the tombstone in one that does not."""
    a, b, c = play.start(), play.start(), play.start()
    play.write(a, ONE, TWO, seals=True)
    play.delete(b, ONE, seals=True)
    play.write(c, THREE)
    play.clean(b)


def reads_the_whole_index(play: Play) -> None:
    """C knows A's file by name only."""
    a, b, c = play.start(), play.start(FAST), play.start()
    play.write(a, ONE)
    play.write(b, TWO)
    play.clean(c, complete=False)


def deletes_are_durable_first(play: Play) -> None:
    """A's deletion dies with it, the file does not come back."""
    a, b = play.start(), play.start()
    play.write(a, ONE, seals=True)
    play.write(b, TWO)
    a.refresh()
    a.delete(ONE)
    play.clean(a)


def pins_are_honoured(play: Play) -> None:
    """The fork reads what A wrote; B deletes it."""
    a, b = play.start(), play.start()
    play.write(a, ONE, seals=True)
    fork = play.fork()
    fork.look()
    play.name_files(fork)
    play.delete(b, ONE, seals=True)
    play.write(a, TWO)
    play.clean(b)


def pins_are_listed_last(play: Play) -> None:
    """C has listed; then the fork is made, and after that B deletes, in a file that C has listed and reads only now."""
    a, b, c = play.start(), play.start(FAST), play.start()
    play.write(a, ONE, seals=True)
    play.write(b, TWO)
    c.begin_cleaning(complete=True, at_once=False)
    fork = play.fork()
    fork.look()
    play.name_files(fork)
    play.delete(b, ONE)
    while c.refreshing:
        c.read_next()
    play.go_on(c)


def forks_announce(play: Play) -> None:
    """The fork has looked; before it says so what it needs is deleted and unlinked."""
    a, b = play.start(), play.start()
    play.write(a, ONE, seals=True)
    fork = play.fork()
    fork.look()
    play.delete(b, ONE, seals=True)
    play.write(a, TWO)
    play.clean(b)
    play.name_files(fork)


def forks_are_timely(play: Play) -> None:
    """The fork takes so long that B takes it for dead."""
    a, b = play.start(), play.start()
    play.write(a, ONE, seals=True)
    fork = play.fork()
    fork.look()
    b.refresh()
    play.delete(b, ONE, seals=True)
    play.wait(CLOSED)
    play.write(a, TWO)
    play.clean(b)
    play.name_files(fork)


def absences_are_counted(play: Play) -> None:
    """The fork was made long ago. It is away for a moment, and comes back when what it reads is deleted."""
    a, b = play.start(), play.start()
    play.write(a, ONE, seals=True)
    fork = play.fork()
    fork.look()
    play.name_files(fork)
    play.wait(CLOSED)
    fork.is_away = True
    fork.is_looked_for()
    play.delete(b, ONE, seals=True)
    play.write(a, TWO)
    play.clean(b)
    fork.is_away = False
    if fork.is_named:
        fork.is_looked_for()
        assert not play.world.missed
    play.world.check()


def forks_keep_what_lives(play: Play) -> None:
    """The fork reads two files, and then one."""
    a, b = play.start(), play.start()
    play.write(a, ONE, seals=True)
    play.write(b, TWO, seals=True)
    fork = play.fork()
    fork.look()
    play.name_files(fork)
    fork.read_less()
    play.delete(b, ONE)
    play.delete(b, TWO, seals=True)
    play.write(a, THREE)
    play.clean(b)
    play.clean(a)
    assert len(play.world.pins) == play.rules.forks_keep_what_lives


def own_pins_come_first(play: Play) -> None:
    """What A wrote has a second path. Then B deletes it at the first one."""
    a, b = play.start(), play.start()
    play.write(a, ONE, seals=True)
    split = play.split()
    play.refer(split)
    play.delete(b, ONE, seals=True)
    play.write(a, TWO)
    play.clean(b)


def own_pins_are_timely(play: Play) -> None:
    """The split takes so long that B drops its pin, and unlinks what it was to keep."""
    a, b = play.start(), play.start()
    play.write(a, ONE, seals=True)
    split = play.split()
    play.clean(b)
    play.wait(CLOSED)
    play.delete(b, ONE, seals=True)
    play.write(a, TWO)
    play.clean(b)
    play.clean(b)
    play.refer(split)


def own_pins_wait(play: Play) -> None:
    """B looks when the pin is there and what needs it is not."""
    a, b = play.start(), play.start()
    play.write(a, ONE, seals=True)
    split = play.split()
    play.clean(b)
    play.refer(split)
    play.delete(b, ONE, seals=True)
    play.write(a, TWO)
    play.clean(b)


def own_pins_are_needed(play: Play) -> None:
    """Old as the pin is, what A wrote lives at its second path."""
    a, b = play.start(), play.start()
    play.write(a, ONE, seals=True)
    split = play.split()
    play.refer(split)
    play.delete(b, ONE, seals=True)
    play.write(a, TWO)
    play.clean(b)
    play.wait(CLOSED)
    play.clean(b)
    play.clean(b)


def highest_stamp_stays(play: Play) -> None:
    """C remembers a deletion whose stamp is ahead of time; D, which comes later, finds no trace of it."""
    a, b, c = play.start(FAST), play.start(SLOW), play.start()
    play.write(a, ONE)
    play.delete(a, ONE, seals=True)
    c.refresh()
    b.refresh()
    play.clean(b)
    play.clean(b)
    d = play.start(SLOW)
    play.write(d, ONE, seals=True)
    play.write(d, TWO)
    play.clean(c)


def _a_dead_file_of_a(play: Play) -> tuple[Process, Process, Process]:
    a, b, c = play.start(), play.start(FAST), play.start()
    play.write(a, ONE)
    play.delete(b, ONE)
    play.write(b, TWO)
    c.refresh()
    return a, b, c


def leaves_idle_files(play: Play) -> None:
    """C has counted A's file as closed; A comes back to it."""
    a, _, c = _a_dead_file_of_a(play)
    play.wait(CLOSED)
    c.begin_cleaning(complete=True, at_once=True)
    play.write(a, THREE)
    play.go_on(c)


def late_flushes_fail(play: Play) -> None:
    """A's flush takes so long that C counts the file as closed."""
    a, _, c = _a_dead_file_of_a(play)
    play.begin_write(a, THREE)
    play.wait(CLOSED)
    c.begin_cleaning(complete=True, at_once=True)
    a.end_append(Flush.OK)
    play.go_on(c)


def closed_is_confirmed(play: Play) -> None:
    """A appends all the time, C has not looked."""
    a, _, c = _a_dead_file_of_a(play)
    for _ in range(2 * CLOSED // IDLE + 1):
        play.wait(IDLE // 2)
        play.write(a, THREE)
    play.clean(c, complete=False)


def _copies_in_hand(play: Play) -> tuple[Process, Process]:
    """C holds a copy of what B deletes; D has unlinked the original."""
    a, b, c, d = play.start(), play.start(FAST), play.start(), play.start()
    play.write(a, ONE, seals=True)
    c.begin_relocation(0, at_once=True)
    play.delete(b, ONE, seals=True)
    play.write(b, TWO)
    play.clean(d, only_first=True)
    return c, d


def has_relocation_markers(play: Play) -> None:
    """Nothing says that C holds a copy."""
    c, d = _copies_in_hand(play)
    play.clean(d)
    play.clean(d)
    play.write_copies(c)


def late_relocations_are_thrown_away(play: Play) -> None:
    """C takes so long that D takes it for dead."""
    c, d = _copies_in_hand(play)
    d.refresh()
    play.wait(CLOSED)
    play.clean(d)
    play.write_copies(c)


def drops_after_complete_refresh(play: Play) -> None:
    """The marker that D saw is gone, and so is its chance to see the copy: it only lists."""
    c, d = _copies_in_hand(play)
    d.refresh()
    play.write_copies(c)
    c.end_relocation()
    play.clean(d, complete=False)


def knows_before_it_watches(play: Play) -> None:
    """E's listing is older than C's marker, what E reads of B's file is younger."""
    a, b, c = play.start(), play.start(), play.start()
    d, e, f = play.start(), play.start(), play.start()
    play.write(b, TWO)
    play.write(a, TWO)
    e.begin_cleaning(complete=True, at_once=False)
    play.write(f, ONE, seals=True)
    c.refresh()
    c.begin_relocation(1, at_once=True)
    play.delete(b, ONE, seals=True)
    a.refresh()
    play.write(a, THREE)
    d.begin_cleaning(complete=True, at_once=True)
    play.only(d, of=f)
    play.go_on(d)
    while e.refreshing:
        e.read_next()
    play.go_on(e)
    play.write_copies(c)


def total_order(play: Play) -> None:
    """B and C have deleted the same; each of their tombstones looks superfluous beside the other."""
    a, b, c = play.start(), play.start(), play.start()
    play.write(a, ONE, TWO, seals=True)
    b.refresh()
    c.refresh()
    play.delete(b, ONE, refreshes=False, seals=True)
    play.delete(c, ONE, refreshes=False, seals=True)
    play.write(a, THREE)
    b.begin_cleaning(complete=True, at_once=True)
    c.begin_cleaning(complete=True, at_once=True)
    play.only(b, of=b)
    play.only(c, of=c)
    play.go_on(b)
    play.go_on(c)


def refresh_starts_again(play: Play) -> None:
    """What D has listed is unlinked before D opens it; the copy is where D has not looked."""
    a, c, e = play.start(), play.start(), play.start()
    play.write(a, ONE, seals=True)
    d = play.start(refreshes=False)
    d.begin_refresh()
    c.begin_relocation(0, at_once=True)
    play.write_copies(c)
    c.end_relocation()
    play.clean(e)
    while d.refreshing:
        d.read_next()


def index_only_is_a_cache(play: Play) -> None:
    """D knows the tombstone from the index-only file alone, B knows it from both."""
    a, b, c = play.start(), play.start(FAST), play.start(SLOW)
    play.write(a, ONE, TWO, seals=True)
    play.delete(b, ONE, seals=True)
    c.refresh()
    c.consolidate()
    play.write(a, THREE)
    d = play.start()
    b.begin_cleaning(complete=True, at_once=True)
    d.begin_cleaning(complete=True, at_once=True)
    play.only(b, of=c)
    play.only(d, of=b)
    play.go_on(b)
    play.go_on(d)


HISTORIES: dict[str, Callable[[Play], None]] = {
    history.__name__: history
    for history in (
        take_over_refreshes,
        deletes_kill_what_they_saw,
        copies_keep_their_key,
        carries_tombstones,
        reads_the_whole_index,
        deletes_are_durable_first,
        pins_are_honoured,
        pins_are_listed_last,
        forks_announce,
        forks_are_timely,
        absences_are_counted,
        forks_keep_what_lives,
        own_pins_come_first,
        own_pins_are_timely,
        own_pins_wait,
        own_pins_are_needed,
        highest_stamp_stays,
        leaves_idle_files,
        late_flushes_fail,
        closed_is_confirmed,
        has_relocation_markers,
        late_relocations_are_thrown_away,
        drops_after_complete_refresh,
        knows_before_it_watches,
        total_order,
        refresh_starts_again,
        index_only_is_a_cache,
    )
}
# What a process does by itself, whatever index it has; the other mutants are of the Python index.
OF_PROCESSES = sorted(
    set(HISTORIES)
    - {
        "reads_the_whole_index",
        "highest_stamp_stays",
        "closed_is_confirmed",
        "drops_after_complete_refresh",
        "knows_before_it_watches",
        "total_order",
    }
)


def test_every_rule_has_a_history() -> None:
    assert set(HISTORIES) == {field.name for field in fields(Rules)}


@pytest.mark.parametrize("rule", HISTORIES)
def test_it_goes_well_in_python(rule: str) -> None:
    HISTORIES[rule](Play(Rules(), PythonView))


@pytest.mark.parametrize("rule", HISTORIES)
def test_it_goes_wrong_without_the_rule_in_python(rule: str) -> None:
    with pytest.raises(AssertionError, match=r"came back|is lost|does not see|took .* over|is right|a commit is lost"):
        HISTORIES[rule](Play(Rules(**{rule: False}), PythonView))


@pytest.mark.spark
@pytest.mark.parametrize("rule", HISTORIES)
def test_it_goes_well_in_java(rule: str, jvm: Any) -> None:
    HISTORIES[rule](Play(Rules(), lambda _: JavaView(jvm)))


@pytest.mark.spark
@pytest.mark.parametrize("rule", OF_PROCESSES)
def test_it_goes_wrong_without_the_rule_in_java(rule: str, jvm: Any) -> None:
    with pytest.raises(AssertionError, match=r"came back|is lost|does not see|took .* over|is right|a commit is lost"):
        HISTORIES[rule](Play(Rules(**{rule: False}), lambda _: JavaView(jvm)))
