"""The table ``segments``: a row for each logical file that is or was in a merged file."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyspark_statestore.format import SegmentType
from pyspark_statestore.index import Status
from pyspark_statestore.inspect.columns import TIMESTAMP, table_of
from pyspark_statestore.inspect.logical_paths import Stores
from pyspark_statestore.inspect.scan import MERGED, Scan
from pyspark_statestore.storage.location import Location

CLOCK_BITS = 16
"""A stamp is Unix milliseconds, shifted left by so much, and a counter below."""


def time_of(stamp: int) -> datetime.datetime:
    """When a write was, by its writer's clock."""
    return datetime.datetime.fromtimestamp((stamp >> CLOCK_BITS) / 1000, datetime.UTC)


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


@dataclass(frozen=True)
class Segments:
    """The rows of the table, made when they are asked for: files by name, in each the segments as they were written.

    Attributes:
        scan: With or without the files' headers.
        location: Of the checkpoint.
        rows: Of the entries, those that are wanted, in order.
        stores: That the entries belong to.
    """

    scan: Scan
    location: Location
    rows: np.ndarray
    stores: Stores

    @classmethod
    def of(
        cls, scan: Scan, location: Location, wanted: StoreFilter = EVERYTHING, rows: np.ndarray | None = None
    ) -> Segments:
        """Finds the rows.

        Args:
            scan: What was in the merged files.
            location: Of the checkpoint.
            wanted: Stores whose segments are wanted.
            rows: Of the entries, where only some of the segments are wanted.
        """
        entries, status = scan.entries, scan.resolution.status
        stores = Stores.of(entries.path)
        listed = np.isin(status, list(_STATUS)) & wanted.rows(stores)
        rows = np.flatnonzero(listed) if rows is None else rows[listed[rows]]
        return cls(scan, location, _in_order(entries.file, entries.offset, rows), stores)

    def table(self) -> pa.Table:
        """All of them."""
        return self._table(self.rows)

    def batches(self, most: int) -> Iterator[pa.RecordBatch]:
        """The same little by little: who asks may work on one batch while the next is made.

        Args:
            most: Rows in a batch.
        """
        for start in range(0, len(self.rows), most):
            yield from self._table(self.rows[start : start + most]).combine_chunks().to_batches()

    def _table(self, rows: np.ndarray) -> pa.Table:
        entries, status = self.scan.entries, self.scan.resolution.status
        operator, partition, store = self.stores.columns(rows)
        version, checkpoint_id = self.stores.versions(rows)
        types = [kind.name.lower() for kind in SegmentType]
        kind = np.where(entries.type[rows] < len(types), entries.type[rows], SegmentType.OTHER)
        columns = {
            "file_path": _named(entries.file[rows], [f"{self.location.url}/{MERGED}/{name}" for name in entries.files]),
            "offset": entries.offset[rows],
            "length": entries.length[rows],
            "logical_path": self.stores.path.take(pa.array(rows)),
            "type": _named(kind, types),
            "operator_id": operator,
            "partition_id": partition,
            "store_name": store,
            "version": version,
            "state_store_checkpoint_id": checkpoint_id,
            "status": _named(status[rows], [_STATUS.get(each, "") for each in Status]),
            "generation": entries.generation[rows],
            "written_at": pa.array((entries.stamp[rows] >> CLOCK_BITS) * 1000, TIMESTAMP),
            "crc32c": entries.crc32c[rows].astype("i8"),
            "foreign_path": _named(entries.origin[rows], [None, *map(self.location.display, entries.foreign)]),
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


def _named(numbers: np.ndarray, names: Sequence[str | None]) -> pa.Array:
    return pa.array(names, pa.string()).take(pa.array(numbers))
