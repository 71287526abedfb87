"""Cleaning: unlinks merged files in which nothing lives (rule 6 of docs/guarantees.md).

Each round takes a snapshot, decides by it which closed files hold no live segment, writes those of their tombstones
that are still needed into a new file, lists the pins of forks once more, and only then unlinks. Rounds follow one
another until nothing more can go, since one file's end may free another.

Why nothing that is needed goes:

* A file in which anything lives, that may still be appended to, or that has bytes which nobody can read stays (rule 8).
* A tombstone is dropped only where two snapshots of this process prove that nothing which it kills can come back.
* The file with the highest stamp stays, or is replaced by an empty one with a higher stamp.
* The pins are listed after everything else is durable: a fork whose pin is not listed yet sees these files as dead.

A crash between the steps leaves tombstones twice, or dead files. Both do no harm and go with the next cleaning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow.compute as pc

from pyspark_statestore.format.layout import ENTRY, U32
from pyspark_statestore.log import (
    HIGHEST_STAMP,
    Entries,
    Resolution,
    TombstoneWatch,
    Unlink,
    newest_file,
    plan_unlinks,
    resolve,
)
from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog
from pyspark_statestore.log.payload import copied, paths_of
from pyspark_statestore.log.pins import unpinned
from pyspark_statestore.log.scan import MERGED
from pyspark_statestore.log.state_files import second_paths
from pyspark_statestore.maintenance.fork_release import let_go, release_own, unneeded_own
from pyspark_statestore.storage.changes import delete
from pyspark_statestore.storage.directory import in_parallel

_ROUNDS = 8
"""Four are usual at most: dead files go, then their tombstones' files, then the file that had the highest stamp."""

_WORTH_JOINING = 4
"""So many files that hold little but needed tombstones are joined, as executors do."""

_WORTH_REPLACING = 4096
"""A dead file of so many bytes that only stays for its stamp is replaced by an empty one."""

_EMPTY_FILE = 256
"""Bytes of header and trailer, approximately."""

NOT_ASKED_FOR = "it was not asked for"
MOSTLY_NEEDED = "it is mostly tombstones that are still needed"
SECOND_PATHS = "segments of it have second paths"


@dataclass(frozen=True)
class Cleaned:
    """What a cleaning unlinked, or would unlink.

    Attributes:
        files: Names of the merged files that were unlinked.
        size_in_bytes: Their size.
        added: Names of the files that were written for tombstones that are still needed.
        kept: Each other file without live segments, and why it stays.
    """

    files: tuple[str, ...] = ()
    size_in_bytes: int = 0
    added: tuple[str, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()


def clean(
    log: MergedLog, known: Mapping[str, int], *, only: Collection[str] | None = None, dry_run: bool = False
) -> Cleaned:
    """Unlinks the merged files that nobody needs any more, round by round.

    Args:
        log: The checkpoint's log.
        known: The :attr:`LogSnapshot.closed_tombstones` of an earlier snapshot of this process.
        only: Names of the files that may go; all if not given.
        dry_run: Whether nothing is to be changed.

    Raises:
        StateStoreFilesError: A file cannot be read, written or deleted. Nothing that is needed is gone then.
    """
    if dry_run:
        return predict_cleaning(log, log.snapshot(), only=only)
    progress = _Progress()
    for _ in range(_ROUNDS):
        known, is_done = _run_round(log, known, only, progress)
        if is_done:
            break
    return progress.result()


@dataclass
class _Progress:
    """What the rounds have done so far; ``gone`` and ``added`` are sizes by name."""

    gone: dict[str, int] = field(default_factory=dict)
    added: dict[str, int] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)
    has_let_go: bool = False

    def result(self) -> Cleaned:
        # A file that one round wrote and a later one unlinked is not reported.
        gone = {name: size for name, size in self.gone.items() if name not in self.added}
        added = tuple(name for name in self.added if name not in self.gone)
        return Cleaned(tuple(gone), sum(gone.values()), added, tuple(self.kept.items()))


def _run_round(
    log: MergedLog, known: Mapping[str, int], only: Collection[str] | None, progress: _Progress
) -> tuple[Mapping[str, int], bool]:
    """Cleans by one snapshot; returns which tombstones are known then, and whether another round would find nothing."""
    watch = TombstoneWatch()
    watch.begin(known)
    now = log.snapshot()
    release_own(log, now)
    if not progress.has_let_go:  # before the reference files go that say which other checkpoints there are
        let_go(log, now)
        progress.has_let_go = True
    droppable = watch.refreshed(now.scan.resolution, now.relocation_markers)
    if log.directory.lists_old_lengths and not all(state.closed for state in now.states.values()):
        # A tombstone may only go once every copy of what it kills was seen; an open file may not show all it has.
        droppable = frozenset()
    plan = plan_unlinks(now.scan.resolution, now.states, droppable)
    steps, put_off = _worthwhile(now, now.scan.entries, plan.unlink, None if only is None else {*only, *progress.added})
    # Pins keep these, too. One that was emptied since looks like one that has expired.
    second = _with_second_paths(now, now.scan.resolution, (step.name for step in steps))
    steps, put_off = [step for step in steps if step.name not in second], put_off | second
    # Only now, after the snapshot: unpinned() says why.
    free, pinned = unpinned(log.directory, (step.name for step in steps), now.expired)
    steps = [step for step in steps if step.name in free]
    progress.kept = {**plan.kept, **put_off, **pinned}
    written = len(progress.added)
    # The next round knows the tombstones that this one writes.
    known = now.closed_tombstones | _carry_over(log, now, steps, progress)
    going = {step.name for step in steps}
    if only is None:
        _replace_newest(log, now, progress)
    obsolete = {name for name in _obsolete_index_files(now, going) if only is None or name in only}
    going |= unpinned(log.directory, obsolete, now.expired)[0]
    in_parallel(lambda name: delete(log.directory, f"{MERGED}/{name}"), sorted(going | now.expired))
    progress.gone |= {name: now.scan.infos[name].size for name in sorted(going)}
    return known, len(progress.added) == written and not (steps and put_off)


