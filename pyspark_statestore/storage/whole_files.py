"""Files that are there as a whole or not at all, whoever dies while they are written."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark_statestore.storage import disk
from pyspark_statestore.storage.changes import create, delete
from pyspark_statestore.storage.directory import Directory
from pyspark_statestore.storage.failures import errors_of
from pyspark_statestore.storage.inside import require_inside

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.TID\d+)?\.tmp")
"""``CheckpointFileManager.generateTempPath``, for all managers that rename. The parent directory is the target's."""


def is_temporary(name: str) -> bool:
    """Whether a file of this name is one that gets another when it is whole: Spark's, or of :func:`publish`."""
    return _TEMPORARY.fullmatch(name) is not None


@contextmanager
def publish(directory: Directory, relative: str, *, is_new: bool = False) -> Iterator[Any]:
    """Writes a file that appears under its name when the block ends, durably; what was there before is replaced.

    Where renaming does not replace, as on HDFS, there is no file at all for a moment.

    Args:
        directory: Of the checkpoint.
        relative: Path in it.
        is_new: Whether no file ever had that name, so that nothing has to be taken away.

    Yields:
        A binary file to write to.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED. What the block itself raises is passed on.
    """
    require_inside(directory, relative)
    if not is_new:
        forget_checksum(directory, relative)
    if directory.is_flat:
        with create(directory, relative) as out:
            yield out
        return
    folder, slash, name = relative.rpartition("/")
    # As Spark names its own: what a crash leaves is found by who removes orphans.
    temporary = f"{folder}{slash}.{name}.{uuid.uuid4()}.tmp"
    with create(directory, temporary) as out:
        yield out
    if not is_new and not directory.is_local:
        delete(directory, relative)
    _rename(directory, temporary, relative)


def overwrite(directory: Directory, relative: str, data: bytes) -> None:
    """Gives a file new contents, without a moment in which there is no such file.

    On HDFS there may be a moment in which it is empty or cut off.

    Args:
        directory: Of the checkpoint.
        relative: Path in it.
        data: All that is to be in it.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED.
    """
    if directory.is_local:
        with publish(directory, relative) as out:
            out.write(data)
        return
    fs, path = directory.location.fs, directory.location.below(relative)
    # Not create(): that takes away what it could not finish.
    with errors_of("write", directory.location.display(relative), "PSS_WRITE_FAILED"), fs.open(path, "wb") as file:
        file.write(data)


def forget_checksum(directory: Directory, relative: str) -> None:
    """Deletes the checksum file that Hadoop keeps beside a file on a local disk: the next bytes will be others.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED.
    """
    if directory.is_local:
        delete(directory, hadoop_checksum_of(relative))


def hadoop_checksum_of(path: str) -> str:
    """The checksum file that Hadoop keeps beside a file on a local disk."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


def _rename(directory: Directory, source: str, target: str) -> None:
    location = directory.location
    try:
        with errors_of("write", location.display(target), "PSS_WRITE_FAILED"):
            if directory.is_local and location.fs.isdir(location.below(target)):
                raise IsADirectoryError("there is a directory of this name")  # moving would put the file into it
            location.fs.mv(location.below(source), location.below(target))
            if directory.is_local:
                disk.keep_names(location.below(target).rpartition("/")[0])
    except Exception:
        delete(directory, source)
        raise
