"""Which entries count: the rules 3, 4 and 5 of docs/guarantees.md, for all paths at once."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_statestore.grouping import grouped
from pyspark_statestore.log.entries import Column, Entries


class Status(enum.IntEnum):
    """What an entry is."""

    TOMBSTONE = 0
    """A DELETE."""
    LIVE = 1
    """The segment that is read."""
    SUPERSEDED = 2
    """A newer write of the path, or a copy of a higher generation, is read instead."""
    DELETED = 3
    """A tombstone kills it."""
    REPEATED = 4
    """The very same entry is in another row."""


@dataclass(frozen=True)
class FileTotals:
    """Counts per merged file, in the order of :attr:`Entries.files`."""

    segment_count: Column
    live_segment_count: Column
    live_bytes: Column
    """Bytes of live segments in the file itself."""
    foreign_live_bytes: Column
    """Bytes of the live segments that a reference file counts, in files of other checkpoints."""
    tombstone_count: Column


@dataclass(frozen=True)
class Resolution:
    """What the entries say together.

    Attributes:
        entries: The entries that were resolved.
        status: A :class:`Status` for each entry.
        greatest: Marks the tombstones that decide: for each path the one with the highest (key, generation, file
            name). It covers all others.
        held: Marks those of the greatest tombstones that kill an entry in another file than their own.
        totals: Counts per file.
    """

    entries: Entries = field(repr=False)
    status: Column = field(repr=False)
    greatest: Column = field(repr=False)
    held: Column = field(repr=False)
    totals: FileTotals = field(repr=False)

    @property
    def live(self) -> Column:
        """Marks the entries that are read of their paths."""
        return self.status == Status.LIVE

    @property
    def live_bytes(self) -> int:
        """Bytes of all live segments in this checkpoint's own files."""
        return int(self.totals.live_bytes.sum())

    def space_amplification(self, sizes: Mapping[str, int]) -> Column:
        """Returns physical bytes divided by live bytes, per file; NaN where nothing lives.

        Args:
            sizes: Bytes of each file, by name.
        """
        physical = np.array([sizes[name] for name in self.entries.files], dtype="f8")
        live = self.totals.live_bytes
        return np.divide(physical, live, out=np.full(len(live), np.nan), where=live > 0)

    def to_arrow(self) -> pa.Table:
        """Returns the live entries, a row for each path."""
        return self.entries.to_arrow().filter(pa.array(self.live))


def resolve(entries: Entries, *, deletions: Entries | None = None) -> Resolution:
    """Finds what lives.

    The PUT of a path with the highest (stamp, writer) is read (rule 3); of equal keys the one with the highest
    generation, then with the highest file name (rule 5); unless a DELETE has an equal or a higher key (rule 4). Neither
    the order of the rows nor their grouping makes a difference.

    Args:
        entries: The entries of all files that exist.
        deletions: Deletions that the caller knows of, though no file may say so (any more).
    """
    known = len(entries)
    code, paths = _codes(entries, deletions)
    put = entries.is_put
    is_repeated = _repeated(entries, code[:known])
    rows = np.flatnonzero(put & ~is_repeated)
    killed_to = _deleted_up_to(entries, deletions, code, paths)

    status: Column = np.full(known, Status.TOMBSTONE, "i1")
    status[rows] = Status.SUPERSEDED
    of = code[rows]
    stamp, writer = entries.stamp[rows], entries.writer[rows]
    dead = (stamp < killed_to[0][of]) | ((stamp == killed_to[0][of]) & (writer <= killed_to[1][of]))
    status[rows[dead]] = Status.DELETED
    best = _highest(rows[~dead], code, paths, (entries.stamp, entries.writer, entries.generation, entries.file))
    # One file may hold a segment twice, where its writer wrote a group again.
    best = _highest(best, code, paths, (entries.offset, entries.origin))
    status[best] = Status.LIVE
    status[is_repeated] = Status.REPEATED

    tombstones = np.flatnonzero(~put & ~is_repeated)
    decisive = _highest(
        tombstones, code, paths, (entries.stamp, entries.writer, entries.generation, entries.file, -np.arange(known))
    )
    greatest: Column = np.zeros(known, bool)
    greatest[decisive] = True
    held: Column = np.zeros(known, bool)
    held[decisive] = _kills_elsewhere(entries, code, paths, decisive, rows)
    return Resolution(entries, status, greatest, held, _totals(entries, status))


