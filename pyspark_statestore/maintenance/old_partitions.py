"""Removes state that a query has no more: of partitions, since it was repartitioned to fewer, and of another store.

Spark maintains the stores that a query has loaded, so nobody deletes what the others left. A partition is old if its
number is not below what the offset log says for the last committed batch, nor below what any later entry says: such an
entry may be a repartitioning under way. A file is of another store if its name is none that the store writes which the
log names in the last committed batch and in all later ones. The files are listed before the log is read, and only
listed ones are deleted. A repartitioning enters its batch in the log before it writes anything. So where the log says
the same right before something is deleted, nothing listed is of one that began meanwhile; where it does not, all is
looked up again.

Segments are deleted with a tombstone each, all in one file, and their merged files are cleaned; plain files are deleted
a few at a time, and the log is read again before each time: their names alone say what they are. After a crash some are
left, and the next run deletes them.

Empty directories stay. Spark's reader of state finds partitions by their directories, and executors remember which
they have made: should the query get more partitions again, state in a directory that is gone would not be read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.deletion import delete_segments
from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog
from pyspark_statestore.log.pins import check_unclaimed
from pyspark_statestore.log.restorability import committed
from pyspark_statestore.log.scan import ATTEMPTS, retry_if_gone
from pyspark_statestore.log.spark_logs import OFFSETS, entries, partitions_of, setting_of
from pyspark_statestore.log.state_files import STATE, StateFiles, files_below_state, is_state_file
from pyspark_statestore.maintenance.cleaning import clean
from pyspark_statestore.session.doors import PROVIDER_KEY, known_store
from pyspark_statestore.storage.changes import delete
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel

_CHECKSUM = re.compile(r"(.*/)\.([^/]*)\.crc")
"""A checksum file that Hadoop keeps on a local disk."""

_AT_ONCE = 256
"""Plain files that are deleted before the query's logs are read again."""

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
    removed = _Removed()
    for _ in range(1 if dry_run else ATTEMPTS):
        snapshot = log.snapshot()
        old = retry_if_gone(log.directory, lambda: _Old.found(log))
        if dry_run or not old.any_files:
            return removed.result(old, dry_run=dry_run)
        check_unclaimed(log.directory, snapshot.scan.others)
        if removed.remove(log, old):
            return removed.result(old, dry_run=False)
    parameters = {
        "action": "Removing old partitions",
        "path": log.directory.location.url,
        "reason": f"its logs said something else {ATTEMPTS} times, between what was listed and what was to be deleted",
        "override": "wait until it has been repartitioned or converted, and try again",
    }
    raise StateStoreFilesError("PSS_QUERY_RUNNING", parameters)


@dataclass
class _Removed:
    """What was removed so far: files, their size, partitions."""

    files_count: int = 0
    bytes_count: int = 0
    found_in: set[tuple[int, int]] = field(default_factory=set)

    def remove(self, log: MergedLog, old: _Old) -> bool:
        """Removes what is old; False where the query's logs have said something else meanwhile."""
        for first in range(0, len(old.plain), _AT_ONCE):
            if old.said != _Said.by(log.directory):
                return False
            part = old.plain[first : first + _AT_ONCE]
            in_parallel(lambda info: delete(log.directory, f"{STATE}/{info.name}"), part)
            self._note(old, len(part), sum(info.size for info in part))
        if len(old.rows):
            if old.said != _Said.by(log.directory):
                return False
            delete_segments(log, old.snapshot, old.files.entry_rows(old.snapshot.scan)[old.rows])
            clean(log, old.snapshot.closed_tombstones)
            self._note(old, len(old.rows), int(old.files.length[old.rows].sum()))
        return True

    def _note(self, old: _Old, count: int, size: int) -> None:
        self.files_count += count
        self.bytes_count += size
        self.found_in |= old.found_in

    def result(self, old: _Old, *, dry_run: bool) -> OldPartitions:
        """What was removed; in a dry run what would be."""
        if dry_run:
            size = int(old.files.length[old.rows].sum()) + sum(info.size for info in old.plain)
            self._note(old, len(old.rows) + len(old.plain), size)
        return OldPartitions(old.said.partitions, len(self.found_in), self.files_count, self.bytes_count, dry_run)


@dataclass(frozen=True)
class _Said:
    """What the query's logs say.

    Attributes:
        partitions: The highest number of partitions that the last committed batch or any later entry says; None where
            one of them says none.
        store: What keeps the state; None where they do not agree, or do not say it.
    """

    partitions: int | None
    store: str | None

    @classmethod
    def by(cls, directory: Directory) -> _Said:
        """Reads them."""
        batches = _batches_that_count(directory)
        numbers = [partitions_of(directory, batch) for batch in batches]
        partitions = None if not numbers or None in numbers else max(each for each in numbers if each is not None)
        stores = {known_store(setting_of(directory, batch, PROVIDER_KEY)) for batch in batches}
        return cls(partitions, stores.pop() if len(stores) == 1 else None)

    def is_foreign(self, path: str) -> bool:
        """Whether a file is of the store that the query has not; none is where the logs do not name the one it has."""
        others = () if self.store is None else _OTHERS[self.store]
        return path.removesuffix(".crc").endswith(others)


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
        said: What the query's logs say, by which they are old.
    """

    snapshot: LogSnapshot
    files: StateFiles
    rows: np.ndarray
    plain: tuple[FileInfo, ...]
    found_in: frozenset[tuple[int, int]]
    said: _Said

    @classmethod
    def found(cls, log: MergedLog) -> _Old:
        snapshot = log.snapshot()
        below = files_below_state(log.directory)
        files = StateFiles.of(snapshot.scan, [info for name, info in below.items() if is_state_file(name)])
        said = _Said.by(log.directory)
        partitions = said.partitions
        if partitions is None:
            return cls(snapshot, files, np.empty(0, "i8"), (), frozenset(), said)
        stores = files.stores()
        is_old = np.array([store[1] >= partitions for store in stores.known] + [False])  # -1 is the last one
        is_foreign_row = np.array([said.is_foreign(path) for path in files.path.to_pylist()], bool) & (
            stores.store >= 0
        )
        rows = np.flatnonzero(is_old[stores.store] | is_foreign_row)
        rows = rows[files.is_merged(rows)]
        plain = []
        found_in = {stores.known[at][:2] for at in np.unique(stores.store[rows]).tolist() if is_old[at]}
        for name, info in below.items():
            part = _PARTITION.fullmatch(name)
            if part is not None and int(part[2]) >= partitions:
                plain.append(info)
                found_in.add((int(part[1]), int(part[2])))
            elif said.is_foreign(name) and is_state_file(_CHECKSUM.sub(r"\1\2", name)):
                plain.append(info)
        return cls(snapshot, files, rows, tuple(plain), frozenset(found_in), said)

    @property
    def any_files(self) -> bool:
        """Whether there is anything to delete."""
        return bool(len(self.rows) or self.plain)


def _batches_that_count(directory: Directory) -> list[int]:
    """The last committed batch, and those that the offset log has from there on."""
    batches = committed(directory)
    if not batches:
        return []
    return sorted({batches[-1], *(batch for batch in entries(directory, OFFSETS) if batch >= batches[-1])})
