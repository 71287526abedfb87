"""What lives in merged files, and which of it is there as plain files, too."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.entries import time_of
from pyspark_statestore.log.payload import checksum_of
from pyspark_statestore.log.scan import Scan
from pyspark_statestore.log.state_files import STATE, StateFiles, Stores, is_state_file
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel

_PARTS = 32


@dataclass(frozen=True)
class LiveSegments:
    """A row for each logical file that lives in a merged one.

    Attributes:
        path: Below ``state/``.
        row: Of its entry in the scan.
        stamp: Of the write.
        writer: Of the write.
        length: In bytes.
        crc32c: Of its bytes.
    """

    path: list[str] = field(repr=False)
    row: np.ndarray = field(repr=False)
    stamp: np.ndarray = field(repr=False)
    writer: np.ndarray = field(repr=False)
    length: np.ndarray = field(repr=False)
    crc32c: np.ndarray = field(repr=False)

    @classmethod
    def of(cls, scan: Scan) -> LiveSegments:
        """Takes them from a look."""
        entries = scan.entries
        rows = StateFiles.entry_rows(scan)
        columns = (getattr(entries, name)[rows] for name in ("stamp", "writer", "length", "crc32c"))
        return cls(entries.path.take(pa.array(rows)).to_pylist(), rows, *columns)

    def __len__(self) -> int:
        return len(self.path)

    @property
    def highest_stamp(self) -> int:
        """Of all writes; 0 without any."""
        return int(self.stamp.max()) if len(self.stamp) else 0

    def same(self, directory: Directory, there: Mapping[str, FileInfo], rows: np.ndarray) -> np.ndarray:
        """Tells which of these are there as plain files with the very same bytes; reads what has the right size.

        Args:
            directory: Where the plain files are.
            there: Files below its ``state/``.
            rows: Which are asked about.

        Raises:
            StateStoreFilesError: A file cannot be read.
        """
        found: np.ndarray = np.zeros(len(rows), bool)

        def look(positions: np.ndarray) -> None:
            for at in positions.tolist():
                path, length = self.path[rows[at]], int(self.length[rows[at]])
                if path in there and there[path].size == length:
                    found[at] = is_same(directory, path, length, int(self.crc32c[rows[at]]))

        in_parallel(look, [part for part in np.array_split(np.arange(len(rows)), _PARTS) if len(part)])
        return found


def is_same(directory: Directory, path: str, length: int, expected: int) -> bool:
    """Whether a plain file has these bytes.

    Args:
        directory: Of a checkpoint.
        path: Below its ``state/``.
        length: In bytes.
        expected: Its checksum.
    """
    try:
        with directory.open(f"{STATE}/{path}", length) as file:
            return checksum_of(file, 0, length) == expected
    except FileNotFoundError:
        return False


# Whether merged files are older than the plain ones beside them: what the index knows would win over newer files.

DROP = "Drop the merged files, if the plain ones are right: pyspark-statestore drop-merged"

_FORCE = "If the merged ones are right, since an earlier batch was gone back to, say so: force=True (--force)"

_CLOCKS_DIFFER = datetime.timedelta(minutes=10)
"""A segment's time is its writer's, a plain file's the file system's."""


def require_fresh(directory: Directory, found: Scan, there: Iterable[FileInfo]) -> None:
    """Refuses merged files after which somebody seems to have written plain ones, which merging never does.

    Where an export has left its marker, that one tells for sure; this is for where there is none.

    Args:
        directory: Of the checkpoint.
        found: Its merged files.
        there: Other files below ``state/``.

    Raises:
        StateStoreFilesError: PSS_STALE_MERGED.
    """
    live = LiveSegments.of(found)
    plain = [info for info in there if is_state_file(info.name)]
    if not len(live) or not plain:
        return
    known = set(live.path)
    newest = time_of(live.highest_stamp)
    # Who copies a directory without its times gives all files new ones.
    changed = [info.modified for info in found.infos.values() if info.modified is not None]
    since = max([newest, *changed]) + _CLOCKS_DIFFER
    late = [info for info in plain if info.modified is not None and info.modified > since]
    merged_to = highest_version(live.path)
    unknown = [info.name for info in plain if info.name not in known]
    reason = ""
    if late:
        reason = f"{STATE}/{late[0].name} was written after the newest segment of {newest:%Y-%m-%d %H:%M:%S} UTC"
    elif (plain_to := highest_version(unknown)) > merged_to:
        reason = f"there are plain files up to version {plain_to}, and segments up to {merged_to}"
    if reason:
        parameters = {"path": directory.location.url, "reason": reason, "action": f"{DROP}. {_FORCE}"}
        raise StateStoreFilesError("PSS_STALE_MERGED", parameters)


def highest_version(paths: list[str]) -> int:
    """The highest version that any of these files is of; -1 where none has one."""
    stores = Stores.of(pa.chunked_array([pa.array(paths, pa.string())]))
    versions = stores.versions(np.arange(len(paths)))[0].drop_null()
    return max(versions.to_pylist(), default=-1)
