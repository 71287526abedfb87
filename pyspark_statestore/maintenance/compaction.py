"""Compaction: rewrites merged files that are mostly dead, or small, into few files that are neither.

In: the merged files of a checkpoint. Out: the same state in fewer bytes and files. Compaction runs in three steps:

1. *Plan* (:mod:`~pyspark_statestore.maintenance.compaction_plan`): choose closed files, and pack their live segments
   into new files of the target size.
2. *Copy* (:mod:`~pyspark_statestore.maintenance.relocation`, rule 5 of docs/guarantees.md): write each new file whole,
   here or in a Spark task. A copy keeps its segment's key, so it does not matter which of the two a reader finds.
3. *Clean* (:mod:`~pyspark_statestore.maintenance.cleaning`, rule 6): look again, and unlink the files in which nothing
   lives any more. Step 3 decides by what it finds and not by what step 2 meant to do: a file that could not be copied
   still holds live segments, and stays.

A crash in step 2 leaves a file without a name (a temporary one) and a relocation marker; others ignore the file and
stop waiting for the marker after ``closedAfter``. A crash in step 3 leaves dead files, which the next cleaning unlinks.
Repeating the compaction is always safe, beside a running query too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from fsspec.callbacks import Callback, NoOpCallback

from pyspark_statestore.format import split_foreign_path
from pyspark_statestore.log.merged_log import TARGET_FILE_SIZE, LogSnapshot, MergedLog
from pyspark_statestore.log.on_spark import run_on_spark
from pyspark_statestore.log.pins import ORIGIN_SUFFIX, check_unclaimed
from pyspark_statestore.log.scan import MERGED, ForeignFileGoneError, retry_if_gone
from pyspark_statestore.maintenance.cleaning import Cleaned, clean, predict_cleaning
from pyspark_statestore.maintenance.compaction_plan import CompactionOptions, CompactionPlan, files_where
from pyspark_statestore.maintenance.fork_release import delete_claimed, release_sources, unneeded_claimed
from pyspark_statestore.maintenance.relocation import Bin, Movable, Relocation, relocate
from pyspark_statestore.storage import FileInfo

if TYPE_CHECKING:
    from pyarrow.compute import Expression
    from pyspark.sql import SparkSession


_BINS_OF_A_TASK = 8
"""Each task reads the whole checkpoint's indexes, so it should copy several files; few bins get a task each."""

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
        removed_files_count: Files that were unlinked. A file that may still be needed is left to a later compaction.
        rewritten_bytes_count: Live bytes that were copied.
        added_bytes_count: Size of the files that were written, in bytes.
        reclaimed_bytes_count: Size of the files that were unlinked, in bytes.
        dry_run: Whether nothing was changed.
        removed_claimed_files_count: Files of the claimed source that were unlinked, because neither this fork nor
            another one reads them any more.
        files: A row for each of these files: ``file_path``, ``file_size_in_bytes``, ``live_bytes`` (before, or in a new
            file), ``is_rewritten``, ``is_added``, ``is_removed``. A dry run has no rows for new files, which have no
            names yet.
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
    """Implements :meth:`pyspark_statestore.maintenance.maintenance.Maintenance.compact`."""
    options = CompactionOptions(max_space_amplification, target_file_size)
    callback = callback or NoOpCallback()
    before: _Before | None = None

    def plan_for(movable: Movable) -> CompactionPlan:
        # The snapshot itself is not kept: a large checkpoint's takes as much memory as everything else together.
        nonlocal before
        before = _Before.of(movable.snapshot)
        if not dry_run:
            check_unclaimed(log.directory, movable.snapshot.scan.others)
        names = None if where is None else files_where(where, movable.snapshot, log, spark)
        try:
            plan = CompactionPlan.of(movable, options, names, localize=localize)
        except ForeignFileGoneError as error:
            raise error.as_error(log.directory) from error
        callback.set_size(plan.live_bytes)
        return plan

    if dry_run:
        snapshot = log.snapshot()
        plan = plan_for(Movable(snapshot))
        cleaned = predict_cleaning(log, snapshot, plan.emptied)
        return _summary(log, _Before.of(snapshot), plan.as_relocation(), cleaned, dry_run=True)
    if spark is None:
        done = relocate(log, lambda movable: plan_for(movable).bins, callback)
    else:
        plan = plan_for(Movable(log.snapshot()))
        done = Relocation()
        for part in run_on_spark(spark, partial(relocate, log), _tasks(plan.bins)):
            done.added += part.added
            done.failures += part.failures
            callback.relative_update(sum(new.live_bytes for new in part.added))
    if before is None:
        return Compaction()
    if localize:
        release_sources(log, before.sources)
    cleaned = clean(log, before.closed_tombstones)
    claimed: list[FileInfo] = []
    if before.is_fork:
        claimed = retry_if_gone(log.directory, lambda: unneeded_claimed(log.directory, log.snapshot().scan))
        delete_claimed(log.directory, claimed)
    if done.failures:
        raise done.failures[0]
    return replace(_summary(log, before, done, cleaned), removed_claimed_files_count=len(claimed))


def rewrite(log: MergedLog, names: Collection[str], target_file_size: int = TARGET_FILE_SIZE) -> Relocation:
    """Copies what lives in the named files into new ones, and unlinks nothing.

    Files that are gone, or that somebody may still append to, are left out.

    Raises:
        StateStoreFilesError: As :meth:`~pyspark_statestore.maintenance.maintenance.Maintenance.compact`.
    """
    options = CompactionOptions(target_file_size=target_file_size)

    def bins_for(movable: Movable) -> Sequence[Bin]:
        check_unclaimed(log.directory, movable.snapshot.scan.others)
        return CompactionPlan.of(movable, options, names).bins

    return relocate(log, bins_for)


@dataclass(frozen=True)
class _Before:
    """What the report needs to know of the files as they were before, by their names.

    ``sources`` are the paths of the checkpoints that files here refer to.
    """

    sizes: dict[str, int]
    live_bytes: dict[str, int]
    closed_tombstones: dict[str, int]
    sources: frozenset[str]
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


def _tasks(bins: Sequence[Bin]) -> list[list[Bin]]:
    """The bins of each Spark task; the same for the same bins."""
    tasks = max(min(len(bins), _BINS_OF_A_TASK), -(-len(bins) // _BINS_OF_A_TASK))
    return [list(bins[number::tasks]) for number in range(tasks)]


def _summary(
    log: MergedLog, before: _Before, done: Relocation, cleaned: Cleaned, *, dry_run: bool = False
) -> Compaction:
    rewritten = {name for new in done.added for name in new.sources}
    removed = set(cleaned.files)
    rows = [
        (name, before.sizes[name], before.live_bytes[name], name in rewritten, False, name in removed)
        for name in sorted((rewritten | removed) & before.live_bytes.keys())
    ]
    if not dry_run:
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
        dry_run=dry_run,
        files=pa.Table.from_pylist(table, schema=_FILES),
    )