def _codes(entries: Entries, deletions: Entries | None) -> tuple[Column, int]:
    """A number for the path of each row; the rows of the deletions come last. And how many paths there are."""
    chunks = entries.path.chunks + (deletions.path.chunks if deletions is not None else [])
    encoded = pa.chunked_array(chunks, pa.string()).dictionary_encode()
    if not encoded.num_chunks:
        return np.empty(0, "i8"), 0
    # All chunks share the dictionary that the last one ends with.
    return np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks]), len(
        encoded.chunk(encoded.num_chunks - 1).dictionary
    )


def _repeated(entries: Entries, code: Column) -> Column:
    """Marks what an earlier row says already: the same entry about the same place."""
    repeated: Column = np.zeros(len(entries), bool)
    if entries.distinct or not len(entries):
        return repeated
    place = pa.table(
        {
            "row": pa.array(np.arange(len(entries))),
            "code": pa.array(code),
            **{
                name: pa.array(getattr(entries, name))
                for name in ("file", "kind", "generation", "stamp", "writer", "offset", "origin")
            },
        }
    )
    first = grouped(place, place.column_names[1:]).aggregate([("row", "min")])["row_min"].to_numpy()
    repeated[:] = True
    repeated[first] = False
    return repeated


def _highest(rows: Column, code: Column, paths: int, by: tuple[Column, ...]) -> Column:
    """For each path the rows that are highest in the first column; of these, those in the second; and so on."""
    for column in by:
        if not len(rows):
            break
        values: Column = column[rows].astype("i8")
        highest = np.full(paths, np.iinfo("i8").min)
        np.maximum.at(highest, code[rows], values)
        rows = rows[values == highest[code[rows]]]
    return rows


def _deleted_up_to(entries: Entries, deletions: Entries | None, code: Column, paths: int) -> tuple[Column, Column]:
    """The highest key, per path, that a tombstone kills."""
    stamp, writer, deleted = entries.stamp, entries.writer, ~entries.is_put
    if deletions is not None:
        stamp = np.concatenate([stamp, deletions.stamp])
        writer = np.concatenate([writer, deletions.writer])
        deleted = np.concatenate([deleted, np.ones(len(deletions), bool)])
    rows = _highest(np.flatnonzero(deleted), code, paths, (stamp, writer))
    stamps: Column = np.full(paths, -1, "i8")
    writers: Column = np.full(paths, -1, "i8")
    stamps[code[rows]] = stamp[rows]
    writers[code[rows]] = writer[rows]
    return stamps, writers


def _kills_elsewhere(entries: Entries, code: Column, paths: int, tombstones: Column, puts: Column) -> Column:
    """Marks those of the deciding tombstones, one for each path, that kill an entry in another file."""
    at: Column = np.full(paths, -1, "i8")
    at[code[tombstones]] = np.arange(len(tombstones))
    by = at[code[puts]]
    candidates, by = puts[by >= 0], by[by >= 0]
    tombstone = tombstones[by]
    same_stamp = entries.stamp[candidates] == entries.stamp[tombstone]
    kills = (entries.stamp[candidates] < entries.stamp[tombstone]) | (
        same_stamp & (entries.writer[candidates] <= entries.writer[tombstone])
    )
    result: Column = np.zeros(len(tombstones), bool)
    result[by[kills & (entries.file[candidates] != entries.file[tombstone])]] = True
    return result


def _totals(entries: Entries, status: Column) -> FileTotals:
    def count(which: Any) -> Column:
        return np.bincount(entries.file[which], minlength=len(entries.files))

    is_live = status == Status.LIVE

    def count_bytes(which: Column) -> Column:
        total: Column = np.zeros(len(entries.files), "i8")
        # Not bincount with weights: those are floating point numbers.
        np.add.at(total, entries.file[which], entries.length[which])
        return total

    is_foreign = entries.origin > 0
    tombstones = status == Status.TOMBSTONE
    segments = ~tombstones & (status != Status.REPEATED)
    return FileTotals(
        count(segments),
        count(is_live),
        count_bytes(is_live & ~is_foreign),
        count_bytes(is_live & is_foreign),
        count(tombstones),
    )
