"""Writing and deleting below one checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from pyspark_statestore.storage import disk
from pyspark_statestore.storage.directory import Directory
from pyspark_statestore.storage.failures import errors_of
from pyspark_statestore.storage.inside import require_inside


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
                disk.keep(path)
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
    changed = list(disk.above(path)) if directory.is_local else []
    directory.location.fs.makedirs(path, exist_ok=True)
    for parent in changed:
        disk.keep_names(parent)


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
