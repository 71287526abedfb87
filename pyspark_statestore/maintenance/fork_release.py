"""When a fork needs its source no more: which pins may go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format import split_foreign_path
from pyspark_statestore.log.pins import CLAIM, NO_CLAIM, Pin, drop_pin, pins_of, read_origin, read_pins
from pyspark_statestore.log.scan import MERGED, Scan, merged_files, retry_if_gone, scan
from pyspark_statestore.log.state_files import live_foreign
from pyspark_statestore.storage import Directory, FileInfo, Location
from pyspark_statestore.storage.changes import delete
from pyspark_statestore.storage.directory import in_parallel


@dataclass(frozen=True)
class ForkRelease:
    """What was released.

    Attributes:
        fork: URL of the fork.
        released_pins_count: Pins that are gone, or would be.
        broken_segments_count: Segments here that the fork still reads; more than 0 only with ``force``.
        broken_bytes_count: Of these.
        broken_files_count: Merged files that have them, and that are not protected any more.
        dry_run: Whether nothing was changed.
    """

    fork: str
    released_pins_count: int
    broken_segments_count: int
    broken_bytes_count: int
    broken_files_count: int
    dry_run: bool


def release_fork(source: Directory, fork: Location, *, dry_run: bool = False, force: bool = False) -> ForkRelease:
    """Drops a fork's pins.

    Args:
        source: The checkpoint that was forked.
        fork: The fork.
        dry_run: Whether nothing is to be changed.
        force: Whether also if the fork still reads files here.

    Raises:
        StateStoreFilesError: PSS_FORK_NEEDS, or something cannot be read or deleted.
    """
    pins = pins_of(read_pins(source), fork.absolute)
    found = _look(Directory(fork))
    entries = found.entries
    own = [n for n, p in enumerate(entries.foreign, 1) if split_foreign_path(p)[0] == source.location.absolute]
    rows = np.flatnonzero(found.resolution.live & np.isin(entries.origin, own))
    broken = len(rows), int(entries.length[rows].sum()), len(np.unique(entries.origin[rows]))
    if len(rows) and not force:
        parameters = dict(zip(("segments", "bytes", "files"), broken, strict=True))
        raise StateStoreFilesError("PSS_FORK_NEEDS", {"fork": fork.url, "path": source.location.url, **parameters})
    if not dry_run:
        for pin in pins:
            drop_pin(source, pin.name)
    return ForkRelease(fork.url, len(pins), *broken, dry_run)


def unneeded_pins(source: Directory, pins: Iterable[Pin]) -> list[Pin]:
    """Which pins are of forks that are gone, or that do not refer to this checkpoint any more.

    A fork that cannot be read counts as one that needs everything (rule 8).

    Args:
        source: The checkpoint that was forked.
        pins: Of it.
    """
    return [pin for pin in pins if pin.fork and not _is_needed(source, pin)]


def release_sources(fork: Directory, named: Collection[str]) -> list[str]:
    """In a fork whose segments were brought home: drops its pins in checkpoints that it does not need any more.

    Args:
        fork: The fork.
        named: Paths of the checkpoints that it referred to in an earlier look.

    Returns:
        Paths of the checkpoints that it is independent of now.

    Raises:
        StateStoreFilesError: Something cannot be read or deleted.
    """
    now = _look(fork)
    origin = read_origin(fork, now)
    # Its reference file may have gone by itself before: nothing that it referred to was alive any more.
    named = {*named, *([origin.source] if origin is not None and origin.mode == NO_CLAIM else [])}
    if not named:
        return []
    independent = [] if now.is_in_doubt else sorted(named - live_foreign(now).keys())
    for checkpoint in independent:
        source = Directory(fork.location.beside(checkpoint))
        for pin in pins_of(read_pins(source), fork.location.absolute):
            if pin.mode != CLAIM:  # what is owned is not given back
                drop_pin(source, pin.name)
    return independent


def _look(directory: Directory) -> Scan:
    return retry_if_gone(directory, lambda: scan(directory, headers=False))


def _is_needed(source: Directory, pin: Pin) -> bool:
    fork = Directory(source.location.beside(pin.fork))
    try:
        found = _look(fork)
    except StateStoreFilesError as error:
        return error.getErrorClass() != "PSS_NOT_A_CHECKPOINT"
    if pin.mode == CLAIM and fork.names():
        return True
    return found.is_in_doubt or any(
        split_foreign_path(path)[0] == source.location.absolute for path in found.entries.foreign
    )


# A fork that has claimed its source's files: which of them nobody reads any more.


def unneeded_claimed(fork: Directory, scan: Scan) -> list[FileInfo]:
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
    """Deletes what :func:`unneeded_claimed` has found.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED.
    """

    def remove(info: FileInfo) -> None:
        checkpoint, name = split_foreign_path(info.name)
        delete(Directory(fork.location.beside(checkpoint)), f"{MERGED}/{name}")

    in_parallel(remove, files)


def _path(checkpoint: str, name: str) -> str:
    return f"{checkpoint.rstrip('/')}/{MERGED}/{name}"
