"""Deletes state files from outside: live segments as executors delete them, with tombstones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pyspark_statestore.format import Kind
from pyspark_statestore.format.index_block import ENTRY_TYPE
from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog
from pyspark_statestore.log.payload import paths_of
from pyspark_statestore.log.state_files import STATE, StateFiles, files_below_state
from pyspark_statestore.storage.changes import delete, forget_checksum
from pyspark_statestore.storage.directory import in_parallel


def delete_segments(log: MergedLog, snapshot: LogSnapshot, rows: np.ndarray) -> None:
    """Deletes live segments: writes one file with a tombstone for each (rule 4).

    Args:
        log: The checkpoint's log.
        snapshot: Where they live.
        rows: Of their entries.

    Raises:
        StateStoreFilesError: The file cannot be written. Nothing was deleted then.
    """
    entries = snapshot.scan.entries
    records: np.ndarray = np.zeros(len(rows), ENTRY_TYPE)
    records["kind"] = Kind.DELETE
    for name in ("type", "stamp", "writer"):
        records[name] = getattr(entries, name)[rows]
    with log.new_file(snapshot) as (_, out):
        out.add_columns(records, paths_of(entries, rows))
        out.seal(group_stamp=snapshot.highest_stamp)


def delete_files(log: MergedLog, snapshot: LogSnapshot, files: StateFiles, rows: np.ndarray) -> None:
    """Deletes state files, merged or not; SSTs before the snapshots that name them.

    So what is left after a crash says what remains to be deleted.

    Args:
        log: The checkpoint's log.
        snapshot: Its merged files.
        files: Its state files.
        rows: Of the files to be deleted.

    Raises:
        StateStoreFilesError: A file cannot be written or deleted.
    """
    merged = rows[files.is_merged(rows)]
    there = files_below_state(log.directory)
    # A plain file that a merged one supersedes would be read without it (rule 10).
    paths = [path for path in files.path.take(pa.array(rows)).to_pylist() if path in there]
    is_sst = [path.endswith((".sst", ".log")) for path in paths]

    def forget(path: str) -> None:
        forget_checksum(log.directory, f"{STATE}/{path}")
        delete(log.directory, f"{STATE}/{path}")

    for wanted in (True, False):
        if not wanted and len(merged):
            delete_segments(log, snapshot, files.entry_rows(snapshot.scan)[merged])
        in_parallel(forget, [path for path, each in zip(paths, is_sst, strict=True) if each is wanted])
