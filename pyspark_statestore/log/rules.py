"""What maintenance may do to the files: the rules 5 to 8 of docs/guarantees.md, as decisions without I/O.

Each rule is one function. The tools call it, and the simulated processes of tests/model call the same one: what the
model proves is what runs.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from pyspark_statestore.log.entries import Column
from pyspark_statestore.log.resolution import Resolution

MAX_GENERATION = 65_535
"""The highest generation that the format has room for; a segment that was copied so often stays where it is."""

HIGHEST_STAMP = "it has the highest stamp"
"""Why a file stays though nothing in it lives."""

NOT_ACCOUNTED = "it has bytes that no readable group accounts for"
"""Why a file stays that a crash or damage has left; ``verify`` says which bytes."""

Time = TypeVar("Time", float, datetime.timedelta)
"""A length of time: both arguments of a rule have the same unit."""


@dataclass(frozen=True)
class FileState:
    """What the rules need to know of a merged file besides its entries.

    Attributes:
        closed: Whether nobody appends to it any more (rule 7): see :func:`is_closed`.
        whole_index_read: Whether all of its entries are among those that were resolved.
        stamp: The highest group stamp in it.
        index_only: Whether it only repeats the entries of other files.
        accounted: Whether it is known what all of its bytes are. Bytes that no readable group accounts for may be a
            group that was damaged (rule 8).
    """

    closed: bool
    whole_index_read: bool = True
    stamp: int = 0
    index_only: bool = False
    accounted: bool = True


# Rule 7: which files are closed; and how long others wait for a relocation or a fork.


def is_closed(*, sealed: bool, unchanged: Iterable[Time | None], closed_after: Time) -> bool:
    """Rule 7: tells whether nobody appends to the file of another process any more.

    Args:
        sealed: Whether its last group says so.
        unchanged: How long the file has been the same, by each clock that is asked; None where a clock cannot tell.
            The clock that says least decides, so a clock that steps forward closes nothing.
        closed_after: How long that has to be. An observer who saw the file all the time takes ``closedAfter``; one who
            looks only once asks two clocks, and takes ``abandoned_after``.
    """
    return sealed or _is_over(unchanged, closed_after)


def is_expired(unchanged: Iterable[Time | None], patience: Time) -> bool:
    """Tells whether a relocation marker, an empty pin or a temporary file stands for nothing any more.

    Its process has neither made it anew nor deleted it, so it is dead, or too late to do what it announced: see
    :func:`is_timely` and :func:`is_heeded`.

    Args:
        unchanged: How old the file is, as for :func:`is_closed`.
        patience: How old it has to be: ``closedAfter``, or more.
    """
    return _is_over(unchanged, patience)


def is_timely(elapsed: Time, closed_after: Time) -> bool:
    """Tells whether a process may still begin what it announced: a copy (rule 5), or the pin of a fork.

    Others wait for it for ``closedAfter``. Half of that is left for the work itself.

    Args:
        elapsed: Since the announcement, by the clock that says most.
        closed_after: The query's ``closedAfter``.
    """
    return elapsed < closed_after / 2


def is_heeded(elapsed: Time, closed_after: Time) -> bool:
    """Tells whether others surely still wait for the copies of a relocation.

    They wait for ``closedAfter``. A quarter of it is left for clocks that differ.

    Args:
        elapsed: Since the marker was made anew, by the clock that says most.
        closed_after: The query's ``closedAfter``.
    """
    return elapsed < closed_after * 3 / 4


def _is_over(ages: Iterable[Time | None], least: Time) -> bool:
    """Every clock tells an age, and each is high enough; without a clock nothing is over (rule 8)."""
    known = list(ages)
    return bool(known) and all(age is not None and age >= least for age in known)


# Rule 5: what may be copied, and what the copy says.


def relocatable(resolution: Resolution, states: Mapping[str, FileState]) -> Column:
    """Rule 5: finds the live segments that may be copied to another file.

    They are in closed files: a file that is appended to could say something else later. Each copy keeps its key and
    gets :func:`next_generation`, so a segment that has the highest generation stays.

    Args:
        resolution: What the entries say together. Only what lives in one that was read after the relocation was
            announced may be copied.
        states: The files to copy from, by name; others are left alone.

    Returns:
        Row numbers of the entries, in ascending order.
    """
    entries = resolution.entries
    is_source = [name in states and states[name].closed and not states[name].index_only for name in entries.files]
    here = np.array([*is_source, False])[entries.file]
    return np.flatnonzero(resolution.live & here & (entries.generation < MAX_GENERATION))


def next_generation(generation: Any) -> Any:
    """Rule 5: the generation of a copy, of one entry or of a column of them; a tombstone's stays at the highest."""
    return np.minimum(generation + 1, MAX_GENERATION)


