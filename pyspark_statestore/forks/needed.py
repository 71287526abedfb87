"""The state that a fork needs: which files belong to its version, whether all of them are there, and how it gets them.

A fork gets the state files of all versions up to its own, and those of no version, such as RocksDB's immutable files.
Merged ones it refers to, or copies with mode ``copy``; a file that is not merged is always copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow.compute as pc

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.leftovers import leftovers
from pyspark_statestore.log.merged_log import TARGET_FILE_SIZE, LogSnapshot, MergedLog
from pyspark_statestore.log.payload import paths_of, read_segments, same_entries
from pyspark_statestore.log.state_files import PLAIN, STATE, StateFiles
from pyspark_statestore.storage import Directory
from pyspark_statestore.storage.changes import create
from pyspark_statestore.storage.directory import in_parallel, in_parts


@dataclass(frozen=True)
class Needed:
    """The state files that a fork gets, as rows: ``segments`` are merged, ``plain`` are not."""

    segments: np.ndarray = field(repr=False)
    plain: np.ndarray = field(repr=False)


def needed_for(
    directory: Directory, files: StateFiles, version: int, gone: np.ndarray, *, is_reshaped: bool = False
) -> Needed:
    """Chooses the files of the versions up to one, and those that belong to no version.

    Args:
        directory: The source's directory.
        files: The source's state files.
        version: The version that the fork begins with.
        gone: Rows of files that are not there, which the version can do without.
        is_reshaped: Whether the fork gets other partitions, and what batches have left that the query went back before
            would be cleared there at once: then it is not taken along. Finding it takes a look into the offset log.

    Raises:
        FileNotFoundError: A file was deleted meanwhile: scan again.
        StateStoreFilesError: A file cannot be read.
    """
    number, _ = files.stores().versions(np.arange(len(files.length)))
    wanted = np.array(pc.less_equal(number, version).fill_null(True), bool)
    wanted[gone] = False
    if is_reshaped:
        chosen = np.flatnonzero(wanted)
        wanted[chosen[leftovers(directory, files.without(np.flatnonzero(~wanted)), version - 1)]] = False
    is_plain = files.merged == PLAIN
    return Needed(np.flatnonzero(wanted & ~is_plain), np.flatnonzero(wanted & is_plain))


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
