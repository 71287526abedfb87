"""Fork release: drops the pins of a fork that needs its source no more, and finds files that nobody reads any more.

A pin is the only thing that keeps a fork's files in its source from being unlinked; dropping it unlinks nothing by
itself. Pins go in three ways: :func:`release_fork` drops those of one fork by hand, ``remove_orphan_files`` those of
forks that are gone (:func:`unneeded_pins`), and a compaction with ``localize=True`` those of its own checkpoint once
its segments are home (:func:`release_sources`). In doubt a pin stays: a fork that cannot be read counts as one that
needs everything (rule 8 of docs/guarantees.md).

A pin of the checkpoint itself, whose partitions were split, is dropped by each cleaning once nothing needs it
(:func:`unneeded_own`); a query's own cleaner does the same. Both look only once the pin is older than ``closedAfter``:
by then the reference file for which it was made is there, or never will be.

A fork that has claimed its source owns the files there. :func:`unneeded_claimed` finds those that neither the fork nor
another one reads, and :func:`delete_claimed` unlinks them.

Each pin and each file is deleted on its own. A crash in the middle leaves the rest, and the next call deletes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format import split_foreign_path
from pyspark_statestore.log import Resolution, pinned, released
from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog
from pyspark_statestore.log.pins import CLAIM, NO_CLAIM, OWN, Pin, drop_pin, pins_among, pins_of, read_origin, read_pins
from pyspark_statestore.log.references import pin_own
from pyspark_statestore.log.scan import MERGED, Scan, merged_files, retry_if_gone, scan
from pyspark_statestore.log.state_files import live_foreign, second_paths
from pyspark_statestore.storage import Directory, FileInfo
from pyspark_statestore.storage.changes import delete
from pyspark_statestore.storage.directory import in_parallel


@dataclass(frozen=True)
class ForkRelease:
    """What a release dropped, or would drop.

    Attributes:
        fork: URL of the fork.
        released_pins_count: Pins that were dropped.
        broken_segments_count: Segments of this checkpoint that the fork still reads; more than 0 only with ``force``.
        broken_bytes_count: Size of these segments, in bytes.
        broken_files_count: Merged files that hold these segments and are not protected any more.
        dry_run: Whether nothing was changed.
    """

    fork: str
    released_pins_count: int
    broken_segments_count: int
    broken_bytes_count: int
    broken_files_count: int
    dry_run: bool


def release_fork(source: Directory, fork: Directory, *, dry_run: bool = False, force: bool = False) -> ForkRelease:
    """Implements :meth:`pyspark_statestore.maintenance.maintenance.Maintenance.release_fork`."""
    pins = pins_of(read_pins(source), fork.location.absolute)
    found = _scan(fork)
    entries = found.entries
    own = [n for n, p in enumerate(entries.foreign, 1) if split_foreign_path(p)[0] == source.location.absolute]
    rows = np.flatnonzero(found.resolution.live & np.isin(entries.origin, own))
    broken = len(rows), int(entries.length[rows].sum()), len(np.unique(entries.origin[rows]))
    if len(rows) and not force:
        parameters = dict(zip(("segments", "bytes", "files"), broken, strict=True))
        raise StateStoreFilesError(
            "PSS_FORK_NEEDS", {"fork": fork.location.url, "path": source.location.url, **parameters}
        )
    if not dry_run:
        for pin in pins:
            drop_pin(source, pin.name)
    return ForkRelease(fork.location.url, len(pins), *broken, dry_run)


def unneeded_pins(source: Directory, pins: Iterable[Pin]) -> list[Pin]:
    """The pins of forks that are gone, or that do not refer to this checkpoint any more."""
    return [pin for pin in pins if pin.fork and not _is_needed(source, pin)]


def unneeded_own(
    directory: Directory, snapshot: LogSnapshot, then: Resolution | None = None
) -> dict[Pin, frozenset[str]]:
    """The checkpoint's own pins that name files which no live segment of a reference file is in any more.

    Args:
        directory: The checkpoint's directory.
        snapshot: Its merged files.
        then: What will live, where that is asked.

    Returns:
        For each such pin the files that are still needed.

    Raises:
        FileNotFoundError: A pin was deleted meanwhile.
        StateStoreFilesError: One cannot be read.
    """
    if not snapshot.old_pins or snapshot.scan.is_in_doubt:
        return {}
    needed = second_paths(then or snapshot.scan.resolution, directory.location.absolute)
    pins = pins_among(directory, {name: snapshot.scan.others[name] for name in snapshot.old_pins})
    return released(pins, needed)


def release_own(log: MergedLog, snapshot: LogSnapshot) -> None:
    """Drops the checkpoint's own pins that nothing needs, and replaces those of which less is needed.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED, or a pin cannot be read.
    """
    with suppress(FileNotFoundError):  # another process drops them
        for pin, needed in unneeded_own(log.directory, snapshot).items():
            if needed:
                pin_own(log, needed)
            drop_pin(log.directory, pin.name)


def release_sources(fork: Directory, named: Collection[str]) -> list[str]:
    """Drops a fork's pins in the checkpoints that it does not need any more, after its segments were brought home.

    Args:
        fork: The fork's checkpoint.
        named: Paths of the checkpoints that it referred to in an earlier snapshot.

    Returns:
        Paths of the checkpoints that it is independent of now.

    Raises:
        StateStoreFilesError: A file cannot be read or deleted.
    """
    now = _scan(fork)
    origin = read_origin(fork, now)
    # An earlier cleaning may have unlinked the reference file, since nothing that it referred to was alive any more.
    named = {*named, *([origin.source] if origin is not None and origin.mode == NO_CLAIM else [])}
    if not named:
        return []
    independent = [] if now.is_in_doubt else sorted(named - live_foreign(now).keys())
    for checkpoint in independent:
        source = fork.beside(checkpoint)
        for pin in pins_of(read_pins(source), fork.location.absolute):
            if pin.mode != CLAIM:  # a fork keeps the files that it owns
                drop_pin(source, pin.name)
    return independent


def _scan(directory: Directory) -> Scan:
    return retry_if_gone(directory, lambda: scan(directory, headers=False, required=False))


def _is_needed(source: Directory, pin: Pin) -> bool:
    fork = source.beside(pin.fork)
    try:
        found = _scan(fork)
    except StateStoreFilesError as error:
        return error.getErrorClass() != "PSS_NOT_A_CHECKPOINT"
    if pin.mode == CLAIM and fork.names():
        return True
    return found.is_in_doubt or any(
        split_foreign_path(path)[0] == source.location.absolute for path in found.entries.foreign
    )


def unneeded_claimed(fork: Directory, scan: Scan) -> list[FileInfo]:
    """The merged files in the source of a claiming fork that neither it nor another fork reads any more.

    Pins are read after the scan: a fork of this fork that is begun later scans later, and sees these files as dead.

    Args:
        fork: The checkpoint, a fork or not.
        scan: A complete scan of it.

    Returns:
        The files, by their paths in the file system.

    Raises:
        FileNotFoundError: A file was deleted meanwhile: scan again.
        StateStoreFilesError: A file cannot be listed or read.
    """
    origin = read_origin(fork, scan)
    if origin is None or origin.mode != CLAIM or scan.is_in_doubt:
        return []
    source = fork.beside(origin.source)
    pins = read_pins(source)
    own = [pin for pin in pins if pin.mode == CLAIM and pin.fork == fork.location.absolute]
    # What the source needed itself, it does not need any more.
    others = [pin for pin in pins if pin not in own and pin.mode != OWN]
    claimed = {name for pin in own for name in pin.files or ()} - live_foreign(scan).get(origin.source, frozenset())
    free = claimed.difference(pinned(claimed, {pin.name: pin for pin in others}, expired=()))
    infos, _ = merged_files(source)
    return [
        FileInfo(_path(origin.source, info.name), info.size, info.modified)
        for info in infos.values()
        if info.name in free
    ]


def delete_claimed(fork: Directory, files: Sequence[FileInfo]) -> None:
    """Deletes the files that :func:`unneeded_claimed` has found.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED.
    """

    def remove(info: FileInfo) -> None:
        checkpoint, name = split_foreign_path(info.name)
        delete(fork.beside(checkpoint), f"{MERGED}/{name}")

    in_parallel(remove, files)


def _path(checkpoint: str, name: str) -> str:
    return f"{checkpoint.rstrip('/')}/{MERGED}/{name}"
