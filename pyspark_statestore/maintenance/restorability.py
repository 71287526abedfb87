"""Whether every version can be restored that has to be, and what is missing where one cannot."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.inspect.logical_paths import Stores, store_folder
from pyspark_statestore.inspect.state_files import STATE, StateFiles
from pyspark_statestore.inspect.versions import versions_table
from pyspark_statestore.maintenance import damage
from pyspark_statestore.maintenance.batches import Batches, Store, committed, expected_stores
from pyspark_statestore.maintenance.damage import Damage
from pyspark_statestore.sparkfiles import files_named
from pyspark_statestore.storage.directory import Directory

_Key = tuple[int, str]
"""Version and checkpoint id."""


@dataclass
class _Known:
    """What is there of one store.

    Attributes:
        restorable: Whether each version is.
        snapshots: Versions with a snapshot.
        changes: Versions with a changelog or delta.
    """

    restorable: dict[_Key, bool] = field(default_factory=dict)
    snapshots: set[_Key] = field(default_factory=set)
    changes: set[_Key] = field(default_factory=set)

    @cached_property
    def oldest(self) -> int:
        return min((version for version, _ in self.restorable), default=0)

    @cached_property
    def restorable_versions(self) -> frozenset[int]:
        return frozenset(version for (version, _), is_restorable in self.restorable.items() if is_restorable)


@dataclass(frozen=True)
class Restorability:
    """The answer.

    Attributes:
        versions_count: How many versions there are.
        missing: What has to be there and is not.
    """

    versions_count: int
    missing: tuple[Damage, ...]


def check_versions(directory: Directory, files: StateFiles, batches: Batches) -> Restorability:
    """Looks at every version that :mod:`pyspark_statestore.maintenance.batches` says is needed.

    Args:
        directory: Of the checkpoint.
        files: Of the state, without those that are known to be corrupt.
        batches: As they were before the files were listed.

    Raises:
        FileNotFoundError: A file is gone.
        StateStoreFilesError: A file cannot be read.
    """
    table = versions_table(files, directory)
    known = _known(table)
    needed = batches.needed(committed(directory))
    if not needed:
        return Restorability(len(table), ())
    stores = expected_stores(directory, known)
    oldest: dict[Store, int] = {}
    missing: list[Damage] = []
    for store in stores:
        there = known.get(store, _Known())
        # What was cleaned ends before the oldest version that is left.
        wanted = [b + 1 for b in needed if b + 1 >= there.oldest or b == batches.last]
        oldest[store] = min(wanted, default=batches.last + 1)
        lost = [key for version in wanted for key in _lost(store, version, there, batches)]
        if lost:
            missing.append(_unrestorable(directory, store, min(lost), len(lost), there, batches.last))
    missing = _snapshots(directory, files, batches, oldest, missing)
    return Restorability(len(table), tuple(missing))


def _known(table: pa.Table) -> dict[Store, _Known]:
    known: dict[Store, _Known] = defaultdict(_Known)
    names = ("operator_id", "partition_id", "store_name", "version", "state_store_checkpoint_id")
    columns = [table[name].to_pylist() for name in (*names, "is_restorable", "has_snapshot", "has_changelog")]
    for operator, partition, name, version, checkpoint_id, is_restorable, snapshot, changes in zip(
        *columns, strict=True
    ):
        store, key = known[operator, partition, name], (version, checkpoint_id or "")
        store.restorable[key] = is_restorable
        if snapshot:
            store.snapshots.add(key)
        if changes:
            store.changes.add(key)
    return dict(known)


def _lost(store: Store, version: int, there: _Known, batches: Batches) -> list[_Key]:
    """The version, if it cannot be restored; with checkpoint ids, the one that was committed."""
    operator, partition, _ = store
    by_partition = batches.ids.get(version - 1, {}).get(operator, [])
    named = by_partition[partition] if partition < len(by_partition) else []
    ids = [each for each in named if (version, each) in there.restorable]
    if named and ids:
        return [(version, each) for each in ids if not there.restorable[version, each]]
    # Which of the ids is that of this store is not said; so all of them are looked for in it.
    if named or version not in there.restorable_versions:
        return [(version, "")]
    return []


def _unrestorable(directory: Directory, store: Store, first: _Key, count: int, there: _Known, last: int) -> Damage:
    """Names what the oldest of the lost versions lacks."""
    version, checkpoint_id = first
    at = version
    if not checkpoint_id:
        while at > 1 and (at, "") in there.changes and (at, "") not in there.snapshots:
            at -= 1
    kind = "changelog" if any(key in there.changes for key in there.restorable) else "zip"
    name = f"{at}_{checkpoint_id}" if checkpoint_id else f"{at}"
    path = f"{store_folder(store)}/{name}.{kind}"
    what = (
        "its snapshot is not whole" if (at, checkpoint_id) in there.snapshots else f"there is nothing of version {at}"
    )
    if checkpoint_id and (version, checkpoint_id) in there.restorable:
        what = "what it follows is missing"
    reason = f"version {version} of store {store_folder(store)} cannot be restored: {what}"
    if count > 1:
        reason += f"; {count} of the versions that are needed cannot"
    if not there.restorable.get((last + 1, checkpoint_id), False):
        reason += "; the query cannot go on"
    return Damage(damage.UNRESTORABLE_VERSION, directory.location.display(f"{STATE}/{path}"), reason, None, path)


def _snapshots(
    directory: Directory, files: StateFiles, batches: Batches, oldest: dict[Store, int], missing: list[Damage]
) -> list[Damage]:
    """Adds what snapshots name that is not there; it explains why versions cannot be restored."""
    stores = files.stores()
    rows = np.flatnonzero((stores.store >= 0) & np.array(pc.ends_with(stores.name, ".zip"), bool))
    if not len(rows):
        return missing
    versions, ids = (column.to_pylist() for column in stores.versions(rows))
    bases = {_version_of(each.logical_path or "") for each in missing}
    wanted = []
    for row, version, checkpoint_id in zip(rows.tolist(), versions, ids, strict=True):
        store = stores.known[stores.store[row]]
        is_base = f"{store_folder(store)}/{version}" in bases
        if (store in oldest and oldest[store] <= version <= batches.last + 1) or is_base:
            attempts = batches.ids.get(version - 1, {}).get(store[0], [])
            if store[1] >= len(attempts) or checkpoint_id in attempts[store[1]]:
                wanted.append(row)
    named = files.read(directory, np.array(wanted, "i8"), lambda data: files_named(data or b""))
    return _named_by(directory, files, stores, zip(wanted, named, strict=True), missing)


def _named_by(
    directory: Directory,
    files: StateFiles,
    stores: Stores,
    snapshots: Iterable[tuple[int, dict[str, int] | None]],
    missing: list[Damage],
) -> list[Damage]:
    needs = [
        (files.path[row].as_py(), store_folder(stores.known[stores.store[row]]), name, size)
        for row, named in snapshots
        for name, size in (named or {}).items()
    ]
    paths = pa.array([f"{folder}/{name}" for _, folder, name, _ in needs], pa.string())
    at = pc.index_in(paths, value_set=files.path).fill_null(-1).to_pylist()
    found: dict[str, Damage] = {}
    explained: set[str] = set()
    for (snapshot, folder, name, size), row in zip(needs, at, strict=True):
        length = None if row < 0 else int(files.length[row])
        if length == size:
            continue
        path = f"{folder}/{name}"
        there = "is not there" if length is None else f"has {length} bytes"
        reason = f"{snapshot} needs it with {size} bytes; it {there}"
        url = directory.location.display(f"{STATE}/{path}")
        found.setdefault(path, Damage(damage.MISSING_SEGMENT, url, reason, None, path))
        explained.add(folder)
    rest = [each for each in missing if _folder(each.logical_path or "") not in explained]
    return [*found.values(), *rest]


def _version_of(path: str) -> str:
    """A version's path without its id and its ending."""
    folder, slash, name = path.rpartition("/")
    return folder + slash + re.split(r"[._]", name, maxsplit=1)[0]


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