# Rule 6: what may be unlinked.


@dataclass(frozen=True)
class Unlink:
    """One file that may go.

    Attributes:
        name: The file's name.
        carry: Rows of the tombstones in it that have to be durable elsewhere first, with :func:`next_generation`.
    """

    name: str
    carry: Column = field(repr=False)


@dataclass(frozen=True)
class UnlinkPlan:
    """What one round of cleaning may do.

    Attributes:
        unlink: What may go, in this order; before each, what it carries has to be durable.
        kept: Why each of the other files without live segments stays.
    """

    unlink: tuple[Unlink, ...]
    kept: Mapping[str, str]


def plan_unlinks(
    resolution: Resolution, states: Mapping[str, FileState], droppable: Collection[str] = frozenset()
) -> UnlinkPlan:
    """Rule 6: decides which files may go, and what of them has to be written again first.

    Every tombstone that decides over its path is carried over, unless :class:`TombstoneWatch` says otherwise. One that
    does not decide needs nothing: another file has a greater one, and because (key, generation, file name) is a total
    order, no two cleaners rely on each other's.

    The :func:`newest_file` stays.

    Args:
        resolution: What all known entries say together.
        states: What else is known of each file in it, by name.
        droppable: What :meth:`TombstoneWatch.refreshed` said of this very resolution; empty where the last refresh was
            not complete.
    """
    entries = resolution.entries
    dead = np.flatnonzero(resolution.totals.live_segment_count == 0)
    newest = newest_file({name: states[name] for name in entries.files})
    unlink: list[Unlink] = []
    kept: dict[str, str] = {}
    rows = np.flatnonzero(resolution.greatest)
    by_file = entries.file[rows]
    for number in dead:
        name = entries.files[number]
        state = states[name]
        if state.index_only:
            kept[name] = "it speaks for other files"
        elif not state.closed:
            kept[name] = "it may be appended to"
        elif not state.whole_index_read:
            kept[name] = "its index has not been read"
        elif not state.accounted:
            kept[name] = NOT_ACCOUNTED
        elif name == newest:
            kept[name] = HIGHEST_STAMP
        else:
            carry = rows[:0] if name in droppable else rows[by_file == number]
            unlink.append(Unlink(name, carry))
    return UnlinkPlan(tuple(unlink), kept)


def newest_file(states: Mapping[str, FileState]) -> str | None:
    """Rule 6: the file with the highest (group stamp, name), which stays even if nothing in it lives.

    A process that refreshes has to see the highest stamp that ever was durable. Otherwise its own writes could be older
    than a deletion that somebody remembers (rule 3). Index-only files do not count: they may be lost at any time.

    Args:
        states: All files, by name.

    Returns:
        Its name; None where there is no file.
    """
    lasting = (name for name, state in states.items() if not state.index_only)
    return max(lasting, key=lambda name: (states[name].stamp, name), default=None)


class PinLike(Protocol):
    """What the rule needs to know of a pin."""

    @property
    def files(self) -> Collection[str] | None:
        """Names of the merged files that it pins; None for all of them."""

    @property
    def is_begun(self) -> bool:
        """Whether it is empty: a fork is being made, or partitions are being split."""


AnyPin = TypeVar("AnyPin", bound=PinLike)


def pinned(names: Iterable[str], pins: Mapping[str, AnyPin], expired: Collection[str]) -> dict[str, AnyPin]:
    """Rule 6: finds the files that are pinned.

    Args:
        names: Merged files in which nothing lives.
        pins: All pins, by name, listed after everything else that the unlink rests on: a fork makes an empty pin,
            which pins everything, before it looks. A fork without a pin in this listing looks later, and sees that
            these files are dead.
        expired: Names of empty pins that stand for nothing any more (:func:`is_expired`).

    Returns:
        The files that have to stay, each with one pin that keeps it.
    """
    counting = [pin for name, pin in pins.items() if not (pin.is_begun and name in expired)]
    return {name: pin for name in names for pin in counting if pin.files is None or name in pin.files}


