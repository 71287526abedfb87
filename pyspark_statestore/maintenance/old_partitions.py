"""Removes state that a query has no more: of partitions, since it was repartitioned to fewer, and of another store.

Spark maintains the stores that a query has loaded, so nobody deletes what the others left. A partition is old if its
number is not below what the offset log says for the last committed batch, nor below what any later entry says: such an
entry may be a repartitioning under way. A file is of another store if its name is none that the store writes which the
log names in the last committed batch and in all later ones. The files are listed before the log is read, and only
listed ones are deleted, so a repartitioning or a conversion that begins meanwhile loses nothing.

Segments are deleted with a tombstone each, all in one file, and their merged files are cleaned; plain files are deleted
one by one. After a crash some are left, and the next run deletes them.

Empty directories stay. Spark's reader of state finds partitions by their directories, and executors remember which
they have made: should the query get more partitions again, state in a directory that is gone would not be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from pyspark_statestore.log.deletion import delete_segments
from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog
from pyspark_statestore.log.pins import check_unclaimed
from pyspark_statestore.log.restorability import committed
from pyspark_statestore.log.scan import retry_if_gone
from pyspark_statestore.log.spark_logs import OFFSETS, entries, partitions_of, setting_of
from pyspark_statestore.log.state_files import STATE, StateFiles, files_below_state, is_state_file
from pyspark_statestore.maintenance.cleaning import clean
from pyspark_statestore.session.doors import PROVIDER_KEY, known_store
from pyspark_statestore.storage.changes import delete
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel

_CHECKSUM = re.compile(r"(.*/)\.([^/]*)\.crc")
"""A checksum file that Hadoop keeps on a local disk."""

_PARTITION = re.compile(r"([0-9]{1,9})/([0-9]{1,9})/.+")


_OTHERS: Mapping[str, tuple[str, ...]] = {
    "rocksdb": (".delta", ".snapshot"),
    "heap": (".zip", ".changelog", ".sst", ".log"),
}
"""How the files end that only the other store writes, in checksum files before ``.crc``."""


@dataclass(frozen=True)
class OldPartitions:
    """What was removed, or would be.

    Attributes:
        partitions: State partitions that each stateful operator has now; None where the offset log does not say, and
            nothing was removed.
        removed_partitions_count: Partitions that are gone, of all operators, whose files were removed.
        removed_files_count: Files that were removed, as Spark sees them: segments, and plain files. Also those of
            another store, in all partitions.
        removed_bytes_count: Their size in bytes.
        dry_run: Whether nothing was changed.
    """

    partitions: int | None
    removed_partitions_count: int
    removed_files_count: int
    removed_bytes_count: int
    dry_run: bool


def remove_old_partitions(log: MergedLog, *, dry_run: bool = True) -> OldPartitions:
    """Implements :meth:`pyspark_statestore.maintenance.maintenance.Maintenance.remove_old_partitions`."""
    snapshot = log.snapshot()
    old = retry_if_gone(log.directory, lambda: _Old.found(log))
    if not dry_run and old.any_files:
        check_unclaimed(log.directory, snapshot.scan.others)
        in_parallel(lambda info: delete(log.directory, f"{STATE}/{info.name}"), old.plain)
        if len(old.rows):
            delete_segments(log, old.snapshot, old.files.entry_rows(old.snapshot.scan)[old.rows])
            clean(log, old.snapshot.closed_tombstones)
    size = int(old.files.length[old.rows].sum()) + sum(info.size for info in old.plain)
    return OldPartitions(old.partitions, len(old.found_in), len(old.rows) + len(old.plain), size, dry_run)


@dataclass(frozen=True)
class _Old:
    """What old partitions have left.

    Attributes:
        snapshot: The merged files.
        files: The logical files; ``rows`` are the segments of old partitions and of another store.
        rows: Their rows.
        plain: The other files below the directories of old partitions, whatever they are, and plain files of another
            store.
        found_in: Operator and number of the partitions.
        partitions: How many there are now.
    """

    snapshot: LogSnapshot
    files: StateFiles
    rows: np.ndarray
    plain: tuple[FileInfo, ...]
    found_in: frozenset[tuple[int, int]]
    partitions: int | None

    @classmethod
    def found(cls, log: MergedLog) -> _Old:
        snapshot = log.snapshot()
        below = files_below_state(log.directory)
        files = StateFiles.of(snapshot.scan, [info for name, info in below.items() if is_state_file(name)])
        partitions = _partitions_now(log.directory)
        if partitions is None:
            return cls(snapshot, files, np.empty(0, "i8"), (), frozenset(), None)
        stores = files.stores()
        is_old = np.array([store[1] >= partitions for store in stores.known] + [False])  # -1 is the last one
        is_foreign = _of_another_store(log.directory)
        is_foreign_row = np.array([is_foreign(path) for path in files.path.to_pylist()], bool) & (stores.store >= 0)
        rows = np.flatnonzero(is_old[stores.store] | is_foreign_row)
        rows = rows[files.is_merged(rows)]
        plain = []
        found_in = {stores.known[at][:2] for at in np.unique(stores.store[rows]).tolist() if is_old[at]}
        for name, info in below.items():
            part = _PARTITION.fullmatch(name)
            if part is not None and int(part[2]) >= partitions:
                plain.append(info)
                found_in.add((int(part[1]), int(part[2])))
            elif is_foreign(name) and is_state_file(_CHECKSUM.sub(r"\1\2", name)):
                plain.append(info)
        return cls(snapshot, files, rows, tuple(plain), frozenset(found_in), partitions)

    @property
    def any_files(self) -> bool:
        """Whether there is anything to delete."""
        return bool(len(self.rows) or self.plain)


def _partitions_now(directory: Directory) -> int | None:
    """The highest number that the last committed batch or any later entry says; None where one of them says none."""
    said = [partitions_of(directory, batch) for batch in _batches_that_count(directory)]
    return None if not said or None in said else max(each for each in said if each is not None)


def _of_another_store(directory: Directory) -> Callable[[str], bool]:
    """Tells the files of the store that the query has not; none where the log does not name the one that it has."""
    stores = {known_store(setting_of(directory, batch, PROVIDER_KEY)) for batch in _batches_that_count(directory)}
    own = stores.pop() if len(stores) == 1 else None
    others = () if own is None else _OTHERS[own]
    return lambda path: path.removesuffix(".crc").endswith(others)


def _batches_that_count(directory: Directory) -> list[int]:
    """The last committed batch, and those that the offset log has from there on."""
    batches = committed(directory)
    if not batches:
        return []
    return sorted({batches[-1], *(batch for batch in entries(directory, OFFSETS) if batch >= batches[-1])})
