"""Rewrites files that are mostly dead, or small, into few that are not."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from fsspec.callbacks import Callback, NoOpCallback

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format import split_foreign_path
from pyspark_statestore.format.layout import TRAILER_SIZE, U32
from pyspark_statestore.inspect import files_table
from pyspark_statestore.log.merged_log import TARGET_FILE_SIZE, LogSnapshot, MergedLog
from pyspark_statestore.log.on_spark import run_on_spark
from pyspark_statestore.log.pins import ORIGIN_SUFFIX, check_unclaimed
from pyspark_statestore.log.scan import MERGED, retry_if_gone
from pyspark_statestore.maintenance.cleaning import Cleaned, clean, foresee
from pyspark_statestore.maintenance.fork_release import delete_claimed, release_sources, unneeded_claimed
from pyspark_statestore.maintenance.relocation import Bin, Movable, NewFile, Piece, Relocation, relocate
from pyspark_statestore.storage import FileInfo

if TYPE_CHECKING:
    from pyarrow.compute import Expression
    from pyspark.sql import SparkSession


_BINS_OF_A_TASK = 8
"""Each task looks at the whole checkpoint, so it should copy some files; where there are few, parallelism counts."""

_FILES = pa.schema(
    [
        ("file_path", pa.string()),
        ("file_size_in_bytes", pa.int64()),
        ("live_bytes", pa.int64()),
        ("is_rewritten", pa.bool_()),
        ("is_added", pa.bool_()),
        ("is_removed", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class Compaction:
    """What a compaction did, or would do.

    Attributes:
        rewritten_files_count: Files whose live segments were copied.
        added_files_count: Files that were written.
        removed_files_count: Files that were unlinked. What somebody may still need stays until a later time.
        rewritten_bytes_count: Live bytes that were copied.
        added_bytes_count: Bytes of the files that were written.
        reclaimed_bytes_count: Bytes of the files that were unlinked.
        dry_run: Whether nothing was changed.
        removed_claimed_files_count: Files in the checkpoint that this one has claimed which nobody reads any more.
        files: A row for each of these files: ``file_path``, ``file_size_in_bytes``, ``live_bytes`` (before, or in a new
            file), ``is_rewritten``, ``is_added``, ``is_removed``. A dry run has no names for new files.
    """

    rewritten_files_count: int = 0
    added_files_count: int = 0
    removed_files_count: int = 0
    rewritten_bytes_count: int = 0
    added_bytes_count: int = 0
    reclaimed_bytes_count: int = 0
    dry_run: bool = False
    removed_claimed_files_count: int = 0
    files: pa.Table = field(default_factory=_FILES.empty_table, repr=False)


def compact(
    log: MergedLog,
    *,
    max_space_amplification: float = 1.5,
    target_file_size: int = TARGET_FILE_SIZE,
    where: Expression | str | None = None,
    localize: bool = False,
    dry_run: bool = False,
    spark: SparkSession | None = None,
    callback: Callback | None = None,
) -> Compaction:
    """See :meth:`pyspark_statestore.maintenance.maintenance.Maintenance.compact`."""
    wanted = Wanted(max_space_amplification, target_file_size)
    callback = callback or NoOpCallback()
    before: _Before | None = None

    def planned(movable: Movable) -> CompactionPlan:
        # The look itself is not kept: a large checkpoint's takes as much memory as everything else together.
        nonlocal before
        before = _Before.of(movable.snapshot)
        if not dry_run:
            check_unclaimed(log.directory, movable.snapshot.scan.others)
        names = None if where is None else chosen_by(where, movable.snapshot, log, spark)
        plan = CompactionPlan.of(movable, wanted, names, localize=localize)
        callback.set_size(plan.live_bytes)
        return plan

    if dry_run:
        snapshot = log.snapshot()
        plan = planned(Movable(snapshot))
        return _summary(
            log, _Before.of(snapshot), plan.as_relocation(), foresee(log, snapshot, plan.sources), planned=True
        )
    if spark is None:
        done = relocate(log, lambda movable: planned(movable).bins, callback)
    else:
        plan = planned(Movable(log.snapshot()))
        done = Relocation()
        for part in run_on_spark(spark, partial(relocate, log), _shares(plan.bins)):
            done.added += part.added
            done.failures += part.failures
            callback.relative_update(sum(new.live_bytes for new in part.added))
    if before is None:
        return Compaction()
    if localize:
        release_sources(log.directory, before.referred_to)
    cleaned = clean(log, before.closed_tombstones)
    claimed: list[FileInfo] = []
    if before.is_fork:
        claimed = retry_if_gone(log.directory, lambda: unneeded_claimed(log.directory, log.snapshot().scan))
        delete_claimed(log.directory, claimed)
    if done.failures:
        raise done.failures[0]
    return replace(_summary(log, before, done, cleaned), removed_claimed_files_count=len(claimed))


@dataclass(frozen=True)
class _Before:
    """What was there, by the names of the files.

    Attributes:
        sizes: In bytes.
        live_bytes: In each.
        closed_tombstones: As :attr:`LogSnapshot.closed_tombstones`.
        referred_to: Paths of the checkpoints that files here refer to.
        is_fork: Whether it says so.
    """

    sizes: dict[str, int]
    live_bytes: dict[str, int]
    closed_tombstones: dict[str, int]
    referred_to: frozenset[str]
    is_fork: bool

    @classmethod
    def of(cls, snapshot: LogSnapshot) -> _Before:
        live = zip(snapshot.scan.entries.files, snapshot.scan.resolution.totals.live_bytes.tolist(), strict=True)
        return cls(
            {name: info.size for name, info in snapshot.scan.infos.items()},
            dict(live),
            snapshot.closed_tombstones,
            frozenset(split_foreign_path(path)[0] for path in snapshot.scan.entries.foreign),
            any(name.endswith(ORIGIN_SUFFIX) for name in snapshot.scan.others),
        )


def rewrite(log: MergedLog, names: Collection[str], target_file_size: int = TARGET_FILE_SIZE) -> Relocation:
    """Copies what lives in some files into others; nothing is unlinked.

    Args:
        log: Of the checkpoint.
        names: Of merged files. Those that are gone, or may be appended to, are left out.
        target_file_size: In bytes.

    Raises:
        StateStoreFilesError: As :meth:`~pyspark_statestore.maintenance.maintenance.Maintenance.compact`.
    """
    wanted = Wanted(target_file_size=target_file_size)

    def planned(movable: Movable) -> Sequence[Bin]:
        check_unclaimed(log.directory, movable.snapshot.scan.others)
        return CompactionPlan.of(movable, wanted, names).bins

    return relocate(log, planned)


def _shares(bins: Sequence[Bin]) -> list[list[Bin]]:
    """What each task does; the same for the same bins."""
    tasks = max(min(len(bins), _BINS_OF_A_TASK), -(-len(bins) // _BINS_OF_A_TASK))
    return [list(bins[number::tasks]) for number in range(tasks)]


def _summary(log: MergedLog, before: _Before, done: Relocation, cleaned: Cleaned, planned: bool = False) -> Compaction:
    """What was done, or would be; new files have no names then."""
    rewritten = {name for new in done.added for name in new.sources}
    removed = set(cleaned.files)
    rows = [
        (name, before.sizes[name], before.live_bytes[name], name in rewritten, False, name in removed)
        for name in sorted((rewritten | removed) & before.live_bytes.keys())
    ]
    if not planned:
        rows += [(new.name, new.size, new.live_bytes, False, True, False) for new in done.added]
    url = log.directory.location.display(MERGED)
    table = [dict(zip(_FILES.names, (f"{url}/{name}", *rest), strict=True)) for name, *rest in rows]
    return Compaction(
        rewritten_files_count=len(rewritten),
        added_files_count=len(done.added),
        removed_files_count=len(removed),
        rewritten_bytes_count=sum(new.live_bytes for new in done.added),
        added_bytes_count=sum(new.size for new in done.added),
        reclaimed_bytes_count=cleaned.size_in_bytes,
        dry_run=planned,
        files=pa.Table.from_pylist(table, schema=_FILES),
    )


# Which files a compaction rewrites, and what goes into which new one.

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
        scan = movable.snapshot.scan
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
    size = movable.snapshot.scan.infos[name].size
    header = movable.snapshot.scan.files[name].header
    needed = movable.size(name) + U32.size + TRAILER_SIZE + (header.length if header is not None else 0)
    return size > wanted.max_space_amplification * live_bytes and size - needed > _LEAST_GAIN * size


def _is_small(movable: Movable, wanted: Wanted, name: str) -> bool:
    """What is in it would have to go into one new file, together with that of others."""
    size = movable.snapshot.scan.infos[name].size
    return size < _SMALL * wanted.target_file_size and movable.size(name) <= wanted.capacity


def _check(key: str, value: object, allowed: str, least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not value >= least:
        raise StateStoreFilesError("PSS_INVALID_OPTION", {"key": key, "value": value, "allowed": allowed})


# Puts things of different sizes into as few bins as is quickly found; knows nothing of what they are.

Item = TypeVar("Item", bound=Any)


def pack(sizes: Mapping[Item, int], capacity: int) -> list[tuple[Item, ...]]:
    """Packs by best fit, the largest first.

    Depends on nothing but the arguments, not even on the order of the mapping. No two bins could be joined: an item
    only begins a bin where it fits into none. So packing the bins themselves again leaves each alone.

    Args:
        sizes: Of each item; items can be put in order.
        capacity: Of a bin. An item that is larger has one for itself.

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


