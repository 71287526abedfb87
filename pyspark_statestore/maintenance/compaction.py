"""Rewrites files that are mostly dead, or small, into few that are not."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from fsspec.callbacks import Callback, NoOpCallback

from pyspark_statestore.forks.claims import delete_claimed, needless_claimed
from pyspark_statestore.forks.origin import ORIGIN_SUFFIX
from pyspark_statestore.forks.pins import check_unclaimed
from pyspark_statestore.forks.release import release_sources
from pyspark_statestore.format import split_foreign_path
from pyspark_statestore.inspect.scan import MERGED, look_again
from pyspark_statestore.maintenance.cleaning import Cleaned, clean, foresee
from pyspark_statestore.maintenance.compaction_plan import CompactionPlan, Wanted
from pyspark_statestore.maintenance.maintenance import TARGET_FILE_SIZE
from pyspark_statestore.maintenance.movable import Movable
from pyspark_statestore.maintenance.on_spark import run_on_spark
from pyspark_statestore.maintenance.relocation import Bin, Relocation, relocate
from pyspark_statestore.maintenance.selection import chosen_by
from pyspark_statestore.maintenance.site import Site, View
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
    site: Site,
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
        before = _Before.of(movable.view)
        if not dry_run:
            check_unclaimed(site.directory, movable.view.scan.others)
        names = None if where is None else chosen_by(where, movable.view, site, spark)
        plan = CompactionPlan.of(movable, wanted, names, localize=localize)
        callback.set_size(plan.live_bytes)
        return plan

    if dry_run:
        view = site.look()
        plan = planned(Movable(view))
        return _summary(site, _Before.of(view), plan.as_relocation(), foresee(site, view, plan.sources), planned=True)
    if spark is None:
        done = relocate(site, lambda movable: planned(movable).bins, callback)
    else:
        plan = planned(Movable(site.look()))
        done = Relocation()
        for part in run_on_spark(spark, partial(relocate, site), _shares(plan.bins)):
            done.added += part.added
            done.failures += part.failures
            callback.relative_update(sum(new.live_bytes for new in part.added))
    if before is None:
        return Compaction()
    if localize:
        release_sources(site.directory, before.referred_to)
    cleaned = clean(site, before.closed_tombstones)
    claimed: list[FileInfo] = []
    if before.is_fork:
        claimed = look_again(site.directory, lambda: needless_claimed(site.directory, site.look().scan))
        delete_claimed(site.directory, claimed)
    if done.failures:
        raise done.failures[0]
    return replace(_summary(site, before, done, cleaned), removed_claimed_files_count=len(claimed))


@dataclass(frozen=True)
class _Before:
    """What was there, by the names of the files.

    Attributes:
        sizes: In bytes.
        live_bytes: In each.
        closed_tombstones: As :attr:`View.closed_tombstones`.
        referred_to: Paths of the checkpoints that files here refer to.
        is_fork: Whether it says so.
    """

    sizes: dict[str, int]
    live_bytes: dict[str, int]
    closed_tombstones: dict[str, int]
    referred_to: frozenset[str]
    is_fork: bool

    @classmethod
    def of(cls, view: View) -> _Before:
        live = zip(view.scan.entries.files, view.scan.resolution.totals.live_bytes.tolist(), strict=True)
        return cls(
            {name: info.size for name, info in view.scan.infos.items()},
            dict(live),
            view.closed_tombstones,
            frozenset(split_foreign_path(path)[0] for path in view.scan.entries.foreign),
            any(name.endswith(ORIGIN_SUFFIX) for name in view.scan.others),
        )


def rewrite(site: Site, names: Collection[str], target_file_size: int = TARGET_FILE_SIZE) -> Relocation:
    """Copies what lives in some files into others; nothing is unlinked.

    Args:
        site: Of the checkpoint.
        names: Of merged files. Those that are gone, or may be appended to, are left out.
        target_file_size: In bytes.

    Raises:
        StateStoreFilesError: As :meth:`~pyspark_statestore.maintenance.maintenance.Maintenance.compact`.
    """
    wanted = Wanted(target_file_size=target_file_size)

    def planned(movable: Movable) -> Sequence[Bin]:
        check_unclaimed(site.directory, movable.view.scan.others)
        return CompactionPlan.of(movable, wanted, names).bins

    return relocate(site, planned)


def _shares(bins: Sequence[Bin]) -> list[list[Bin]]:
    """What each task does; the same for the same bins."""
    tasks = max(min(len(bins), _BINS_OF_A_TASK), -(-len(bins) // _BINS_OF_A_TASK))
    return [list(bins[number::tasks]) for number in range(tasks)]


def _summary(site: Site, before: _Before, done: Relocation, cleaned: Cleaned, planned: bool = False) -> Compaction:
    """What was done, or would be; new files have no names then."""
    rewritten = {name for new in done.added for name in new.sources}
    removed = set(cleaned.files)
    rows = [
        (name, before.sizes[name], before.live_bytes[name], name in rewritten, False, name in removed)
        for name in sorted((rewritten | removed) & before.live_bytes.keys())
    ]
    if not planned:
        rows += [(new.name, new.size, new.live_bytes, False, True, False) for new in done.added]
    url = site.directory.location.display(MERGED)
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
