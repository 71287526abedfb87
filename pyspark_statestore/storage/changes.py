"""Writing and deleting below one checkpoint."""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark_statestore.storage import changes
from pyspark_statestore.storage.directory import Directory, errors_of, require_inside


@contextmanager
def create(directory: Directory, relative: str) -> Iterator[Any]:
    """Creates a file; it is durable when the block ends. What fails leaves no file, or one that was cut off.

    Args:
        directory: Of the checkpoint.
        relative: Path in it; its parents are made.

    Yields:
        A binary file to write to.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION, PSS_WRITE_FAILED, or PSS_BAD_PATH where a symbolic link leads out of
            the checkpoint. What the block itself raises is passed on.
    """
    require_inside(directory, relative)
    fs, path = directory.location.fs, directory.location.below(relative)
    with _errors("write", directory, relative):
        _make_directory(directory, path.rpartition("/")[0])
        file = fs.open(path, "wb")
    try:
        yield _Sink(file, directory, relative)
    except BaseException:
        _discard(file)
        with suppress(Exception):
            fs.rm_file(path)
        raise
    try:
        with _errors("write", directory, relative):
            file.close()
            if directory.is_local:
                changes.keep(path)
    except BaseException:
        with suppress(Exception):
            fs.rm_file(path)
        raise


def write(directory: Directory, relative: str, data: bytes) -> None:
    """Creates a small file.

    Raises:
        StateStoreFilesError: As :func:`create`.
    """
    with create(directory, relative) as out:
        if data:
            out.write(data)


def make_directory(directory: Directory, relative: str) -> None:
    """Creates a directory and its parents, where the file system has any.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION, PSS_WRITE_FAILED or PSS_BAD_PATH.
    """
    require_inside(directory, relative)
    with _errors("write", directory, relative):
        _make_directory(directory, directory.location.below(relative))


def delete(directory: Directory, relative: str) -> bool:
    """Deletes a file.

    Returns:
        Whether it was there; where a file system does not tell, it was.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION, PSS_WRITE_FAILED or PSS_BAD_PATH.
    """
    # A link itself may be deleted, but not what is in a directory that it stands for.
    require_inside(directory, relative.rpartition("/")[0])
    try:
        with _errors("delete", directory, relative):
            directory.location.fs.rm_file(directory.location.below(relative))
    except FileNotFoundError:
        return False
    return True


def _make_directory(directory: Directory, path: str) -> None:
    changed = list(changes.above(path)) if directory.is_local else []
    directory.location.fs.makedirs(path, exist_ok=True)
    for parent in changed:
        changes.keep_names(parent)


class _Sink:
    """The errors of a file system while it is written to are told apart from those of whoever writes."""

    def __init__(self, file: Any, directory: Directory, relative: str) -> None:
        self._file = file
        self._directory = directory
        self._relative = relative

    def write(self, data: bytes, /) -> None:
        with _errors("write", self._directory, self._relative):
            self._file.write(data)


def _discard(file: Any) -> None:
    """Object stores keep what was sent so far when a file is closed, unless they are told not to."""
    with suppress(Exception):
        getattr(file, "discard", file.close)()
    with suppress(Exception):
        # fsspec's buffered files would send the rest when they are collected.
        file.closed = True
    with suppress(Exception):
        file.close()


def _errors(action: str, directory: Directory, relative: str) -> AbstractContextManager[None]:
    return errors_of(action, directory.location.display(relative), "PSS_WRITE_FAILED")


# Files that are there as a whole or not at all, whoever dies while they are written.

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
                changes.keep_names(location.below(target).rpartition("/")[0])
    except Exception:
        delete(directory, source)
        raise


# What makes a local disk, or one that is mounted like one, keep what was written when the power fails.

_NOT_FOR_DIRECTORIES = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}
"""Some file systems that are mounted, such as those over object stores, keep directories by themselves."""


def keep(path: str) -> None:
    """Returns when a file and its name are on the disk.

    Args:
        path: Of a file that was closed.

    Raises:
        OSError: It cannot be said that they are.
    """
    _sync(path)
    keep_names(os.path.dirname(path))


def keep_names(directory: str) -> None:
    """Returns when it is on the disk which files a directory has.

    Args:
        directory: Its path.

    Raises:
        OSError: It cannot be said that it is.
    """
    try:
        _sync(directory)
    except OSError as error:
        if error.errno not in _NOT_FOR_DIRECTORIES:
            raise


def above(directory: str) -> Iterator[str]:
    """The directories that will get a new name in them when this one and its missing parents are made."""
    path = Path(directory)
    while not path.exists() and path != path.parent:
        path = path.parent
        yield str(path)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
