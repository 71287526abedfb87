"""Splitting: new partitions of a fork begin with the files of the old ones, and no row is written again.

Where each partition becomes ``k``, a new one gets rows of one old partition only. A fork's state is in merged files of
another checkpoint, which the fork's pins keep there. So a new partition can have the same segments under paths of its
own: a reference file says so, and costs a few bytes a segment. Spark's tasks then write nothing but what deletes the
rows of the others (Java ``StateWriting``).

That pays where rows are large. Every row is deleted in all of its ``k`` partitions but one, which costs about as much
as a short key. Until RocksDB compacts it away, a new partition restores and caches what it has deleted.

State that is in the checkpoint's own files is not split. Every cleaner counts what lives there, and none knows that a
segment may have two paths (docs/decisions/0019-a-forks-partitions-are-split-by-reference.md).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog
from pyspark_statestore.log.references import write_second_references
from pyspark_statestore.log.state_files import StateFiles, plain_files, store_folder
from pyspark_statestore.migration.spark_side import StoreName
from pyspark_statestore.sparkfiles import files_and_rows
from pyspark_statestore.storage.directory import Directory

SMALLEST_ROW = 128
"""Bytes that a row has to take in SSTs, on the average, for each further partition that its own becomes.

What deletes a row takes about 6 bytes (docs/decisions/0018-spark-repartitions-we-guard.md): then it is a twentieth.
"""


def split(log: MergedLog, version: int, before: int, partitions: int, stores: Collection[StoreName]) -> set[StoreName]:
    """Gives the new partitions of stores the files of the old ones, where that pays.

    Repeated, it writes nothing that is there already.

    Args:
        log: The fork's merged files.
        version: The version that the new partitions begin with.
        before: How many partitions there are.
        partitions: How many there will be; a multiple of that.
        stores: The stores of which Spark's tasks can split partitions.

    Returns:
        The stores that were given their files.

    Raises:
        FileNotFoundError: A file was deleted meanwhile: look again.
        StateStoreFilesError: A file cannot be read or written.
    """
    snapshot = log.snapshot()
    files = StateFiles.of(snapshot.scan, plain_files(log.directory, snapshot.scan))
    versions = _Versions.of(files, version)
    found = {name: versions.restoring(log.directory, name, before) for name in sorted(stores)}
    chosen = {name: each.rows for name, each in found.items() if each is not None and each.pays(partitions // before)}
    if chosen:
        _write(log, snapshot, files, np.concatenate(list(chosen.values())), before, partitions)
    return set(chosen)


def split_off(files: StateFiles, before: int) -> np.ndarray:
    """Marks the files that partitions from ``before`` on have in common with those below: :func:`split` gave them."""
    stores = files.stores()
    partition = np.asarray(stores.columns(np.arange(len(files.length)))[1].fill_null(-1))
    is_foreign = files.origin > 0
    columns = (pa.array(files.origin), pa.array(files.offset))
    place = pc.binary_join_element_wise(*(each.cast(pa.string()) for each in columns), stores.name, "/")
    old = place.filter(pa.array(is_foreign & (partition >= 0) & (partition < before)))
    is_shared: np.ndarray = np.array(pc.is_in(place, value_set=old), bool) & is_foreign & (partition >= before)
    return is_shared


@dataclass(frozen=True)
class _Restoring:
    """What restores a version of all partitions of a store.

    Attributes:
        rows: The files.
        size: Bytes of the files that snapshots name.
        count: Rows that the snapshots have.
        is_elsewhere: Whether the bytes of all files are in another checkpoint.
    """

    rows: np.ndarray = field(repr=False)
    size: int
    count: int
    is_elsewhere: bool

    def pays(self, factor: int) -> bool:
        """Whether to delete all rows in all new partitions but one is little beside writing them."""
        return self.is_elsewhere and self.size >= SMALLEST_ROW * (factor - 1) * self.count


@dataclass(frozen=True)
class _Versions:
    """The files of each store up to a version.

    Attributes:
        files: The state files.
        rows: Of each store, its files.
        number: The version in the name of each file; -1 where there is none.
        is_zip: Which of them are snapshots.
    """

    files: StateFiles = field(repr=False)
    rows: Mapping[tuple[int, int, str], np.ndarray] = field(repr=False)
    number: np.ndarray = field(repr=False)
    is_zip: np.ndarray = field(repr=False)

    @classmethod
    def of(cls, files: StateFiles, version: int) -> _Versions:
        stores = files.stores()
        number, _, extension = stores.version_files(np.arange(len(files.length)))
        numbers = np.asarray(number.fill_null(-1))
        order = np.argsort(stores.store, kind="stable")
        order = order[numbers[order] <= version]
        parts = np.split(order, np.searchsorted(stores.store[order], range(len(stores.known))))
        # The first part is of files that are no store's.
        rows = dict(zip(stores.known, parts[1:], strict=True))
        return cls(files, rows, numbers, np.array(pc.equal(extension, "zip").fill_null(False), bool))

    def restoring(self, directory: Directory, name: StoreName, partitions: int) -> _Restoring | None:
        """Finds what restores all partitions of a store; None where one has no snapshot that counts its rows."""
        zips: dict[tuple[int, int, str], np.ndarray] = {}
        for partition in range(partitions):
            store = (name[0], partition, name[1])
            rows = self.rows.get(store, np.zeros(0, "i8"))
            snapshots = rows[self.is_zip[rows]]
            if not len(snapshots):
                return None
            zips[store] = snapshots[self.number[snapshots] == self.number[snapshots].max()]
        said = self.files.read(directory, np.concatenate(list(zips.values())), lambda data: files_and_rows(data or b""))
        size = count = 0
        immutable: set[str] = set()
        chosen: list[np.ndarray] = []
        answers = iter(said)
        for store, newest in zips.items():
            for answer in islice(answers, len(newest)):
                if answer is None or answer[1] is None:
                    return None
                named, rows_count = answer[0], answer[1]
                size, count = size + sum(named.values()), count + rows_count
                immutable.update(f"{store_folder(store)}/{path}{end}" for path in named for end in ("", ".crc"))
            rows = self.rows[store]
            paths = self.files.path.take(pa.array(rows)).to_pylist()
            is_named = np.array([path in immutable for path in paths], bool)
            chosen.append(rows[is_named | (self.number[rows] >= self.number[newest[0]])])
        every = np.concatenate(chosen)
        return _Restoring(every, size, count, bool(np.all(self.files.origin[every] > 0)))


def _write(
    log: MergedLog, snapshot: LogSnapshot, files: StateFiles, rows: np.ndarray, before: int, partitions: int
) -> None:
    """Says in a reference file that new partitions have the files of some rows, too."""
    there = set(files.path.to_pylist())
    paths: list[str] = []
    repeated: list[int] = []
    for row, path in zip(rows.tolist(), files.path.take(pa.array(rows)).to_pylist(), strict=True):
        operator, partition, rest = path.split("/", 2)
        for new in range(int(partition) + before, partitions, before):
            if (given := f"{operator}/{new}/{rest}") not in there:
                paths.append(given)
                repeated.append(row)
    if repeated:
        entries = StateFiles.entry_rows(snapshot.scan)[np.array(repeated, "i8")]
        write_second_references(log, snapshot, entries, pa.array(paths, pa.string()))
