"""Deletes the versions of a stopped query that nobody wants to go back to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format import Kind
from pyspark_statestore.format.index_block import ENTRY_TYPE
from pyspark_statestore.log.merged_log import Clocks, LogSnapshot, MergedLog, ask_file_system, require_stopped
from pyspark_statestore.log.payload import paths_of
from pyspark_statestore.log.pins import check_unclaimed
from pyspark_statestore.log.restorability import committed
from pyspark_statestore.log.scan import check_checkpoint, retry_if_gone
from pyspark_statestore.log.state_files import STATE, StateFiles, Stores, files_below_state, is_state_file, store_folder
from pyspark_statestore.log.versions import versions_table
from pyspark_statestore.maintenance.cleaning import clean
from pyspark_statestore.sparkfiles import files_named
from pyspark_statestore.storage.changes import delete, hadoop_checksum_of
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel


@dataclass(frozen=True)
class Expiry:
    """What was deleted.

    Attributes:
        removed_versions_count: Versions of stores that could be restored and cannot be any more.
        removed_files_count: Logical files that are gone, or would be.
        removed_bytes_count: Of these.
        oldest_retained_batch: The first batch that can be gone back to; None where no batch was committed.
        untouched_stores_count: Stores that were left as they are, since not each of their versions that are to stay can
            be restored.
        dry_run: Whether nothing was changed.
    """

    removed_versions_count: int
    removed_files_count: int
    removed_bytes_count: int
    oldest_retained_batch: int | None
    untouched_stores_count: int
    dry_run: bool


@dataclass(frozen=True)
class _Look:
    """What is in a checkpoint.

    Attributes:
        snapshot: Of the merged files.
        plain: State files beside them, by their path below ``state/``, those that merged files supersede included.
        others: What else lies below ``state/``.
    """

    snapshot: LogSnapshot
    plain: Mapping[str, FileInfo]
    others: Mapping[str, FileInfo]

    @classmethod
    def at(cls, log: MergedLog) -> _Look:
        snapshot = log.snapshot()
        below = files_below_state(log.directory) if snapshot.plain else {}
        plain = {name: info for name, info in below.items() if is_state_file(name)}
        return cls(snapshot, plain, {name: info for name, info in below.items() if name not in plain})


def expire(log: MergedLog, retain_last: int, *, dry_run: bool = True, force: bool = False) -> Expiry:
    """Deletes the versions before those of the last committed batches, and what only they need.

    The state after batch ``b`` is version ``b + 1``. Versions above the last committed one stay, as does everything
    that restoring any version which stays begins with or replays. Spark's logs of offsets and commits are not touched:
    they still name batches whose state is gone then. Whoever goes back by deleting files from these logs must not
    delete those of ``oldest_retained_batch``; Spark cannot restart from earlier ones, and says that a file of the state
    is missing.

    Args:
        log: Of the checkpoint.
        retain_last: Batches that can be gone back to, at least 1.
        dry_run: Whether nothing is to be changed.
        force: Whether the query is stopped, though it seems to be running.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION, PSS_NOT_A_CHECKPOINT, PSS_QUERY_RUNNING, or the checkpoint cannot be
            read or written. Whatever restoring the versions that stay needs is there then.
    """
    if not isinstance(retain_last, int) or isinstance(retain_last, bool) or retain_last < 1:
        parameters = {"key": "retain_last", "value": retain_last, "allowed": "a whole number of batches, at least 1"}
        raise StateStoreFilesError("PSS_INVALID_OPTION", parameters)
    check_checkpoint(log.directory)
    if not force:
        look = _Look.at(log)
        require_stopped(log, look.snapshot, look.plain.values(), Clocks(log.clock()), "Expiring versions")
        if not dry_run:
            require_stopped(log, look.snapshot, look.plain.values(), ask_file_system(log), "Expiring versions")
    batches = committed(log.directory)
    retained = batches[-retain_last:]
    if not retained or len(batches) < retain_last:
        return Expiry(0, 0, 0, retained[0] if retained else None, 0, dry_run)

    def look_and_plan() -> tuple[_Look, StateFiles, Expired]:
        look = _Look.at(log)
        files = StateFiles.of(look.snapshot.scan, look.plain.values())
        return look, files, expired_files(files, log.directory, [batch + 1 for batch in retained])

    look, files, expired = retry_if_gone(log.directory, look_and_plan)
    if not dry_run:
        check_unclaimed(log.directory, look.snapshot.scan.others)
        _carry_out(log, look, files, expired)
        clean(log, look.snapshot.closed_tombstones)
    return Expiry(
        expired.versions_count,
        len(expired.immutable) + len(expired.versioned),
        int(files.length[expired.rows].sum()),
        retained[0],
        expired.untouched_stores_count,
        dry_run,
    )


def _carry_out(log: MergedLog, look: _Look, files: StateFiles, expired: Expired) -> None:
    """What tells a later run what is to go, goes last: files before the snapshots that name them.

    Plain files go, too, where a merged file supersedes them: without it they would be read (rule 10).
    """
    immutable, versioned = (_plain_paths(look, files, rows) for rows in (expired.immutable, expired.versioned))
    hidden = [path for path in map(hadoop_checksum_of, [*immutable, *versioned]) if path in look.others]
    _delete_plain(log, hidden)
    _delete_plain(log, immutable)
    _delete_merged(log, look.snapshot, files, expired)
    _delete_plain(log, versioned)


def _plain_paths(look: _Look, files: StateFiles, rows: np.ndarray) -> list[str]:
    if not look.plain:
        return []
    return [path for path in files.path.take(pa.array(rows)).to_pylist() if path in look.plain]


def _delete_plain(log: MergedLog, paths: Sequence[str]) -> None:
    in_parallel(lambda path: delete(log.directory, f"{STATE}/{path}"), paths)


def _delete_merged(log: MergedLog, snapshot: LogSnapshot, files: StateFiles, expired: Expired) -> None:
    """Writes a tombstone, of rule 4, for each segment; all at once."""
    entries = snapshot.scan.entries
    rows = files.entry_rows(snapshot.scan)[expired.rows[files.is_merged(expired.rows)]]
    if not len(rows):
        return
    records: np.ndarray = np.zeros(len(rows), ENTRY_TYPE)
    records["kind"] = Kind.DELETE
    for name in ("type", "stamp", "writer"):
        records[name] = getattr(entries, name)[rows]
    with log.new_file(snapshot) as (_, out):
        out.add_columns(records, paths_of(entries, rows))
        out.seal(group_stamp=snapshot.highest_stamp)


# Which state files no version from a certain one on needs.

_STORE = ["operator_id", "partition_id", "store_name"]
_KEEP_ALL = -1
"""No version is below."""


@dataclass(frozen=True)
class Expired:
    """Files that may go.

    Attributes:
        immutable: Rows of RocksDB's immutable files that only snapshots which go, too, name.
        versioned: Rows of snapshots, changelogs and deltas.
        versions_count: How many versions of stores cannot be restored any more then.
        untouched_stores_count: Stores of which all is kept, because a version that is to stay is not there or cannot be
            restored as it is.
    """

    immutable: np.ndarray = field(repr=False)
    versioned: np.ndarray = field(repr=False)
    versions_count: int
    untouched_stores_count: int

    @property
    def rows(self) -> np.ndarray:
        """All of them."""
        rows: np.ndarray = np.concatenate([self.immutable, self.versioned])
        return rows


def expired_files(files: StateFiles, directory: Directory, retained: Sequence[int]) -> Expired:
    """Finds what restoring these versions, and all above the first of them, does not need.

    What would be left is looked at once more as if the rest was gone. Stores in which any version that stays would then
    be restored in another way than now are left as they are.

    Args:
        files: Of the state.
        directory: Of the checkpoint, to read snapshots and changelogs from.
        retained: Versions, in ascending order.

    Raises:
        FileNotFoundError: A file is gone: look again.
        StateStoreFilesError: A file cannot be read.
    """
    stores = files.stores()
    before = versions_table(files, directory)
    cut = _cuts(before, stores, retained)
    while True:
        immutable, versioned = _below(files, directory, stores, cut)
        gone = np.concatenate([immutable, versioned])
        after = versions_table(files.without(gone), directory) if len(gone) else before
        changed = _changed(before, after, stores, retained[0])
        if not len(changed):
            break
        cut[changed] = _KEEP_ALL
    lost = pc.sum(before["is_restorable"]).as_py() or 0, pc.sum(after["is_restorable"]).as_py() or 0
    return Expired(immutable, versioned, lost[0] - lost[1], int((cut == _KEEP_ALL).sum()))


def _cuts(versions: pa.Table, stores: Stores, retained: Sequence[int]) -> np.ndarray:
    """By store the first version that any that stays begins with; :data:`_KEEP_ALL` where not each can be restored."""
    cut: np.ndarray = np.full(len(stores.known), _KEEP_ALL, "i8")
    stay = versions.filter(pc.greater_equal(versions["version"], retained[0]))
    summed = stay.group_by(_STORE).aggregate([("is_restorable", "all"), ("base_snapshot_version", "min")])
    wanted = stay.filter(pc.is_in(stay["version"], value_set=pa.array(retained, pa.int64())))
    there = wanted.group_by(_STORE).aggregate([("version", "count_distinct")])
    has_all = {row[:3] for row in _rows(there, "version_count_distinct") if row[3] == len(retained)}
    number: dict[Any, int] = {store: i for i, store in enumerate(stores.known)}
    for row in _rows(summed, "is_restorable_all", "base_snapshot_version_min"):
        store, (is_restorable, base) = row[:3], row[3:]
        if is_restorable and store in has_all:
            cut[number[store]] = base
    return cut


def _rows(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    return list(zip(*(table[name].to_pylist() for name in (*_STORE, *columns)), strict=True))


def _below(files: StateFiles, directory: Directory, stores: Stores, cut: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Immutable files, and versions' files, that belong to versions below their store's cut."""
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
    """Stores of which any version from the least on is restored in another way."""
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
