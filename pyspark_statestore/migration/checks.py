"""What migration checks before it changes anything: that no state is lost, and that what is older never wins.

In a checkpoint with merged files, what their index knows is read instead of plain files under the same paths (rule 10
of docs/guarantees.md). So merged files must not come back after stock Spark has written newer plain ones, and an export
must not write over plain files that it knows nothing of. The checks only read. Each raises an error that names the
file; nothing was changed then.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.ended import Ended
from pyspark_statestore.log.entries import time_of
from pyspark_statestore.log.merged_log import MergedLog
from pyspark_statestore.log.payload import checksum_of
from pyspark_statestore.log.restart import not_restorable
from pyspark_statestore.log.restorability import Batches, check_versions, committed, read_batches
from pyspark_statestore.log.scan import MERGED, Scan
from pyspark_statestore.log.state_files import (
    STATE,
    StateFiles,
    Stores,
    files_below_state,
    is_state_file,
    plain_files,
)
from pyspark_statestore.log.stopped import require_stopped
from pyspark_statestore.migration.export_marker import ExportMarker, Progress
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel, require_inside

_PARTS = 32
"""Plain files are compared one by one, in so many threads at most."""

_CLOCKS_DIFFER = datetime.timedelta(minutes=10)
"""A segment's time is its writer's, a plain file's the file system's."""

_LONGEST_NAME = 200
"""Bytes: a temporary file has a longer name, and disks take 255. Spark's names have a hundred at most."""

_DROP = "Drop the merged files, if the plain ones are right: pyspark-statestore drop-merged"
_FORCE = "If the merged ones are right, since the query went back to an earlier batch, say so: force=True (--force)"


@dataclass(frozen=True)
class LiveSegments:
    """The live segments of the merged files: a row for each logical file.

    Attributes:
        path: Its path below ``state/``.
        row: Row of its entry in the scan.
        stamp: Stamp of the write.
        writer: Writer id of the write.
        length: Length in bytes.
        crc32c: Checksum of its bytes.
    """

    path: list[str] = field(repr=False)
    row: np.ndarray = field(repr=False)
    stamp: np.ndarray = field(repr=False)
    writer: np.ndarray = field(repr=False)
    length: np.ndarray = field(repr=False)
    crc32c: np.ndarray = field(repr=False)

    @classmethod
    def of(cls, scan: Scan) -> LiveSegments:
        """Takes them from a scan."""
        entries = scan.entries
        rows = StateFiles.entry_rows(scan)
        columns = (getattr(entries, name)[rows] for name in ("stamp", "writer", "length", "crc32c"))
        return cls(entries.path.take(pa.array(rows)).to_pylist(), rows, *columns)

    def __len__(self) -> int:
        return len(self.path)

    @property
    def highest_stamp(self) -> int:
        """The highest stamp of all writes; 0 without any."""
        return int(self.stamp.max()) if len(self.stamp) else 0

    def rows_in(self, there: Mapping[str, FileInfo]) -> np.ndarray:
        """Rows of the segments under whose paths there is a plain file."""
        rows: np.ndarray = np.array([at for at, path in enumerate(self.path) if path in there], "i8")
        return rows

    def same(self, directory: Directory, there: Mapping[str, FileInfo], rows: np.ndarray) -> np.ndarray:
        """Whether the plain file of each of these rows has the very same bytes; reads those of the right size.

        Raises:
            StateStoreFilesError: A file cannot be read.
        """
        found: np.ndarray = np.zeros(len(rows), bool)

        def compare(positions: np.ndarray) -> None:
            for at in positions.tolist():
                path, length = self.path[rows[at]], int(self.length[rows[at]])
                if path in there and there[path].size == length:
                    found[at] = _has_bytes(directory, path, length, int(self.crc32c[rows[at]]))

        in_parallel(compare, [part for part in np.array_split(np.arange(len(rows)), _PARTS) if len(part)])
        return found


def _has_bytes(directory: Directory, path: str, length: int, crc32c: int) -> bool:
    try:
        with directory.open(f"{STATE}/{path}", length) as file:
            return checksum_of(file, 0, length) == crc32c
    except FileNotFoundError:
        return False


