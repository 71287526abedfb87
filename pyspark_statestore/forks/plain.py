"""Copies state files that are not merged: those of a checkpoint that stock Spark began."""

from __future__ import annotations

import numpy as np

from pyspark_statestore.inspect.state_files import STATE, StateFiles
from pyspark_statestore.storage import Directory
from pyspark_statestore.storage.changes import create
from pyspark_statestore.storage.directory import in_parallel
from pyspark_statestore.storage.ranges import in_parts


def copy_plain(source: Directory, target: Directory, files: StateFiles, rows: np.ndarray) -> int:
    """Copies plain state files to the same paths.

    Args:
        source: The checkpoint.
        target: Of the fork.
        files: Of the source's state.
        rows: Which.

    Returns:
        How many bytes they have.

    Raises:
        FileNotFoundError: One is gone, or shorter than it was.
        StateStoreFilesError: One cannot be read or written.
    """

    def copy(row: int) -> int:
        size = int(files.length[row])
        copy_file(source, target, f"{STATE}/{files.path[row].as_py()}", size)
        return size

    return sum(in_parallel(copy, rows.tolist()))


def copy_file(source: Directory, target: Directory, path: str, size: int) -> None:
    """Copies a file of any size to the same path.

    Args:
        source: The checkpoint.
        target: Of the fork.
        path: Of the file in it.
        size: As it was listed.

    Raises:
        FileNotFoundError: It is gone, or shorter than it was.
        StateStoreFilesError: It cannot be read or written.
    """
    with source.open(path, size) as file, create(target, path) as out:
        written = 0
        for data in in_parts(file, 0, size):
            out.write(data)
            written += len(data)
        if written < size:
            raise FileNotFoundError(path)
