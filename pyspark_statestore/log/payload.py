"""Reads segments of merged files and compares their checksums, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format.checksum import crc32c, joined_crc32c
from pyspark_statestore.format.index_block import ENTRY_TYPE
from pyspark_statestore.log import Entries, next_generation
from pyspark_statestore.log.scan import holder, naming_foreign
from pyspark_statestore.storage.directory import MAX_READ, Directory, OpenFile, in_parts, requests

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


def check_part(directory: Directory, part: Part, on_progress: Callable[[int], object] = lambda read: None) -> Checked:
    """Reads all segments of a part. What goes wrong is an answer: the others have to be read all the same.

    Args:
        directory: Of the checkpoint.
        part: What to read.
        on_progress: How many bytes of segments were read, again and again.
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
                on_progress(length)
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


# Reads live segments, checks them, and hands their bytes over, never many of them at once.


def read_segments(directory: Directory, entries: Entries, rows: np.ndarray) -> Iterator[bytes]:
    """Reads segments, of this checkpoint's files or of another one's; each file is opened once.

    Args:
        directory: Of the checkpoint.
        entries: Of all files.
        rows: Of the segments: file by file, and in each in the order of their offsets.

    Yields:
        Bytes, in that order. A segment of more than one part is known to be whole when its last one comes.

    Raises:
        FileNotFoundError: A file is gone.
        StateStoreFilesError: PSS_CORRUPT_SEGMENT, PSS_NO_PERMISSION or PSS_READ_FAILED.
    """
    is_next = np.diff(entries.file[rows]) | np.diff(entries.origin[rows])
    for of_file in np.split(rows, np.flatnonzero(is_next) + 1):
        yield from _read_file(directory, entries, of_file)


def _read_file(directory: Directory, entries: Entries, rows: np.ndarray) -> Iterator[bytes]:
    offset, length, crc = entries.offset[rows], entries.length[rows], entries.crc32c[rows]
    relative = holder(entries, int(entries.file[rows[0]]), int(entries.origin[rows[0]]))
    size = int((offset + length).max())

    def damaged(at: int, reason: str) -> StateStoreFilesError:
        where = {"path": entries.path[int(rows[at])].as_py(), "file": directory.location.display(relative)}
        where |= {"offset": int(offset[at]), "length": int(length[at]), "reason": reason}
        return StateStoreFilesError("PSS_CORRUPT_SEGMENT", where)

    begins = requests(offset, length, MAX_READ)
    together = joined_crc32c(crc, length, np.array(begins[:-1], "i8")).tolist()
    with naming_foreign(relative, lambda: str(entries.path[int(rows[0])])), directory.open(relative, size) as file:
        for (first, last), wanted in zip(pairwise(begins), together, strict=True):
            try:
                if length[first] > MAX_READ:
                    yield from _large(file, int(offset[first]), int(length[first]), int(crc[first]))
                else:
                    data = _neighbours(file, offset[first:last], length[first:last])
                    if crc32c(data) != wanted:
                        raise _WrongBytesError(_first_wrong(data, length[first:last], crc[first:last]), _MISMATCH)
                    yield data
            except _WrongBytesError as error:
                raise damaged(first + error.at, error.reason) from error


_MISMATCH = "their checksum does not match"


class _WrongBytesError(Exception):
    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        self.at = at
        self.reason = reason


def _neighbours(file: OpenFile, offset: np.ndarray, length: np.ndarray) -> bytes:
    """Segments one after the other, without what lies between them in the file."""
    start = int(offset[0])
    size = int((offset + length).max()) - start
    data = file.read_at(start, size)
    begin: np.ndarray = offset - start
    end = begin + length
    if len(data) < size:
        raise _WrongBytesError(int(np.argmax(end > len(data))), f"the file has only {start + len(data)} bytes")
    if bool((begin[1:] == end[:-1]).all()):
        return data
    if bool((begin[1:] < end[:-1]).any()):
        return b"".join([data[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True)])
    # Segments and what is between them are the strings of an array, of which every second one is taken.
    bounds: np.ndarray = np.stack([begin, end], axis=1).ravel().astype("<i4")
    strings = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    taken = strings.take(pa.array(np.arange(0, len(bounds), 2))).buffers()[2]
    return b"" if taken is None else taken.to_pybytes()[: int(length.sum())]


def _first_wrong(data: bytes, length: np.ndarray, crc: np.ndarray) -> int:
    """Which of the segments is not what it should be."""
    bounds = [0, *np.cumsum(length).tolist()]
    wrong = [crc32c(data[a:b]) != expected for (a, b), expected in zip(pairwise(bounds), crc.tolist(), strict=True)]
    return wrong.index(True)


def _large(file: OpenFile, offset: int, length: int, crc: int) -> Iterator[bytes]:
    """One segment, in parts; whether it is whole turns out with the last."""
    found = 0
    for start in range(0, length, MAX_READ):
        size = min(MAX_READ, length - start)
        data = file.read_at(offset + start, size)
        if len(data) < size:
            raise _WrongBytesError(0, f"the file has only {offset + start + len(data)} bytes")
        found = crc32c(data, found)
        if start + size == length and found != crc:
            raise _WrongBytesError(0, _MISMATCH)
        yield data


# What the index of a new file says of facts that are copied into it.


def copied(entries: Entries, rows: np.ndarray, offsets: np.ndarray | int = 0) -> tuple[np.ndarray, pa.StringArray]:
    """Rule 5: a copy keeps its key and raises its generation.

    Args:
        entries: That are copied from.
        rows: Which.
        offsets: Of their segments in the new file; 0 for tombstones.

    Returns:
        As :meth:`~pyspark_statestore.format.MergedFileWriter.add_columns` takes them.
    """
    records = same_facts(entries, rows, offsets)
    records["generation"] = next_generation(entries.generation[rows])
    return records, paths_of(entries, rows)


def same_facts(entries: Entries, rows: np.ndarray, offsets: np.ndarray | int = 0) -> np.ndarray:
    """The same of facts that stay as they are, which is what another checkpoint says of them."""
    records: np.ndarray = np.zeros(len(rows), ENTRY_TYPE)
    for name in ("kind", "type", "generation", "crc32c", "stamp", "writer", "length"):
        records[name] = getattr(entries, name)[rows]
    records["offset"] = offsets
    return records


def paths_of(entries: Entries, rows: np.ndarray) -> pa.StringArray:
    """Logical paths of some rows, in one piece."""
    return pa.concat_arrays([pa.array([], pa.string()), *entries.path.take(pa.array(rows, pa.int64())).chunks])
