"""A simulated process with all that it does: besides its own work, relocation and cleaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pyspark_statestore.format import Entry, Kind
from pyspark_statestore.log import is_timely
from tests.model.base_process import BaseProcess, Flush
from tests.model.world import CLOSED, File, Group

__all__ = ["Flush", "Process"]


@dataclass
class _Relocation:
    marker: str
    created: int
    copies: list[Entry] | None = None


@dataclass
class _Cleaning:
    files: list[str]
    to_carry: list[str]
    is_pinned: Callable[[str], bool] | None = None


class Process(BaseProcess):
    """One process on the checkpoint, as in :class:`~tests.model.base_process.BaseProcess`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.relocation: _Relocation | None = None
        self.cleaning: _Cleaning | None = None

    def crash(self) -> None:
        self.relocation = self.cleaning = None
        super().crash()

    def begin_relocation(self, number: int, *, at_once: bool) -> None:
        """Says what it is about to do, then looks what lives."""
        marker = f"{self._new_name()}.relocating"
        if self.rules.has_relocation_markers:
            self.world.markers[marker] = self.world.now
        self.relocation = _Relocation(marker, self.world.now)
        self._say(f"begins to relocate: {marker}")
        relocation = self.relocation

        def choose() -> None:
            names = sorted(name for name in self.view.names() if self.view.relocatable(name))
            relocation.copies = []
            if names:
                name = names[number % len(names)]
                relocation.copies = self.view.copies(name)
                self._say(f"copies what lives in {name}")

        if at_once:
            self.refresh(choose)
        else:
            self._abandon_refresh()
            self.begin_refresh(choose)

    def begin_copies(self) -> None:
        """Writes the copies."""
        relocation = self.relocation
        assert relocation is not None
        copies = relocation.copies or []
        timely = is_timely(self.world.now - relocation.created, CLOSED)
        if not timely and self.rules.late_relocations_are_thrown_away:
            copies = []
        relocation.copies = []
        if not self.rules.copies_keep_their_key:
            copies = [
                replace(copy, stamp=self.view.next_stamp(self.wall, self.world.now), writer=self.writer)
                for copy in copies
            ]
        if copies:
            self._begin(copies, self._take_pending())

    def end_relocation(self) -> None:
        """The copies are durable, or there are none."""
        assert self.relocation is not None
        self.world.markers.pop(self.relocation.marker, None)
        self._say("ends its relocation")
        self.relocation = None

    # ---- cleaning

    def begin_cleaning(self, *, complete: bool, at_once: bool, flush: Flush = Flush.OK) -> None:
        """Refreshes and chooses what may go."""
        pinned_before = self.list_pins()
        old_pins = self.old_pins()

        def choose() -> None:
            now = self.world.now
            files = self.view.plan(now)
            for marker in self.view.expired(sorted(self.world.markers), now):
                if self.world.markers.pop(marker, None) is not None:
                    self._say(f"removes {marker}")
            if self.rules.deletes_are_durable_first and not self._all_durable(flush):
                return
            if complete:
                self.drop_pins(old_pins)
            self.cleaning = _Cleaning(files, list(files))
            if not self.rules.pins_are_listed_last:
                self.cleaning.is_pinned = pinned_before
            if not self.rules.pins_are_honoured:
                self.cleaning.is_pinned = lambda file: False
            self._say(f"may unlink {files}")

        if not complete:
            self.refresh_listing()
            choose()
        elif at_once:
            self.refresh(choose)
        else:
            self._abandon_refresh()
            self.begin_refresh(choose)

    def _all_durable(self, flush: Flush) -> bool:
        """Writes the deletions that wait; not where some are on their way."""
        return self.flight is None and (not self._pending or self._append([], self._take_pending(), flush))

    def clean_next(self, flush: Flush, *, fails: bool = False) -> None:
        """Carries over what the next file says; after the last, lists the pins; then unlinks one after the other."""
        cleaning = self.cleaning
        assert cleaning is not None
        to_carry = [name for name in cleaning.to_carry if name in cleaning.files]
        if not cleaning.files:
            self.cleaning = None
        elif to_carry:
            cleaning.to_carry = to_carry[1:]
            carry = self.view.carry(to_carry[0])
            if carry and self.rules.carries_tombstones and not self._append([], carry, flush):
                self.cleaning = None
        elif cleaning.is_pinned is None:
            cleaning.is_pinned = self.list_pins()
        else:
            self._unlink(cleaning.files.pop(0), cleaning.is_pinned, fails=fails)

    def _unlink(self, name: str, is_pinned: Callable[[str], bool], *, fails: bool) -> None:
        if is_pinned(name):
            self._say(f"leaves {name} to a fork")
            return
        if fails:
            self._say(f"cannot unlink {name}")
            return
        self.world.files.pop(name, None)
        self._say(f"unlinks {name}")
        self._gone(name)

    def consolidate(self) -> None:
        """Writes an index-only file over the sealed ones."""
        sealed = {
            name: self.world.files[name].groups
            for name in self.view.names()
            if name in self.world.files and self.world.files[name].sealed and not self.world.files[name].index_only
        }
        repeats = {name: list(groups) for name, groups in sealed.items() if groups}
        if not repeats:
            return
        own: list[Entry] = []
        if not self.rules.index_only_is_a_cache:
            own = [e for gs in repeats.values() for g in gs for e in g.entries if e.kind is Kind.DELETE]
            repeats = {
                name: [Group([e for e in g.entries if e.kind is Kind.PUT], g.stamp) for g in gs]
                for name, gs in repeats.items()
            }
        name = self._new_name()
        group = Group(own, self.view.next_stamp(self.wall, self.world.now))
        self.world.files[name] = File(sealed=True, repeats=repeats)
        self.world.append(name, group)
        self._say(f"repeats {sorted(repeats)} in {name}")

    def drop_index_only(self) -> None:
        """Nobody needs an index-only file."""
        for name in sorted(self.world.files):
            if self.rules.index_only_is_a_cache and self.world.files[name].index_only:
                del self.world.files[name]
                self._say(f"unlinks {name}, which is index-only")
                break
