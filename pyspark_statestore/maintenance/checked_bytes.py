"""Reads segments of merged files and compares their checksums, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format.checksum import crc32c
from pyspark_statestore.index import Entries
from pyspark_statestore.inspect.scan import holder
from pyspark_statestore.storage.directory import Directory, OpenFile
from pyspark_statestore.storage.ranges import in_parts, requests

_PART = 64 << 20
"""Bytes in one piece of work, so that the segments of one large file are read in several places."""


@dataclass(frozen=True)
class Part:
    """Some segments of one merged file, in the order of their offsets.

    Attributes:
        path: Of the file, as :class:`~pyspark_statestore.storage.Directory` takes it.
        size: Of the file, as listed; of one of another checkpoint, as far as the segments reach.
        row: Of each segment, in the entries.
        offset: In the file.
        length: In bytes.
        crc32c: That they should have.
    """

    path: str
    size: int
    row: np.ndarray = field(repr=False)
    offset: np.ndarray = field(repr=False)
    length: np.ndarray = field(repr=False)
    crc32c: np.ndarray = field(repr=False)

    @property
    def total(self) -> int:
        """Bytes of the segments."""
        return int(self.length.sum())

    @property
    def is_foreign(self) -> bool:
        """Whether the file is another checkpoint's."""
        return self.path.startswith("/")


@dataclass(frozen=True)
class Checked:
    """What was found in a part.

    Attributes:
        bad: Rows of segments whose bytes are others.
        unread: Rows of segments that could not be read.
        gone: Whether that is because the file does not exist any more.
        error: Why else.
        read_bytes: How many bytes were read.
    """

    bad: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()
    gone: bool = False
    error: StateStoreFilesError | None = None
    read_bytes: int = 0


def parts_of(entries: Entries, rows: np.ndarray, sizes: dict[str, int]) -> list[Part]:
    """Divides segments into pieces of work of about the same size.

    Args:
        entries: Of all files.
        rows: Of the segments.
        sizes: Of the files, by name.
    """
    order = rows[np.lexsort((entries.offset[rows], entries.origin[rows], entries.file[rows]))]
    if not len(order):
        return []
    ends: np.ndarray = np.cumsum(entries.length[order])
    # A piece ends with its file, or where so many bytes are full.
    new_file = (np.diff(entries.file[order]) != 0) | (np.diff(entries.origin[order]) != 0)
    starts: np.ndarray = np.flatnonzero(new_file | (np.diff(ends // _PART) != 0)) + 1
    parts = []
    for piece in np.split(order, starts):
        file, origin = int(entries.file[piece[0]]), int(entries.origin[piece[0]])
        columns = (entries.offset[piece], entries.length[piece], entries.crc32c[piece])
        size = int((columns[0] + columns[1]).max()) if origin else sizes[entries.files[file]]
        parts.append(Part(holder(entries, file, origin), size, piece, *columns))
    return parts


def check_part(directory: Directory, part: Part, told: Callable[[int], object] = lambda read: None) -> Checked:
    """Reads all segments of a part. What goes wrong is an answer: the others have to be read all the same.

    Args:
        directory: Of the checkpoint.
        part: What to read.
        told: How many bytes of segments were read, again and again.
    """
    bad: list[int] = []
    done = read = 0
    try:
        with directory.open(part.path, part.size) as file:
            for first, end in pairwise(requests(part.offset, part.length)):
                bad += _bad(file, part, first, end)
                length = int(part.length[first:end].sum())
                read += length
                done = end
                told(length)
    except FileNotFoundError:
        return Checked(tuple(bad), tuple(part.row[done:].tolist()), gone=True, read_bytes=read)
    except StateStoreFilesError as error:
        return Checked(tuple(bad), tuple(part.row[done:].tolist()), error=error, read_bytes=read)
    return Checked(tuple(bad), read_bytes=read)


def checksum_of(file: OpenFile, offset: int, length: int) -> int | None:
    """The crc32c of a range, read little by little; None where the file ends before it."""
    checksum = read = 0
    for data in in_parts(file, offset, length):
        checksum = crc32c(data, checksum)
        read += len(data)
    return checksum if read == length else None


def _bad(file: OpenFile, part: Part, first: int, end: int) -> list[int]:
    """Rows of those segments of one request whose bytes are others."""
    start = int(part.offset[first])
    inside = end
    while inside > first and part.offset[inside - 1] + part.length[inside - 1] > part.size:
        inside -= 1
    bad: list[int] = part.row[inside:end].tolist()
    if inside == first:
        return bad
    if inside - first == 1:
        if checksum_of(file, start, int(part.length[first])) != part.crc32c[first]:
            bad.append(int(part.row[first]))
        return bad
    data = file.read_at(start, int((part.offset + part.length)[first:inside].max()) - start)
    for at in range(first, inside):
        offset, length = int(part.offset[at]) - start, int(part.length[at])
        segment = data[offset : offset + length]
        if len(segment) < length or crc32c(segment) != part.crc32c[at]:
            bad.append(int(part.row[at]))
    return bad
