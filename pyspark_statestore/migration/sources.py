"""What a version is restored from, in every partition of every store: the sources of a reshape, and what it has made.

A reshape takes rows out of all old partitions and is done when all new ones have them. So all of its sources are looked
up before it enters anything in the query's logs or deletes anything, and what it has written is looked up in the same
way before it is committed. Nothing that is cleared may be one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format import split_foreign_path
from pyspark_statestore.log.deletion import delete_files
from pyspark_statestore.log.leftovers import leftovers
from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog
from pyspark_statestore.log.restart import not_restorable
from pyspark_statestore.log.restorability import Batches, Store, batch_with_ids, expected_stores, restorable_rows
from pyspark_statestore.log.scan import MERGED
from pyspark_statestore.log.state_files import STATE, StateFiles, plain_files, store_folder
from pyspark_statestore.log.versions import Restores
from pyspark_statestore.sparkfiles import files_named
from pyspark_statestore.storage.directory import Directory

EXTENSIONS = {
    "rocksdb": ("zip", "zip.crc", "changelog", "changelog.crc"),
    "heap": ("snapshot", "snapshot.crc", "delta", "delta.crc"),
}
"""How the files of a store's versions end."""


@dataclass(frozen=True)
class Source:
    """What restores one partition of one store.

    Attributes:
        snapshot: Row of the snapshot that a restore begins with; None where it begins with the empty state.
        rows: Rows of all files that a restore reads: that one, what it names, the changelogs after it; and checksums.
    """

    snapshot: int | None
    rows: np.ndarray = field(repr=False)


@dataclass(frozen=True)
class Sources:
    """What restores a version of all partitions.

    Attributes:
        snapshot: The checkpoint's merged files.
        files: Its state files, without those of another store.
        version: The version.
        of: Each partition of each store.
    """

    snapshot: LogSnapshot = field(repr=False)
    files: StateFiles = field(repr=False)
    version: int
    of: Mapping[Store, Source] = field(repr=False)
    _at: np.ndarray = field(repr=False)

    @classmethod
    def found(
        cls,
        log: MergedLog,
        snapshot: LogSnapshot,
        batch: int,
        store: str,
        ids: Mapping[int, list[list[str]]] | None = None,
        wanted: Collection[Store] | None = None,
    ) -> Sources:
        """Accounts for all partitions that the query's stores have after a batch.

        With checkpoint format 2, an attempt counts only if it was committed: there may be others of the same version.

        Args:
            log: The checkpoint's log.
            snapshot: Its merged files.
            batch: The batch.
            store: What keeps the state: ``rocksdb`` or ``heap``. Files of the other one say nothing.
            ids: The ids that the batch is to be committed with, as the commit log has them; what it says if not given.
            wanted: Other stores' partitions than the query has after the batch.

        Raises:
            FileNotFoundError: A file was deleted meanwhile: look again.
            StateStoreFilesError: PSS_VERSION_NOT_RESTORABLE where a partition cannot be restored; or a file cannot be
                read.
        """
        directory = log.directory
        files = StateFiles.of(snapshot.scan, plain_files(directory, snapshot.scan))
        stores = files.stores()
        extension = stores.version_files(np.arange(len(files.length)))[2]
        others = [each for name, ends in EXTENSIONS.items() if name != store for each in ends]
        is_other = np.array(pc.is_in(extension, value_set=pa.array(others)), bool) & (stores.store >= 0)
        files, at = files.without(np.flatnonzero(is_other)), np.flatnonzero(~is_other)
        batches = Batches((batch,), {batch: dict(ids or {})})
        if ids is None:
            batches = batch_with_ids(directory, files, batch)
        restores = Restores.of(files, directory)
        rows = restorable_rows(restores, batch + 1, batches)
        if wanted is None:
            wanted = expected_stores(directory, restores.stores.known, batch)
        lost = [each for each in wanted if each not in rows]
        if lost:
            raise _lost(directory, files, batch, lost)
        return cls(snapshot, files, batch + 1, _read_by(directory, restores, {each: rows[each] for each in wanted}), at)

    def clear(self, log: MergedLog, batch: int, look_again: Callable[[], None]) -> int:
        """Deletes what no batch up to this one accounts for, and returns how many files that were.

        Args:
            log: The checkpoint's log.
            batch: The batch.
            look_again: Raises an error if the query has gone on; called right before anything is deleted.

        Raises:
            FileNotFoundError: A file was deleted meanwhile: look again.
            StateStoreFilesError: A file cannot be read, written or deleted; or what ``look_again`` raises.
        """
        plain = plain_files(log.directory, self.snapshot.scan)
        files = StateFiles.of(self.snapshot.scan, plain)
        rows = leftovers(log.directory, files, batch)
        if len(rows):
            needed = set(self.files.path.take(pa.array(self.rows)).to_pylist())
            gone = files.path.take(pa.array(rows)).to_pylist()
            assert needed.isdisjoint(gone), "a source is of a batch"
            look_again()
            delete_files(log, self.snapshot, files, rows)
        return len(rows)

    @property
    def rows(self) -> np.ndarray:
        """Rows of all files that are read."""
        found: np.ndarray = np.concatenate([np.zeros(0, "i8"), *(each.rows for each in self.of.values())])
        return found

    def entry_rows(self, rows: np.ndarray) -> np.ndarray:
        """The rows of the entries of files that are segments, in the merged files' entries."""
        found: np.ndarray = StateFiles.entry_rows(self.snapshot.scan)[self._at[rows]]
        return found

    def places(self, here: str, stores: Collection[Store]) -> list[list[tuple[str, str, int, int]]]:
        """Where the bytes of each store's files are: name, holder, offset, length; in the order of the stores.

        Args:
            here: The checkpoint's path in its file system. A second path has an own file's path where the first one
                has its name.
            stores: The stores.
        """
        found = []
        for store in stores:
            rows = self.of[store].rows
            folder = store_folder(store)
            names = [path.removeprefix(f"{folder}/") for path in self.files.path.take(pa.array(rows)).to_pylist()]
            holders = [self._holder(row, here) for row in rows.tolist()]
            numbers = (self.files.offset[rows].tolist(), self.files.length[rows].tolist())
            found.append(sorted(zip(names, holders, *numbers, strict=True)))
        return found

    def _holder(self, row: int, here: str) -> str:
        holder = self.files.holder(row)
        if not self.files.origin[row]:
            return holder
        where, name = split_foreign_path(holder)
        return f"{MERGED}/{name}" if where == here else holder


