"""What has to be true of a checkpoint before its state is exported."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.restorability import Batches, check_versions, committed, read_batches
from pyspark_statestore.log.scan import Scan
from pyspark_statestore.log.state_files import STATE, StateFiles, is_state_file, plain_files
from pyspark_statestore.log.versions import versions_table
from pyspark_statestore.migration.export_marker import ExportMarker
from pyspark_statestore.migration.live_segments import LiveSegments
from pyspark_statestore.storage.directory import Directory, FileInfo, require_inside

if TYPE_CHECKING:
    pass


_LONGEST_NAME = 200
"""Bytes: a temporary file has a longer name, and disks take 255. Spark's are of a hundred at most."""


@dataclass(frozen=True)
class PlainFiles:
    """Plain files in place, beside what lives in merged files.

    Attributes:
        same: Rows of the live segments that are there already, with the same bytes.
        others: Rows of those that are there with other bytes.
    """

    same: np.ndarray = field(repr=False)
    others: np.ndarray = field(repr=False)

    @classmethod
    def of(cls, directory: Directory, live: LiveSegments, there: Mapping[str, FileInfo]) -> PlainFiles:
        """Compares.

        Raises:
            StateStoreFilesError: A file cannot be read.
        """
        rows = np.array([at for at, path in enumerate(live.path) if path in there], "i8")
        same = live.same(directory, there, rows)
        return cls(rows[same], rows[~same])


def check_restorable(directory: Directory, found: Scan) -> None:
    """Refuses state that stock Spark could not go on with, wherever it is.

    Raises:
        FileNotFoundError: A file is gone: look again.
        StateStoreFilesError: PSS_VERSION_NOT_RESTORABLE.
    """
    batches = committed(directory)
    if not batches:
        return
    files = StateFiles.of(found, plain_files(directory, found))
    ids = read_batches(directory, with_ids=True).ids
    missing = check_versions(directory, files, Batches((batches[-1],), ids)).missing
    if not missing:
        return
    table = versions_table(files, directory)
    known = sorted(set(table.filter(table["is_restorable"])["version"].to_pylist()))
    parameters = {
        "version": batches[-1] + 1,
        "what": f"the state ({missing[0].path})",
        "path": directory.location.url,
        "reason": missing[0].reason,
        "known": ", ".join(map(str, known)) or "none",
    }
    raise StateStoreFilesError("PSS_VERSION_NOT_RESTORABLE", parameters)


def check_strays(directory: Directory, found: Scan, live: LiveSegments, there: Mapping[str, FileInfo]) -> None:
    """Refuses plain state files that merged state does not know of, and that stock Spark would read.

    In a checkpoint that was begun with merging there can be none, and nobody looks for them.

    Raises:
        StateStoreFilesError: PSS_DESTINATION_EXISTS.
    """
    if found.may_have_plain:
        return
    known = set(live.path)
    strays = [name for name in there if is_state_file(name) and name not in known]
    if strays:
        raise _exists(directory, strays[0], "is a plain state file that the merged state knows nothing of")


def check_replaced(directory: Directory, live: LiveSegments, plain: PlainFiles, marker: ExportMarker | None) -> None:
    """Refuses to write over plain files that were not superseded by merged ones before the export began.

    Raises:
        StateStoreFilesError: PSS_DESTINATION_EXISTS.
    """
    allowed = None if marker is None else set(marker.replaces)
    for at in plain.others.tolist():
        path = live.path[at]
        if allowed is not None and path not in allowed:
            reason = "has other bytes than the merged state. If nobody else has written it since, delete it and repeat"
            raise _exists(directory, path, reason)


def restorable_without_merged(directory: Directory, there: Mapping[str, FileInfo]) -> str | None:
    """What cannot be restored from plain files alone that has to be; None where all can.

    Raises:
        FileNotFoundError: A file is gone: look again.
        StateStoreFilesError: Something cannot be read.
    """
    plain = [info for name, info in there.items() if is_state_file(name)]
    nothing = Scan({}, {}, datetime.datetime.now(datetime.UTC))
    files = StateFiles.of(nothing, plain)
    missing = check_versions(directory, files, read_batches(directory, with_ids=files.has_ids)).missing
    return missing[0].reason if missing else None


def check_places(target: Directory, live: LiveSegments, there: Mapping[str, FileInfo]) -> None:
    """Refuses segments that could not all be written as plain files, before the first one is.

    Args:
        target: Where they are to be written.
        live: The segments.
        there: Files that are below its ``state/`` already.

    Raises:
        StateStoreFilesError: PSS_BAD_PATH.
    """
    folders = {path.rpartition("/")[0] for path in live.path}
    for folder in sorted(folders):
        require_inside(target, f"{STATE}/{folder}")
    above = {folder[:end] for folder in folders for end in _ends(folder)}
    files = {*live.path, *there}
    for path in sorted(above & files):
        raise _no_place(target, path, "it would have to be a file and a directory")
    occupied = {name[:end] for name in there for end in _ends(name)[:-1]}
    for path in live.path:
        if path in occupied:
            raise _no_place(target, path, "there is a directory of this name")
        if any(len(part.encode()) > _LONGEST_NAME for part in path.split("/")):
            raise _no_place(target, path, f"a file system takes no name of more than {_LONGEST_NAME} bytes there")


def _ends(path: str) -> list[int]:
    """Where the directories end that something is in, and it itself."""
    return [at for at, each in enumerate(path) if each == "/"] + [len(path)] * bool(path)


def _no_place(target: Directory, path: str, reason: str) -> StateStoreFilesError:
    parameters = {"path": target.location.display(f"{STATE}/{path}"), "reason": f"{reason}; nothing was changed"}
    return StateStoreFilesError("PSS_BAD_PATH", parameters)


def _exists(directory: Directory, path: str, reason: str) -> StateStoreFilesError:
    parameters = {"path": directory.location.url, "reason": f"{STATE}/{path} {reason}"}
    return StateStoreFilesError("PSS_DESTINATION_EXISTS", parameters)
