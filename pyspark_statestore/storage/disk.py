"""What makes a local disk, or one that is mounted like one, keep what was written when the power fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

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
