"""Expiry: deletes the state versions of a stopped query before those of its last committed batches.

The state after batch ``b`` is version ``b + 1``. What stays: the versions of the last ``retain_last`` batches, every
version above the last committed one, and all that restoring any of these begins with or replays. A store in which not
every version that is to stay can be restored is left as it is. So is one that would be restored in another way
afterwards: the plan is checked by computing every version again without the files that are to go.

Segments are deleted as executors delete them, with a tombstone each (rule 4 of docs/guarantees.md), all in one file;
then their merged files are cleaned. Plain files are deleted one by one, RocksDB's immutable files before the snapshots
that name them: after a crash, what is left still says what remains to be deleted, and the next run deletes it.

Spark's logs of offsets and commits are not touched, so they still name batches whose state is gone. Do not delete the
entries of ``oldest_retained_batch`` from them: Spark cannot restart from an earlier batch, and fails with a state file
that is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.errors import not_allowed
from pyspark_statestore.grouping import grouped
from pyspark_statestore.log.deletion import delete_segments
from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog
from pyspark_statestore.log.pins import check_unclaimed
from pyspark_statestore.log.restorability import committed
from pyspark_statestore.log.scan import retry_if_gone
from pyspark_statestore.log.state_files import STATE, StateFiles, Stores, files_below_state, is_state_file, store_folder
from pyspark_statestore.log.stopped import require_still_stopped, require_stopped
from pyspark_statestore.log.versions import versions_table
from pyspark_statestore.maintenance.cleaning import clean
from pyspark_statestore.sparkfiles import files_named
from pyspark_statestore.storage.changes import delete, hadoop_checksum_of
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel


@dataclass(frozen=True)
class Expiry:
    """What an expiry deleted, or would delete.

    Attributes:
        removed_versions_count: Versions of state stores that could be restored before and cannot be restored any more.
        removed_files_count: Logical files that were deleted.
        removed_bytes_count: Size of these files, in bytes.
        oldest_retained_batch: The first batch that the query can go back to; None where no batch was committed.
        untouched_stores_count: State stores that were left as they are, because not every version that is to stay can
            be restored.
        dry_run: Whether nothing was changed.
    """

    removed_versions_count: int
    removed_files_count: int
    removed_bytes_count: int
    oldest_retained_batch: int | None
    untouched_stores_count: int
    dry_run: bool


def expire(log: MergedLog, retain_last: int, *, dry_run: bool = True, force: bool = False, query: Any = None) -> Expiry:
    """Implements :meth:`pyspark_statestore.maintenance.maintenance.Maintenance.expire`."""
    if not isinstance(retain_last, int) or isinstance(retain_last, bool) or retain_last < 1:
        raise not_allowed("retain_last", retain_last, "a whole number of batches, at least 1")
    said = None
    if not force:
        state = _StateDirectory.read(log)
        said = require_stopped(log, state.snapshot, state.plain.values(), _ACTION, query=query)
    batches = committed(log.directory)
    if not batches:
        log.snapshot()  # there is no checkpoint, or no batch of it was committed
    retained = batches[-retain_last:]
    if not retained or len(batches) < retain_last:
        return Expiry(0, 0, 0, retained[0] if retained else None, 0, dry_run)

    def plan() -> tuple[_StateDirectory, StateFiles, _Expired]:
        state = _StateDirectory.read(log)
        files = StateFiles.of(state.snapshot.scan, state.plain.values())
        return state, files, _expired_files(files, log.directory, [batch + 1 for batch in retained])

    state, files, expired = retry_if_gone(log.directory, plan)
    if not dry_run:
        require_still_stopped(log, said, _ACTION)
        check_unclaimed(log.directory, state.snapshot.scan.others)
        _delete_expired(log, state, files, expired)
        clean(log, state.snapshot.closed_tombstones)
    return Expiry(
        expired.versions_count,
        len(expired.immutable) + len(expired.versioned),
        int(files.length[expired.rows].sum()),
        retained[0],
        expired.untouched_stores_count,
        dry_run,
    )


@dataclass(frozen=True)
class _StateDirectory:
    """What is in a checkpoint's ``state/``: merged files, plain state files, and the files that are no state.

    Plain files are listed by their path below ``state/``, also those that a merged file supersedes.
    """

    snapshot: LogSnapshot
    plain: Mapping[str, FileInfo]
    others: Mapping[str, FileInfo]

    @classmethod
    def read(cls, log: MergedLog) -> _StateDirectory:
        snapshot = log.snapshot()
        below = files_below_state(log.directory) if snapshot.plain else {}
        plain = {name: info for name, info in below.items() if is_state_file(name)}
        return cls(snapshot, plain, {name: info for name, info in below.items() if name not in plain})


_ACTION = "Expiring versions"
_STORE = ["operator_id", "partition_id", "store_name"]
_KEEP_ALL = -1
"""A cut that keeps the whole store: no version is below it."""


@dataclass(frozen=True)
class _Expired:
    """The files that may go, as rows of the state files.

    Attributes:
        immutable: RocksDB's immutable files that only snapshots which go, too, name.
        versioned: Snapshots, changelogs and deltas.
        versions_count: How many versions of state stores cannot be restored without them.
        untouched_stores_count: How many stores are kept whole, because a version that is to stay is missing or would be
            restored in another way.
    """

    immutable: np.ndarray = field(repr=False)
    versioned: np.ndarray = field(repr=False)
    versions_count: int
    untouched_stores_count: int

    @property
    def rows(self) -> np.ndarray:
        """All rows."""
        rows: np.ndarray = np.concatenate([self.immutable, self.versioned])
        return rows


def _expired_files(files: StateFiles, directory: Directory, retained: Sequence[int]) -> _Expired:
    """Finds the files that restoring the retained versions, and all above the first of them, does not need.

    Raises:
        FileNotFoundError: A file was deleted meanwhile: read the directory again.
    """
    stores = files.stores()
    before = versions_table(files, directory)
    cut = _cuts(before, stores, retained)
    while True:
        immutable, versioned = _files_below(files, directory, stores, cut)
        gone = np.concatenate([immutable, versioned])
        after = versions_table(files.without(gone), directory) if len(gone) else before
        changed = _changed(before, after, stores, retained[0])
        if not len(changed):
            break
        cut[changed] = _KEEP_ALL
    lost = pc.sum(before["is_restorable"]).as_py() or 0, pc.sum(after["is_restorable"]).as_py() or 0
    return _Expired(immutable, versioned, lost[0] - lost[1], int((cut == _KEEP_ALL).sum()))


def _cuts(versions: pa.Table, stores: Stores, retained: Sequence[int]) -> np.ndarray:
    """Per store, the oldest version that restoring a retained one begins with; :data:`_KEEP_ALL` if one is lost."""
    cut: np.ndarray = np.full(len(stores.known), _KEEP_ALL, "i8")
    stay = versions.filter(pc.greater_equal(versions["version"], retained[0]))
    summed = grouped(stay, _STORE).aggregate([("is_restorable", "all"), ("base_snapshot_version", "min")])
    wanted = stay.filter(pc.is_in(stay["version"], value_set=pa.array(retained, pa.int64())))
    there = grouped(wanted, _STORE).aggregate([("version", "count_distinct")])
    has_all = {row[:3] for row in _rows(there, "version_count_distinct") if row[3] == len(retained)}
    number: dict[Any, int] = {store: i for i, store in enumerate(stores.known)}
    for row in _rows(summed, "is_restorable_all", "base_snapshot_version_min"):
        store, (is_restorable, base) = row[:3], row[3:]
        if is_restorable and store in has_all:
            cut[number[store]] = base
    return cut


def _rows(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    return list(zip(*(table[name].to_pylist() for name in (*_STORE, *columns)), strict=True))


def _files_below(
    files: StateFiles, directory: Directory, stores: Stores, cut: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the immutable files, and of the versions' files, that only versions below their store's cut need."""
    rows = np.flatnonzero(stores.store >= 0)
    version, _, extension = stores.version_files(rows)
    is_versioned = version.is_valid().to_numpy(zero_copy_only=False)
    rows, number = rows[is_versioned], version.drop_null().to_numpy()
    is_zip = np.array(pc.equal(extension.drop_null(), "zip"), bool)
    goes = number < cut[stores.store[rows]]
    affected: np.ndarray = np.zeros(len(cut), bool)
    affected[stores.store[rows[goes]]] = True
    zips = is_zip & affected[stores.store[rows]]
    named = files.read(directory, rows[zips], lambda data: None if data is None else files_named(data))
    needed: set[str] = set()
    candidates: set[str] = set()
    in_doubt: set[str] = set()
    for row, row_goes, names in zip(rows[zips].tolist(), goes[zips].tolist(), named, strict=True):
        folder = store_folder(stores.known[stores.store[row]])
        if names is None:
            in_doubt.update(() if row_goes else (folder,))
            continue
        (candidates if row_goes else needed).update(f"{folder}/{name}" for name in names)
    unneeded = [path for path in candidates - needed if path.rpartition("/")[0].rpartition("/")[0] not in in_doubt]
    with_checksums = pa.array([name for path in unneeded for name in (path, f"{path}.crc")], pa.string())
    immutable = np.flatnonzero(np.array(pc.is_in(files.path, value_set=with_checksums), bool))
    return immutable, rows[goes]