def _read_by(directory: Directory, restores: Restores, rows: Mapping[Store, int]) -> dict[Store, Source]:
    """All files that restoring these versions reads."""
    files = restores.files
    steps = {store: restores.steps(row) for store, row in rows.items()}
    paths: dict[Store, list[str]] = {}
    for store, (snapshot, changes) in steps.items():
        read = [*changes] if snapshot is None else [snapshot, *changes]
        paths[store] = files.path.take(pa.array(read, pa.int64())).to_pylist()
    zips = {s: step for s, (step, _) in steps.items() if step is not None and paths[s][0].endswith(".zip")}
    named = files.read(directory, np.array(list(zips.values()), "i8"), lambda data: files_named(data or b"") or {})
    for store, names in zip(zips, named, strict=True):
        paths[store] += [f"{store_folder(store)}/{name}" for name in names]
    wanted = [(store, path) for store, each in paths.items() for one in each for path in (one, f"{one}.crc")]
    at = pc.index_in(pa.array([path for _, path in wanted], pa.string()), value_set=files.path).fill_null(-1)
    found: dict[Store, list[int]] = {store: [] for store in paths}
    for (store, _), row in zip(wanted, at.to_pylist(), strict=True):
        if row >= 0:
            found[store].append(row)
    return {store: Source(steps[store][0], np.array(each, "i8")) for store, each in found.items()}


def _lost(directory: Directory, files: StateFiles, batch: int, lost: list[Store]) -> StateStoreFilesError:
    reason = "files that it needs are missing or damaged, or are of attempts that were not committed"
    if len(lost) > 1:
        reason += f"; so it is with {len(lost)} partitions of stores"
    what = f"the state ({STATE}/{store_folder(lost[0])})"
    return not_restorable(directory, files, batch + 1, what, reason)
