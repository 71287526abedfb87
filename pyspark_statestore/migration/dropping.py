"""Deletes the merged files of a checkpoint that stock Spark goes on with."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.merged_log import MergedLog
from pyspark_statestore.log.scan import (
    DROPPING_SUFFIX,
    EXPORTED_SUFFIX,
    EXPORTING_SUFFIX,
    MERGED,
    Scan,
    check_checkpoint,
    retry_if_gone,
    scan,
)
from pyspark_statestore.log.state_files import IMMUTABLE, STATE, files_below_state
from pyspark_statestore.migration.conversion import has_gone_on
from pyspark_statestore.migration.export_marker import ExportMarker, Progress, remove_markers
from pyspark_statestore.migration.export_plan import restorable_without_merged
from pyspark_statestore.migration.live_segments import LiveSegments
from pyspark_statestore.storage.changes import delete
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel

PIN_SUFFIX = ".fork"
"""Files of this ending say that another checkpoint reads merged files of this one."""

_EXPORT = "Export them first: pyspark-statestore export"
_FORCE = "If plain files are what the query goes on with, say so: force=True (--force)"
_MARKERS = (EXPORTING_SUFFIX, EXPORTED_SUFFIX, DROPPING_SUFFIX)


@dataclass(frozen=True)
class Drop:
    """What was deleted, or would be.

    Attributes:
        removed_files_count: Files among the merged ones.
        removed_bytes_count: Of these.
        dry_run: Whether nothing was changed.
    """

    removed_files_count: int
    removed_bytes_count: int
    dry_run: bool


def drop_merged(log: MergedLog, *, dry_run: bool = True, force: bool = False) -> Drop:
    """See :meth:`pyspark_statestore.Checkpoint.drop_merged`."""
    directory = log.directory
    check_checkpoint(directory)
    marker = ExportMarker.found(directory)
    listed = directory.files(MERGED)
    if marker is None or not marker.is_dropping:
        found = retry_if_gone(directory, lambda: scan(directory, retired=True))
        _require_no_pins(directory, listed)
        retry_if_gone(directory, lambda: _require_not_needed(directory, marker, found, force))
    files = [info for info in listed if not info.name.endswith(_MARKERS)]
    if not dry_run and listed:
        _carry_out(log, marker, files)
    return Drop(len(files), sum(info.size for info in files), dry_run)


def _require_not_needed(directory: Directory, marker: ExportMarker | None, found: Scan, force: bool) -> None:
    live = LiveSegments.of(found)
    if not len(live):
        missing = None if force else restorable_without_merged(directory, files_below_state(directory))
        if missing is not None:
            raise _refused(
                directory, f"without them, {missing}", f"Look what is wrong: pyspark-statestore verify. {_FORCE}"
            )
        return
    if marker is None or not marker.is_done:
        how = "was begun and not ended" if marker else "was not made"
        reason = f"{len(live)} files, such as {STATE}/{live.path[0]}, live in them, and an export {how}"
        if not force:
            raise _refused(directory, reason, _EXPORT if marker else f"{_EXPORT}. {_FORCE}")
    elif live.highest_stamp > marker.highest_stamp:
        newest = live.path[int(np.argmax(live.stamp))]
        raise _refused(directory, f"{STATE}/{newest} was written to them after the export", _EXPORT)
    there = files_below_state(directory)
    gone_on = marker is None or has_gone_on(directory, marker)
    rows = np.arange(len(live))
    if gone_on:  # Spark has deleted versions since, and may have written some again; of these others nothing changes.
        rows = np.array([at for at in rows.tolist() if live.path[at] in there and IMMUTABLE.fullmatch(live.path[at])])
        rows = rows.astype("i8")
    lost = rows[~live.same(directory, there, rows)]
    if len(lost) and not force:
        path = live.path[int(lost[0])]
        what = "has other bytes" if path in there else "does not exist"
        raise _refused(directory, f"the plain file {STATE}/{path} {what}", _FORCE)
    if gone_on or force:
        missing = restorable_without_merged(directory, there)
        if missing is not None:
            raise _refused(directory, f"without them, {missing}", "Export again, or go back: convert --to merged")


def _require_no_pins(directory: Directory, listed: list[FileInfo]) -> None:
    pins = [info.name for info in listed if info.name.endswith(PIN_SUFFIX)]
    if pins:
        reason = f"a fork of this checkpoint reads them ({MERGED}/{pins[0]} says which)"
        action = "Localize or delete the fork, and remove orphans here; then drop them"
        raise _refused(directory, reason, action)


def _carry_out(log: MergedLog, marker: ExportMarker | None, files: list[FileInfo]) -> None:
    """While some are gone and others not, nobody may read them: what says so comes first and goes last."""
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