# Which files people mean by a condition on the table ``files``.


def chosen_by(
    where: Expression | str, snapshot: LogSnapshot, log: MergedLog, spark: SparkSession | None
) -> frozenset[str]:
    """Names of the files for which a condition holds.

    Args:
        where: An Arrow expression, or SQL.
        snapshot: The files as they were found.
        log: Of the checkpoint.
        spark: For SQL.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION where it is no such condition.
    """
    table = files_table(snapshot.scan, log.directory.location.url, log.closed_after)
    if isinstance(where, str) and spark is None:
        raise _refused(where, "an Arrow expression, such as pyarrow.compute.field('live_bytes') == 0; SQL needs spark=")
    try:
        if isinstance(where, str):
            assert spark is not None
            rows = spark.createDataFrame(table).where(where).select("file_path").collect()
            paths = [row["file_path"] for row in rows]
        else:
            paths = table.filter(where)["file_path"].to_pylist()
    except Exception as error:  # Arrow's and Spark's own, of many kinds
        reason = str(error).strip().partition("\n")[0]
        raise _refused(where, f"a condition on the columns {', '.join(table.column_names)} ({reason})") from error
    return frozenset(path.rpartition("/")[2] for path in paths)


def _refused(where: object, allowed: str) -> StateStoreFilesError:
    return StateStoreFilesError("PSS_INVALID_OPTION", {"key": "where", "value": where, "allowed": allowed})