def released(pins: Iterable[AnyPin], needed: Collection[str]) -> dict[AnyPin, frozenset[str]]:
    """Rule 6: finds the pins that name files which have to stay no longer.

    These are the checkpoint's own pins, or those that a fork has in its source.

    Args:
        pins: Own ones that are expired (:func:`is_expired`): the reference file for which such a pin was made is there,
            or never will be. Those of a fork whose reference file is there.
        needed: The files in which segments with second paths live, or those of the fork, by a complete look after that.

    Returns:
        Each such pin, and which of its files are still needed.
    """
    return {
        pin: frozenset(pin.files).intersection(needed)
        for pin in pins
        if pin.files is not None and not set(pin.files) <= set(needed)
    }


def lets_go(needs: bool | None, away: Iterable[Time | None], patience: Time) -> bool:
    """Rule 6: tells whether a fork's pin may be dropped by somebody who looks for the fork.

    A fork that is not there may be on a disk that is not mounted now, or have another name for a moment. So it counts
    as gone only if it was seen to be away for long, whatever the age of its pin.

    Args:
        needs: Whether the fork needs a file of this checkpoint, or may need one; None where it is not there.
        away: How long ago it was first looked for in vain, and not found ever since, as for :func:`is_closed`; nothing
            where nobody has.
        patience: How long that has to be.
    """
    return _is_over(away, patience) if needs is None else not needs


def closed_tombstones(resolution: Resolution, states: Mapping[str, FileState]) -> dict[str, int]:
    """Counts the tombstones of each closed file, for :meth:`TombstoneWatch.begin`.

    Args:
        resolution: What all known entries say together.
        states: What else is known of each file in it, by name.
    """
    counts = zip(resolution.entries.files, resolution.totals.tombstone_count.tolist(), strict=True)
    return {name: count for name, count in counts if states[name].closed}


class TombstoneWatch:
    """Finds the files whose tombstones nobody needs any more.

    A tombstone may only be forgotten when no file holds an entry that it kills, and none can turn up: a process that
    relocates, and has not seen the tombstone, may still be about to write a copy. Its relocation marker says so: a
    relocation first makes its marker, then refreshes, copies, makes the copies durable, and deletes the marker last. So
    there has to be a complete refresh, begun after this process knew the tombstone, without an entry that it kills; and
    one, the same or a later one, without such an entry, that shows none of the relocation markers of the first.

    The answers hold for the resolution that they were given for. A refresh that only lists says nothing here.

    Example:
        >>> watch = TombstoneWatch()
        >>> watch.begin({})  # nothing is known yet
        >>> resolution = ...  # list, read, resolve
        >>> watch.refreshed(resolution, relocation_markers)
        frozenset()
    """

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._waiting_for: dict[str, frozenset[str]] = {}

    def begin(self, tombstone_counts: Mapping[str, int]) -> None:
        """Takes note of what is known before the listing of a complete refresh.

        Args:
            tombstone_counts: How many tombstones are known by now, by file: see :func:`closed_tombstones`.
        """
        self._known = dict(tombstone_counts)

    def refreshed(self, resolution: Resolution, relocation_markers: Collection[str]) -> frozenset[str]:
        """Takes note of a complete refresh: a listing, then every entry of every file.

        Args:
            resolution: What was read.
            relocation_markers: The markers in the listing, without those that have expired (:func:`is_expired`).

        Returns:
            The files whose tombstones need not be carried over.
        """
        entries = resolution.entries
        tombstones = resolution.totals.tombstone_count
        held = np.bincount(entries.file[resolution.held], minlength=len(entries.files)) > 0
        markers = frozenset(relocation_markers)
        waiting: dict[str, frozenset[str]] = {}
        for number in np.flatnonzero(tombstones):
            name, count = entries.files[number], int(tombstones[number])
            # One that was unknown before the listing may be younger than a marker which the listing does not show.
            if not held[number] and self._known.get(name) == count:
                waiting[name] = self._waiting_for.get(name, markers) & markers
        self._waiting_for = waiting
        return frozenset(name for name, missing in waiting.items() if not missing)
