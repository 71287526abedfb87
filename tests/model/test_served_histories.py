"""For each rule of the index service the shortest history that goes wrong without it, and right with it.

See ``test_histories.py`` for the rules that hold everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from tests.model.java_view import ServedJavaView
from tests.model.messages import Answer, Looks, Message, Reply, Reported
from tests.model.process import Flush, Process
from tests.model.rules import Rules
from tests.model.served import Served
from tests.model.served_rules import ServedRules
from tests.model.service import Service
from tests.model.views import PythonView, ServedView, partition_of
from tests.model.world import CLOSED, World

ONE, TWO, THREE, OTHER = "0/0/1.changelog", "0/1/1.changelog", "0/2/1.changelog", "0/3/1.changelog"
FAST, SLOW = 100_000, -100_000
WRONG = r"came back|is lost|took .* over|is right|is led to"


class Play:
    """A service, those whom it serves, strangers, and the stage directions for them.

    Attributes:
        holds: Whether messages wait until they are delivered.
        waiting: Messages and answers that are under way.
    """

    def __init__(self, rules: ServedRules, make_view: Callable[[Rules], ServedView]) -> None:
        self.rules = rules
        self.world = World((ONE, TWO, THREE, OTHER))
        self.holds = False
        self.waiting: list[tuple[Message | Reply, Served]] = []
        self._make_view = make_view
        self._started = 0
        self.service = self.start_service()
        self._other = self.served()

    def _new(self, skew: int) -> tuple[Any, ...]:
        self._started += 1
        name = f"P{self._started}"
        return self.world, name, self._started, skew, self.rules, self._make_view(self.rules)

    def start_service(self) -> Service:
        """The driver's, at the start of a run."""
        self.world.epoch += 1
        service = Service(self.world.epoch, *self._new(0))
        service.begin_run()
        return service

    def served(self, skew: int = 0) -> Served:
        made: list[Served] = []
        made.append(Served(self.service, lambda message: self._send(message, made[0]), *self._new(skew)))
        return made[0]

    def stranger(self, skew: int = 0) -> Process:
        process = Process(*self._new(skew))
        process.refresh()
        return process

    # ---- messages

    def _send(self, message: Message, sender: Served) -> None:
        if self.holds:
            self.waiting.append((message, sender))
        else:
            self._arrive(self.service.handle(message), sender)

    def _arrive(self, reply: Reply | None, to: Served) -> None:
        if isinstance(reply, Reported):
            to.reported(reply)
        elif isinstance(reply, Answer):
            to.answered(reply)
        self.check()

    def arrives(self) -> None:
        """The first message that waits is delivered, and answered at once."""
        message, sender = self.waiting.pop(0)
        self.holds = False
        if isinstance(message, (Reported, Answer)):
            self._arrive(message, sender)
        else:
            self._arrive(self.service.handle(message), sender)

    def answer_waits(self) -> None:
        """The first message that waits is delivered; its answer waits."""
        message, sender = self.waiting.pop(0)
        self.holds = False
        assert not isinstance(message, (Reported, Answer))
        reply = self.service.handle(message)
        assert reply is not None
        self.waiting.append((reply, sender))

    def is_lost(self) -> None:
        """All that waits is lost."""
        self.waiting.clear()
        self.holds = False

    # ---- what processes do

    def check(self) -> None:
        self.world.check()
        self.service.check_what_counts()

    def load(self, process: Served, *paths: str) -> None:
        process.ask_to_load({partition_of(path) for path in paths})
        self.check()

    def write(self, process: Served, *paths: str, seals: bool = False) -> None:
        self.load(process, *paths)
        process.begin_put(paths)
        assert process.end_append(Flush.OK)
        if seals:
            process.seal()
        self.check()

    def delete(self, process: Served, path: str, *, seals: bool = True) -> None:
        self.load(process, path)
        process.delete(path)
        process.flush_tombstones(Flush.OK)
        if seals:
            process.seal()
        self.check()

    def copies(self, process: Served) -> None:
        """Writes the copies of a relocation."""
        process.begin_copies()
        if process.flight:
            process.end_append(Flush.OK)
        self.check()

    def stranger_writes(self, process: Process, path: str, *, seals: bool = False) -> None:
        process.refresh()
        process.take_over(partition_of(path))
        process.begin_put([path])
        assert process.end_append(Flush.OK)
        if seals:
            process.seal()
        self.check()

    def stranger_deletes(self, process: Process, path: str) -> None:
        process.refresh()
        process.delete(path)
        process.flush_tombstones(Flush.OK)
        process.seal()

    def clean(self, process: Process, times: int = 1) -> None:
        """Cleans; each time another file is the newest, which stays."""
        for _ in range(times):
            if self._other.epoch != self.service.epoch:
                self._other = self.served()
            self.wait(1)
            self.write(self._other, OTHER, seals=True)
            if process is self.service:
                self.service.look()
                self.service.look()
            process.begin_cleaning(complete=True, at_once=True)
            while process.cleaning:
                process.clean_next(Flush.OK)
            process.seal()
            self.check()

    def wait(self, time: int) -> None:
        self.world.now += time


