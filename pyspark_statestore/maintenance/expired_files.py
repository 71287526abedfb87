"""Which state files no version from a certain one on needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.inspect.logical_paths import Stores, store_folder
from pyspark_statestore.inspect.state_files import StateFiles
from pyspark_statestore.inspect.versions import versions_table
from pyspark_statestore.sparkfiles import files_named
from pyspark_statestore.storage.directory import Directory

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
