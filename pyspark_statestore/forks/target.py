"""Where a fork is made: nothing may be there, and nothing is when it could not be made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.inspect.scan import MERGED
from pyspark_statestore.maintenance.site import Site
from pyspark_statestore.storage import Directory, Location
from pyspark_statestore.storage.changes import delete


def check_target(source: Location, target: Location, *, needs_same_file_system: bool) -> None:
    """Refuses a place where a fork cannot be.

    Args:
        source: Of the checkpoint that is forked.
        target: Where the fork is to be.
        needs_same_file_system: Whether it is to read the state where it is.

    Raises:
        StateStoreFilesError: PSS_OTHER_FILE_SYSTEM, PSS_BAD_PATH, PSS_NOT_EMPTY, or it cannot be listed.
    """
    is_shared = source.shares_file_system(target)
    if needs_same_file_system and not is_shared:
        raise StateStoreFilesError("PSS_OTHER_FILE_SYSTEM", {"fork": target.url, "path": source.url})
    inside = f"{target.absolute}/".startswith(f"{source.absolute}/")
    around = f"{source.absolute}/".startswith(f"{target.absolute}/")
    if is_shared and (inside or around):
        reason = f"it is the checkpoint that is forked, or in it, or around it ({source.url})"
        raise StateStoreFilesError("PSS_BAD_PATH", {"path": target.url, "reason": reason})
    names = sorted(Directory(target).names())
    if names:
        raise StateStoreFilesError("PSS_NOT_EMPTY", {"path": target.url, "found": ", ".join(names[:5])})


@contextmanager
def taken_back(there: Site) -> Iterator[Site]:
    """The fork's directory, in which nothing was; if it fails to be made, nothing is in it again."""
    try:
        yield there
    except BaseException:
        with suppress(Exception):
            _remove_all(there)
        raise


def _remove_all(there: Site) -> None:
    directory = there.directory
    merged = there.directory.names(MERGED)
    if any(f"-{there.writer:016x}-" not in name for name in merged):
        return  # somebody else is making a fork in the same place
    for name in directory.names():
        files = [f"{name}/{info.name}" for info in directory.find(name)]
        for path in files or [name]:
            with suppress(Exception):
                delete(directory, path)
        with suppress(Exception):  # what is left of it is empty directories
            directory.location.fs.rm(directory.location.below(name), recursive=True)
