"""The table ``segments``: a row for each logical file that is or was in a merged file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyspark_statestore.format import SegmentType
from pyspark_statestore.index import Status
from pyspark_statestore.inspect.columns import TIMESTAMP, table_of
from pyspark_statestore.inspect.logical_paths import Stores
from pyspark_statestore.inspect.scan import MERGED, Scan

CLOCK_BITS = 16
"""A stamp is Unix milliseconds, shifted left by so much, and a counter below."""

_STATUS = {Status.LIVE: "live", Status.SUPERSEDED: "superseded", Status.DELETED: "deleted"}


@dataclass(frozen=True)
class StoreFilter:
    """Which state stores are wanted; None stands for all."""

    operator_id: int | None = None
    partition_id: int | None = None
    store_name: str | None = None

    def __bool__(self) -> bool:
        return (self.operator_id, self.partition_id, self.store_name) != (None, None, None)

    def wants(self, store: tuple[int, int, str]) -> bool:
        """Whether a store, as (operator id, partition id, store name), is wanted."""
        asked = (self.operator_id, self.partition_id, self.store_name)
        return all(want is None or want == have for want, have in zip(asked, store, strict=True))

    def rows(self, stores: Stores) -> np.ndarray:
        """Marks the paths that belong to wanted stores."""
        if not self:
            return np.ones(len(stores.store), bool)
        wanted = np.array([self.wants(store) for store in stores.known] + [False])  # -1 is the last one
        rows: np.ndarray = wanted[stores.store]
        return rows


EVERYTHING = StoreFilter()


def segments_table(scan: Scan, url: str, wanted: StoreFilter = EVERYTHING, rows: np.ndarray | None = None) -> pa.Table:
    """Makes the table; files in the order of their names, and in each the segments as they were written.

    Args:
        scan: With or without the files' headers.
        url: Of the checkpoint.
        wanted: Stores whose segments are wanted.
        rows: Of the entries, where only some of the segments are wanted.
    """
    entries, status = scan.entries, scan.resolution.status
    stores = Stores.of(entries.path)
    listed = np.isin(status, list(_STATUS)) & wanted.rows(stores)
    rows = np.flatnonzero(listed) if rows is None else rows[listed[rows]]
    rows = _in_order(entries.file, entries.offset, rows)
    operator, partition, store = stores.columns(rows)
    version, checkpoint_id = stores.versions(rows)
    types = [kind.name.lower() for kind in SegmentType]
    kind = np.where(entries.type < len(types), entries.type, SegmentType.OTHER)
    columns = {
        "file_path": _named(entries.file[rows], [f"{url}/{MERGED}/{name}" for name in entries.files]),
        "offset": entries.offset[rows],
        "length": entries.length[rows],
        "logical_path": stores.path.take(pa.array(rows)),
        "type": _named(kind[rows], types),
        "operator_id": operator,
        "partition_id": partition,
        "store_name": store,
        "version": version,
        "state_store_checkpoint_id": checkpoint_id,
        "status": _named(status[rows], [_STATUS.get(each, "") for each in Status]),
        "generation": entries.generation[rows],
        "written_at": pa.array((entries.stamp[rows] >> CLOCK_BITS) * 1000, TIMESTAMP),
        "crc32c": entries.crc32c[rows].astype("i8"),
    }
    return table_of("segments", columns)


def _in_order(file: np.ndarray, offset: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows by file and offset; mostly they are already."""
    files, offsets = file[rows], offset[rows]
    same = files[1:] == files[:-1]
    if ((files[1:] > files[:-1]) | (same & (offsets[1:] >= offsets[:-1]))).all():
        return rows
    in_order: np.ndarray = rows[np.lexsort((offsets, files))]
    return in_order


def _named(numbers: np.ndarray, names: list[str]) -> pa.Array:
    return pa.array(names, pa.string()).take(pa.array(numbers))
