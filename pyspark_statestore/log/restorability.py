"""Whether every version can be restored that has to be, and what is missing where one cannot.

Spark's own logs tell which versions these are: those after each batch that is in the log of commits. The log is read
before the files are listed and again after them, and only batches in both count, since Spark may commit and purge
meanwhile. The first entries of a log that was purged are left out: Spark cleans state before it purges them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.log import damage
from pyspark_statestore.log.damage import Damage
from pyspark_statestore.log.spark_logs import (
    COMMITS,
    OFFSETS,
    content_of,
    entries,
    missing_entry,
    operator_metadata,
    operators,
    partitions_of,
)
from pyspark_statestore.log.state_files import DEFAULT_STORE, STATE, StateFiles, Stores, store_folder
from pyspark_statestore.log.versions import NOTHING, Restores, table_of_restores
from pyspark_statestore.parsing import objects, whole_number
from pyspark_statestore.sparkfiles import files_named
from pyspark_statestore.sparkfiles.records import has_one_key
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel

_Key = tuple[int, str]
"""Version and checkpoint id."""

_LATE = 3
"""Entries that Spark may not have purged yet, though it has deleted the state of their batches."""

_PARTITIONS = 1 << 20
"""Partitions that all stores of an operator may have together; metadata that says more is not believed."""

Store = tuple[int, int, str]
"""Operator, partition, name."""


@dataclass(frozen=True)
class Restorability:
    """Whether all is there that has to be.

    Attributes:
        versions_count: How many versions there are.
        missing: What has to be there and is not.
        gaps: Versions that may have been cleaned, though it does not look like that.
        newest: The version that the last committed batch has left; None without one.
    """

    versions_count: int
    missing: tuple[Damage, ...]
    gaps: tuple[Damage, ...] = ()
    newest: int | None = None


def check_versions(directory: Directory, files: StateFiles, batches: Batches) -> Restorability:
    """Checks every version that has to be restorable: see :meth:`Batches.needed`.

    Args:
        directory: The checkpoint's directory.
        files: The files of the state, without those that are known to be corrupt.
        batches: The log of commits as it was before the files were listed.

    Raises:
        FileNotFoundError: A file is gone.
        StateStoreFilesError: A file cannot be read.
    """
    restores = Restores.of(files, directory)
    table = table_of_restores(restores)
    known = _known(table)
    later = committed(directory)
    needed = batches.needed(later)
    if not needed:
        return Restorability(len(table), (), newest=max(later) + 1 if later else None)
    stores = expected_stores(directory, known, batches.last)
    oldest: dict[Store, int] = {}
    missing: list[Damage] = []
    partitions: dict[int, int | None] = {}
    can_be = {batch + 1: restorable_rows(restores, batch + 1, batches) for batch in needed}
    for store in (*stores, *_left_behind(directory, partitions, stores, known, needed)):
        there = known.get(store, _Known())
        # What was cleaned ends before the oldest version that is left.
        wanted = [b + 1 for b in needed if b + 1 >= there.oldest or b == batches.last]
        oldest[store] = min(wanted, default=batches.last + 1)
        gone = [version for version in wanted if store not in can_be[version]]
        lost = [key for version in gone for key in _attempts(store, version, there, batches)]
        # A partition that is there again after a repartitioning was not there all the time.
        lost = [key for key in lost if _had(directory, partitions, key[0] - 1, store[1])]
        if lost:
            found = _unrestorable(directory, store, min(lost), len(lost), there)
            stops = any(version == batches.last + 1 for version, _ in lost)
            missing.append(replace(found, reason=f"{found.reason}; the query cannot go on") if stops else found)
    missing = _snapshots(directory, files, batches, oldest, missing)
    missing += _lost_entry(directory, batches, later)
    have = {store: {version for version, _ in known[store].restorable} for store in stores if store in known}
    gaps = version_gaps(directory, have, batches.committed, later, without=needed)
    return Restorability(len(table), tuple(missing), gaps, batches.last + 1)


def version_gaps(
    directory: Directory,
    have: Mapping[Store, Collection[int]],
    committed: Sequence[int],
    later: Sequence[int],
    *,
    without: Collection[int] = (),
) -> tuple[Damage, ...]:
    """Finds versions of which a store has nothing, though it looks as if it should: by the names of files alone.

    Spark cleans the oldest versions first. So where a version is gone, all before it are; and all stores lose theirs at
    about the same time.

    Args:
        directory: The checkpoint's directory.
        have: The versions of which each store has files.
        committed: The committed batches before the files were listed.
        later: The committed batches after that.
        without: Batches whose versions are not looked for between others of a store: somebody else does.
    """
    logged = {batch + 1 for batch in committed if batch in later}
    needed = Batches(tuple(committed)).needed(later)
    have = {store: set(versions) for store, versions in have.items() if versions}
    everywhere = set[int]().union(*have.values())
    partitions: dict[int, int | None] = {}
    found = []
    for store, versions in have.items():
        first = min(versions)
        # A hole among versions that have to be there is damage.
        between = {v for v in logged if first < v < max(versions) and v - 1 not in without}
        before = {batch + 1 for batch in needed if batch + 1 < first} & everywhere
        gone = sorted((between | before).difference(versions))
        # A repartitioning makes partitions, and leaves others behind.
        gone = [each for each in gone if _had(directory, partitions, each - 1, store[1])]
        if gone and _had(directory, partitions, committed[-1], store[1]):
            folder, s = store_folder(store), "s" if len(gone) > 1 else ""
            which = f"version{s} {', '.join(map(str, gone[:5]))}{' and more' if len(gone) > 5 else ''}"
            where = "others of it are older" if gone[0] > first else "other stores have what is as old"
            reason = f"there is nothing of {which} of store {folder}, and {where}: a merged file may be gone or empty"
            path = f"{folder}/{gone[0]}"
            url = directory.location.display(f"{STATE}/{path}")
            found.append(Damage(damage.VERSION_GAP, url, reason, None, path))
    return tuple(found)


@dataclass(frozen=True)
class Batches:
    """What the log of commits says.

    Attributes:
        committed: The committed batches, in ascending order.
        ids: With checkpoint format 2, the ids of each batch: by operator, for each partition, those of its stores.
    """

    committed: tuple[int, ...] = ()
    ids: dict[int, dict[int, list[list[str]]]] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The last committed batch, or -1."""
        return self.committed[-1] if self.committed else -1

    def ids_at(self, version: int, store: Store) -> Collection[str]:
        """The ids of the attempts at a version that were committed in a store's partition; none if that is not said."""
        by_partition = self.ids.get(version - 1, {}).get(store[0], [])
        return by_partition[store[1]] if store[1] < len(by_partition) else []

    def needed(self, later: Sequence[int]) -> list[int]:
        """Returns the batches to which Spark would still allow to go back.

        Args:
            later: The committed batches after everything else was read.
        """
        if not later:
            return []
        first = min(later)
        begin = first if first == 0 else first + _LATE
        return [b for b in self.committed if b in later and (b >= begin or b == max(later))]


