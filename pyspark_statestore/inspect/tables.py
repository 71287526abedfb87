"""The tables that are made of a scan and of listings, all but ``versions``."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyspark_statestore.format import SegmentType, parse_file_name
from pyspark_statestore.log import Status
from pyspark_statestore.log.columns import TIMESTAMP, table_of
from pyspark_statestore.log.entries import CLOCK_BITS
from pyspark_statestore.log.scan import MERGED, Scan
from pyspark_statestore.log.state_files import EVERYTHING, PLAIN, STATE, StateFiles, StoreFilter, Stores
from pyspark_statestore.session.doors import door_of
from pyspark_statestore.storage.directory import FileInfo
from pyspark_statestore.storage.location import Location

if TYPE_CHECKING:
    from pyspark_statestore.log.pins import ForkInfo
    from pyspark_statestore.log.restart import Restart

_STATUS = {Status.LIVE: "live", Status.SUPERSEDED: "superseded", Status.DELETED: "deleted"}


def files_table(scan: Scan, url: str, closed_after: datetime.timedelta) -> pa.Table:
    """Returns a row for each merged file, the oldest first.

    Args:
        scan: A scan that has read the files' headers.
        url: The checkpoint's URL.
        closed_after: The query's ``closedAfter``.
    """
    entries, resolution = scan.entries, scan.resolution
    names, totals = entries.files, resolution.totals
    generation: np.ndarray = np.zeros(len(names), "i4")
    np.maximum.at(generation, entries.file, entries.generation)
    amplification = resolution.space_amplification(scan.sizes)
    headers = [scan.files[name].header for name in names]
    meta = [{} if header is None else header.meta for header in headers]
    created = [parse_file_name(name) or (0, 0, 0) for name in names]
    closed = [scan.is_closed(name, closed_after) for name in names]
    columns = {
        "file_path": [f"{url}/{MERGED}/{name}" for name in names],
        "file_size_in_bytes": [scan.files[name].size for name in names],
        "live_bytes": totals.live_bytes,
        "segment_count": totals.segment_count,
        "live_segment_count": totals.live_segment_count,
        "tombstone_count": totals.tombstone_count,
        "space_amplification": pa.array(amplification, mask=np.isnan(amplification)),
        "generation": generation,
        "is_sealed": [scan.files[name].sealed for name in names],
        "is_closed": closed,
        "is_orphan": [is_orphan(scan, name, is_closed) for name, is_closed in zip(names, closed, strict=True)],
        "created_at": pa.array([ms * 1000 for ms, _, _ in created], TIMESTAMP),
        "last_modified_at": [scan.infos[name].modified for name in names],
        "writer": [f"{writer:016x}" for _, writer, _ in created],
        "foreign_file_count": [len(scan.files[name].foreign) for name in names],
        "foreign_live_bytes": totals.foreign_live_bytes,
        **{key: [_text(each.get(key)) for each in meta] for key in ("app_id", "executor_id", "query_run_id")},
    }
    return table_of("files", columns)


def is_orphan(scan: Scan, name: str, is_closed: bool) -> bool:
    """Whether a file is closed and nothing can be read from it."""
    file = scan.files[name]
    return is_closed and not file.groups and file.accounted and name not in scan.covered


@dataclass(frozen=True)
class Segments:
    """The table ``segments``, whose rows are made when they are asked for. It is sorted by file and offset.

    Attributes:
        scan: What the merged files' indexes say.
        location: The checkpoint's location.
        rows: The numbers of the wanted entries, in the table's order.
        stores: The stores of all entries.
    """

    scan: Scan
    location: Location
    rows: np.ndarray
    stores: Stores

    @classmethod
    def of(
        cls, scan: Scan, location: Location, wanted: StoreFilter = EVERYTHING, rows: np.ndarray | None = None
    ) -> Segments:
        """Finds the rows: those of the wanted stores, among ``rows`` where it is given."""
        entries, status = scan.entries, scan.resolution.status
        stores = Stores.of(entries.path)
        listed = np.isin(status, list(_STATUS)) & wanted.rows(stores)
        rows = np.flatnonzero(listed) if rows is None else rows[listed[rows]]
        return cls(scan, location, _in_order(entries.file, entries.offset, rows), stores)

    def table(self) -> pa.Table:
        """Returns all rows."""
        return self._table(self.rows)

    def batches(self, most: int) -> Iterator[pa.RecordBatch]:
        """Yields the rows in batches of at most ``most``, so that a caller can work on one while the next is made."""
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


def summary_table(
    scan: Scan, files: StateFiles, closed_after: datetime.timedelta, fork_info: ForkInfo, restart: Restart
) -> pa.Table:
    """Returns one row about the whole checkpoint.

    Args:
        scan: What the merged files' indexes say.
        files: The state's files, merged and plain.
        closed_after: The query's ``closedAfter``.
        fork_info: How the checkpoint is related to others by forks.
        restart: Whether a query can go on from here.
    """
    resolution = scan.resolution
    size, live = sum(scan.sizes.values()), resolution.live_bytes
    stores = files.stores()
    present = [stores.known[i] for i in np.unique(stores.store[stores.store >= 0])]
    version, _ = stores.versions(np.arange(len(stores.store)))
    versions = version.drop_null().to_numpy()
    columns = {
        "file_count": len(scan.files),
        "file_size_in_bytes": size,
        "live_bytes": live,
        "space_amplification": size / live if live else None,
        "segment_count": int(resolution.totals.segment_count.sum()),
        "live_segment_count": int(resolution.totals.live_segment_count.sum()),
        "orphan_file_count": sum(is_orphan(scan, name, scan.is_closed(name, closed_after)) for name in scan.files),
        "operator_count": len({operator for operator, _, _ in present}),
        "partition_count": len({(operator, partition) for operator, partition, _ in present}),
        "min_version": int(versions.min()) if len(versions) else None,
        "max_version": int(versions.max()) if len(versions) else None,
        "foreign_file_count": len(np.unique(scan.entries.origin[resolution.live & (scan.entries.origin > 0)])),
        "foreign_live_bytes": int(resolution.totals.foreign_live_bytes.sum()),
        "forked_from": fork_info.forked_from,
        "fork_count": fork_info.fork_count,
        "plain_file_count": int(np.count_nonzero(files.merged == PLAIN)),
        "plain_bytes": int(files.length[files.merged == PLAIN].sum()),
        "committed_version": restart.committed,
        "restorable_version": restart.restorable,
        "not_restorable": restart.reason or None,
        "provider": restart.provider,
        "door": door_of(restart.provider, has_merged=bool(scan.files)),
    }
    return table_of("summary", {name: [value] for name, value in columns.items()})


def plain_files_table(files: StateFiles, listed: Sequence[FileInfo], location: Location) -> pa.Table:
    """Returns a row for each state file that is not merged, by store and name.

    Args:
        files: The state's files, merged and plain.
        listed: The plain files, as a listing shows them.
        location: The checkpoint's location.
    """
    paths = files.path.filter(pa.array(files.merged == PLAIN)).to_pylist()
    infos = {info.name: info for info in listed}
    found = [infos[path] for path in sorted(paths)]
    stores = Stores.of(pa.chunked_array([pa.array([info.name for info in found], pa.string())]))
    rows = np.arange(len(found))
    operator, partition, store = stores.columns(rows)
    version, checkpoint_id = stores.versions(rows)
    order = pa.array(np.argsort(stores.store, kind="stable"))
    columns = {
        "file_path": [location.display(f"{STATE}/{info.name}") for info in found],
        "file_size_in_bytes": [info.size for info in found],
        "logical_path": [info.name for info in found],
        "type": [SegmentType.of(info.name).name.lower() for info in found],
        "operator_id": operator,
        "partition_id": partition,
        "store_name": store,
        "version": version,
        "state_store_checkpoint_id": checkpoint_id,
        "last_modified_at": [info.modified for info in found],
    }
    return table_of("plain_files", columns).take(order)


def _text(value: str | None) -> str | None:
    """Makes text of a header safe for Arrow: JSON can hold half of a surrogate pair, which Arrow refuses."""
    return None if value is None else value.encode("utf-8", "replace").decode("utf-8")


def _in_order(file: np.ndarray, offset: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Sorts rows by file and offset. Mostly they are sorted already."""
    files, offsets = file[rows], offset[rows]
    same = files[1:] == files[:-1]
    if ((files[1:] > files[:-1]) | (same & (offsets[1:] >= offsets[:-1]))).all():
        return rows
    in_order: np.ndarray = rows[np.lexsort((offsets, files))]
    return in_order


def _named(numbers: np.ndarray, names: Sequence[str | None]) -> pa.Array:
    return pa.array(names, pa.string()).take(pa.array(numbers))
