"""Fork release: drops the pins of a fork that needs its source no more, and finds files that nobody reads any more.

A pin is the only thing that keeps a fork's files in its source from being unlinked; dropping it unlinks nothing by
itself. Pins go in four ways: :func:`release_fork` drops those of one fork by hand; ``remove_orphan_files`` those of
forks that need nothing, or have been away for long (:func:`standing_of`); each cleaning of a fork lets go of the files
in which nothing of it lives any more (:func:`let_go`); and a compaction with ``localize=True`` does the same once its
segments are home (:func:`release_sources`). In doubt a pin stays: a fork that cannot be read counts as one that needs
everything (rule 8 of docs/guarantees.md).

Which fork a pin belongs to, and what the fork needs here, is told by names that nobody else gives: the fork's id, and
those of merged files. Paths differ where a link or another mount leads to the same files.

A pin of the checkpoint itself, whose partitions were split, is dropped by each cleaning once nothing needs it
(:func:`unneeded_own`); a query's own cleaner does the same. Both look only once the pin is older than ``closedAfter``:
by then the reference file for which it was made is there, or never will be.

A fork that has claimed its source owns the files there. :func:`unneeded_claimed` finds those that neither the fork nor
another one reads, and :func:`delete_claimed` unlinks them.

Each pin and each file is deleted on its own. A crash in the middle leaves the rest, and the next call deletes it.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format import foreign_path, split_foreign_path
from pyspark_statestore.log import Resolution, pinned, released
from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog
from pyspark_statestore.log.pins import (
    CLAIM,
    NO_CLAIM,
    ORIGIN_SUFFIX,
    OWN,
    Origin,
    Pin,
    away_note,
    drop_pin,
    pins_among,
    pins_of,
    read_origin,
    read_pins,
)
from pyspark_statestore.log.references import replace_pin
from pyspark_statestore.log.scan import MERGED, Scan, check_checkpoint, merged_files, retry_if_gone, scan
from pyspark_statestore.log.state_files import by_checkpoint, live_foreign, second_paths
from pyspark_statestore.storage import Directory, FileInfo
from pyspark_statestore.storage.changes import delete
from pyspark_statestore.storage.directory import in_parallel

_log = logging.getLogger(__name__)


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
    known = read_pins(source)
    if not known:
        check_checkpoint(source)
    found, origin = _look_at(fork)
    pins = pins_of(known, fork, origin)
    entries = found.entries
    here = {name for pin in pins for name in pin.files or ()}.union(merged_files(source)[0])
    theirs = _in_source(source, entries.foreign, here)
    own = [number for number, path in enumerate(entries.foreign, 1) if path in theirs]
    rows = np.flatnonzero(found.resolution.live & np.isin(entries.origin, own))
    broken = len(rows), int(entries.length[rows].sum()), len(np.unique(entries.origin[rows]))
    if len(rows) and not force:
        parameters = dict(zip(("segments", "bytes", "files"), broken, strict=True))
        raise StateStoreFilesError(
            "PSS_FORK_NEEDS", {"fork": fork.location.url, "path": source.location.url, **parameters}
        )
    if found.is_in_doubt and pins and not force:
        reason = (
            "it has bytes that no readable group accounts for, so nobody can tell what it needs of the checkpoint that "
            "it was forked from. verify says where they are; force=True (--force) releases it all the same"
        )
        raise StateStoreFilesError("PSS_READ_FAILED", {"action": "read", "path": fork.location.url, "reason": reason})
    if not dry_run:
        for pin in pins:
            drop_with_note(source, pin.name)
    return ForkRelease(fork.location.url, len(pins), *broken, dry_run)


def drop_with_note(source: Directory, name: str) -> None:
    """Drops a fork's pin, and then what says that the fork was away.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED.
    """
    drop_pin(source, name)
    delete(source, f"{MERGED}/{away_note(name)}")


def standing_of(source: Directory, pin: Pin) -> bool | None:
    """Whether the fork of a pin needs something here, or may; None where it is not there.

    Args:
        source: The checkpoint with the pin.
        pin: A pin of a fork.
    """
    standings = {_standing_at(source, pin, path) for path in _places(source, pin)}
    return True if True in standings else False if False in standings else None


def _places(source: Directory, pin: Pin) -> list[str]:
    """Where the fork may be: where it was, as it was called then, and seen from here."""
    beside = [posixpath.normpath(f"{source.location.absolute}/{pin.relative}")] if pin.relative else []
    return list(dict.fromkeys([pin.fork, *beside]))


def _standing_at(source: Directory, pin: Pin, path: str) -> bool | None:
    fork = source.beside(path)
    try:
        is_anything = bool(fork.names())
        found, origin = _look_at(fork)
    except StateStoreFilesError:
        return True
    if not is_anything:
        return None
    needed = pin.files or frozenset()
    # Names are enough: that the fork calls this checkpoint by another path says nothing.
    if pin.mode == CLAIM or found.is_in_doubt or _in_source(source, found.entries.foreign, needed):
        return True
    # A checkpoint that is no fork, or another one, may be there for as long as the fork is elsewhere.
    return False if origin is not None and origin.fork_id == pin.fork_id else None


def _in_source(source: Directory, paths: Iterable[str], names: Collection[str]) -> set[str]:
    """Those of the paths in a reference file that mean files of this checkpoint: by path, or by name, which is unique.

    A copy of the checkpoint has the same names. Where both are in question, both count.
    """
    found: set[str] = set()
    for checkpoint, there in by_checkpoint(paths).items():
        mine = there if source.location.is_at(checkpoint) else there.intersection(names)
        found.update(foreign_path(checkpoint, name) for name in mine)
    return found


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
            replace_pin(log, log.directory, pin, needed)


def let_go(log: MergedLog, snapshot: LogSnapshot) -> None:
    """Lets go of the files of other checkpoints in which nothing of this one lives any more, as each cleaning does.

    Where a pin cannot be replaced it stays, and keeps more than it has to: who cleans a fork may have no right to write
    to the checkpoint that it was forked from.

    Args:
        log: This process's work on the checkpoint, a fork or not.
        snapshot: A complete look at it.
    """
    try:
        _let_go(log, snapshot, ())
    except (StateStoreFilesError, FileNotFoundError) as error:
        _log.warning(
            "The pins of the fork %s stay as they are: %s What to do: run pyspark-statestore orphans where it was "
            "forked from once the fork needs nothing, which drops them",
            log.directory.location.url,
            error,
        )


def release_sources(log: MergedLog, named: Collection[str]) -> list[str]:
    """Lets go of what a fork does not need any more in other checkpoints, after its segments were brought home.

    Args:
        log: This process's work on the fork.
        named: Paths of the checkpoints that it referred to in an earlier snapshot.

    Returns:
        Paths of the checkpoints that it is independent of now.

    Raises:
        StateStoreFilesError: A file cannot be read, written or deleted.
    """
    return retry_if_gone(log.directory, lambda: _let_go(log, log.snapshot(), named))


def _let_go(log: MergedLog, snapshot: LogSnapshot, named: Collection[str]) -> list[str]:
    """Replaces the fork's pins by ones that name only what lives, and returns what it is independent of.

    What is dead in the snapshot stays dead (rules 3 to 5), unless somebody has looked before and gives it a second path
    now: then there is an empty pin, in a listing that is younger than the snapshot.
    """
    fork, scan = log.directory, snapshot.scan
    if not (named or scan.entries.foreign or any(name.endswith(ORIGIN_SUFFIX) for name in scan.others)):
        return []
    origin = read_origin(fork, scan)
    # An earlier cleaning may have unlinked the reference file, since nothing that it referred to was alive any more.
    sources = {*named, *by_checkpoint(scan.entries.foreign)} - {scan.checkpoint}
    sources |= {origin.source} if origin is not None and origin.mode == NO_CLAIM else set()
    if not sources or scan.is_in_doubt:
        return []
    if any(pin.files is None and pin.name not in snapshot.expired for pin in read_pins(fork)):
        return []
    live = live_foreign(scan)
    # Two paths may lead to the same checkpoint. Names of files are unique.
    needed: set[str] = set().union(*live.values())
    for checkpoint in sorted(sources):
        source = fork.beside(checkpoint)
        beside = merged_files(source)[1]
        pins = pins_of(pins_among(source, beside), fork, origin)
        for pin in pins:
            if away_note(pin.name) in beside:
                delete(source, f"{MERGED}/{away_note(pin.name)}")
        # A fork keeps the files that it owns.
        for pin, still in released([pin for pin in pins if pin.mode == NO_CLAIM], needed).items():
            replace_pin(log, source, pin, still)
    return sorted(sources - live.keys())


def _look_at(fork: Directory) -> tuple[Scan, Origin | None]:
    """What a fork refers to, and what it says of itself. One whose state was exported may go back to merged files."""

    def look() -> tuple[Scan, Origin | None]:
        found = scan(fork, headers=False, required=False, retired=True)
        return found, read_origin(fork, found)

    return retry_if_gone(fork, look)


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
    own = [pin for pin in pins_of(pins, fork, origin) if pin.mode == CLAIM]
    # What the source needed itself, it does not need any more.
    others = [pin for pin in pins if pin not in own and pin.mode != OWN]
    claimed = {name for pin in own for name in pin.files or ()}.difference(*live_foreign(scan).values())
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
