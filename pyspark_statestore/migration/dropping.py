"""Dropping: deletes the merged files of a checkpoint that stock Spark goes on with.

Nothing is deleted while anything needs the merged files: a fork that has pinned them, a segment that is not there as a
plain file with the same bytes, a segment that was written after the export, or, once the query has gone on, a version
that plain files alone cannot restore.

While some merged files are gone and others are not, nobody may read them. So a ``.dropping`` marker is written first
and deleted last. After a crash, checkpoints with that marker refuse to be read as merged, and ``drop_merged``,
repeated, deletes the rest without checking again. There is no way back to the merged files.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.merged_log import MergedLog
from pyspark_statestore.log.pins import PIN_SUFFIX
from pyspark_statestore.log.scan import (
    DROPPING_SUFFIX,
    EXPORTED_SUFFIX,
    EXPORTING_SUFFIX,
    MERGED,
    Scan,
    our_files,
    retry_if_gone,
    scan,
)
from pyspark_statestore.log.state_files import IMMUTABLE, STATE, files_below_state
from pyspark_statestore.migration.checks import LiveSegments, has_gone_on, missing_without_merged
from pyspark_statestore.migration.export_marker import ExportMarker, Progress, remove_markers
from pyspark_statestore.storage.changes import delete
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel

_EXPORT = "Export them first: pyspark-statestore export"
_FORCE = "If the query goes on with plain files, say so: force=True (--force)"
_MARKERS = (EXPORTING_SUFFIX, EXPORTED_SUFFIX, DROPPING_SUFFIX)


@dataclass(frozen=True)
class Drop:
    """What was deleted, or would be.

    Attributes:
        removed_files_count: Files that were deleted beside and with the merged ones, except markers of exports.
        removed_bytes_count: Size of these files, in bytes.
        dry_run: Whether nothing was changed.
    """

    removed_files_count: int
    removed_bytes_count: int
    dry_run: bool


def drop_merged(log: MergedLog, *, dry_run: bool = True, force: bool = False) -> Drop:
    """Implements :meth:`pyspark_statestore.Checkpoint.drop_merged`."""
    directory = log.directory
    marker = ExportMarker.found(directory)
    listed = our_files(directory)
    if marker is None or not marker.is_dropping:
        found = retry_if_gone(directory, lambda: scan(directory, retired=True))
        _require_no_pins(directory, listed)
        retry_if_gone(directory, lambda: _require_not_needed(directory, marker, found, force))
    files = [info for info in listed if not info.name.endswith(_MARKERS)]
    if not dry_run and listed:
        _delete(log, marker, files)
    return Drop(len(files), sum(info.size for info in files), dry_run)


def _require_not_needed(directory: Directory, marker: ExportMarker | None, found: Scan, force: bool) -> None:
    live = LiveSegments.of(found)
    if not len(live):
        missing = None if force else missing_without_merged(directory, files_below_state(directory))
        if missing is not None:
            action = f"See what is wrong: pyspark-statestore verify. {_FORCE}"
            raise _refused(directory, f"without them, {missing}", action)
        return
    if marker is None or not marker.is_done:
        how = "was begun but not finished" if marker else "was not made"
        reason = f"{len(live)} files, such as {STATE}/{live.path[0]}, live in them, and an export {how}"
        if not force:
            raise _refused(directory, reason, _EXPORT if marker else f"{_EXPORT}. {_FORCE}")
    elif live.highest_stamp > marker.highest_stamp:
        newest = live.path[int(np.argmax(live.stamp))]
        raise _refused(directory, f"{STATE}/{newest} was written to them after the export", _EXPORT)
    there = files_below_state(directory)
    gone_on = marker is None or has_gone_on(directory, marker)
    rows = np.arange(len(live))
    if gone_on:  # Spark has deleted versions since, and may have written some anew; only immutable files never change.
        rows = np.array([at for at in rows.tolist() if live.path[at] in there and IMMUTABLE.fullmatch(live.path[at])])
        rows = rows.astype("i8")
    lost = rows[~live.same(directory, there, rows)]
    if len(lost) and not force:
        path = live.path[int(lost[0])]
        what = "has other bytes" if path in there else "does not exist"
        raise _refused(directory, f"the plain file {STATE}/{path} {what}", _FORCE)
    if gone_on or force:
        missing = missing_without_merged(directory, there)
        if missing is not None:
            raise _refused(directory, f"without them, {missing}", "Export again, or go back: convert --to merged")


def _require_no_pins(directory: Directory, listed: list[FileInfo]) -> None:
    pins = [info.name for info in listed if info.name.endswith(PIN_SUFFIX)]
    if pins:
        reason = f"a fork of this checkpoint reads them ({MERGED}/{pins[0]} names it)"
        action = "Localize or delete the fork, and remove orphans here; then repeat"
        raise _refused(directory, reason, action)


def _delete(log: MergedLog, marker: ExportMarker | None, files: list[FileInfo]) -> None:
    directory = log.directory
    if marker is None or not marker.is_dropping:
        if marker is None:
            marker = ExportMarker("", log.now_ms, 0, (), Progress.of(directory))
        marker.write_as(log, DROPPING_SUFFIX)
    in_parallel(lambda info: delete(directory, f"{MERGED}/{info.name}"), files)
    remove_markers(directory, _MARKERS)
    if not directory.is_flat:
        with suppress(Exception):  # an empty directory does no harm
            directory.location.fs.rmdir(directory.location.below(MERGED))


def _refused(directory: Directory, reason: str, action: str) -> StateStoreFilesError:
    parameters = {"path": directory.location.url, "reason": reason, "action": action}
    return StateStoreFilesError("PSS_DROP_REFUSED", parameters)
