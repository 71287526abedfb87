"""A fork that has claimed its source's files: which of them nobody reads any more."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_statestore.forks.origin import read_origin
from pyspark_statestore.forks.pins import CLAIM, read_pins
from pyspark_statestore.format import split_foreign_path
from pyspark_statestore.inspect.foreign import live_foreign
from pyspark_statestore.inspect.scan import MERGED, Scan, merged_files
from pyspark_statestore.storage import Directory, FileInfo
from pyspark_statestore.storage.changes import delete
from pyspark_statestore.storage.directory import in_parallel


def needless_claimed(fork: Directory, scan: Scan) -> list[FileInfo]:
    """Merged files that belong to the fork, lie in its source, and are read by nobody any more.

    Pins are read after the look: who begins to fork the fork later looks later, and sees that they are dead.

    Args:
        fork: The checkpoint, a fork or not.
        scan: A complete look at it.

    Returns:
        The files, by their paths in the file system.

    Raises:
        FileNotFoundError: Something was deleted meanwhile.
        StateStoreFilesError: Something cannot be listed or read.
    """
    origin = read_origin(fork, scan)
    if origin is None or origin.mode != CLAIM or scan.is_in_doubt:
        return []
    source = Directory(fork.location.beside(origin.source))
    pins = read_pins(source)
    own = [pin for pin in pins if pin.mode == CLAIM and pin.fork == fork.location.absolute]
    others = [pin for pin in pins if pin not in own]
    claimed = {name for pin in own for name in pin.files or ()} - live_foreign(scan).get(origin.source, frozenset())
    free = {name for name in claimed if not any(pin.pins(name) for pin in others)}
    infos, _ = merged_files(source)
    return [
        FileInfo(_path(origin.source, info.name), info.size, info.modified)
        for info in infos.values()
        if info.name in free
    ]


def delete_claimed(fork: Directory, files: Sequence[FileInfo]) -> None:
    """Deletes what :func:`needless_claimed` has found.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED.
    """

    def remove(info: FileInfo) -> None:
        checkpoint, name = split_foreign_path(info.name)
        delete(Directory(fork.location.beside(checkpoint)), f"{MERGED}/{name}")

    in_parallel(remove, files)


def _path(checkpoint: str, name: str) -> str:
    return f"{checkpoint.rstrip('/')}/{MERGED}/{name}"
