"""The plan of a compaction: which files are rewritten, and which live segments go into which new file.

A plan only reads a snapshot; nothing is changed here. The same snapshot gives the same plan on every machine, so that
Spark tasks can be given parts of it.

A file is rewritten where more bytes are kept for each live one than ``max_space_amplification`` allows, or where it is
smaller than three quarters of the target and can be joined with others. A condition (``where``) replaces that choice.

A file whose segments have second paths (:mod:`~pyspark_statestore.log.references`) stays as long as any of these lives.
So it is left alone, or, where it is mostly dead, everything in it is copied: what lives at second paths, too.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError, not_allowed
from pyspark_statestore.format import foreign_path
from pyspark_statestore.format.layout import TRAILER_SIZE, U32
from pyspark_statestore.grouping import filtered
from pyspark_statestore.inspect import files_table
from pyspark_statestore.log.merged_log import TARGET_FILE_SIZE, LogSnapshot, MergedLog
from pyspark_statestore.log.scan import ForeignFileGoneError
from pyspark_statestore.log.state_files import second_paths
from pyspark_statestore.maintenance.relocation import Bin, Movable, NewFile, Relocation, SegmentRange

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.compute import Expression
    from pyspark.sql import SparkSession

_SMALL = 0.75
"""A file of less than this part of the target size is small."""

_HEADER = 512
"""Bytes of a header at most, as this package writes it."""

_LEAST_GAIN = 0.01
"""A file is not rewritten for less garbage than this part of its size; tiny files are mostly index."""


@dataclass(frozen=True)
class CompactionOptions:
    """What files are to be like after a compaction.

    Attributes:
        max_space_amplification: How many bytes a file may keep for each live one, at least 1.
        target_file_size: Size of new files, in bytes.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION.
    """

    max_space_amplification: float = math.inf
    target_file_size: int = TARGET_FILE_SIZE

    def __post_init__(self) -> None:
        _check_number("max_space_amplification", self.max_space_amplification, "a number of 1 or more")
        _check_number("target_file_size", self.target_file_size, "a number of bytes above 0")

    @property
    def capacity(self) -> int:
        """Bytes of segments and their index entries that fit into one new file."""
        return max(1, int(self.target_file_size) - _HEADER - U32.size - TRAILER_SIZE)


def _check_number(key: str, value: object, allowed: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not value >= 1:
        raise not_allowed(key, value, allowed)


@dataclass(frozen=True)
class CompactionPlan:
    """What is to be copied, and into which new files.

    Attributes:
        bins: What goes into each new file. The same files give the same bins.
        sources: Names of the files that are rewritten.
        emptied: Those of them in which nothing lives afterwards.
        live_bytes: Bytes of the segments that are copied.
    """

    bins: tuple[Bin, ...]
    sources: tuple[str, ...]
    emptied: tuple[str, ...]
    live_bytes: int
    _sizes: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(
        cls,
        movable: Movable,
        options: CompactionOptions,
        names: Collection[str] | None = None,
        *,
        localize: bool = False,
    ) -> CompactionPlan:
        """Plans a compaction of what may be moved.

        A file that has a segment which cannot be moved any more would stay anyway, so it is left alone.

        Args:
            movable: The live segments that may be moved.
            options: What files are to be like.
            names: Names of the files to rewrite, whatever they are like; chosen by the options if not given.
            localize: Whether everything that lives in files of other checkpoints is copied, too.

        Raises:
            ForeignFileGoneError: A file of the checkpoint is gone in which segments with second paths live.
        """
        scan = movable.snapshot.scan
        totals = scan.resolution.totals
        live = dict(zip(scan.entries.files, totals.live_segment_count.tolist(), strict=True))
        live_bytes = dict(zip(scan.entries.files, totals.live_bytes.tolist(), strict=True))
        whole = [name for name, count in live.items() if count and movable.count(name) == count]
        if names is None:
            held = second_paths(scan.resolution, scan.checkpoint)
            for gone in sorted(held.keys() - scan.infos.keys()):
                row = int(held[gone][0])
                raise ForeignFileGoneError(foreign_path(scan.checkpoint, gone), str(scan.entries.path[row]))
            home = {name for name, rows in held.items() if _is_worth_copying(movable, options, name, rows)}
            whole = [name for name in whole if name not in held or name in home]
            dead = {name for name in whole if _is_mostly_dead(movable, options, name, live_bytes[name])}
            large = dead | home.intersection(whole)
            small = {name for name in whole if _is_small(movable, options, name)}
        else:
            held, home, large, small = {}, set(), set(whole).intersection(names), set()
        sizes: dict[SegmentRange, int] = {}
        for name in sorted(large | small):
            sizes.update(movable.ranges(name, options.capacity))
        # A small file that would be alone in its bin stays as it is.
        bins = [each for each in pack(sizes, options.capacity) if len(each) > 1 or each[0].name in large]
        if localize or home:
            here = {scan.entries.foreign[scan.entries.origin[held[name][0]] - 1] for name in home}
            foreign = dict(movable.foreign_ranges(options.capacity, None if localize else here))
            sizes |= foreign
            bins += pack(foreign, options.capacity)
        sources = sorted({part.name for each in bins for part in each})
        estimates = []
        copied: np.ndarray = np.zeros(len(scan.entries.files), "i8")
        for each in bins:
            rows = movable.rows(each)
            copied += np.bincount(scan.entries.file[rows], minlength=len(copied))
            live_in_it = int(scan.entries.length[rows].sum())
            estimates.append((live_in_it, sum(sizes[part] for part in each) + U32.size + TRAILER_SIZE))
        is_emptied = (copied > 0) & (copied == totals.live_segment_count)
        emptied = tuple(scan.entries.files[number] for number in np.flatnonzero(is_emptied).tolist())
        return cls(tuple(bins), tuple(sources), emptied, sum(size for size, _ in estimates), tuple(estimates))

    def as_relocation(self) -> Relocation:
        """What carrying it out would write, with estimated sizes and without names."""
        added = [
            NewFile("", size, live, tuple(sorted({part.name for part in each})))
            for each, (live, size) in zip(self.bins, self._sizes, strict=True)
        ]
        return Relocation(added)


def _is_mostly_dead(movable: Movable, options: CompactionOptions, name: str, live_bytes: int) -> bool:
    size = movable.snapshot.scan.infos[name].size
    header = movable.snapshot.scan.files[name].header
    needed = movable.size(name) + U32.size + TRAILER_SIZE + (header.length if header is not None else 0)
    return size > options.max_space_amplification * live_bytes and size - needed > _LEAST_GAIN * size


def _is_worth_copying(movable: Movable, options: CompactionOptions, name: str, second: np.ndarray) -> bool:
    """Whether a file is mostly dead, though segments of it have second paths; ``second`` are rows of their entries.

    A segment that lives at several paths is copied for each of them.
    """
    entries = movable.snapshot.scan.entries
    rows = np.concatenate([second, movable.rows(part for part, _ in movable.ranges(name, options.capacity))])
    _, first = np.unique(entries.offset[rows], return_index=True)
    size, live_bytes = movable.snapshot.scan.infos[name].size, int(entries.length[rows[first]].sum())
    copied = movable.size(name) + movable.size_of(second)
    return size > options.max_space_amplification * live_bytes and size - copied > _LEAST_GAIN * size


def _is_small(movable: Movable, options: CompactionOptions, name: str) -> bool:
    """Whether the file can be joined with others: all that lives in it has to fit into one new file."""
    size = movable.snapshot.scan.infos[name].size
    return size < _SMALL * options.target_file_size and movable.size(name) <= options.capacity


Item = TypeVar("Item", bound=Any)


def pack(sizes: Mapping[Item, int], capacity: int) -> list[tuple[Item, ...]]:
    """Packs items of different sizes into few bins: best fit, the largest first.

    Depends on nothing but the arguments, not even on the order of the mapping. No two bins could be joined: an item
    only begins a bin where it fits into none. So packing the bins themselves again leaves each alone.

    Args:
        sizes: Size by item; items can be put in order.
        capacity: Size of a bin. An item that is larger has a bin for itself.

    Returns:
        The items of each bin in order, the bins in the order of their first items.
    """
    bins: list[list[Item]] = []
    room: list[tuple[int, int]] = []
    for item in sorted(sizes, key=lambda item: (-sizes[item], item)):
        at = bisect_left(room, (sizes[item], 0))
        if at < len(room):
            left, number = room.pop(at)
        else:
            left, number = capacity, len(bins)
            bins.append([])
        bins[number].append(item)
        insort(room, (left - sizes[item], number))
    return sorted(tuple(sorted(each)) for each in bins)


def files_where(
    where: Expression | str, snapshot: LogSnapshot, log: MergedLog, spark: SparkSession | None
) -> frozenset[str]:
    """Names of the files for which a condition on the table ``files`` holds.

    Args:
        where: An Arrow expression; with ``spark``, also SQL.
        snapshot: The files as they were found.
        log: The checkpoint's log.
        spark: The session that evaluates SQL.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION where the condition cannot be evaluated.
    """
    table = files_table(snapshot.scan, log.directory.location.url, log.closed_after)
    if isinstance(where, str) and spark is None:
        raise _refused(where, "an Arrow expression, such as pyarrow.compute.field('live_bytes') == 0; SQL needs spark=")
    try:
        if isinstance(where, str):
            assert spark is not None
            paths = _paths_where(where, table, spark)
        else:
            paths = filtered(table, where)["file_path"].to_pylist()
    except Exception as error:  # Arrow's and Spark's own, of many kinds
        reason = str(error).strip().partition("\n")[0]
        raise _refused(where, f"a condition on the columns {', '.join(table.column_names)} ({reason})") from error
    return frozenset(path.rpartition("/")[2] for path in paths)


def _paths_where(where: str, table: pa.Table, spark: SparkSession) -> list[str]:
    """Spark 3.5 takes no Arrow tables, so all get rows."""
    from pyspark.sql.pandas.types import from_arrow_schema

    rows = [tuple(row.values()) for row in table.to_pylist()]
    found = spark.createDataFrame(rows, from_arrow_schema(table.schema)).where(where).select("file_path").collect()
    return [row["file_path"] for row in found]


def _refused(where: object, allowed: str) -> StateStoreFilesError:
    return not_allowed("where", where, allowed)
