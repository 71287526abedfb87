"""Reads live segments, checks them, and hands their bytes over, never many of them at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format.checksum import crc32c
from pyspark_statestore.format.joined_checksum import joined_crc32c
from pyspark_statestore.index import Entries
from pyspark_statestore.inspect.scan import holder, naming_foreign
from pyspark_statestore.storage.directory import Directory, OpenFile
from pyspark_statestore.storage.ranges import MAX_READ, requests


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