def reports_before_acknowledging(play: Play) -> None:
    """A's report is under way; B loads what A has acknowledged."""
    a, b = play.served(), play.served()
    play.load(a, ONE)
    play.holds = True
    a.begin_put([ONE])
    a.end_append(Flush.OK)
    play.holds = False
    play.load(b, ONE)


def failed_reports_end_the_file(play: Play) -> None:
    """A's report is lost, and A goes on. B writes anew and deletes; nobody knows what A's tombstone holds down."""
    a, b = play.served(), play.served(FAST)
    play.load(a, ONE)
    play.holds = True
    a.begin_put([ONE])
    a.end_append(Flush.OK)
    play.is_lost()
    a.report_fails()
    _b_writes_and_deletes(play, b)
    play.clean(play.service)
    play.service.look()
    play.service.look()
    play.write(a, THREE)
    play.clean(play.service)


def _b_writes_and_deletes(play: Play, b: Served) -> None:
    play.write(b, ONE, seals=True)
    play.delete(b, ONE)
    play.write(b, TWO, seals=True)


def asks_at_every_load(play: Play) -> None:
    """A has served the partition before; B has written since."""
    a, b = play.served(), play.served()
    play.write(a, ONE)
    play.write(b, ONE)
    play.load(a, ONE)


def revisions_before_are_compared(play: Play) -> None:
    """A, whose clock is behind, is late: B has written since A loaded."""
    a, b = play.served(SLOW), play.served()
    play.load(a, ONE)
    play.write(b, ONE)
    a.begin_put([ONE])
    a.end_append(Flush.OK)
    play.load(a, ONE)


def stamps_are_observed(play: Play) -> None:
    """B's clock is ahead of A's."""
    a, b = play.served(SLOW), play.served(FAST)
    play.write(b, ONE)
    play.write(a, ONE)


def epochs_are_checked(play: Play) -> None:
    """The next service happens to give the same number to another revision."""
    a = play.served()
    play.write(a, ONE)
    play.write(a, ONE)
    play.service = play.start_service()
    b = play.served()
    play.write(b, ONE)
    a.ask_to_load({partition_of(ONE)})
    assert a.refused, "an answer of another epoch"


def _all_of_one_is_gone(play: Play, b: Served) -> None:
    play.delete(b, ONE)
    play.write(b, TWO, seals=True)
    play.clean(play.service, 3)


def gone_files_are_removed(play: Play) -> None:
    """A knows what B wrote. It was deleted, and its tombstone is gone, too."""
    a, b = play.served(), play.served()
    play.write(b, ONE, seals=True)
    play.load(a, ONE)
    _all_of_one_is_gone(play, b)
    play.load(a, ONE)


def late_answers_are_dropped(play: Play) -> None:
    """An answer with B's file overtakes one that says that it is gone."""
    a, b = play.served(), play.served()
    play.write(b, ONE, seals=True)
    play.holds = True
    a.ask_to_load({partition_of(ONE)})
    play.answer_waits()
    _all_of_one_is_gone(play, b)
    play.load(a, ONE)
    play.arrives()
    play.load(a, ONE)


def misses_are_asked_for(play: Play) -> None:
    """Maintenance from outside has moved what A wrote; the service has not looked since."""
    a, outside = play.served(), play.stranger()
    play.write(a, ONE, seals=True)
    outside.begin_relocation(0, at_once=True)
    outside.begin_copies()
    outside.end_append(Flush.OK)
    outside.end_relocation()
    play.clean(outside)
    play.load(a, ONE)
    assert a.misses(ONE)
    if play.rules.misses_are_asked_for:
        a.ask_to_load({partition_of(ONE)}, Looks.READS)
    a.reads(ONE)


