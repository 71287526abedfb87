"""Conversion: lets a stopped query go on with merged state, or with stock Spark's.

A restart takes the class that keeps the state from the checkpoint's offset log, not from the session. ``convert``
rewrites it there (:mod:`~pyspark_statestore.migration.offset_log`) and moves no state:

* To ``merged``, stock Spark's files are read where they are. After an export in place the checkpoint has both; the
  merged files count again, and their plain copies are removed, but only if every copy still has its segment's bytes and
  stock Spark has committed nothing since.
* To ``stock``, everything has to be there as plain files already, which an export makes.

Going back after an export needs an order. First the marker says ``.exporting`` again, since soon not everything is
there as plain files; then the log is rewritten; then the copies are removed; the marker goes last. A crash leaves a
checkpoint that refuses to be read as merged, and ``convert``, repeated, ends what was begun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError, not_allowed
from pyspark_statestore.log.merged_log import MergedLog
from pyspark_statestore.log.payload import check_run, segment_runs
from pyspark_statestore.log.scan import (
    EXPORTED_SUFFIX,
    EXPORTING_SUFFIX,
    Scan,
    retry_if_gone,
    scan,
)
from pyspark_statestore.log.spark_logs import content_of, operator_metadata, operators
from pyspark_statestore.log.state_files import STATE, files_below_state, is_state_file
from pyspark_statestore.log.stopped import require_still_stopped
from pyspark_statestore.migration.checks import (
    LiveSegments,
    highest_version,
    require_fresh,
    require_not_gone_on,
    require_query_stopped,
    stale,
)
from pyspark_statestore.migration.export_marker import ExportMarker, remove_markers
from pyspark_statestore.migration.offset_log import OffsetChanges, UnfinishedRepartition
from pyspark_statestore.storage.changes import delete, forget_checksum
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel

TARGETS = ("merged", "stock")
DOORS = ("provider", "path")


@dataclass(frozen=True)
class Conversion:
    """What a conversion changed, or would change.

    Attributes:
        to: ``merged`` or ``stock``.
        provider_before: The class that the newest entry of the offset log named; None where it left it to the session.
        provider_after: The class that it names now.
        changed_entries_count: Entries of the offset log that were rewritten: the newest, from which a restart takes the
            class, and all older ones, from which a reader of an earlier batch takes it.
        removed_files_count: Plain copies of merged segments, left by an export, that were removed.
        undone_batch: The batch of an unfinished repartitioning by Spark that was taken out of the logs; None without.
        kept_copy: URL of a zip with the entries as they were before; None where nothing was rewritten or taken out.
        dry_run: Whether nothing was changed.
    """

    to: str
    provider_before: str | None
    provider_after: str | None
    changed_entries_count: int
    removed_files_count: int
    undone_batch: int | None
    kept_copy: str | None
    dry_run: bool


def convert(
    log: MergedLog, to: str, *, door: str = "provider", dry_run: bool = False, force: bool = False, query: Any = None
) -> Conversion:
    """Implements :meth:`pyspark_statestore.Checkpoint.convert`."""
    _check_word("to", to, TARGETS)
    _check_word("door", door, DOORS)
    directory = log.directory
    marker = ExportMarker.found(directory)
    # Through the path door the location says that state is merged; the class is Spark's.
    changes = OffsetChanges.planned(directory, "stock" if door == "path" else to)
    found = retry_if_gone(directory, lambda: scan(directory, retired=True))
    changes = _undoing_repartition(directory, changes, found)
    back: _GoingBack | None = None
    if to == "stock":
        _require_plain(directory, found, marker)
    else:
        if door == "provider":
            _require_no_transform_with_state(directory)
        there = files_below_state(directory)
        if marker is not None:
            back = _GoingBack.planned(log, marker, found, there)
        elif not force:  # force never overrules a marker
            require_fresh(directory, found, there.values())
    said = None
    if not force and (changes.are_any or back):
        said = require_query_stopped(log, found, f"Converting to {to}", query=query, marker=marker, ours=changes.ours)
    copy = None
    if not dry_run:
        require_still_stopped(log, said, f"Converting to {to}")
        if back is not None:
            back.begin(log)
        copy = changes.carry_out(log)
        if back is not None:
            back.end(log)
    removed = 0 if back is None else len(back.copies)
    undone = None if changes.undone is None else changes.undone.batch
    return Conversion(to, *changes.providers, len(changes.changed), removed, undone, copy, dry_run)


def _check_word(key: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise not_allowed(key, value, " or ".join(allowed))


def _undoing_repartition(directory: Directory, changes: OffsetChanges, found: Scan) -> OffsetChanges:
    unfinished = UnfinishedRepartition.found(directory, changes.before)
    if unfinished is None:
        return changes
    plain = [name for name in files_below_state(directory) if is_state_file(name)]
    unfinished.require_no_state(directory, [*plain, *LiveSegments.of(found).path])
    return changes.undoing(unfinished)


def _require_plain(directory: Directory, found: Scan, marker: ExportMarker | None) -> None:
    if marker is not None and marker.is_done:
        return
    live = LiveSegments.of(found)
    if len(live):
        reason = f"{len(live)} files, such as {STATE}/{live.path[0]}, are segments of merged files"
        if marker is not None:
            reason += ", and an export was begun but not finished"
        raise StateStoreFilesError("PSS_NOT_EXPORTED", {"path": directory.location.url, "reason": reason})


def _require_no_transform_with_state(directory: Directory) -> None:
    for operator_id in operators(directory):
        metadata = operator_metadata(directory, operator_id)
        try:
            operator = content_of(metadata[1])["operatorInfo"]["operatorName"] if metadata else ""
        except (ValueError, KeyError, TypeError):
            continue
        if str(operator).startswith("transformWithState"):
            raise StateStoreFilesError("PSS_NEEDS_PATH_DOOR", {"operator": operator})


@dataclass(frozen=True)
class _GoingBack:
    """The way back to the merged files after an export in place.

    ``copies`` are the paths below ``state/`` of the plain files that have the bytes of a live segment.
    """

    marker: ExportMarker
    copies: tuple[str, ...] = field(repr=False)

    @classmethod
    def planned(cls, log: MergedLog, marker: ExportMarker, found: Scan, there: Mapping[str, FileInfo]) -> _GoingBack:
        """Compares every plain copy with its segment, and both with their checksum.

        Raises:
            StateStoreFilesError: PSS_STALE_MERGED where stock Spark has gone on, PSS_CORRUPT_SEGMENT where the plain
                copy is the only good one, or a file cannot be read.
        """
        directory = log.directory
        require_not_gone_on(directory, marker)
        live = LiveSegments.of(found)
        rows = live.rows_in(there)
        same = live.same(directory, there, rows)
        replaced = set() if marker.is_done else set(marker.replaces)
        others = [live.path[at] for at in rows[~same].tolist() if live.path[at] not in replaced]
        if others:
            reason = f"{STATE}/{others[0]} has other bytes than were exported, so it was written since"
            raise stale(directory, reason)
        known = set(live.path)
        unknown = [name for name in there if is_state_file(name) and name not in known]
        if highest_version(unknown) > highest_version(live.path):
            raise stale(directory, "stock Spark has begun to write the next version")
        _check_segments(directory, found, live, rows[same])
        return cls(marker, tuple(live.path[at] for at in rows[same].tolist()))

    def begin(self, log: MergedLog) -> None:
        """Says that not everything is there as plain files any more: soon it is not."""
        if self.marker.is_done:
            self.marker.write_as(log, EXPORTING_SUFFIX)
            remove_markers(log.directory, (EXPORTED_SUFFIX,))

    def end(self, log: MergedLog) -> None:
        """Removes the copies, and then the marker that keeps others from the merged files."""

        def remove(path: str) -> None:
            forget_checksum(log.directory, f"{STATE}/{path}")
            delete(log.directory, f"{STATE}/{path}")

        in_parallel(remove, self.copies)
        remove_markers(log.directory, (EXPORTING_SUFFIX,))


def _check_segments(directory: Directory, found: Scan, live: LiveSegments, rows: np.ndarray) -> None:
    """Refuses to remove plain copies of segments that cannot be read or are corrupt."""
    entries = found.entries
    runs = segment_runs(entries, live.row[rows], found.sizes)
    for run, checked in zip(runs, in_parallel(lambda run: check_run(directory, run), runs), strict=True):
        if checked.error is not None:
            raise checked.error
        for row in (*checked.bad, *checked.unread):
            reason = "their checksum does not match, though the plain file's does; nothing was changed"
            number = int(np.flatnonzero(run.row == row)[0])
            raise run.corrupt(directory, number, entries.path[row].as_py(), reason)
