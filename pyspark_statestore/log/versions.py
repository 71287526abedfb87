"""Which versions of which store a query could go on from, and what each is restored from: the table ``versions``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.grouping import grouped
from pyspark_statestore.log.columns import table_of
from pyspark_statestore.log.spark_logs import OFFSETS, entries, setting_of
from pyspark_statestore.log.state_files import EVERYTHING, PLAIN, StateFiles, StoreFilter, Stores, store_folder
from pyspark_statestore.session.doors import PROVIDER_KEY, known_store
from pyspark_statestore.sparkfiles import files_named, lineage_of
from pyspark_statestore.storage.directory import Directory, in_parallel

_SNAPSHOTS = ("zip", "snapshot")

_CHANGES = ("changelog", "delta")

_OF_HEAP = ("snapshot", "delta")
"""What the heap store writes; RocksDB writes the others."""

MAX_REPAIR = 500
"""Changelogs that Spark replays at most where it goes around a broken snapshot: the default of
``spark.sql.streaming.stateStore.autoSnapshotRepair.maxChangeFileReplay``."""

EMPTY = -2
"""Stands for the empty state, which is what version 1 follows."""

NOTHING = -1
"""Stands for what is not there."""

_LINEAGE_BYTES = 64 * 1024

_MANY = 2
"""Versions that one changelog has to answer for, so that it pays to read only one at a time."""

_Key = tuple[int, int, str]
"""Store, version, checkpoint id."""


@dataclass(frozen=True)
class Versions:
    """A row for each version (and checkpoint id) of each store, in ascending order.

    Attributes:
        store: The number of the store in :attr:`Stores.known`.
        version: The version.
        id: Its checkpoint id, or "".
        snapshot: The snapshot's row in the state's files, or -1.
        changes: The row of the changelog or delta there, or -1.
        is_heap: Whether these are files of the heap store, and not RocksDB's: the query may have been converted.
    """

    store: np.ndarray
    version: np.ndarray
    id: pa.Array = field(repr=False)
    snapshot: np.ndarray
    changes: np.ndarray
    is_heap: np.ndarray

    def __len__(self) -> int:
        return len(self.version)


@dataclass(frozen=True)
class Restores:
    """How each version is restored.

    Attributes:
        files: The files of the state.
        stores: The stores that they belong to.
        versions: The versions of the stores that are wanted.
        ancestry: What each version follows.
        base: The version of the snapshot with which the restore of each version begins: 0 is the empty state; -1 where
            a version cannot be restored.
        replay_count: Changelogs that are replayed after that snapshot.
        size: Bytes that a restore reads.
    """

    files: StateFiles = field(repr=False)
    stores: Stores = field(repr=False)
    versions: Versions
    ancestry: Ancestry = field(repr=False)
    base: np.ndarray
    replay_count: np.ndarray
    size: np.ndarray

    @classmethod
    def of(
        cls, files: StateFiles, directory: Directory, wanted: StoreFilter = EVERYTHING, *, opens_plain: bool = True
    ) -> Restores:
        """Finds out how each version is restored. Reads the zip of every RocksDB snapshot, which is small.

        A restore begins with the newest snapshot that is whole, at this version or before, and replays the changelogs
        after it; version 0 is the empty state. With Spark's checkpoint format 2 it follows only the attempts that a
        changelog names as its own ancestry (``RocksDB.loadWithCheckpointId``). Around a broken snapshot Spark goes at
        most :data:`MAX_REPAIR` versions back (``AutoSnapshotLoader``), with format 2 only as far as the ancestry is
        known.

        Args:
            files: The files of the state.
            directory: The checkpoint's directory, to read snapshots and changelogs from.
            wanted: Stores whose versions are wanted.
            opens_plain: Whether plain files are opened, too. If not, one that is not empty counts as whole. Of
                checkpoint format 2, changelogs are read even so: they say what they follow.

        Raises:
            FileNotFoundError: A file is gone.
            StateStoreFilesError: A file cannot be read.
        """
        stores = files.stores()
        versions = _versions(files, directory, stores, wanted)
        snapshot_bytes = _whole_snapshots(files, directory, stores, versions, opens_plain=opens_plain)
        changes_bytes = _whole(files, directory, versions.changes, opens_plain=opens_plain)
        ancestry = ancestry_of(files, directory, versions)
        base, replayed, size = _restores(versions, snapshot_bytes, changes_bytes, ancestry)
        return cls(files, stores, versions, ancestry, base, replayed, size)

    def steps(self, row: int) -> tuple[int | None, list[int]]:
        """Returns what a restorable version is made of.

        Args:
            row: The version's row.

        Returns:
            The row of the snapshot in the files, None for the empty state; and the rows of the changelogs after it,
            oldest first.
        """
        changes: list[int] = []
        while row != EMPTY and self.versions.version[row] != self.base[row]:
            changes.append(int(self.versions.changes[row]))
            row = int(self.ancestry.parent[row])
        return (None if row == EMPTY else int(self.versions.snapshot[row])), changes[::-1]


def versions_table(files: StateFiles, directory: Directory, wanted: StoreFilter = EVERYTHING) -> pa.Table:
    """Makes the table, ordered by store and version.

    Args:
        files: The files of the state.
        directory: The checkpoint's directory, to read snapshots and changelogs from.
        wanted: Stores whose versions are wanted.

    Raises:
        FileNotFoundError: A file is gone.
        StateStoreFilesError: A file cannot be read.
    """
    return table_of_restores(Restores.of(files, directory, wanted))


def table_of_restores(found: Restores) -> pa.Table:
    """Makes the table of what is known already."""
    versions = found.versions
    no_way = found.base == NOTHING
    operator, partition, name = found.stores.columns_of(versions.store)
    columns = {
        "operator_id": operator,
        "partition_id": partition,
        "store_name": name,
        "version": versions.version,
        "state_store_checkpoint_id": pc.if_else(pc.equal(versions.id, ""), pa.scalar(None, pa.string()), versions.id),
        "has_snapshot": versions.snapshot >= 0,
        "has_changelog": versions.changes >= 0,
        "is_restorable": ~no_way,
        "base_snapshot_version": pa.array(found.base, mask=no_way),
        "replay_count": pa.array(found.replay_count, mask=no_way),
        "restore_bytes": pa.array(found.size, mask=no_way),
    }
    return table_of("versions", columns)


@dataclass(frozen=True)
class Ancestry:
    """What each version follows.

    Attributes:
        parent: The row of the version that its changelog is applied to, or :data:`EMPTY`, or :data:`NOTHING`.
        begins: Whether the lineage in a later changelog begins at it, as it does at a snapshot.
    """

    parent: np.ndarray
    begins: np.ndarray


def ancestry_of(files: StateFiles, directory: Directory, versions: Versions) -> Ancestry:
    """Finds the ancestry of versions; with Spark's checkpoint format 2 from their changelogs.

    What one store has written follows nothing that the other has: a conversion begins with a snapshot.

    Args:
        files: The files of the state.
        directory: The checkpoint's directory, to read changelogs from.
        versions: The versions.
    """
    store, version, checkpoint_id = versions.store, versions.version, versions.id
    parent: np.ndarray = np.full(len(version), NOTHING, "i8")
    begins: np.ndarray = np.zeros(len(version), bool)
    has_id = np.array(pc.not_equal(checkpoint_id, ""), bool)
    bare = np.flatnonzero(~has_id)
    is_next = (np.diff(store[bare]) == 0) & (np.diff(version[bare]) == 1)
    is_next &= versions.is_heap[bare[1:]] == versions.is_heap[bare[:-1]]
    parent[bare[1:][is_next]] = bare[:-1][is_next]
    parent[version == 1] = EMPTY
    rows = np.flatnonzero(has_id)
    if len(rows):
        keys = zip(
            store[rows].tolist(), version[rows].tolist(), checkpoint_id.take(pa.array(rows)).to_pylist(), strict=True
        )
        _follow_all(
            files, directory, versions.changes, dict(zip(keys, rows.tolist(), strict=True)), Ancestry(parent, begins)
        )
    return Ancestry(parent, begins)


def _versions(files: StateFiles, directory: Directory, stores: Stores, wanted: StoreFilter) -> Versions:
    """Groups the files by store, version and id."""
    rows = np.flatnonzero((stores.store >= 0) & wanted.rows(stores))
    version, checkpoint_id, extension = stores.version_files(rows)
    kind = extension.dictionary_encode()
    names = [*kind.dictionary.to_pylist(), None]
    numbers = kind.indices.fill_null(len(names) - 1).to_numpy(zero_copy_only=False)
    is_snapshot, is_changes, is_heap = (
        np.array([name in those for name in names])[numbers] for those in (_SNAPSHOTS, _CHANGES, _OF_HEAP)
    )
    kept = is_snapshot | is_changes  # not checksums
    number: np.ndarray = version.fill_null(NOTHING).to_numpy(zero_copy_only=False)
    kept[kept] = _of_its_time(directory, stores.store[rows[kept]], number[kept], is_heap[kept])
    mask = pa.array(kept)
    table = pa.table(
        {
            "store": pa.array(stores.store[rows[kept]]),
            "version": version.filter(mask),
            "id": checkpoint_id.filter(mask).fill_null(""),
            "snapshot": pa.array(np.where(is_snapshot, rows, NOTHING)[kept]),
            "changes": pa.array(np.where(is_changes, rows, NOTHING)[kept]),
            "is_heap": pa.array(is_heap[kept].astype("i8")),
        }
    )
    found = grouped(table, ["store", "version", "id"]).aggregate(
        [(n, "max") for n in ("snapshot", "changes", "is_heap")]
    )
    found = found.sort_by([("store", "ascending"), ("version", "ascending"), ("id", "ascending")])
    names_of = ("store", "version", "snapshot_max", "changes_max", "is_heap_max")
    columns = [found[name].to_numpy() for name in names_of]
    ids = pa.concat_arrays([pa.array([], pa.string()), *found["id"].chunks])
    return Versions(columns[0], columns[1], ids, columns[2], columns[3], columns[4].astype(bool))


def _of_its_time(directory: Directory, store: np.ndarray, version: np.ndarray, is_heap: np.ndarray) -> np.ndarray:
    """Which files are of the store that the query had at their version, where it was converted.

    The offset log says which that was. Where it does not, a version's files are taken to be of the store that has
    written later ones, too.
    """
    kept: np.ndarray = np.ones(len(store), bool)
    mixed = np.isin(store, np.intersect1d(store[is_heap], store[~is_heap]))
    if not mixed.any():
        return kept
    offsets = entries(directory, OFFSETS)
    batches = sorted({each - 1 for each in np.unique(version[mixed]).tolist()} & offsets.keys())
    said = in_parallel(lambda batch: known_store(setting_of(directory, batch, PROVIDER_KEY, offsets)), batches)
    at = {batch + 1: name == "heap" for batch, name in zip(batches, said, strict=True) if name is not None}
    newest: dict[tuple[int, bool], int] = {}
    for each in zip(store[mixed].tolist(), is_heap[mixed].tolist(), version[mixed].tolist(), strict=True):
        newest[each[:2]] = max(newest.get(each[:2], 0), each[2])
    there = set(zip(store[mixed].tolist(), version[mixed].tolist(), is_heap[mixed].tolist(), strict=True))
    for row in np.flatnonzero(mixed).tolist():
        s, v, h = int(store[row]), int(version[row]), bool(is_heap[row])
        if v in at:
            kept[row] = at[v] == h
        elif (s, v, not h) in there:
            kept[row] = (newest[s, h], h) > (newest[s, not h], not h)
    return kept


def _whole_snapshots(
    files: StateFiles, directory: Directory, stores: Stores, versions: Versions, *, opens_plain: bool
) -> np.ndarray:
    """Bytes of each version's snapshot and of the files that it names; -1 where there is none, or one is missing."""
    has = np.flatnonzero(versions.snapshot >= 0)
    names = stores.name.take(pa.array(versions.snapshot[has]))
    is_zip = np.array(pc.ends_with(names, ".zip"), bool)
    if not opens_plain:
        is_zip &= files.merged[versions.snapshot[has]] != PLAIN
    is_other = np.isin(np.arange(len(versions)), has[~is_zip])
    found = _whole(files, directory, np.where(is_other, versions.snapshot, -1), opens_plain=opens_plain)
    zips = has[is_zip]
    named = files.read(directory, versions.snapshot[zips], lambda data: None if data is None else files_named(data))
    readable = [(int(row), needed) for row, needed in zip(zips, named, strict=True) if needed is not None]
    needed_paths = [
        f"{store_folder(stores.known[versions.store[row]])}/{name}" for row, needed in readable for name in needed
    ]
    needed_sizes = np.array([size for _, needed in readable for size in needed.values()], "i8")
    of = np.array([row for row, needed in readable for _ in needed], "i8")
    at = pc.index_in(pa.array(needed_paths, pa.string()), value_set=files.path).fill_null(-1).to_numpy()
    is_there = (at >= 0) & (files.length[at] == needed_sizes) if len(files.length) else np.zeros(0, bool)
    rows = np.array([row for row, _ in readable], "i8")
    found[rows] = files.length[versions.snapshot[rows]]
    np.add.at(found, of, needed_sizes)
    found[of[~is_there]] = -1
    return found