def a_run_begins_with_a_look(play: Play) -> None:
    """Between two runs in this application another one ran the query."""
    a, stranger = play.served(), play.stranger()
    play.write(a, ONE)
    play.stranger_writes(stranger, ONE)
    play.service.begin_run()
    play.load(a, ONE)


def strangers_are_read(play: Play) -> None:
    """The service has read a stranger's file before it held a copy of what B deletes."""
    b, stranger = play.served(), play.stranger()
    play.write(b, ONE, seals=True)
    play.stranger_writes(stranger, TWO)
    play.service.look()
    stranger.begin_relocation(0, at_once=True)
    play.delete(b, ONE)
    play.write(b, THREE, seals=True)
    stranger.begin_copies()
    stranger.end_append(Flush.OK)
    stranger.end_relocation()
    play.clean(play.service, 4)


def ends_are_read(play: Play) -> None:
    """A's report is lost, and that it left the file, too. Nothing is known to be in it."""
    a, b = play.served(), play.served()
    play.load(a, ONE)
    play.holds = True
    a.begin_put([ONE])
    a.end_append(Flush.OK)
    a.report_fails()
    play.is_lost()
    play.service.look()
    play.wait(CLOSED)
    play.write(b, TWO)
    play.clean(play.service, 2)


def only_the_service_unlinks(play: Play) -> None:
    """A serves one of the two partitions in B's file."""
    a, b = play.served(), play.served()
    play.write(b, ONE, TWO, seals=True)
    play.write(a, ONE)
    if not play.rules.only_the_service_unlinks:
        a.unlink_by_its_view()
    play.check()


def reports_are_settled(play: Play) -> None:
    """A's report is under way. B has written anew and deleted: its tombstone seems to hold nothing down."""
    a, b = play.served(), play.served(FAST)
    play.load(a, ONE)
    play.holds = True
    a.begin_put([ONE])
    a.end_append(Flush.OK)
    play.holds = False
    _b_writes_and_deletes(play, b)
    play.clean(play.service, 3)
    play.arrives()
    play.clean(play.service, 3)


def _a_holds_a_copy(play: Play) -> tuple[Served, Served]:
    """A is about to copy what B deletes; the original is unlinked."""
    a, b = play.served(), play.served()
    play.write(b, ONE, seals=True)
    play.load(a, ONE)
    a.begin_relocation(0)
    play.service.look()
    play.delete(b, ONE)
    play.write(b, TWO, seals=True)
    play.clean(play.service)
    play.service.look()
    return a, b


