"""The state that a fork needs: which files belong to its version, whether all of them are there, and how it gets them.

A fork gets the state files of all versions up to its own, and those of no version, such as RocksDB's immutable files.
Merged ones it refers to, or copies with mode ``copy``; a file that is not merged is always copied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.leftovers import leftovers
from pyspark_statestore.log.merged_log import TARGET_FILE_SIZE, LogSnapshot, MergedLog
from pyspark_statestore.log.payload import paths_of, read_segments, same_entries
from pyspark_statestore.log.restorability import Batches, Store, expected_stores
from pyspark_statestore.log.state_files import PLAIN, STATE, StateFiles
from pyspark_statestore.log.versions import versions_table
from pyspark_statestore.storage import Directory
from pyspark_statestore.storage.changes import create
from pyspark_statestore.storage.directory import in_parallel, in_parts


@dataclass(frozen=True)
class Needed:
    """The state files that a fork gets, as rows: ``segments`` are merged, ``plain`` are not."""

    segments: np.ndarray = field(repr=False)
    plain: np.ndarray = field(repr=False)


def needed_for(directory: Directory, files: StateFiles, version: int, *, is_reshaped: bool = False) -> Needed:
    """Chooses the files of the versions up to one, and those that belong to no version.

    Args:
        directory: The source's directory.
        files: The source's state files.
        version: The version that the fork begins with.
        is_reshaped: Whether the fork gets other partitions, and what batches have left that the query went back before
            would be cleared there at once: then it is not taken along. Finding it takes a look into the offset log.

    Raises:
        FileNotFoundError: A file was deleted meanwhile: scan again.
        StateStoreFilesError: A file cannot be read.
    """
    number, _ = files.stores().versions(np.arange(len(files.length)))
    wanted = np.array(pc.less_equal(number, version).fill_null(True), bool)
    if is_reshaped:
        chosen = np.flatnonzero(wanted)
        wanted[chosen[leftovers(directory, files.without(np.flatnonzero(~wanted)), version - 1)]] = False
    is_plain = files.merged == PLAIN
    return Needed(np.flatnonzero(wanted & ~is_plain), np.flatnonzero(wanted & is_plain))


def check_restorable(directory: Directory, files: StateFiles, version: int, batches: Batches) -> None:
    """Refuses a version that any store of the query could not be restored at.

    Only the newest snapshot of each store up to the version is opened, unless it turns out to be damaged.

    Args:
        directory: The source's directory.
        files: The source's state files.
        version: The version that the fork is to begin with.
        batches: The committed batches; with checkpoint format 2, with their ids.

    Raises:
        FileNotFoundError: A file was deleted meanwhile: scan again.
        StateStoreFilesError: PSS_VERSION_NOT_RESTORABLE, or a file cannot be read.
    """
    for chosen in (files.without(_rows_to_skip(files, version)), files):
        lost = _lost_stores(directory, chosen, version, batches)
        if not lost:
            return
    operator, partition, name = lost[0]
    what = f"operator {operator}, partition {partition}, store {name!r}"
    reason = "files that it needs are missing or damaged"
    raise not_restorable(directory, version, what, reason, batches.committed)


def not_restorable(
    directory: Directory, version: int, what: str, reason: str, committed: Collection[int]
) -> StateStoreFilesError:
    """The error that a version of ``what`` cannot be restored; it names the versions of the committed batches."""
    known = f"of the batches in its log, {min(committed) + 1} to {max(committed) + 1}" if committed else "none"
    parameters = {"version": version, "what": what, "path": directory.location.url, "reason": reason, "known": known}
    return StateStoreFilesError("PSS_VERSION_NOT_RESTORABLE", parameters)


def _rows_to_skip(files: StateFiles, version: int) -> np.ndarray:
    """Rows of later versions, and of all snapshots but each store's newest one up to the version."""
    stores = files.stores()
    number, _, extension = stores.version_files(np.arange(len(files.length)))
    later = np.array(pc.greater(number, version).fill_null(False), bool)
    snapshots = pa.array(["zip", "snapshot"], pa.string())
    is_snapshot = np.array(pc.is_in(extension, value_set=snapshots).fill_null(False), bool) & ~later
    rows = np.flatnonzero(is_snapshot & (stores.store >= 0))
    numbers: np.ndarray = np.asarray(number.fill_null(-1))
    newest: np.ndarray = np.full(len(stores.known) + 1, -1, "i8")
    np.maximum.at(newest, stores.store[rows], numbers[rows])
    older: np.ndarray = np.zeros(len(later), bool)
    older[rows] = numbers[rows] < newest[stores.store[rows]]
    skipped: np.ndarray = np.flatnonzero(later | older)
    return skipped


