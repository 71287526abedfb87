"""Reference files: what says that segments of a checkpoint are in merged files of another one.

docs/format.md says what is in such a file. A fork gets one for all that it needs of its source, and a further one where
its partitions are split: then two logical paths have the same bytes. Pins in the other checkpoint keep the files.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pyspark_statestore.format import foreign_path
from pyspark_statestore.log.entries import Entries
from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog
from pyspark_statestore.log.payload import paths_of, same_entries

STAMP_BITS = 16
"""A stamp is a time in Unix milliseconds, shifted by so many bits (docs/format.md)."""


@dataclass(frozen=True)
class Holders:
    """The files that hold the bytes of some segments.

    Attributes:
        paths: Paths as a reference file names them; also files of checkpoints that the source is a fork of.
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
        own = len(entries.foreign)
        places = np.where(entries.origin[rows] > 0, entries.origin[rows] - 1, own + entries.file[rows])
        used, numbers = np.unique(places, return_inverse=True)
        paths = [
            entries.foreign[place] if place < own else foreign_path(checkpoint, entries.files[place - own])
            for place in used.tolist()
        ]
        return cls(paths, numbers.reshape(-1) + 1)


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


def write_second_references(log: MergedLog, snapshot: LogSnapshot, rows: np.ndarray, paths: pa.StringArray) -> str:
    """Gives segments that are elsewhere second paths in the same checkpoint, and returns the reference file's name.

    These are new facts, with keys above all others: the paths may have been deleted before.

    Args:
        log: The checkpoint.
        snapshot: Its merged files.
        rows: Rows of the segments' entries.
        paths: Their second paths, in the order of ``rows``.
    """
    holders = Holders.of(snapshot.scan.entries, rows, log.directory.location.absolute)
    records = same_entries(snapshot.scan.entries, rows, snapshot.scan.entries.offset[rows])
    first = max(log.now_ms << STAMP_BITS, snapshot.highest_stamp + 1)
    records["stamp"] = first + np.arange(len(rows))
    records["writer"] = log.writer
    records["generation"] = 0
    return _write(log, snapshot, records, paths, holders, first + len(rows) - 1)


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