def predict_cleaning(
    log: MergedLog, snapshot: LogSnapshot, rewritten: Collection[str] = (), *, only: Collection[str] | None = None
) -> Cleaned:
    """Predicts what :func:`clean` would unlink, as far as one snapshot tells.

    Args:
        log: The checkpoint's log.
        snapshot: What is there now.
        rewritten: Names of the files whose live segments a compaction would have copied before.
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
        # The compaction's new file has a higher stamp than the file that has the highest one now.
        taken_over = [name for name, reason in plan.kept.items() if reason == HIGHEST_STAMP and rewritten]
        obsolete = _obsolete_index_files(snapshot, going, is_outranked=bool(rewritten))
        more = {step.name for step in steps}.union(taken_over, obsolete if only is None else ()) - going
        if not more:
            kept = {name: reason for name, reason in {**plan.kept, **put_off}.items() if name not in going}
            break
        going |= more
    unneeded = [pin.name for pin, needed in unneeded_own(log.directory, snapshot, rest).items() if not needed]
    second = _with_second_paths(snapshot, rest, going)
    free, pinned = unpinned(log.directory, going - second.keys(), snapshot.expired, unneeded)
    kept = {**kept, **second, **pinned}
    return Cleaned(tuple(sorted(free)), sum(snapshot.scan.infos[name].size for name in free), (), tuple(kept.items()))


def _with_second_paths(snapshot: LogSnapshot, resolution: Resolution, names: Iterable[str]) -> dict[str, str]:
    """Those of the files in which something lives at second paths, which do not count in them; each with the reason."""
    held = second_paths(resolution, snapshot.scan.checkpoint)
    return dict.fromkeys((name for name in names if name in held), SECOND_PATHS)


def _obsolete_index_files(snapshot: LogSnapshot, going: Collection[str], *, is_outranked: bool = False) -> set[str]:
    """Index-only files that only cover files which are gone, or among those ``going``.

    The highest stamp has to stay visible (rule 3): ``is_outranked`` says that a file with a higher one will be written.
    """
    lasting = {name for name, state in snapshot.states.items() if not state.index_only} - set(going)
    newest = newest_file({name: snapshot.states[name] for name in lasting})
    highest = (0, "") if newest is None else (snapshot.states[newest].stamp, newest)
    found = set()
    for name, state in snapshot.states.items():
        if not state.index_only or not (is_outranked or (state.stamp, name) < highest):
            continue
        covered = {other for group in snapshot.scan.files[name].groups for other in group.index.names}
        if covered.isdisjoint(lasting):
            found.add(name)
    return found


def _worthwhile(
    snapshot: LogSnapshot, entries: Entries, steps: Sequence[Unlink], only: Collection[str] | None
) -> tuple[list[Unlink], dict[str, str]]:
    """Leaves out files whose tombstones would only be written again as they are, round after round; says why."""
    asked = [step for step in steps if only is None or step.name in only]
    kept = dict.fromkeys((step.name for step in steps if only is not None and step.name not in only), NOT_ASKED_FOR)
    mostly_needed = {
        step.name for step in asked if 2 * _carried_size(entries, step) > snapshot.scan.infos[step.name].size
    }
    if len(mostly_needed) >= _WORTH_JOINING:
        return asked, kept
    kept |= dict.fromkeys(sorted(mostly_needed), MOSTLY_NEEDED)
    return [step for step in asked if step.name not in mostly_needed], kept


def _carried_size(entries: Entries, step: Unlink) -> int:
    """Size of a new file for the tombstones that have to be carried over."""
    if not len(step.carry):
        return 0
    paths = pc.sum(pc.binary_length(paths_of(entries, step.carry))).as_py()
    return int(paths) + len(step.carry) * (ENTRY.size + U32.size) + _EMPTY_FILE


def _carry_over(log: MergedLog, snapshot: LogSnapshot, steps: Sequence[Unlink], progress: _Progress) -> dict[str, int]:
    """Writes the tombstones that are still needed again; returns how many by the new file's name."""
    rows = np.concatenate([np.empty(0, "i8"), *(step.carry for step in steps)])
    if not len(rows):
        return {}
    # The file with the highest stamp stays for now. This one gets no such stamp, so it can go once it is unneeded.
    with log.new_file(snapshot) as (name, out):
        out.add_columns(*copied(snapshot.scan.entries, rows))
        out.seal()
    progress.added[name] = out.position
    return {name: len(rows)}


def _replace_newest(log: MergedLog, snapshot: LogSnapshot, progress: _Progress) -> None:
    """Writes an empty file with a higher stamp where a dead file only stays for having the highest one."""
    newest = newest_file(snapshot.states)
    if newest is None or newest not in _dead(snapshot) or not snapshot.states[newest].closed:
        return
    if snapshot.scan.infos[newest].size < _WORTH_REPLACING:
        return
    with log.new_file(snapshot) as (name, out):
        out.seal(group_stamp=snapshot.highest_stamp + 1)
    progress.added[name] = out.position


def _dead(snapshot: LogSnapshot) -> frozenset[str]:
    live = snapshot.scan.resolution.totals.live_segment_count
    return frozenset(np.array(snapshot.scan.entries.files, object)[live == 0].tolist())