def _changed(before: pa.Table, after: pa.Table, stores: Stores, least: int) -> np.ndarray:
    """Numbers of the stores of which any version from ``least`` on would be restored in another way."""
    old, new = (table.filter(pc.greater_equal(table["version"], least)) for table in (before, after))
    if len(old) != len(new):
        return np.arange(len(stores.known))
    same: np.ndarray = np.ones(len(old), bool)
    for name in old.column_names:
        equal = pc.equal(old[name], new[name]).fill_null(False)
        both_null = pc.and_(old[name].is_null(), new[name].is_null())
        same &= np.array(pc.or_(equal, both_null), bool)
    number: dict[Any, int] = {store: i for i, store in enumerate(stores.known)}
    found = {number[row] for row in _rows(old.filter(pa.array(~same)))}
    changed: np.ndarray = np.array(sorted(found), "i8")
    return changed


def _delete_expired(log: MergedLog, state: _StateDirectory, files: StateFiles, expired: _Expired) -> None:
    """Deletes snapshots last: they tell a later run which files they name.

    Plain files that a merged file supersedes go, too: without the merged file they would be read (rule 10).
    """
    immutable, versioned = (_plain_paths(state, files, rows) for rows in (expired.immutable, expired.versioned))
    hidden = [path for path in map(hadoop_checksum_of, [*immutable, *versioned]) if path in state.others]
    _delete_plain(log, hidden)
    _delete_plain(log, immutable)
    _delete_merged(log, state.snapshot, files, expired)
    _delete_plain(log, versioned)


def _plain_paths(state: _StateDirectory, files: StateFiles, rows: np.ndarray) -> list[str]:
    if not state.plain:
        return []
    return [path for path in files.path.take(pa.array(rows)).to_pylist() if path in state.plain]


def _delete_plain(log: MergedLog, paths: Sequence[str]) -> None:
    in_parallel(lambda path: delete(log.directory, f"{STATE}/{path}"), paths)


def _delete_merged(log: MergedLog, snapshot: LogSnapshot, files: StateFiles, expired: _Expired) -> None:
    """Deletes the segments among the expired files."""
    rows = files.entry_rows(snapshot.scan)[expired.rows[files.is_merged(expired.rows)]]
    if len(rows):
        delete_segments(log, snapshot, rows)
