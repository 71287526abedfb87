"""The checkpoints below and above a directory: what ``list`` shows, and what a wrong path may have meant."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from itertools import islice

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.paths import LIST_DEPTH, SINK_LIST
from pyspark_statestore.rendering import counted
from pyspark_statestore.storage.directory import Directory

_OF_A_QUERY = frozenset(("offsets", "commits"))
"""What Spark makes in each checkpoint when its query starts."""


def is_sink(names: Collection[str]) -> bool:
    """Whether what is in a directory makes it a file sink, to which a query writes, and no checkpoint."""
    return SINK_LIST in names and not _OF_A_QUERY.issubset(names)


_UP = 6
"""Directories above one that are looked into: as many as there are between a checkpoint and its deepest file."""

_LOOKS = 100
"""Directories that are listed for a hint, at most: an error should come at once."""

_MANY = 20
"""So many checkpoints need not be counted for a hint, and so many directories not looked into for file sinks."""

_NAMED = 3
"""File sinks that a hint names."""


def checkpoints_below(
    directory: Directory,
    depth: int = LIST_DEPTH,
    *,
    refused: Callable[[str, StateStoreFilesError], object] = lambda folder, error: None,
    most: int | None = None,
) -> Iterator[str]:
    """Yields the paths of the checkpoints below a directory, in the order of their names; what is in one is left out.

    Args:
        directory: The directory.
        depth: How many directories below it to look into; 0 for it alone.
        refused: Called with each directory below it that cannot be listed, and why not. The others are listed.
        most: How many directories to list, at most.

    Raises:
        StateStoreFilesError: The directory itself cannot be listed.
    """
    listed = 0

    def look(folder: str, left: int) -> Iterator[str]:
        nonlocal listed
        if listed == most:
            return
        listed += 1
        try:
            below = directory.directories(folder)
        except StateStoreFilesError as error:
            if not folder:
                raise
            refused(folder, error)
            return
        if _OF_A_QUERY.issubset(below):
            yield folder
            return
        for name in sorted(below) if left else ():
            if not name.startswith(("_", ".")):
                yield from look(f"{folder}/{name}" if folder else name, left - 1)

    return look("", depth)


def hint(directory: Directory) -> str:
    """Says what a directory is that is no checkpoint, or where checkpoints are near it; nothing where there is none.

    Args:
        directory: The directory.
    """
    for look in (_here, _above, _below):
        with suppress(StateStoreFilesError):  # the error that this is for says more
            if near := look(directory):
                return near
    return ""


def _here(directory: Directory) -> str:
    if not is_sink(directory.names()):
        return ""
    url = shlex.quote(directory.location.url)
    commands = (f"pyspark-statestore sink {each} {url}" for each in ("files", "verify"))
    return f"a file sink has commands of its own ({'; '.join(commands)})"


def checkpoint_of(directory: Directory) -> str:
    """The URL of the checkpoint that a directory is, or in which it is; empty where it is none and in none."""
    with suppress(StateStoreFilesError):  # the error that this is for says more
        if _OF_A_QUERY.issubset(directory.names()):
            return directory.location.url
        return _next_above(directory)[0]
    return ""


def sinks_below(directory: Directory) -> str:
    """The names of the first file sinks directly in a directory; empty without one."""
    with suppress(StateStoreFilesError):  # the error that this is for says more
        names = [name for name in sorted(directory.directories()) if not name.startswith(("_", "."))][:_MANY]
        sinks = [name for name in names if is_sink(directory.names(name))]
        return ", ".join([*sinks[:_NAMED], *(["..."] if len(sinks) > _NAMED else [])])
    return ""


def _above(directory: Directory) -> str:
    url, steps = _next_above(directory)
    up = "one directory up" if steps == 1 else f"{steps} directories up"
    return f"{url} is one, {up}" if url else ""


def _next_above(directory: Directory) -> tuple[str, int]:
    """The URL of the next checkpoint above a directory, and how many directories up it is; empty without one."""
    path = directory.location.absolute
    for steps in range(1, _UP + 1):
        above = posixpath.dirname(path.rstrip("/"))
        if above in (path, "/", ""):
            break
        path = above
        there = directory.beside(path)
        if _OF_A_QUERY.issubset(there.directories()):
            return there.location.url, steps
    return "", 0


def _below(directory: Directory) -> str:
    found = len(list(islice(checkpoints_below(directory, most=_LOOKS), _MANY)))
    if not found:
        return ""
    more = "at least " if found == _MANY else ""
    are = "is" if found == 1 else "are"
    command = f"pyspark-statestore list {shlex.quote(directory.location.url)}"
    return f"{more}{counted(found, 'checkpoint')} {are} below ({command})"
