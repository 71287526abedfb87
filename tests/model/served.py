"""A simulated process that an index service serves: it knows its own partitions, and asks before it loads."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from pyspark_statestore.format import Entry
from pyspark_statestore.log import is_timely
from tests.model.base_process import BaseProcess, Flight, Flush
from tests.model.messages import Answer, Left, Looks, Message, Question, Report, Reported
from tests.model.served_rules import ServedRules
from tests.model.service import Service
from tests.model.views import ServedView, partition_of
from tests.model.world import CLOSED


@dataclass
class _Relocation:
    marker: str
    created: int
    copies: list[Entry] | None = None
    flight: Flight | None = None
    in_doubt: bool = False


@dataclass
class _Asked:
    question: Question
    then: Callable[[Question], None]


class Served(BaseProcess):
    """A process that reports what it makes durable, and neither lists nor reads what others have written.

    Args:
        service: That it asks.
        send: Hands a message to the network.
        arguments: As for a :class:`~tests.model.process.Process`.
    """

    rules: ServedRules
    view: ServedView

    def __init__(self, service: Service, send: Callable[[Message], None], *arguments: Any) -> None:
        super().__init__(*arguments)
        self.epoch = service.epoch
        self.relocation: _Relocation | None = None
        self.reporting: Report | None = None
        self.asked: _Asked | None = None
        self.refused = False
        self._send = send
        self._reported: Flight | None = None
        self._groups = 0
        self._questions = 0
        self._revisions: dict[str, int] = {}
        self._gone_since = 0
        self._ready = True
        service.opened(self.writer)

    @property
    def idle(self) -> bool:
        return super().idle and self.reporting is None and not self.refused

    @property
    def serves(self) -> Collection[str]:
        """The partitions of which it has facts."""
        return self._revisions.keys()

    # ---- reports

    def _begin(self, puts: Any, tombstones: Any) -> None:
        before = self._file
        super()._begin(puts, tombstones)
        if self._file != before:
            self._groups = 0

    def end_append(self, flush: Flush) -> bool:
        assert self.flight is not None
        for put in self.flight.puts:
            if put.generation == 0 and self.world.truth.is_deleted(put.path, put.key):
                self.world.late.add(put.crc32c)
        flight = self.flight
        done = super().end_append(flush)
        if not done and self.alive:
            self._send(Left(self.epoch, flight.file))
        return done

    def _is_durable(self, flight: Flight) -> None:
        group = flight.group
        report = Report(self.epoch, flight.file, self._groups, tuple(group.entries), group.stamp)
        self._groups += 1
        self._reported, self.reporting = flight, report
        if not self.rules.copies_are_reported:
            self._copies_may_be_found(flight)
        if not self.rules.reports_before_acknowledging:
            self._counts(flight)
        self._send(report)

    def _counts(self, flight: Flight) -> None:
        """The commits of the group are acknowledged."""
        if self.epoch == self.world.epoch:
            self.world.counted.durable(flight.group.entries)
        super()._is_durable(flight)
        self._say(f"acknowledges what it wrote to {flight.file}")

    def _acknowledged(self, put: Entry) -> None:
        if partition_of(put.path) in self._revisions:
            super()._acknowledged(put)

    def reported(self, answer: Reported) -> None:
        """The service has answered; too late where it is not the report that is waited for."""
        if self.reporting is not answer.report or self._reported is None:
            return
        if answer.refused:
            self.refused |= answer.report.epoch != self.world.epoch
            self.report_fails()
            return
        for partition, (before, after) in answer.revisions.items():
            known = self._revisions.get(partition)
            if known == before or (known is not None and not self.rules.revisions_before_are_compared):
                self._revisions[partition] = after
        flight, self.reporting, self._reported = self._reported, None, None
        self._copies_may_be_found(flight)
        if self.rules.reports_before_acknowledging:
            self._counts(flight)

    def _copies_may_be_found(self, flight: Flight) -> None:
        if self.relocation and self.relocation.flight is flight:
            self.relocation.in_doubt = False

    def report_fails(self) -> None:
        """No answer, or a refusal: as if the flush had failed."""
        flight, self.reporting, self._reported = self._reported, None, None
        assert flight is not None
        self._say(f"fails to report what it wrote to {flight.file}")
        if not self.rules.failed_reports_end_the_file:
            return
        if self._file == flight.file:
            if flight.file in self.view.names():
                self.view.given_up(flight.file)
            self._file = None
        if self.rules.reports_before_acknowledging:
            self._pending += [t for t in flight.tombstones if t.generation == 0]
        self._send(Left(self.epoch, flight.file))

    def seal(self) -> None:
        name, groups = self._file, self._groups
        super().seal()
        if name:
            self._send(Report(self.epoch, name, groups, (), -1, sealed=True))

    # ---- questions

    def ask(self, partitions: Collection[str], then: Callable[[Question], None], looks: Looks = Looks.NO) -> Question:
        """Asks for these partitions, and goes on when the answer has come; an earlier question is given up."""
        self._questions += 1
        since = {partition: self._revisions.get(partition) for partition in partitions}
        counted = self.world.counted.copy()
        question = Question(self.epoch, self._questions, since, self._gone_since, looks, counted)
        self.asked = _Asked(question, then)
        self._send(question)
        return question

    def answered(self, answer: Answer) -> None:
        """An answer has come, perhaps to a question that was given up."""
        is_waited_for = self.asked is not None and self.asked.question is answer.question
        if not is_waited_for and self.rules.late_answers_are_dropped:
            return
        if answer.refused:
            self.refused |= answer.question.epoch != self.world.epoch
            self.asked = None if is_waited_for else self.asked
            return
        for partition, (revision, files) in answer.facts.items():
            for name, entries in files.items():
                self.view.learn(name, entries, self.world.now)
            self._revisions[partition] = revision
        self.view.observe(answer.highest)
        if self.rules.gone_files_are_removed:
            for name in answer.gone:
                self._gone(name)
        self._gone_since = max(answer.gone_now, self._gone_since)
        if is_waited_for:
            assert self.asked is not None
            asked, self.asked = self.asked, None
            self._say(f"is answered about {sorted(answer.question.since)}")
            asked.then(answer.question)

    def ask_to_load(self, partitions: Collection[str], looks: Looks = Looks.NO) -> None:
        """A stage begins: what counts by now is in the answer."""
        if not self.rules.asks_at_every_load and set(partitions) <= self._revisions.keys():
            self._loads(partitions, self.world.counted.copy())
            return

        self.ask(partitions, lambda question: self._loads(partitions, question.counted), looks)

    def _loads(self, partitions: Collection[str], counted: Any) -> None:
        self._floor |= counted.highest()
        for path in self.world.paths:
            if partition_of(path) in partitions:
                self.owned.add(partition_of(path))
                found = self.view.find(path)
                content = found.entry.crc32c if found else None
                own = self._deleted.get(path, (-1, -1))
                self.world.check_found(path, content, counted, own, f"{self.name} loads and")

    def misses(self, path: str) -> bool:
        """Whether it is led to a file that is gone."""
        found = self.view.find(path)
        return found is not None and found.file not in self.world.files

    def reads(self, path: str) -> None:
        """What it is led to has to be there."""
        found = self.view.find(path)
        if found is not None:
            self._check_place(found)

    def forget(self, partition: str) -> None:
        """The store was unloaded."""
        self._revisions.pop(partition, None)
        self.owned.discard(partition)
        self.view.forget(partition)
        self._say(f"forgets {partition}")

    # ---- relocation

    def begin_relocation(self, number: int) -> None:
        """Says what it is about to do, then asks what lives."""
        marker = f"{self._new_name()}.relocating"
        relocation = _Relocation(marker, self.world.now)
        chosen = None if self.rules.looks_after_the_marker else self._choose(number)
        self.world.markers[marker] = self.world.now
        self.relocation = relocation
        self._say(f"begins to relocate: {marker}")

        def choose(_: Question) -> None:
            if self.relocation is relocation:
                relocation.copies = self._choose(number) if chosen is None else chosen

        self.ask(sorted(self._revisions), choose)

    def _choose(self, number: int) -> list[Entry]:
        names = sorted(name for name in self.view.names() if self.view.relocatable(name))
        if not names:
            return []
        name = names[number % len(names)]
        if self.rules.originals_are_looked_for and name not in self.world.files:
            # It may be read through a handle that is open. Whoever unlinked it may have dropped a tombstone since.
            self._say(f"misses {name}")
            return []
        self._say(f"copies what lives in {name}")
        return self.view.copies(name)

    def begin_copies(self) -> None:
        """Writes the copies."""
        relocation = self.relocation
        assert relocation is not None
        copies, relocation.copies = relocation.copies or [], []
        if not is_timely(self.world.now - relocation.created, CLOSED):
            copies = []
        if copies:
            self._begin(copies, self._take_pending())
            relocation.in_doubt, relocation.flight = True, self.flight

    @property
    def may_end_relocation(self) -> bool:
        """Whether nothing of it is under way."""
        is_reported = self.reporting is None or not self.rules.copies_are_reported
        return self.relocation is not None and self.relocation.copies == [] and self.flight is None and is_reported

    def end_relocation(self) -> None:
        """The marker goes; it stays where copies may still turn up."""
        assert self.relocation is not None
        if not self.relocation.in_doubt or not self.rules.failed_copies_keep_their_marker:
            self.world.markers.pop(self.relocation.marker, None)
            self._say("ends its relocation")
        self.relocation = None

    # ---- ends

    def unlink_by_its_view(self) -> None:
        """What nobody who is served may do."""
        for name in sorted(self.view.names()):
            if name in self.world.files and self.world.files[name].sealed and not self.view.relocatable(name):
                del self.world.files[name]
                self._say(f"unlinks {name}")
                return

    def crash(self) -> None:
        self.relocation = self.reporting = self.asked = self._reported = None
        super().crash()