def committed(directory: Directory) -> list[int]:
    """Lists the committed batches, in ascending order."""
    return list(entries(directory, COMMITS))


def read_batches(directory: Directory, *, with_ids: bool) -> Batches:
    """Reads the log of commits.

    Args:
        directory: The checkpoint's directory.
        with_ids: Whether the entries may name checkpoint ids. If not, they need not be opened.

    Raises:
        StateStoreFilesError: It cannot be read.
    """
    infos = entries(directory, COMMITS)
    found = tuple(infos)
    if not with_ids:
        return Batches(found)

    def read(batch: int) -> dict[int, list[list[str]]]:
        try:
            return ids_of(directory.read(f"{COMMITS}/{batch}", infos[batch].size))
        except FileNotFoundError:  # purged meanwhile
            return {}

    return Batches(found, dict(zip(found, in_parallel(read, found), strict=True)))


def batch_with_ids(directory: Directory, files: StateFiles, batch: int) -> Batches:
    """Reads of one batch which attempts at its version it has committed; that is said where files have ids.

    Args:
        directory: The checkpoint's directory.
        files: The files of the state.
        batch: The batch.

    Raises:
        FileNotFoundError: The entry is gone.
        StateStoreFilesError: It cannot be read.
    """
    info = entries(directory, COMMITS).get(batch) if files.has_ids else None
    if info is None:
        return Batches((batch,))
    return Batches((batch,), {batch: ids_of(directory.read(f"{COMMITS}/{batch}", info.size))})