def ended_markers_are_settled(play: Play) -> None:
    """The report of A's copy takes so long that its marker expires."""
    a, b = _a_holds_a_copy(play)
    play.wait(CLOSED * 4 // 10)
    play.holds = True
    play.copies(a)
    play.holds = False
    play.wait(CLOSED * 6 // 10)
    play.write(b, THREE, seals=True)
    play.clean(play.service, 3)
    play.arrives()


def copies_are_reported(play: Play) -> None:
    """A deletes its marker when its copy is durable; the report is under way."""
    a, b = _a_holds_a_copy(play)
    play.holds = True
    play.copies(a)
    play.holds = False
    if a.may_end_relocation:
        a.end_relocation()
    play.write(b, THREE, seals=True)
    play.clean(play.service, 3)


def failed_copies_keep_their_marker(play: Play) -> None:
    """The report of A's copy fails, and nobody hears that A left the file."""
    a, b = _a_holds_a_copy(play)
    play.holds = True
    play.copies(a)
    a.report_fails()
    play.is_lost()
    a.end_relocation()
    play.write(b, THREE, seals=True)
    play.clean(play.service, 3)


def moved_content_is_looked_for(play: Play) -> None:
    """A's report of a copy is under way; maintenance from outside sees the copy and unlinks the original."""
    a, b, outside = play.served(), play.served(), play.stranger()
    play.write(b, ONE, seals=True)
    play.write(b, TWO)
    play.load(a, ONE)
    a.begin_relocation(0)
    play.holds = True
    play.copies(a)
    play.holds = False
    play.clean(outside)
    play.service.look()
    play.load(b, ONE)


def gone_at_the_end(play: Play) -> None:
    """What the service is about to read is moved and unlinked; somebody asks before it has looked again."""
    b, first, second = play.served(), play.stranger(), play.stranger()
    play.stranger_writes(first, ONE)
    play.service.begin_run()
    play.service.begin_refresh()
    first.seal()
    second.begin_relocation(0, at_once=True)
    second.begin_copies()
    second.end_append(Flush.OK)
    second.end_relocation()
    play.stranger_writes(second, TWO)
    play.clean(second)
    play.service.read_next()
    play.load(b, ONE)


def looks_after_the_marker(play: Play) -> None:
    """A knows what B has deleted; all trace of it is gone."""
    a, b = play.served(), play.served()
    play.write(b, ONE, seals=True)
    play.load(a, ONE)
    _all_of_one_is_gone(play, b)
    a.begin_relocation(0)
    play.copies(a)


def originals_are_looked_for(play: Play) -> None:
    """Maintenance from outside has deleted what A knows; the service does not know it yet."""
    a, outside = play.served(), play.stranger()
    play.write(a, ONE, seals=True)
    play.stranger_deletes(outside, ONE)
    play.stranger_writes(outside, TWO, seals=True)
    play.clean(outside, 3)
    a.begin_relocation(0)
    play.copies(a)


HISTORIES: dict[str, Callable[[Play], None]] = {
    history.__name__: history
    for history in (
        reports_before_acknowledging,
        failed_reports_end_the_file,
        asks_at_every_load,
        revisions_before_are_compared,
        stamps_are_observed,
        epochs_are_checked,
        gone_files_are_removed,
        late_answers_are_dropped,
        misses_are_asked_for,
        a_run_begins_with_a_look,
        strangers_are_read,
        ends_are_read,
        only_the_service_unlinks,
        reports_are_settled,
        ended_markers_are_settled,
        moved_content_is_looked_for,
        gone_at_the_end,
        looks_after_the_marker,
        originals_are_looked_for,
        copies_are_reported,
        failed_copies_keep_their_marker,
    )
}
# Either of two rules is enough here; the other one is off, too, where it has to go wrong.
BESIDE = {
    "copies_are_reported": "ended_markers_are_settled",
    "failed_copies_keep_their_marker": "ended_markers_are_settled",
    "looks_after_the_marker": "originals_are_looked_for",
}
# Mutants of the Python index.
IN_PYTHON = {"epochs_are_checked", "ends_are_read"}
# What goes well without them; see the machine.
HARMLESS = {"gone_files_are_refused"}


def test_every_rule_has_a_history() -> None:
    own = {field.name for field in fields(ServedRules)} - {field.name for field in fields(Rules)}
    assert set(HISTORIES) == own - HARMLESS


def without(rule: str) -> ServedRules:
    """All rules but this one, and one that would do instead."""
    return ServedRules(**dict.fromkeys((rule, BESIDE.get(rule, rule)), False))


@pytest.mark.parametrize("rule", HISTORIES)
def test_it_goes_well_in_python(rule: str) -> None:
    HISTORIES[rule](Play(ServedRules(), PythonView))


@pytest.mark.parametrize("rule", HISTORIES)
def test_it_goes_wrong_without_the_rule_in_python(rule: str) -> None:
    with pytest.raises(AssertionError, match=WRONG):
        HISTORIES[rule](Play(without(rule), PythonView))


@pytest.mark.parametrize("rule", BESIDE)
def test_either_rule_is_enough(rule: str) -> None:
    HISTORIES[rule](Play(ServedRules(**{rule: False}), PythonView))
    HISTORIES[rule](Play(ServedRules(**{BESIDE[rule]: False}), PythonView))


@pytest.mark.spark
@pytest.mark.parametrize("rule", HISTORIES)
def test_it_goes_well_in_java(rule: str, jvm: Any) -> None:
    HISTORIES[rule](Play(ServedRules(), lambda _: ServedJavaView(jvm)))


@pytest.mark.spark
@pytest.mark.parametrize("rule", sorted(set(HISTORIES) - IN_PYTHON))
def test_it_goes_wrong_without_the_rule_in_java(rule: str, jvm: Any) -> None:
    with pytest.raises(AssertionError, match=WRONG):
        HISTORIES[rule](Play(without(rule), lambda _: ServedJavaView(jvm)))
