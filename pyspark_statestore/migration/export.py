"""Writes merged state back as the plain files that stock Spark expects: ``export``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyspark_statestore.inspect.scan import (
    EXPORTED_SUFFIX,
    EXPORTING_SUFFIX,
    Scan,
    check_checkpoint,
    look_again,
    scan,
)
from pyspark_statestore.inspect.state_files import files_below_state
from pyspark_statestore.maintenance.site import Site
from pyspark_statestore.migration.conversion import OffsetChanges, require_query_stopped
from pyspark_statestore.migration.export_marker import ExportMarker, Progress, remove_markers
from pyspark_statestore.migration.export_plan import Here, check_places, check_replaced, check_restorable, check_strays
from pyspark_statestore.migration.going_back import require_not_gone_on
from pyspark_statestore.migration.live_segments import LiveSegments
from pyspark_statestore.migration.pieces import segment_pieces
from pyspark_statestore.migration.staleness import require_fresh
from pyspark_statestore.migration.writing import Writing
from pyspark_statestore.storage import Directory

if TYPE_CHECKING:
    from fsspec.callbacks import Callback
    from pyspark.sql import SparkSession

ACTION = "Exporting"


@dataclass(frozen=True)
class Export:
    """What was written, or would be.

    Attributes:
        path: Where the plain files are, as a URL: the checkpoint itself, or the new directory.
        exported_files_count: Segments that became plain files.
        exported_bytes_count: Of these.
        kept_files_count: Segments that were there as plain files already, with the same bytes.
        replaced_files_count: Of the exported ones, those in whose place a plain file was that had been superseded.
        copied_files_count: Other files that a new directory got.
        provider: The class that the newest entry of the offset log names for stock Spark; None where it names none.
        dry_run: Whether nothing was changed.
    """

    path: str
    exported_files_count: int = 0
    exported_bytes_count: int = 0
    kept_files_count: int = 0
    replaced_files_count: int = 0
    copied_files_count: int = 0
    provider: str | None = None
    dry_run: bool = False


def export(
    site: Site,
    target: Directory | None = None,
    *,
    dry_run: bool = False,
    force: bool = False,
    spark: SparkSession | None = None,
    callback: Callback | None = None,
) -> Export:
    """See :meth:`pyspark_statestore.Checkpoint.export`."""
    check_checkpoint(site.directory)
    if target is not None:
        from pyspark_statestore.migration.new_directory import export_to

        return export_to(site, target, dry_run=dry_run, force=force, spark=spark, callback=callback)
    marker = ExportMarker.found(site.directory)
    changes = OffsetChanges.planned(site.directory, "stock")
    if marker is not None and marker.is_done:
        if not dry_run:
            remove_markers(site.directory, (EXPORTING_SUFFIX,))
        return _converted(site, changes, dry_run)
    found, live = look_again(site.directory, lambda: _look(site.directory))
    if not force:
        require_query_stopped(site, found, marker, changes, ACTION, dry_run=dry_run)
    if not len(live) and marker is None:
        return _converted(site, changes, dry_run)
    here = _planned(site, marker, found, live, force=force)
    if not dry_run:
        _carry_out(site, marker, live, here, Writing(site.directory, site.directory, spark, callback))
        changes.carry_out(site)
    new: np.ndarray = np.setdiff1d(np.arange(len(live)), here.same)
    return Export(
        path=site.directory.location.url,
        exported_files_count=len(new),
        exported_bytes_count=int(live.length[new].sum()),
        kept_files_count=len(here.same),
        replaced_files_count=len(here.others),
        provider=changes.providers[1],
        dry_run=dry_run,
    )


def _look(directory: Directory) -> tuple[Scan, LiveSegments]:
    found = scan(directory, retired=True)
    check_restorable(directory, found)
    return found, LiveSegments.of(found)


def _planned(site: Site, marker: ExportMarker | None, found: Scan, live: LiveSegments, *, force: bool) -> Here:
    """Makes sure that nothing that is there is lost, and that what is written is newer."""
    directory = site.directory
    there = files_below_state(directory)
    if marker is not None:
        require_not_gone_on(directory, marker)
    elif not force:
        require_fresh(directory, found, there.values())
    check_strays(directory, found, live, there)
    check_places(directory, live, there)
    here = Here.of(directory, live, there)
    check_replaced(directory, live, here, marker)
    return here


def _carry_out(site: Site, marker: ExportMarker | None, live: LiveSegments, here: Here, writing: Writing) -> None:
    directory = site.directory
    if marker is None:
        replaces = tuple(live.path[at] for at in here.others.tolist())
        created_ms = site.now_ms
        marker = ExportMarker("", created_ms, live.highest_stamp, replaces, Progress.of(directory))
        marker = marker.write_as(site, EXPORTING_SUFFIX)
    writing.note(live, here.same)
    # Whoever was about to write when the first look was made has ended, or will find the marker: look again.
    for _ in writing.attempts():
        found = look_again(directory, lambda: scan(directory, retired=True))
        live = LiveSegments.of(found)
        rows = writing.missing(live)
        if not len(rows):
            break
        writing.run(segment_pieces(found, live, rows), live, rows)
    marker.write_as(site, EXPORTED_SUFFIX)
    remove_markers(directory, (EXPORTING_SUFFIX,))


def _converted(site: Site, changes: OffsetChanges, dry_run: bool) -> Export:
    """Where every byte of the state is plain already."""
    if not dry_run:
        changes.carry_out(site)
    return Export(site.directory.location.url, provider=changes.providers[1], dry_run=dry_run)