def stores_of_operator(directory: Directory, operator: int, partitions: int | None = None) -> list[Store] | None:
    """Returns the stores that an operator has by its own metadata; None where there is none that is understood.

    Args:
        directory: The checkpoint's directory.
        operator: The operator.
        partitions: How many partitions it has at the batch in question, if that is known: metadata may be from before a
            repartitioning, or from after it.

    Raises:
        StateStoreFilesError: The metadata cannot be read.
    """
    return _stores(operator, _said_stores(directory, operator), partitions)


def _said_stores(directory: Directory, operator: int) -> dict[str, int] | None:
    """The stores' names, and how many partitions each has, as the metadata of an operator says."""
    try:
        metadata = operator_metadata(directory, operator)
        if metadata is None:
            return None
        found = objects(content_of(metadata[1])["stateStoreInfo"], "stateStoreInfo")
        counts = [whole_number(store["numPartitions"], "numPartitions", _PARTITIONS) for store in found]
        names = [str(store.get("storeName") or DEFAULT_STORE) for store in found]
        return dict(zip(names, counts, strict=True))
    except (ValueError, KeyError, FileNotFoundError):
        return None


def _stores(operator: int, said: Mapping[str, int] | None, partitions: int | None) -> list[Store] | None:
    if said is None:
        return None
    counts = {name: count if partitions is None else partitions for name, count in said.items()}
    if sum(counts.values()) > _PARTITIONS:
        return None
    return [(operator, partition, name) for name, count in counts.items() for partition in range(count)]


class ExpectedStores:
    """All stores of the query, also one that has lost all of its files. What Spark says of them is read once.

    Args:
        directory: The checkpoint's directory.
        known: Stores that have files.
        offsets: The files of the offset log, where they are listed already.
    """

    def __init__(
        self, directory: Directory, known: Collection[Store], offsets: Mapping[int, FileInfo] | None = None
    ) -> None:
        self._directory = directory
        self._known = known
        self._listed = offsets

    def after(self, batch: int) -> list[Store]:
        """Returns the stores after a batch: a repartitioning makes partitions and leaves others behind.

        Raises:
            StateStoreFilesError: The metadata of operators, or the offset log, cannot be read.
        """
        found: set[Store] = set()
        partitions = partitions_of(self._directory, batch, self._offsets)
        for operator, said in self._said.items():
            count = 1 if operator in self._single else partitions
            there = (s for s in self._known if s[0] == operator and (count is None or s[1] < count))
            found |= set(_stores(operator, said, count) or there)
        return sorted(found)

    @cached_property
    def _offsets(self) -> Mapping[int, FileInfo]:
        return entries(self._directory, OFFSETS) if self._listed is None else self._listed

    @cached_property
    def _said(self) -> dict[int, dict[str, int] | None]:
        every = {*operators(self._directory), *(store[0] for store in self._known)}
        return {operator: _said_stores(self._directory, operator) for operator in sorted(every)}

    @cached_property
    def _single(self) -> set[int]:
        return single_partition_operators(self._directory, self._known)


def expected_stores(directory: Directory, known: Collection[Store], batch: int) -> list[Store]:
    """Returns what :meth:`ExpectedStores.after` does, for one batch."""
    return ExpectedStores(directory, known).after(batch)


def single_partition_operators(directory: Directory, known: Collection[Store]) -> set[int]:
    """Returns the operators that keep everything in partition 0, as global aggregations and limits do.

    Their metadata says otherwise: Spark gives them the number of partitions that it would give any other. What tells
    them is that their keys cannot differ. Keys that are all null can be in another partition, too, so an operator
    counts only if no other partition has ever left a file.

    Args:
        directory: The checkpoint's directory.
        known: Stores that have files.

    Raises:
        StateStoreFilesError: A schema cannot be read.
    """
    partitions: dict[int, set[int]] = defaultdict(set)
    for operator, partition, _ in known:
        partitions[operator].add(partition)
    return {operator for operator, found in partitions.items() if found == {0} and _has_one_key(directory, operator)}


def _has_one_key(directory: Directory, operator: int) -> bool:
    folder = f"{STATE}/{operator}/0/_metadata"
    for info in directory.files(folder):
        if info.name == "schema":
            return has_one_key(directory.read(f"{folder}/schema", info.size))
    return False


def ids_of(data: bytes) -> dict[int, list[list[str]]]:
    """Returns the checkpoint ids in an entry of the log of commits: by operator and partition, those of its stores."""
    try:
        found = content_of(data).get("stateUniqueIds") or {}
        return {int(operator): _ids_of_stores(partitions) for operator, partitions in found.items()}
    except (ValueError, AttributeError):
        return {}


