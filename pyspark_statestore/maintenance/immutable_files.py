"""Which of RocksDB's immutable files, plain ones, no snapshot names."""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.inspect.logical_paths import parse_store
from pyspark_statestore.inspect.segments import time_of
from pyspark_statestore.inspect.state_files import STATE, StateFiles
from pyspark_statestore.maintenance.site import View
from pyspark_statestore.sparkfiles import files_named
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel

IMMUTABLE = re.compile(r".+/(SSTs/[^/.][^/]*\.sst|logs/[^/.][^/]*\.log)")

_CLOCKS_DIFFER = datetime.timedelta(minutes=10)
"""A merged file says by its writer's clock when a snapshot was written."""


class _Snapshots:
    """What the snapshots of one store name, and when the newest was written."""

    def __init__(self) -> None:
        self.named: set[str] = set()
        self.newest = datetime.datetime.min.replace(tzinfo=datetime.UTC)

    def add(self, written: datetime.datetime | None, named: set[str]) -> None:
        self.named |= named
        if written is not None:
            self.newest = max(self.newest, written)


def unnamed(
    directory: Directory, view: View, plain: Sequence[FileInfo], candidates: Sequence[FileInfo]
) -> list[FileInfo]:
    """Tells which files none of their store's snapshots names, though one is younger.

    That a younger one does not name it shows that RocksDB has done with it. Without one it may have been uploaded for a
    snapshot that failed: the next one, however late, may name it then, and not upload it again.

    Args:
        directory: Of the checkpoint.
        view: Of its merged files.
        plain: All other files below ``state/``.
        candidates: Those of them that are asked about.

    Raises:
        FileNotFoundError: A snapshot is gone: look again.
        StateStoreFilesError: A snapshot cannot be read.
    """
    of = {info.name: folder for info in candidates if parse_store(folder := _store(info.name)) is not None}
    stores: defaultdict[str, _Snapshots] = defaultdict(_Snapshots)
    if of:
        _add_plain(directory, plain, set(of.values()), stores)
        _add_merged(directory, view, set(of.values()), stores)
    found = []
    for info in candidates:
        if info.name not in of or info.modified is None:
            continue
        snapshots = stores[of[info.name]]
        if info.name not in snapshots.named and info.modified + _CLOCKS_DIFFER <= snapshots.newest:
            found.append(info)
    return found


def _store(path: str) -> str:
    """The directory of the store that an immutable file is of."""
    return path.rpartition("/")[0].rpartition("/")[0]


def _add_plain(
    directory: Directory, plain: Sequence[FileInfo], folders: set[str], stores: defaultdict[str, _Snapshots]
) -> None:
    """Those, too, that merged files supersede."""
    zips = [info for info in plain if _is_zip(info.name) and info.name.rpartition("/")[0] in folders]

    def read(info: FileInfo) -> set[str]:
        path = f"{STATE}/{info.name}"
        return _named(directory, info.name, files_named(directory.read(path, info.size)))

    for info, named in zip(zips, in_parallel(read, zips), strict=True):
        stores[info.name.rpartition("/")[0]].add(info.modified, named)


def _add_merged(directory: Directory, view: View, folders: set[str], stores: defaultdict[str, _Snapshots]) -> None:
    files = StateFiles.of(view.scan, ())
    rows = np.flatnonzero(np.array(pc.ends_with(files.path, ".zip"), bool))
    paths = files.path.take(pa.array(rows)).to_pylist()
    wanted = [i for i, path in enumerate(paths) if path.rpartition("/")[0] in folders]
    rows, paths = rows[wanted], [paths[i] for i in wanted]
    stamps = view.scan.entries.stamp[files.entry_rows(view.scan)[rows]]
    parsed = files.read(directory, rows, lambda data: None if data is None else files_named(data))
    for path, row, stamp, named in zip(paths, rows.tolist(), stamps.tolist(), parsed, strict=True):
        written = time_of(stamp)
        modified = view.scan.infos[files.names[files.merged[row]]].modified
        time = min(written, modified) if modified else None
        stores[path.rpartition("/")[0]].add(time, _named(directory, path, named))


def _is_zip(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith(".zip") and not name.startswith(".")


def _named(directory: Directory, path: str, named: dict[str, int] | None) -> set[str]:
    if named is None:
        where = directory.location.display(f"{STATE}/{path}")
        reason = "it is no intact zip of a snapshot, so what it names is not known"
        raise StateStoreFilesError("PSS_READ_FAILED", {"action": "read", "path": where, "reason": reason})
    folder = path.rpartition("/")[0]
    return {f"{folder}/{name}" for name in named}