@dataclass(frozen=True)
class PlainCopies:
    """The plain files under paths of live segments, as rows of these: with the ``same`` bytes, and with ``others``."""

    same: np.ndarray = field(repr=False)
    others: np.ndarray = field(repr=False)

    @classmethod
    def of(cls, directory: Directory, live: LiveSegments, there: Mapping[str, FileInfo]) -> PlainCopies:
        """Compares the files below ``state/`` with the segments."""
        rows = live.rows_in(there)
        same = live.same(directory, there, rows)
        return cls(rows[same], rows[~same])


def require_query_stopped(
    log: MergedLog,
    found: Scan,
    action: str,
    *,
    query: Any,
    marker: ExportMarker | None = None,
    ours: Collection[str] = (),
) -> Ended | None:
    """Refuses to go on where the query seems to be running (:func:`~pyspark_statestore.log.stopped.require_stopped`).

    Args:
        log: The checkpoint's log.
        found: Its merged files.
        action: What needs a stopped query, for the message.
        query: The ``StreamingQuery`` that the checkpoint was found by; None without one.
        marker: The marker of an export that was begun: plain files that it has written are no sign of a query.
        ours: Files of the query's logs, such as ``offsets/7``, that this package wrote, which are no sign either.

    Returns:
        What the query has said of its end; who writes its state anew says it again afterwards.

    Raises:
        StateStoreFilesError: PSS_QUERY_RUNNING, or the checkpoint cannot be read.
    """
    plain: list[FileInfo] = []
    if marker is None:
        plain = [info for name, info in files_below_state(log.directory).items() if is_state_file(name)]
    return require_stopped(log, log.snapshot_of(found), plain, action, query=query, ours=ours)


def require_fresh(directory: Directory, found: Scan, there: Iterable[FileInfo]) -> None:
    """Refuses merged files after which plain ones seem to have been written, which merging never does.

    An export leaves a marker that tells for sure; this is for checkpoints without one.

    Args:
        directory: The checkpoint's directory.
        found: Its merged files.
        there: The other files below ``state/``.

    Raises:
        StateStoreFilesError: PSS_STALE_MERGED.
    """
    live = LiveSegments.of(found)
    plain = [info for info in there if is_state_file(info.name)]
    if not len(live) or not plain:
        return
    known = set(live.path)
    newest = time_of(live.highest_stamp)
    # A directory that was copied without its times has new ones for all files.
    changed = [info.modified for info in found.infos.values() if info.modified is not None]
    since = max([newest, *changed]) + _CLOCKS_DIFFER
    late = [info for info in plain if info.modified is not None and info.modified > since]
    merged_to = highest_version(live.path)
    unknown = [info.name for info in plain if info.name not in known]
    reason = ""
    if late:
        reason = f"{STATE}/{late[0].name} was written after the newest segment, of {newest:%Y-%m-%d %H:%M:%S} UTC"
    elif (plain_to := highest_version(unknown)) > merged_to:
        reason = f"there are plain files up to version {plain_to}, and segments up to version {merged_to}"
    if reason:
        raise stale(directory, reason, f"{_DROP}. {_FORCE}")


def require_not_gone_on(directory: Directory, marker: ExportMarker) -> None:
    """Refuses merged files of before an export after which stock Spark has gone on.

    Raises:
        StateStoreFilesError: PSS_STALE_MERGED, or the checkpoint cannot be read.
    """
    if marker.is_dropping:
        raise stale(directory, "drop-merged has begun to delete them")
    if has_gone_on(directory, marker):
        reason = f"the query has committed batches without them since they were exported ({MERGED}/{marker.name})"
        raise stale(directory, reason)


def has_gone_on(directory: Directory, marker: ExportMarker) -> bool:
    """Whether a query has committed a batch since the export began."""
    return Progress.of(directory) != marker.progress


def stale(directory: Directory, reason: str, action: str = _DROP) -> StateStoreFilesError:
    """The error that merged files are older than the plain state beside them."""
    parameters = {"path": directory.location.url, "reason": reason, "action": action}
    return StateStoreFilesError("PSS_STALE_MERGED", parameters)


