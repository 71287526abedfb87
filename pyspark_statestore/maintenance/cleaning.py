"""Unlinks merged files in which nothing lives: rule 6 of docs/guarantees.md."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow.compute as pc

from pyspark_statestore.format.layout import ENTRY, U32
from pyspark_statestore.log import HIGHEST_STAMP, Entries, TombstoneWatch, Unlink, plan_unlinks, resolve
from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog
from pyspark_statestore.log.payload import copied, paths_of
from pyspark_statestore.log.pins import unpinned
from pyspark_statestore.log.scan import MERGED
from pyspark_statestore.storage.changes import delete
from pyspark_statestore.storage.directory import in_parallel

_ROUNDS = 8
"""Four are usual at most: what is dead goes, then what only held it down, then that which had the highest stamp."""

_WORTH_JOINING = 4
"""So many files that hold little but needed tombstones are joined; as the executors do."""

_WORTH_REPLACING = 4096
"""Bytes from which on a file that only stays for its stamp gives way to one with nothing else in it."""

_EMPTY_FILE = 256
"""Bytes of header and trailer, about."""

NOT_ASKED_FOR = "it was not asked for"
MOSTLY_NEEDED = "most of it are tombstones that are still needed"


@dataclass(frozen=True)
class Cleaned:
    """What went.

    Attributes:
        files: Names of the merged files that were unlinked, or would be.
        size_in_bytes: Of them.
        added: Names of files with tombstones that are still needed.
        kept: Why other files without live segments stay.
    """

    files: tuple[str, ...] = ()
    size_in_bytes: int = 0
    added: tuple[str, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()


@dataclass
class _Work:
    """What was done so far."""

    gone: dict[str, int] = field(default_factory=dict)
    added: dict[str, int] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)

    def done(self) -> Cleaned:
        # What was written on the way and has gone again is nobody's business.
        gone = {name: size for name, size in self.gone.items() if name not in self.added}
        added = tuple(name for name in self.added if name not in self.gone)
        return Cleaned(tuple(gone), sum(gone.values()), added, tuple(self.kept.items()))


def clean(
    log: MergedLog, known: Mapping[str, int], *, only: Collection[str] | None = None, dry_run: bool = False
) -> Cleaned:
    """Looks again, and unlinks what nobody needs any more; as often as there is more of it.

    Tombstones go where two looks prove them unneeded, an earlier one and another; others are written again first.

    Args:
        log: Of the checkpoint.
        known: What an earlier look of this process knew: :attr:`LogSnapshot.closed_tombstones`.
        only: Names of files that may go; all if not given.
        dry_run: Whether nothing is to be changed.

    Raises:
        StateStoreFilesError: A file cannot be read, written or deleted. Nothing that is needed is gone then.
    """
    if dry_run:
        return foresee(log, log.snapshot(), only=only)
    work = _Work()
    for _ in range(_ROUNDS):
        known, is_done = _round(log, known, only, work)
        if is_done:
            break
    return work.done()


def _round(
    log: MergedLog, known: Mapping[str, int], only: Collection[str] | None, work: _Work
) -> tuple[Mapping[str, int], bool]:
    """One look, and what goes by it; what is known then, and whether there cannot be more."""
    watch = TombstoneWatch()
    watch.begin(known)
    now = log.snapshot()
    droppable = watch.refreshed(now.scan.resolution, now.relocation_markers)
    if log.directory.lists_old_lengths and not all(state.closed for state in now.states.values()):
        # Every copy of what a tombstone kills has to have been seen; here that hangs on what an open file shows.
        droppable = frozenset()
    plan = plan_unlinks(now.scan.resolution, now.states, droppable)
    steps, put_off = _worthwhile(now, now.scan.entries, plan.unlink, None if only is None else {*only, *work.added})
    # After the look: see unpinned().
    free, pinned = unpinned(log.directory, (step.name for step in steps), now.expired)
    steps = [step for step in steps if step.name in free]
    work.kept = {**plan.kept, **put_off, **pinned}
    written = len(work.added)
    # This process knows what it has written before it looks again.
    known = now.closed_tombstones | _carry_over(log, now, steps, work)
    going = {step.name for step in steps}
    if only is None:
        _replace_newest(log, now, work)
    speechless = {name for name in _speak_for_nothing(now, going) if only is None or name in only}
    going |= unpinned(log.directory, speechless, now.expired)[0]
    in_parallel(lambda name: delete(log.directory, f"{MERGED}/{name}"), sorted(going | now.expired))
    work.gone |= {name: now.scan.infos[name].size for name in sorted(going)}
    return known, len(work.added) == written and not (steps and put_off)


def foresee(
    log: MergedLog, snapshot: LogSnapshot, rewritten: Collection[str] = (), *, only: Collection[str] | None = None
) -> Cleaned:
    """What would go, as far as can be told without doing it.

    Args:
        log: Of the checkpoint.
        snapshot: A look.
        rewritten: Names of files from which everything that lives would have been copied before.
        only: As for :func:`clean`.
    """
    entries = snapshot.scan.entries
    kept: Mapping[str, str] = {}
    going: set[str] = set(rewritten)
    while True:
        gone = np.isin(entries.file, [number for number, name in enumerate(entries.files) if name in going])
        rest = resolve(entries.take(np.flatnonzero(~gone)))
        holding = set(np.unique(rest.entries.file[rest.held]).tolist())
        droppable = [name for number, name in enumerate(entries.files) if number not in holding]
        plan = plan_unlinks(rest, snapshot.states, [] if snapshot.relocation_markers else droppable)
        steps, put_off = _worthwhile(snapshot, rest.entries, plan.unlink, only)
        # A new file takes over from the one that has the highest stamp now.
        taken_over = [name for name, reason in plan.kept.items() if reason == HIGHEST_STAMP and rewritten]
        speechless = _speak_for_nothing(snapshot, going, is_outranked=bool(rewritten))
        more = {step.name for step in steps}.union(taken_over, speechless if only is None else ()) - going
        if not more:
            kept = {name: reason for name, reason in {**plan.kept, **put_off}.items() if name not in going}
            break
        going |= more
    free, pinned = unpinned(log.directory, going, snapshot.expired)
    kept = {**kept, **pinned}
    return Cleaned(tuple(sorted(free)), sum(snapshot.scan.infos[name].size for name in free), (), tuple(kept.items()))


def _speak_for_nothing(snapshot: LogSnapshot, going: Collection[str], *, is_outranked: bool = False) -> set[str]:
    """Index-only files of which everything that they repeat is gone, or goes.

    Args:
        snapshot: A look.
        going: Names of files that go.
        is_outranked: Whether a file with a higher stamp is about to be there: the highest one has to be seen (rule 3).
    """
    lasting = {name for name, state in snapshot.states.items() if not state.index_only} - set(going)
    highest = max(((snapshot.states[name].stamp, name) for name in lasting), default=(0, ""))
    found = set()
    for name, state in snapshot.states.items():
        if not state.index_only or not (is_outranked or (state.stamp, name) < highest):
            continue
        about = {other for group in snapshot.scan.files[name].groups for other in group.index.names}
        if about.isdisjoint(lasting):
            found.add(name)
    return found


def _worthwhile(
    snapshot: LogSnapshot, entries: Entries, steps: Sequence[Unlink], only: Collection[str] | None
) -> tuple[list[Unlink], dict[str, str]]:
    """Leaves out what would only be written again as it is, round after round."""
    asked = [step for step in steps if only is None or step.name in only]
    kept = dict.fromkeys((step.name for step in steps if only is not None and step.name not in only), NOT_ASKED_FOR)
    mostly_needed = {step.name for step in asked if 2 * _size_of(entries, step) > snapshot.scan.infos[step.name].size}
    if len(mostly_needed) >= _WORTH_JOINING:
        return asked, kept
    kept |= dict.fromkeys(sorted(mostly_needed), MOSTLY_NEEDED)
    return [step for step in asked if step.name not in mostly_needed], kept


def _size_of(entries: Entries, step: Unlink) -> int:
    """Bytes of the tombstones that it carries, and of a file for them."""
    if not len(step.carry):
        return 0
    paths = pc.sum(pc.binary_length(paths_of(entries, step.carry))).as_py()
    return int(paths) + len(step.carry) * (ENTRY.size + U32.size) + _EMPTY_FILE


def _carry_over(log: MergedLog, snapshot: LogSnapshot, steps: Sequence[Unlink], work: _Work) -> dict[str, int]:
    """Writes tombstones again; how many, by the new file's name."""
    rows = np.concatenate([np.empty(0, "i8"), *(step.carry for step in steps)])
    if not len(rows):
        return {}
    # The file with the highest stamp stays for now, so this one need not say it: it can go when it is not needed.
    with log.new_file(snapshot) as (name, out):
        out.add_columns(*copied(snapshot.scan.entries, rows))
        out.seal()
    work.added[name] = out.position
    return {name: len(rows)}


def _replace_newest(log: MergedLog, snapshot: LogSnapshot, work: _Work) -> None:
    """A dead file that has the highest stamp can go when another one has a higher one."""
    lasting = [name for name, state in snapshot.states.items() if not state.index_only]
    newest = max(lasting, key=lambda name: (snapshot.states[name].stamp, name), default=None)
    if newest is None or newest not in _dead(snapshot) or not snapshot.states[newest].closed:
        return
    if snapshot.scan.infos[newest].size < _WORTH_REPLACING:
        return
    with log.new_file(snapshot) as (name, out):
        out.seal(group_stamp=snapshot.highest_stamp + 1)
    work.added[name] = out.position


def _dead(snapshot: LogSnapshot) -> frozenset[str]:
    live = snapshot.scan.resolution.totals.live_segment_count
    return frozenset(np.array(snapshot.scan.entries.files, object)[live == 0].tolist())