def _lost_stores(directory: Directory, files: StateFiles, version: int, batches: Batches) -> list[Store]:
    """The stores that cannot be restored at the version."""
    table = versions_table(files, directory)
    table = table.filter(pc.and_(pc.equal(table["version"], version), table["is_restorable"]))
    names = ("operator_id", "partition_id", "store_name", "state_store_checkpoint_id")
    restorable: dict[Store, set[str]] = defaultdict(set)
    for operator, partition, name, checkpoint_id in zip(*(table[each].to_pylist() for each in names), strict=True):
        restorable[operator, partition, name].add(checkpoint_id or "")
    return [
        store
        for store in expected_stores(directory, files.stores().known, version - 1)
        if not _has_committed(restorable[store], store, batches, version)
    ]


def _has_committed(ids: Collection[str], store: Store, batches: Batches, version: int) -> bool:
    """Whether the attempt that was committed is among those that can be restored."""
    operator, partition, _ = store
    by_partition = batches.ids.get(version - 1, {}).get(operator, [])
    named = by_partition[partition] if partition < len(by_partition) else []
    return any(not each or not named or each in named for each in ids)


def copy_segments(
    source: MergedLog, target: MergedLog, snapshot: LogSnapshot, rows: np.ndarray, highest_stamp: int
) -> Iterator[tuple[str, int]]:
    """Copies segments of the source into merged files of the fork, and checks each.

    Yields:
        The name and the size in bytes of each file, when it is durable.

    Raises:
        FileNotFoundError: A file of the source is gone.
        StateStoreFilesError: A segment is corrupt, or a file cannot be read or written.
    """
    entries = snapshot.scan.entries
    rows = rows[np.lexsort((entries.offset[rows], entries.origin[rows], entries.file[rows]))]
    ends: np.ndarray = np.cumsum(entries.length[rows])
    for part in np.split(rows, np.flatnonzero(np.diff(ends // TARGET_FILE_SIZE)) + 1):
        if not len(part):
            continue
        with target.new_file(snapshot) as (name, out):
            start = out.position
            for data in read_segments(source.directory, entries, part):
                out.append(data)
            offsets = start + np.cumsum(entries.length[part]) - entries.length[part]
            if out.position != start + int(entries.length[part].sum()):
                parameters = {
                    "path": target.directory.location.url,
                    "reason": "the copies do not have the length of the segments",
                }
                raise StateStoreFilesError("PSS_WRITE_FAILED", parameters)
            out.add_columns(same_entries(entries, part, offsets), paths_of(entries, part))
            out.seal(group_stamp=highest_stamp)
        yield name, out.position


def copy_plain(source: Directory, target: Directory, files: StateFiles, rows: np.ndarray) -> int:
    """Copies state files that are not merged to the same paths, and returns how many bytes they have.

    Raises:
        FileNotFoundError: A file is gone, or shorter than it was.
        StateStoreFilesError: A file cannot be read or written.
    """

    def copy(row: int) -> int:
        size = int(files.length[row])
        copy_file(source, target, f"{STATE}/{files.path[row].as_py()}", size)
        return size

    return sum(in_parallel(copy, rows.tolist()))


def copy_file(source: Directory, target: Directory, path: str, size: int) -> None:
    """Copies the first ``size`` bytes of a file to the same path, a part at a time.

    Raises:
        FileNotFoundError: It is gone, or shorter than that.
        StateStoreFilesError: It cannot be read or written.
    """
    with source.open(path, size) as file, create(target, path) as out:
        written = 0
        for data in in_parts(file, 0, size):
            out.write(data)
            written += len(data)
        if written < size:
            raise FileNotFoundError(path)