def highest_version(paths: list[str]) -> int:
    """The highest version that any of these files belongs to; -1 where none does."""
    stores = Stores.of(pa.chunked_array([pa.array(paths, pa.string())]))
    versions = stores.versions(np.arange(len(paths)))[0].drop_null()
    return max(versions.to_pylist(), default=-1)


def check_restorable(directory: Directory, found: Scan) -> None:
    """Refuses state that stock Spark could not go on with: the last committed version has to be whole.

    Raises:
        FileNotFoundError: A file was deleted meanwhile: scan again.
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
    what = f"the state ({missing[0].path})"
    raise not_restorable(directory, files, batches[-1] + 1, what, missing[0].reason)


def missing_without_merged(directory: Directory, there: Mapping[str, FileInfo]) -> str | None:
    """Why plain files alone cannot restore what Spark may go back to; None where they can.

    Raises:
        FileNotFoundError: A file was deleted meanwhile: list again.
        StateStoreFilesError: A file cannot be read.
    """
    plain = [info for name, info in there.items() if is_state_file(name)]
    nothing = Scan({}, {}, datetime.datetime.now(datetime.timezone.utc))
    files = StateFiles.of(nothing, plain)
    missing = check_versions(directory, files, read_batches(directory, with_ids=files.has_ids)).missing
    return missing[0].reason if missing else None


def check_strays(directory: Directory, found: Scan, live: LiveSegments, there: Mapping[str, FileInfo]) -> None:
    """Refuses plain state files that the merged state does not know, and that stock Spark would read.

    A checkpoint that was begun with merging can have none of its own, and merging does not look for them there.

    Raises:
        StateStoreFilesError: PSS_DESTINATION_EXISTS.
    """
    if found.may_have_plain:
        return
    known = set(live.path)
    strays = [name for name in there if is_state_file(name) and name not in known]
    if strays:
        raise _exists(directory, strays[0], "is a plain state file that the merged state does not know")


def check_replaced(directory: Directory, live: LiveSegments, plain: PlainCopies, marker: ExportMarker | None) -> None:
    """Refuses to write over plain files that merged files did not supersede before the export began.

    Raises:
        StateStoreFilesError: PSS_DESTINATION_EXISTS.
    """
    allowed = None if marker is None else set(marker.replaces)
    for at in plain.others.tolist():
        path = live.path[at]
        if allowed is not None and path not in allowed:
            reason = "has other bytes than the merged state. If no query has written it since, delete it and repeat"
            raise _exists(directory, path, reason)


def _exists(directory: Directory, path: str, reason: str) -> StateStoreFilesError:
    parameters = {"path": directory.location.url, "reason": f"{STATE}/{path} {reason}"}
    return StateStoreFilesError("PSS_DESTINATION_EXISTS", parameters)


def check_places(target: Directory, live: LiveSegments, there: Mapping[str, FileInfo]) -> None:
    """Refuses segments that could not all be written below the target's ``state/``, before the first one is.

    Raises:
        StateStoreFilesError: PSS_BAD_PATH.
    """
    folders = {path.rpartition("/")[0] for path in live.path}
    for folder in sorted(folders):
        require_inside(target, f"{STATE}/{folder}")
    above = {folder[:end] for folder in folders for end in _directory_ends(folder)}
    files = {*live.path, *there}
    for path in sorted(above & files):
        raise _no_place(target, path, "it would have to be both a file and a directory")
    occupied = {name[:end] for name in there for end in _directory_ends(name)[:-1]}
    for path in live.path:
        if path in occupied:
            raise _no_place(target, path, "there is a directory of this name")
        if any(len(part.encode()) > _LONGEST_NAME for part in path.split("/")):
            raise _no_place(target, path, f"a name in it has more than {_LONGEST_NAME} bytes")


def _directory_ends(path: str) -> list[int]:
    """Where each directory above a path ends in it, and where the path itself does."""
    return [at for at, each in enumerate(path) if each == "/"] + [len(path)] * bool(path)


def _no_place(target: Directory, path: str, reason: str) -> StateStoreFilesError:
    parameters = {"path": target.location.display(f"{STATE}/{path}"), "reason": f"{reason}; nothing was changed"}
    return StateStoreFilesError("PSS_BAD_PATH", parameters)
