"""What the index of a new file says of facts that are copied into it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pyspark_statestore.format.index_block import ENTRY_TYPE
from pyspark_statestore.index import MAX_GENERATION, Entries


def copied(entries: Entries, rows: np.ndarray, offsets: np.ndarray | int = 0) -> tuple[np.ndarray, pa.StringArray]:
    """Rule 5: a copy keeps its key and raises its generation.

    Args:
        entries: That are copied from.
        rows: Which.
        offsets: Of their segments in the new file; 0 for tombstones.

    Returns:
        As :meth:`~pyspark_statestore.format.MergedFileWriter.add_columns` takes them.
    """
    records = same_facts(entries, rows, offsets)
    records["generation"] = np.minimum(records["generation"] + 1, MAX_GENERATION)
    return records, paths_of(entries, rows)


def same_facts(entries: Entries, rows: np.ndarray, offsets: np.ndarray | int = 0) -> np.ndarray:
    """The same of facts that stay as they are, which is what another checkpoint says of them."""
    records: np.ndarray = np.zeros(len(rows), ENTRY_TYPE)
    for name in ("kind", "type", "generation", "crc32c", "stamp", "writer", "length"):
        records[name] = getattr(entries, name)[rows]
    records["offset"] = offsets
    return records


def paths_of(entries: Entries, rows: np.ndarray) -> pa.StringArray:
    """Logical paths of some rows, in one piece."""
    return pa.concat_arrays([pa.array([], pa.string()), *entries.path.take(pa.array(rows, pa.int64())).chunks])