def _whole(files: StateFiles, directory: Directory, rows: np.ndarray, *, opens_plain: bool) -> np.ndarray:
    """Bytes of each of these files; -1 where there is none, or where it was cut off."""
    there = rows >= 0
    found: np.ndarray = np.where(there, files.length[rows] if len(files.length) else -1, -1)
    # The index of a merged file tells where a segment ends; a plain file could have been cut off.
    plain = np.flatnonzero(there)[files.merged[rows[there]] == PLAIN]
    whole = files.plain_are_whole(directory, rows[plain]) if opens_plain else files.length[rows[plain]] > 0
    found[plain[~whole]] = -1
    return found


def _restores(
    versions: Versions, snapshot_bytes: np.ndarray, changes_bytes: np.ndarray, ancestry: Ancestry
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Base snapshot's version, number of changelogs after it, bytes to read; a base of -1 where there is no way."""
    count = len(versions)
    # Two more rows: the last one stands for what is not there, the one before it for the empty state.
    empty, nothing = count, count + 1
    neither: np.ndarray = np.zeros(2, bool)
    version: np.ndarray = np.append(versions.version, [1, 0])
    parent = np.where(ancestry.parent == EMPTY, empty, np.where(ancestry.parent == NOTHING, nothing, ancestry.parent))
    before: np.ndarray = np.append(parent, [empty, nothing])
    has_snapshot: np.ndarray = np.append(versions.snapshot >= 0, neither)
    is_whole: np.ndarray = np.append(snapshot_bytes >= 0, neither)
    is_gone = np.append(ancestry.begins, neither) & ~has_snapshot
    follows = np.append(changes_bytes >= 0, neither) & (before <= empty)

    end, (replayed, size, around) = _along(
        follows & ~is_whole,
        before,
        (np.add, np.ones(count + 2, "i8")),
        (np.add, np.append(changes_bytes, [0, 0])),
        (np.logical_or, (has_snapshot & ~is_whole) | is_gone[before]),
    )
    _, (lost,) = _along(follows & ~has_snapshot, before, (np.logical_or, is_gone[before]))
    known_from = version[_along(follows, before)[0]]
    base: np.ndarray = np.where(is_whole[end], version[end], np.where(end == empty, 0, NOTHING))[:count]
    size += np.append(np.maximum(snapshot_bytes, 0), [0, 0])[end]

    too_far = versions.version - base > MAX_REPAIR
    has_id = np.array(pc.not_equal(versions.id, ""), bool)
    unknown = has_id & (known_from[:count] > np.maximum(1, versions.version - MAX_REPAIR))
    # Where the snapshot that a changelog begins with is gone, Spark tries the empty state first, and then not again.
    no_way = around[:count] & (too_far | unknown) | (lost[:count] & (base == 0))
    base[no_way] = NOTHING
    return base, replayed[:count], size[:count]


def _along(
    link: np.ndarray, before: np.ndarray, *columns: tuple[Callable[..., np.ndarray], np.ndarray]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Follows the chains of all rows at once: each step goes twice as far as the one before.

    Args:
        link: Whether a row's chain goes on.
        before: The next row of the chain; no chain comes back to where it was.
        columns: Pairs of a function that puts two values together, and the rows' values.

    Returns:
        The row where each row's chain ends; and for each of the columns the values along the chain put together,
        without that of its end.
    """
    to: np.ndarray = np.where(link, before, np.arange(len(link)))
    found = [np.where(link, values, np.zeros((), values.dtype)) for _, values in columns]
    while not np.array_equal(further := to[to], to):
        found = [combine(each, each[to]) for (combine, _), each in zip(columns, found, strict=True)]
        to = further
    return to, found


def _follow_all(
    files: StateFiles, directory: Directory, changes: np.ndarray, row_of: Mapping[_Key, int], ancestry: Ancestry
) -> None:
    unknown: dict[int, list[_Key]] = {}
    for key, row in row_of.items():
        if changes[row] >= 0 and ancestry.parent[row] == NOTHING:
            unknown.setdefault(key[0], []).append(key)
    # A changelog names all attempts since the last snapshot, so a store's newest one answers for many before it. Where
    # it does not, more and more of them are read at once.
    times = 1
    while unknown:
        newest = [keys.pop() for keys in unknown.values() for _ in range(min(times, len(keys)))]
        rows = changes[[row_of[key] for key in newest]]
        lineages = files.read(directory, rows, lambda start: lineage_of(start or b"") or {}, _LINEAGE_BYTES)
        for key, lineage in zip(newest, lineages, strict=True):
            _follow(key, lineage, row_of, ancestry)
        answered = sum(_drop_answered(keys, row_of, ancestry) for keys in unknown.values())
        times = 1 if answered >= _MANY * len(newest) else 2 * times
        unknown = {store: keys for store, keys in unknown.items() if keys}


def _drop_answered(keys: list[_Key], row_of: Mapping[_Key, int], ancestry: Ancestry) -> int:
    """Drops the newest keys that have a known parent, and returns how many."""
    before = len(keys)
    while keys and ancestry.parent[row_of[keys[-1]]] != NOTHING:
        keys.pop()
    return before - len(keys)


def _follow(key: _Key, lineage: Mapping[int, str], row_of: Mapping[_Key, int], ancestry: Ancestry) -> None:
    """Notes the parent of a version, and of those that its lineage names."""
    store, newest, _ = key
    child: int | None = row_of[key]
    for version in range(newest - 1, 0, -1):
        if version not in lineage:
            if child is not None and version + 1 < newest:
                ancestry.begins[child] = True
            return
        before = row_of.get((store, version, lineage[version]))
        if child is not None and before is not None and ancestry.parent[child] == NOTHING:
            ancestry.parent[child] = before
        child = before