@dataclass
class _Known:
    """What is there of one store.

    Attributes:
        restorable: Whether each version can be restored.
        snapshots: Versions with a snapshot.
        changes: Versions with a changelog or delta.
    """

    restorable: dict[_Key, bool] = field(default_factory=dict)
    snapshots: set[_Key] = field(default_factory=set)
    changes: set[_Key] = field(default_factory=set)

    @cached_property
    def oldest(self) -> int:
        return min((version for version, _ in self.restorable), default=0)


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


def restorable_rows(restores: Restores, version: int, batches: Batches) -> dict[Store, int]:
    """Finds the stores that can be restored at a version, and what restores each: everybody decides that by this.

    Args:
        restores: How each version is restored.
        version: The version.
        batches: The committed batches; with checkpoint format 2, with the ids of the version's batch. An attempt
            counts only if it was committed then: there may be others of the same version.

    Returns:
        The row of the version in ``restores``, by store.
    """
    versions = restores.versions
    found: dict[Store, int] = {}
    at = np.flatnonzero((versions.version == version) & (restores.base != NOTHING))
    for row, checkpoint_id in zip(at.tolist(), versions.id.take(pa.array(at)).to_pylist(), strict=True):
        store = restores.stores.known[versions.store[row]]
        # The log does not say which of a partition's ids belongs to this store, so all of them are looked for in it.
        named = batches.ids_at(version, store)
        if not named or not checkpoint_id or checkpoint_id in named:
            found[store] = row
    return found


def _attempts(store: Store, version: int, there: _Known, batches: Batches) -> list[_Key]:
    """A version that cannot be restored; with checkpoint ids, the attempts at it that were committed."""
    ids = [each for each in batches.ids_at(version, store) if (version, each) in there.restorable]
    return [(version, each) for each in ids] or [(version, "")]


def _lost_entry(directory: Directory, batches: Batches, later: Sequence[int]) -> list[Damage]:
    """The entry of Spark's logs that a restart reads and does not find."""
    if batches.last not in later:
        return []
    gone = missing_entry(later, entries(directory, OFFSETS), batches.last)
    if not gone:
        return []
    reason = f"a restart reads it after batch {batches.last}, and it is not there; the query cannot go on"
    return [Damage(damage.UNRESTORABLE_VERSION, directory.location.display(gone), reason)]


def _left_behind(
    directory: Directory,
    partitions: dict[int, int | None],
    stores: Collection[Store],
    known: Collection[Store],
    needed: Collection[int],
) -> list[Store]:
    """Stores in partitions that only earlier batches had, to which the query can go back; all of one is removed."""
    names = {(operator, name) for operator, _, name in stores}
    others = sorted(store for store in set(known).difference(stores) if (store[0], store[2]) in names)
    if not others:
        return []
    counts = [_partitions_in(directory, partitions, batch) for batch in needed]
    most = max((count for count in counts if count is not None), default=0)
    return [store for store in others if store[1] < most]


def _had(directory: Directory, known: dict[int, int | None], batch: int, partition: int) -> bool:
    """Whether a partition was there in a batch, as far as the offset log says."""
    count = _partitions_in(directory, known, batch)
    return count is None or partition < count


def _partitions_in(directory: Directory, known: dict[int, int | None], batch: int) -> int | None:
    """The number of partitions in a batch, which is read once."""
    if batch not in known:
        known[batch] = partitions_of(directory, batch)
    return known[batch]


def _unrestorable(directory: Directory, store: Store, first: _Key, count: int, there: _Known) -> Damage:
    """The finding for a store: what the oldest of its lost versions lacks."""
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
    return Damage(damage.UNRESTORABLE_VERSION, directory.location.display(f"{STATE}/{path}"), reason, None, path)


def _snapshots(
    directory: Directory, files: StateFiles, batches: Batches, oldest: dict[Store, int], missing: list[Damage]
) -> list[Damage]:
    """Adds the files that snapshots name and that are not there: they explain why versions cannot be restored."""
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


def _ids_of_stores(partitions: object) -> list[list[str]]:
    if not isinstance(partitions, list) or not all(isinstance(stores, list) for stores in partitions):
        raise ValueError("the ids of an operator are no arrays in an array")
    return [[str(each) for each in stores] for stores in partitions]
