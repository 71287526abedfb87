"""Which files a compaction rewrites, and what goes into which new one."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format.layout import TRAILER_SIZE, U32
from pyspark_statestore.maintenance.bin_packing import pack
from pyspark_statestore.maintenance.maintenance import TARGET_FILE_SIZE
from pyspark_statestore.maintenance.movable import Movable, Piece
from pyspark_statestore.maintenance.relocation import Bin, NewFile, Relocation

_SMALL = 0.75
"""Of the target."""

_HEADER = 512
"""Bytes of a header at most, as this package writes it."""

_LEAST_GAIN = 0.01
"""A file that would hardly be smaller afterwards is not rewritten for its garbage; tiny ones are mostly index."""


@dataclass(frozen=True)
class Wanted:
    """What files are to be like.

    Attributes:
        max_space_amplification: Bytes that are kept for each live one, at most.
        target_file_size: In bytes.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION.
    """

    max_space_amplification: float = math.inf
    target_file_size: int = TARGET_FILE_SIZE

    def __post_init__(self) -> None:
        _check("max_space_amplification", self.max_space_amplification, "a number of 1 or more", 1)
        _check("target_file_size", self.target_file_size, "a number of bytes above 0", 1)

    @property
    def capacity(self) -> int:
        """Bytes of segments and their index entries in a file."""
        return max(1, int(self.target_file_size) - _HEADER - U32.size - TRAILER_SIZE)


@dataclass(frozen=True)
class CompactionPlan:
    """What is to be copied where.

    Attributes:
        bins: What goes into each new file. The same files give the same bins.
        sources: Names of the files that are rewritten.
        live_bytes: That are copied.
    """

    bins: tuple[Bin, ...]
    sources: tuple[str, ...]
    live_bytes: int
    _sizes: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(
        cls, movable: Movable, wanted: Wanted, names: Collection[str] | None = None, *, localize: bool = False
    ) -> CompactionPlan:
        """Plans a compaction.

        A file that has a segment which cannot be moved any more would stay anyway, so it is left alone.

        Args:
            movable: What may be moved.
            wanted: What files are to be like.
            names: Of the files to rewrite, whatever they are like; chosen if not given.
            localize: Whether also what is in files of other checkpoints is copied, all of it.
        """
        scan = movable.view.scan
        totals = scan.resolution.totals
        live = dict(zip(scan.entries.files, totals.live_segment_count.tolist(), strict=True))
        live_bytes = dict(zip(scan.entries.files, totals.live_bytes.tolist(), strict=True))
        whole = [name for name, count in live.items() if count and movable.count(name) == count]
        if names is None:
            large = {name for name in whole if _is_mostly_dead(movable, wanted, name, live_bytes[name])}
            small = {name for name in whole if _is_small(movable, wanted, name)}
        else:
            large, small = set(whole).intersection(names), set()
        sizes: dict[Piece, int] = {}
        for name in sorted(large | small):
            sizes.update(movable.pieces(name, wanted.capacity))
        bins = [each for each in pack(sizes, wanted.capacity) if len(each) > 1 or each[0].name in large]
        if localize:
            foreign = dict(movable.foreign_pieces(wanted.capacity))
            sizes |= foreign
            bins += pack(foreign, wanted.capacity)
        sources = sorted({piece.name for each in bins for piece in each})
        estimates = []
        for each in bins:
            rows = movable.rows(each)
            live_in_it = int(scan.entries.length[rows].sum())
            estimates.append((live_in_it, sum(sizes[piece] for piece in each) + U32.size + TRAILER_SIZE))
        return cls(tuple(bins), tuple(sources), sum(live for live, _ in estimates), tuple(estimates))

    def as_relocation(self) -> Relocation:
        """What would come of it, about; the new files have no names yet."""
        added = [
            NewFile("", size, live, tuple(sorted({piece.name for piece in each})))
            for each, (live, size) in zip(self.bins, self._sizes, strict=True)
        ]
        return Relocation(added)


def _is_mostly_dead(movable: Movable, wanted: Wanted, name: str, live_bytes: int) -> bool:
    size = movable.view.scan.infos[name].size
    header = movable.view.scan.files[name].header
    needed = movable.size(name) + U32.size + TRAILER_SIZE + (header.length if header is not None else 0)
    return size > wanted.max_space_amplification * live_bytes and size - needed > _LEAST_GAIN * size


def _is_small(movable: Movable, wanted: Wanted, name: str) -> bool:
    """What is in it would have to go into one new file, together with that of others."""
    size = movable.view.scan.infos[name].size
    return size < _SMALL * wanted.target_file_size and movable.size(name) <= wanted.capacity


def _check(key: str, value: object, allowed: str, least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not value >= least:
        raise StateStoreFilesError("PSS_INVALID_OPTION", {"key": key, "value": value, "allowed": allowed})
