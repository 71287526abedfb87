"""Splitting: new partitions begin with the files of the old ones, and no row is written again.

Where each partition becomes ``k``, a new one gets rows of one old partition only. So it can have the same segments
under paths of its own: a reference file says so, and costs a few bytes a segment. Spark's tasks then write nothing but
what deletes the rows of the others (Java ``StateWriting``).

That pays where rows are large. Every row is deleted in all of its ``k`` partitions but one, which costs about as much
as a short key. Until RocksDB compacts it away, a new partition restores and caches what it has deleted.

The bytes stay where they are: in a fork's source, which the fork's pins keep, or in the checkpoint itself, which has
pins of its own for that (:func:`~pyspark_statestore.log.references.give_second_paths`). After a crash the same call
ends what was begun. docs/decisions/0019-partitions-are-split-by-reference.md says why it is done like this.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.format import split_foreign_path
from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog
from pyspark_statestore.log.references import give_second_paths
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
        log: The checkpoint's merged files.
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
    found = _Found.of(log, log.snapshot(), version, before, partitions, stores)
    if not found.chosen:
        return set()

    def choose(snapshot: LogSnapshot) -> tuple[np.ndarray, pa.StringArray]:
        nonlocal found
        found = _Found.of(log, snapshot, version, before, partitions, stores)
        return _second_paths(found, before, partitions)

    # What was not done in time is written anew.
    return set(found.chosen) if give_second_paths(log, choose) else set()


def split_off(directory: Directory, files: StateFiles, before: int) -> np.ndarray:
    """Marks the files that :func:`split` has given to partitions from ``before`` on.

    They have them in common with those below; and nothing else refers to a checkpoint's own files.
    """
    stores = files.stores()
    partition = np.asarray(stores.columns(np.arange(len(files.length)))[1].fill_null(-1))
    is_foreign = files.origin > 0
    here = directory.location.absolute
    own = [number for number, path in enumerate(files.foreign, 1) if split_foreign_path(path)[0] == here]
    columns = (pa.array(files.origin), pa.array(files.offset))
    place = pc.binary_join_element_wise(*(each.cast(pa.string()) for each in columns), stores.name, "/")
    old = place.filter(pa.array(is_foreign & (partition >= 0) & (partition < before)))
    is_shared = np.array(pc.is_in(place, value_set=old), bool) & is_foreign
    is_given: np.ndarray = (is_shared | np.isin(files.origin, own)) & (partition >= before)
    return is_given


@dataclass(frozen=True)
class _Restoring:
    """What restores a version of all partitions of a store.

    Attributes:
        rows: The files.
        size: Bytes of the files that snapshots name.
        count: Rows that the snapshots have.
        is_merged: Whether all files are segments of merged files.
    """

    rows: np.ndarray = field(repr=False)
    size: int
    count: int
    is_merged: bool

    def pays(self, factor: int) -> bool:
        """Whether to delete all rows in all new partitions but one is little beside writing them."""
        return self.is_merged and self.size >= SMALLEST_ROW * (factor - 1) * self.count


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
        return _Restoring(every, size, count, bool(np.all(self.files.is_merged(every))))


@dataclass(frozen=True)
class _Found:
    """What can be split.

    Attributes:
        snapshot: The checkpoint's merged files.
        files: Its state files.
        chosen: The stores that are worth splitting, each with the rows of the files that restore the version.
    """

    snapshot: LogSnapshot = field(repr=False)
    files: StateFiles = field(repr=False)
    chosen: Mapping[StoreName, np.ndarray]

    @classmethod
    def of(
        cls,
        log: MergedLog,
        snapshot: LogSnapshot,
        version: int,
        before: int,
        partitions: int,
        stores: Collection[StoreName],
    ) -> _Found:
        files = StateFiles.of(snapshot.scan, plain_files(log.directory, snapshot.scan))
        versions = _Versions.of(files, version)
        found = {name: versions.restoring(log.directory, name, before) for name in sorted(stores)}
        factor = partitions // before
        chosen = {name: each.rows for name, each in found.items() if each is not None and each.pays(factor)}
        return cls(snapshot, files, chosen)


def _second_paths(found: _Found, before: int, partitions: int) -> tuple[np.ndarray, pa.StringArray]:
    """The entries of the files that new partitions get, and their paths there; without those that they have already."""
    files = found.files
    there = set(files.path.to_pylist())
    paths: list[str] = []
    repeated: list[int] = []
    rows = np.concatenate([np.zeros(0, "i8"), *found.chosen.values()])
    for row, path in zip(rows.tolist(), files.path.take(pa.array(rows)).to_pylist(), strict=True):
        operator, partition, rest = path.split("/", 2)
        for new in range(int(partition) + before, partitions, before):
            if (given := f"{operator}/{new}/{rest}") not in there:
                paths.append(given)
                repeated.append(row)
    entries = StateFiles.entry_rows(found.snapshot.scan)[np.array(repeated, "i8")]
    return entries, pa.array(paths, pa.string())
