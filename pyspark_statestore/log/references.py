"""Reference files: what says that segments of a checkpoint are in merged files that do not say so themselves.

docs/format.md says what is in such a file. A fork gets one for all that it needs of its source: pins there keep the
files. Where partitions are split, a further one gives segments second paths: then two logical paths have the same
bytes. These may also be in the checkpoint's own files, which pins of its own keep.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format import foreign_path, split_foreign_path
from pyspark_statestore.log import Entries, is_timely
from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog, Stopwatch
from pyspark_statestore.log.payload import paths_of, same_entries
from pyspark_statestore.log.pins import OWN, OWN_SUFFIX, Pin, drop_pin, write_pin
from pyspark_statestore.log.scan import MERGED
from pyspark_statestore.storage import Directory
from pyspark_statestore.storage.changes import delete

STAMP_BITS = 16
"""A stamp is a time in Unix milliseconds, shifted by so many bits (docs/format.md)."""


@dataclass(frozen=True)
class Holders:
    """The files that hold the bytes of some segments.

    Attributes:
        paths: The files as a reference file names them; also those of checkpoints that the source is a fork of.
        numbers: For each segment the number of its file in ``paths``, from 1 on.
    """

    paths: list[str]
    numbers: np.ndarray = field(repr=False)

    @classmethod
    def of(cls, entries: Entries, rows: np.ndarray, checkpoint: str) -> Holders:
        """Finds them for rows of the entries of a checkpoint, which is given as its path in the file system.

        Raises:
            StateStoreFilesError: PSS_BAD_PATH, where a reference file cannot hold the checkpoint's path.
        """
        found, numbers = _holders(entries, rows)
        return cls([path if name is None else foreign_path(checkpoint, name) for path, name in found], numbers)

    @classmethod
    def for_itself(cls, entries: Entries, rows: np.ndarray, checkpoint: str) -> Holders:
        """As :meth:`of`, for a reference file in that checkpoint itself: its own files go by their names."""
        found, numbers = _holders(entries, rows)
        paths = []
        for path, name in found:
            where, there = split_foreign_path(path)
            paths.append(name or (there if where == checkpoint else path))
        return cls(paths, numbers)

    @property
    def own(self) -> frozenset[str]:
        """Names of the checkpoint's own files among them."""
        return frozenset(path for path in self.paths if not path.startswith("/"))


def _holders(entries: Entries, rows: np.ndarray) -> tuple[list[tuple[str, str | None]], np.ndarray]:
    """The files that hold segments: paths, or names of own files; and for each segment the number of its file."""
    foreign = len(entries.foreign)
    places = np.where(entries.origin[rows] > 0, entries.origin[rows] - 1, foreign + entries.file[rows])
    used, numbers = np.unique(places, return_inverse=True)
    named: list[tuple[str, str | None]] = [
        (entries.foreign[place], None) if place < foreign else ("", entries.files[place - foreign])
        for place in used.tolist()
    ]
    return named, numbers.reshape(-1) + 1


def write_references(
    target: MergedLog,
    snapshot: LogSnapshot,
    rows: np.ndarray,
    holders: Holders,
    highest_stamp: int,
) -> str:
    """Writes a reference file, and returns its name; keys and generations stay as they are in the source.

    Args:
        target: The checkpoint that gets it.
        snapshot: The merged files of the checkpoint whose entries are repeated.
        rows: Rows of these entries.
        holders: The files that hold their bytes.
        highest_stamp: The highest stamp that any merged file of that checkpoint knows.
    """
    records = same_entries(snapshot.scan.entries, rows, snapshot.scan.entries.offset[rows])
    return _write(target, snapshot, records, paths_of(snapshot.scan.entries, rows), holders, highest_stamp)


def give_second_paths(log: MergedLog, choose: Callable[[LogSnapshot], tuple[np.ndarray, pa.StringArray]]) -> bool:
    """Gives segments second paths in the same checkpoint.

    These are new facts, with keys above all others: the paths may have been deleted before.

    A second path does not count as something that lives in the file with the segment. If that file is the checkpoint's
    own, it is pinned as a whole. An empty pin keeps everything while ``choose`` looks at what is there; the pin that
    names files replaces it; so at no time is there no pin. After a crash a pin that is not needed goes with the next
    cleaning.

    Args:
        log: The checkpoint.
        choose: Looks at the merged files, and returns rows of segments' entries, and the second path of each.

    Returns:
        Whether it was done, and not too slowly: others heed a pin that nothing seems to need for ``closedAfter``.

    Raises:
        StateStoreFilesError: A file cannot be read, written or deleted.
    """
    with _everything_pinned(log) as watch:
        snapshot = log.snapshot()
        rows, paths = choose(snapshot)
        if not len(rows):
            return True
        entries = snapshot.scan.entries
        holders = Holders.for_itself(entries, rows, log.directory.location.absolute)
        if holders.own:
            pin_own(log, holders.own)
        # Pins in other checkpoints, too, are kept by the empty one here.
        if not _is_timely(log, watch):
            return False
        records = same_entries(entries, rows, entries.offset[rows])
        first = max(log.now_ms << STAMP_BITS, snapshot.highest_stamp + 1)
        records["stamp"] = first + np.arange(len(rows))
        records["writer"] = log.writer
        records["generation"] = 0
        name = _write(log, snapshot, records, paths, holders, first + len(rows) - 1)
        if not _is_timely(log, watch):
            delete(log.directory, f"{MERGED}/{name}")
            return False
        return True


def pin_own(log: MergedLog, names: frozenset[str]) -> None:
    """Pins a checkpoint's own files: segments of theirs have second paths.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED.
    """
    write_pin(log.directory, Pin(log.next_name(OWN_SUFFIX), mode=OWN, files=names, created_ms=log.now_ms))


def replace_pin(log: MergedLog, directory: Directory, pin: Pin, names: frozenset[str]) -> None:
    """Drops a pin, after another one keeps those of its files that are still needed; at no time does none keep them.

    Args:
        log: This process's work, here or on a fork of the checkpoint.
        directory: The checkpoint with the pin.
        pin: The pin.
        names: What it has to keep.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED.
    """
    if names:
        # A listing that no longer shows the old one has the new one on a page to come.
        name = log.next_name("." + pin.name.rpartition(".")[2], pin.name)
        write_pin(directory, replace(pin, name=name, files=names, created_ms=log.now_ms))
    drop_pin(directory, pin.name)


@contextmanager
def _everything_pinned(log: MergedLog) -> Iterator[Stopwatch]:
    """Pins every file of the checkpoint, and measures for how long; others heed that for ``closedAfter`` only."""
    name = log.next_name(OWN_SUFFIX)
    watch = Stopwatch(time.monotonic, log.clock)
    write_pin(log.directory, Pin(name))
    try:
        yield watch
    finally:
        with suppress(StateStoreFilesError):
            drop_pin(log.directory, name)


def _is_timely(log: MergedLog, watch: Stopwatch) -> bool:
    return is_timely(watch.seconds, log.closed_after.total_seconds())


def _write(
    target: MergedLog,
    snapshot: LogSnapshot,
    records: np.ndarray,
    paths: pa.StringArray,
    holders: Holders,
    highest_stamp: int,
) -> str:
    records["file_ref"] = holders.numbers
    with target.new_file(snapshot) as (name, out):
        out.add_columns(records, paths)
        out.seal_references_to(holders.paths, group_stamp=highest_stamp)
    return name
