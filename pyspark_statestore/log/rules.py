"""What a maintainer may do to the files: the rules 5 to 8 of docs/guarantees.md, as decisions without I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from pyspark_statestore.log.entries import Column, Entries
from pyspark_statestore.log.resolution import Resolution

MAX_GENERATION = 65_535
"""What the format has room for; what has been copied so often stays where it is."""


HIGHEST_STAMP = "it has the highest stamp"
"""Why a file stays in which nothing lives."""

NOT_ACCOUNTED = "it has bytes that no readable group accounts for"
"""Why a file stays that a crash or damage has left; ``verify`` says which bytes."""


@dataclass(frozen=True)
class FileState:
    """What is known of a merged file besides its entries.

    Attributes:
        closed: Whether nobody appends to it any more (rule 7), see :func:`is_closed`.
        whole_index_read: Whether all of its entries are among those that were resolved.
        stamp: The highest group stamp in it.
        index_only: Whether it only repeats what others say.
        accounted: Whether it is known what all of its bytes are: bytes that no readable group accounts for may be a
            damaged one (rule 8).
    """

    closed: bool
    whole_index_read: bool = True
    stamp: int = 0
    index_only: bool = False
    accounted: bool = True


@dataclass(frozen=True)
class Unlink:
    """One file that may go.

    Attributes:
        name: Of the file.
        carry: Rows of tombstones in it that have to be durable elsewhere first, with a generation more.
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


class TombstoneWatch:
    """Finds out which files' tombstones nobody needs any more.

    A tombstone may only be forgotten when no file holds an entry that it kills, and none can turn up: a relocator that
    has not seen the tombstone may still hold a copy in its hands. Its intent says so: a relocation begins with an
    intent, then refreshes, copies, makes the copies durable, and ends with the deletion of the intent. So there has to
    be a complete refresh, begun after this process knew the tombstone, without victims; and one, the same or a later
    one, without victims, that shows none of the relocation_markers of the first.

    The answers hold for the snapshot that they were given for. A refresh that only lists says nothing here.

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
        """Before the listing of a complete refresh.

        Args:
            tombstone_counts: How many tombstones are known by now, by file.
        """
        self._known = dict(tombstone_counts)

    def refreshed(self, resolution: Resolution, relocation_markers: Collection[str]) -> frozenset[str]:
        """Takes note of a complete refresh: a listing, then every entry of every file.

        Args:
            resolution: Of what was read.
            relocation_markers: In the listing; without those that were given up (no change for ``closedAfter``).

        Returns:
            The files whose tombstones need not be carried over.
        """
        entries = resolution.entries
        tombstones = resolution.totals.tombstone_count
        held = np.bincount(entries.file[resolution.held], minlength=len(entries.files)) > 0
        waiting: dict[str, frozenset[str]] = {}
        for number in np.flatnonzero(tombstones):
            name, count = entries.files[number], int(tombstones[number])
            # One that was unknown before the listing may be younger than an intent which the listing does not show.
            if not held[number] and self._known.get(name) == count:
                waiting[name] = self._waiting_for.get(name, frozenset(relocation_markers)) & frozenset(
                    relocation_markers
                )
        self._waiting_for = waiting
        return frozenset(name for name, missing in waiting.items() if not missing)


def is_closed(*, sealed: bool, unchanged_ms: int, closed_after_ms: int) -> bool:
    """Rule 7, for the file of another process.

    Args:
        sealed: Whether its last group says so.
        unchanged_ms: How long it has been the same, up to a read that confirmed it.
        closed_after_ms: The configuration.
    """
    return sealed or unchanged_ms >= closed_after_ms


def plan_unlinks(
    resolution: Resolution, states: Mapping[str, FileState], droppable: Collection[str] = frozenset()
) -> UnlinkPlan:
    """Rule 6: which files may go, and what of them has to be written again first.

    Every tombstone that decides over its path is carried over, unless :class:`TombstoneWatch` says otherwise. One that
    does not decide needs nothing: another file has a greater one, and because (key, generation, file name) is a total
    order, no two cleaners rely on each other's.

    The file with the highest (group stamp, name) stays: a process that refreshes has to see the highest stamp that
    ever was durable, or its own writes could be older than a deletion that somebody remembers (rule 3).

    Args:
        resolution: Of everything that is known.
        states: Of every file in it.
        droppable: What :meth:`TombstoneWatch.refreshed` said of this very snapshot; empty where the last refresh was
            not complete.
    """
    entries = resolution.entries
    dead = np.flatnonzero(resolution.totals.live_segment_count == 0)
    lasting = [name for name in entries.files if not states[name].index_only]
    newest = max(lasting, key=lambda name: (states[name].stamp, name), default="")
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


def relocatable(resolution: Resolution, name: str) -> Column:
    """Rule 5: the rows that a copy of a file's live segments consists of; each is written with a generation more."""
    entries: Entries = resolution.entries
    if name not in entries.files:
        return np.empty(0, "i8")
    here = entries.file == entries.files.index(name)
    return np.flatnonzero(resolution.live & here & (entries.generation < MAX_GENERATION))
