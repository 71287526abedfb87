"""Deletes live segments from outside, as executors delete them: with tombstones."""

from __future__ import annotations

import numpy as np

from pyspark_statestore.format import Kind
from pyspark_statestore.format.index_block import ENTRY_TYPE
from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog
from pyspark_statestore.log.payload import paths_of


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
