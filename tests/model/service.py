"""The simulated index service: the driver's process, which has everything in view and answers the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.model.base_process import Flight, Refresh
from tests.model.messages import Answer, Left, Looks, Message, Question, Reply, Report, Reported
from tests.model.process import Process
from tests.model.served_rules import ServedRules
from tests.model.views import ServedView, partition_of
from tests.model.world import CLOSED


class Service(Process):
    """A process with a full view, to which others report.

    Args:
        epoch: Of this service; no other one has it.
        arguments: As for a :class:`~tests.model.process.Process`.
    """

    rules: ServedRules
    view: ServedView

    def __init__(self, epoch: int, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.epoch = epoch
        self.reporting: set[str] = set()
        """The writers that report, as file names have them."""
        self._left: set[str] = set()
        self._gone_files: list[str] = []
        self._changed: dict[str, int] = {}
        self._settled: dict[str, int] = {}
        self._unsettled: frozenset[str] = frozenset()
        self._reported_then: frozenset[str] = frozenset()
        self._markers: frozenset[str] = frozenset()
        self._ended: dict[str, frozenset[str]] = {}
        self._reads_all = False
        self._highest = 0

    # ---- messages

    def handle(self, message: Message) -> Reply | None:
        """Acts on a message that arrives; None where there is no answer."""
        refused = message.epoch != self.epoch and self.rules.epochs_are_checked
        if isinstance(message, Left):
            self._left.add(message.file)
            return None
        if isinstance(message, Report):
            refused |= message.file in self._gone_files and self.rules.gone_files_are_refused
            return Reported(message, True) if refused else self._reported(message)
        return Answer(message, True) if refused else self._answer(message)

    def _reported(self, report: Report) -> Reported:
        partitions = {partition_of(entry.path) for entry in report.entries}
        before = {partition: self.view.revision(partition) for partition in partitions}
        name, known = report.file, self._read.get(report.file, 0)
        if report.number >= known or (report.sealed and report.number == known):
            self.view.read(
                name, report.entries, report.stamp, sealed=report.sealed, index_only=False, now=self.world.now
            )
            self._observe(report.stamp)
            self._changed[name] = self.world.now
            self._settled[name] = self._settled.get(name, 0) + 1
            self._read[name] = report.number + (not report.sealed)
            self._say(f"is told of group {report.number} of {name}{', which is sealed' if report.sealed else ''}")
        return Reported(report, False, {p: (old, self.view.revision(p)) for p, old in before.items()})

    def _answer(self, question: Question) -> Answer:
        if question.looks is Looks.READS:
            self.look(everything=True)
        facts = {}
        for partition, since in question.since.items():
            revision = self.view.revision(partition)
            if revision != since:
                facts[partition] = (revision, self.view.entries(partition))
        gone = self._gone_files
        highest = self._highest if self.rules.stamps_are_observed else -1
        return Answer(question, False, highest, gone[question.gone_since :], len(gone), facts)

    def opened(self, writer: int) -> None:
        """A process is going to report."""
        self.reporting.add(f"-{writer:016x}-")

    def lost(self, writer: int) -> None:
        """The connection to a process is lost."""
        self.reporting.discard(f"-{writer:016x}-")

    def _observe(self, stamp: int) -> None:
        self._highest = max(self._highest, stamp)
        if self.rules.stamps_are_observed:
            self.view.observe(stamp)

    def _is_durable(self, flight: Flight) -> None:
        self._observe(flight.group.stamp)
        super()._is_durable(flight)

    # ---- refreshing

    def begin_run(self) -> None:
        """A query begins: what is in the files by now counts."""
        self.world.counted = self.world.truth.copy()
        if self.rules.a_run_begins_with_a_look:
            self.look(everything=True)
        self._ready = True

    def look(self, *, everything: bool = False) -> None:
        """A refresh that nothing comes between; reads the tails of those who report, too, where it is to."""
        then = self.refreshing.then if self.refreshing else lambda: None
        self._abandon_refresh()
        self._reads_all = everything
        self.begin_refresh(then)
        while self.refreshing:
            self.read_next()

    def _abandon_refresh(self) -> None:
        super()._abandon_refresh()
        self._reads_all = False

    def begin_refresh(self, then: Callable[[], None] = lambda: None) -> None:
        now, listed = self.world.now, self.world.files
        for name in listed:
            self._changed.setdefault(name, now)
        reporters = {name for name in {*listed, *self.view.names()} if self._is_reported(name)}
        self._unsettled = frozenset(f"{name}@{self._settled.get(name, 0)}" for name in reporters)
        self._reported_then = frozenset(self.reporting)
        super().begin_refresh(then)
        for name in reporters & set(listed):
            self.view.listed(name, now)

    def _is_reported(self, name: str) -> bool:
        """Whether a process tells of this file what it appends to it."""
        is_open = self.view.needs_read(name) and name not in self._left
        return is_open and any(writer in name for writer in self.reporting)

    def _must_read(self, name: str) -> bool:
        if not super()._must_read(name):
            return False
        if not self._is_reported(name):
            return self.rules.strangers_are_read or name not in self._read
        return self._reads_all or self.world.now - self._changed[name] >= CLOSED

    def _read_file(self, name: str, refresh: Refresh | None = None) -> None:
        if self._is_reported(name) and not self._reads_all and not self.rules.ends_are_read:
            self.view.read(name, [], -1, sealed=False, index_only=False, now=self.world.now)
            return
        before = self._read.get(name, 0)
        super()._read_file(name, refresh)
        self._settled[name] = self._settled.get(name, 0) + 1
        file = self.world.files[name]
        groups = file.groups[before:]
        for group in [*groups, *(group for repeated in file.repeats.values() for group in repeated)]:
            self._observe(group.stamp)
        if groups:
            self._changed[name] = self.world.now

    def _missing(self, name: str) -> None:
        if not self.rules.gone_at_the_end:
            self._gone(name)

    def _end_refresh(self, refresh: Refresh) -> None:
        if not refresh.missing and not self._reads_all and self.rules.moved_content_is_looked_for:
            gone = refresh.known - set(refresh.listing)
            if any(self.view.relocatable(name) for name in gone):
                self._say("looks for what lived in a file that is gone")
                self._reads_all = refresh.missing = True
        super()._end_refresh(refresh)
        if self.refreshing is None:
            self._reads_all = False

    def _gone(self, name: str) -> None:
        super()._gone(name)
        if name not in self._gone_files:
            self._gone_files.append(name)

    def _tell_view(self, refresh: Refresh) -> None:
        """A marker that is gone counts until its writer has reported all that it had made durable by then."""
        unsettled = self._unsettled if self.rules.reports_are_settled else frozenset()
        for marker in self._markers - refresh.markers:
            writer = next((w for w in self._reported_then if w in marker), "nobody")
            files = frozenset(each for each in self._unsettled if writer in each)
            self._ended[marker] = self._ended.get(marker, files) & files
        ended = {marker for marker, files in self._ended.items() if files}
        self._ended = {marker: files for marker, files in self._ended.items() if files}
        if not self.rules.ended_markers_are_settled:
            ended = set()
        self._markers = refresh.markers | ended
        self.view.refreshed(self._markers | unsettled, complete=True, now=self.world.now)

    def _check_view(self, refresh: Refresh) -> None:
        if self._reads_all:
            super()._check_view(refresh)

    def check_what_counts(self) -> None:
        """At any moment the service knows all that counts."""
        if not self.alive or not self._ready:
            return
        for path in self.world.paths:
            found = self.view.find(path)
            content = found.entry.crc32c if found else None
            own = self._deleted.get(path, (-1, -1))
            self.world.check_found(path, content, self.world.counted, own, "the service")
