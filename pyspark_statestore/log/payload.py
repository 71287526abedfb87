"""Reads segments of merged files and compares their checksums, in bounded memory.

Everything that reads segments does it here. They are cut into runs, each in one file, and :func:`read_run` reads a run
with as few requests as possible. A request has 8 MiB at most, and a longer segment comes in parts, so the memory does
not depend on how long anything is. A wrong byte goes nowhere: the caller either sees which segments are
wrong, or gets an error that names the logical path, the merged file and the offset (rule 9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format.checksum import crc32c, joined_crc32c
from pyspark_statestore.format.index_block import ENTRY_TYPE
from pyspark_statestore.log import Entries, next_generation
from pyspark_statestore.log.scan import holder, naming_foreign
from pyspark_statestore.storage.directory import MAX_READ, Directory, OpenFile, Readable, in_parts, requests

_RUN = 64 << 20
"""Bytes of a run that is one piece of work, so that the segments of one large file are read in several places."""

MISMATCH = "their checksum does not match"


@dataclass(frozen=True)
class SegmentRun:
    """Segments of one merged file that are read together, in the order of their offsets.

    Attributes:
        path: The file's path, as :class:`~pyspark_statestore.storage.Directory` takes it.
        size: The file's bytes, as listed; of a file of another checkpoint, as far as the segments reach.
        row: The row of each segment, in the entries that the run was made of.
        offset: Where each segment begins in the file.
        length: Bytes of each segment.
        crc32c: The checksum that each should have; None where only the start of each is read, and nothing is compared.
    """

    path: str
    size: int
    row: np.ndarray = field(repr=False)
    offset: np.ndarray = field(repr=False)
    length: np.ndarray = field(repr=False)
    crc32c: np.ndarray | None = field(repr=False)

    @property
    def total(self) -> int:
        """Bytes of all segments."""
        return int(self.length.sum())

    @property
    def is_foreign(self) -> bool:
        """Whether the file is another checkpoint's."""
        return self.path.startswith("/")

    def take(self, numbers: np.ndarray) -> SegmentRun:
        """Returns a run of some of the segments."""
        crc = None if self.crc32c is None else self.crc32c[numbers]
        return SegmentRun(self.path, self.size, self.row[numbers], self.offset[numbers], self.length[numbers], crc)

    def corrupt(self, directory: Directory, number: int, path: str, reason: str) -> StateStoreFilesError:
        """Makes the error that a segment's bytes are not those that were written.

        Args:
            directory: The checkpoint's directory.
            number: The segment's number in the run.
            path: Its logical path.
            reason: What is wrong, and what that means for the caller's work.
        """
        place = {"offset": int(self.offset[number]), "length": int(self.length[number])}
        where = {"path": path, "file": directory.location.display(self.path), **place, "reason": reason}
        return StateStoreFilesError("PSS_CORRUPT_SEGMENT", where)


def segment_runs(entries: Entries, rows: np.ndarray, sizes: Mapping[str, int]) -> list[SegmentRun]:
    """Cuts segments into runs of about 64 MiB, as pieces of work.

    Args:
        entries: The entries of all files.
        rows: The segments' rows, in any order.
        sizes: Bytes of the files, by name.
    """
    order = rows[np.lexsort((entries.offset[rows], entries.origin[rows], entries.file[rows]))]
    ends: np.ndarray = np.cumsum(entries.length[order])
    return _runs(entries, order, np.diff(ends // _RUN) != 0, sizes)


@dataclass(frozen=True)
class Chunk:
    """Bytes of a run that were read at once.

    Attributes:
        first: The number of the first segment in the run.
        end: The number of the segment after the last one.
        data: The bytes of these segments, one after the other; or a part of the one segment that is too long.
        length: Bytes of each of these segments.
        wrong: Why segments are not what they should be, by number; of a segment that comes in parts, the last part
            says so. Where the file ends before a segment does, the segment is alone in its chunk, without data.
        is_end: Whether these are the last bytes of the segments.
    """

    first: int
    end: int
    data: bytes = field(repr=False)
    length: np.ndarray = field(repr=False)
    wrong: Mapping[int, str]
    is_end: bool = True

    def segments(self) -> Iterator[tuple[int, bytes]]:
        """Yields the number and the bytes of each segment."""
        if self.end - self.first == 1:
            yield self.first, self.data
            return
        bounds = [0, *np.cumsum(self.length).tolist()]
        for number, (begin, end) in enumerate(pairwise(bounds), self.first):
            yield number, self.data[begin:end]


def read_run(
    directory: Directory, run: SegmentRun, logical_path: Callable[[], str] = lambda: "", at_once: int = MAX_READ
) -> Iterator[Chunk]:
    """Reads the segments of a run with as few requests as possible, and compares their checksums.

    Args:
        directory: The checkpoint's directory.
        run: What to read.
        logical_path: Tells what is read from the file, for the error that a file of another checkpoint is gone.
        at_once: Segments with more bytes come in parts of :data:`MAX_READ`.

    Yields:
        Chunks, in the order of the run: each of one or more segments, or of a part of one.

    Raises:
        FileNotFoundError: The file is gone: a :class:`~pyspark_statestore.log.scan.ForeignFileGoneError` where it is
            another checkpoint's.
        StateStoreFilesError: PSS_NO_PERMISSION or PSS_READ_FAILED.
    """
    begins = requests(run.offset, run.length)
    together = [None] * (len(begins) - 1)
    if run.crc32c is not None:
        together = joined_crc32c(run.crc32c, run.length, np.array(begins[:-1], "i8")).tolist()
    with naming_foreign(run.path, logical_path), directory.open(run.path, run.size) as file:
        for (first, end), expected in zip(pairwise(begins), together, strict=True):
            if end - first == 1:
                yield from _read_alone(file, run, first, at_once)
            else:
                yield from _read_neighbours(file, run, first, end, expected)


def read_segments(directory: Directory, entries: Entries, rows: np.ndarray) -> Iterator[bytes]:
    """Reads segments, of this checkpoint's files or of another one's; each file is opened once.

    Args:
        directory: The checkpoint's directory.
        entries: The entries of all files.
        rows: The segments' rows: file by file, and in each in the order of their offsets.

    Yields:
        Bytes, in that order. A segment of more than one part is known to be whole when its last one comes.

    Raises:
        FileNotFoundError: A file is gone.
        StateStoreFilesError: PSS_CORRUPT_SEGMENT, PSS_NO_PERMISSION or PSS_READ_FAILED.
    """
    for run in _runs(entries, rows, is_full=False):
        yield from read_whole(directory, run, lambda row: str(entries.path[row].as_py()))


def read_whole(directory: Directory, run: SegmentRun, path_of: Callable[[int], str]) -> Iterator[bytes]:
    """Reads the segments of a run, of which all have to be right.

    Args:
        directory: The checkpoint's directory.
        run: What to read.
        path_of: Tells the logical path of a row.

    Yields:
        Bytes, as :func:`read_segments`.

    Raises:
        FileNotFoundError: The file is gone.
        StateStoreFilesError: PSS_CORRUPT_SEGMENT, PSS_NO_PERMISSION or PSS_READ_FAILED.
    """
    for chunk in read_run(directory, run, lambda: path_of(int(run.row[0]))):
        for number, reason in chunk.wrong.items():
            raise run.corrupt(directory, number, path_of(int(run.row[number])), reason)
        yield chunk.data


@dataclass(frozen=True)
class Checked:
    """What was found in a run.

    Attributes:
        bad: Rows of segments whose bytes are not those that were written.
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


def check_run(
    directory: Directory, run: SegmentRun, on_progress: Callable[[int], object] = lambda read: None
) -> Checked:
    """Reads all segments of a run. What goes wrong is an answer: the others have to be read all the same.

    Args:
        directory: The checkpoint's directory.
        run: What to read.
        on_progress: Called with the number of bytes of segments that were read, again and again.
    """
    bad: list[int] = []
    done = read = 0
    try:
        for chunk in read_run(directory, run):
            bad += [int(run.row[number]) for number in chunk.wrong]
            if chunk.is_end:
                length = int(chunk.length.sum())
                read += length
                done = chunk.end
                on_progress(length)
    except FileNotFoundError:
        return Checked(tuple(bad), tuple(run.row[done:].tolist()), gone=True, read_bytes=read)
    except StateStoreFilesError as error:
        return Checked(tuple(bad), tuple(run.row[done:].tolist()), error=error, read_bytes=read)
    return Checked(tuple(bad), read_bytes=read)


def checksum_of(file: OpenFile, offset: int, length: int) -> int | None:
    """Returns the crc32c of a range of a file, read little by little; None where the file ends before it."""
    checksum = read = 0
    for data in in_parts(file, offset, length):
        checksum = crc32c(data, checksum)
        read += len(data)
    return checksum if read == length else None


def copied(entries: Entries, rows: np.ndarray, offsets: np.ndarray | int = 0) -> tuple[np.ndarray, pa.StringArray]:
    """Returns entries for copies: rule 5, each keeps its key and gets the next generation.

    Args:
        entries: The entries that are copied.
        rows: Which of them.
        offsets: Where their segments begin in the new file; 0 for tombstones.

    Returns:
        As :meth:`~pyspark_statestore.format.MergedFileWriter.add_columns` takes them.
    """
    records = same_entries(entries, rows, offsets)
    records["generation"] = next_generation(entries.generation[rows])
    return records, paths_of(entries, rows)


def same_entries(entries: Entries, rows: np.ndarray, offsets: np.ndarray | int = 0) -> np.ndarray:
    """Returns entries that stay as they are, generation included: another checkpoint says the same."""
    records: np.ndarray = np.zeros(len(rows), ENTRY_TYPE)
    for name in ("kind", "type", "generation", "crc32c", "stamp", "writer", "length"):
        records[name] = getattr(entries, name)[rows]
    records["offset"] = offsets
    return records


def paths_of(entries: Entries, rows: np.ndarray) -> pa.StringArray:
    """Returns the logical paths of some rows as one array."""
    return pa.concat_arrays([pa.array([], pa.string()), *entries.path.take(pa.array(rows, pa.int64())).chunks])


def _runs(
    entries: Entries, rows: np.ndarray, is_full: np.ndarray | bool, sizes: Mapping[str, int] | None = None
) -> list[SegmentRun]:
    """A run ends with its file, or where it is full."""
    if not len(rows):
        return []
    is_other = (np.diff(entries.file[rows]) != 0) | (np.diff(entries.origin[rows]) != 0)
    runs = []
    for few in np.split(rows, np.flatnonzero(is_other | is_full) + 1):
        file, origin = int(entries.file[few[0]]), int(entries.origin[few[0]])
        columns = (entries.offset[few], entries.length[few], entries.crc32c[few])
        is_known = sizes is not None and not origin
        size = sizes[entries.files[file]] if sizes is not None and is_known else int((columns[0] + columns[1]).max())
        runs.append(SegmentRun(holder(entries, file, origin), size, few, *columns))
    return runs


def _read_alone(file: Readable, run: SegmentRun, number: int, at_once: int) -> Iterator[Chunk]:
    """One segment, in parts where it is long; nothing is asked for that the file cannot have."""
    start, length = int(run.offset[number]), int(run.length[number])
    lengths = run.length[number : number + 1]
    checksum = read = 0
    file_ends = run.size
    if start + length <= run.size:
        parts = iter([file.read_at(start, length)]) if length <= at_once else in_parts(file, start, length)
        for data in parts:
            read += len(data)
            checksum = crc32c(data, checksum)
            if read == length:
                is_right = run.crc32c is None or checksum == run.crc32c[number]
                yield Chunk(number, number + 1, data, lengths, {} if is_right else {number: MISMATCH})
                return
            if len(data) == MAX_READ:
                yield Chunk(number, number + 1, data, lengths, {}, is_end=False)
        file_ends = start + read
    reason = f"the file has only {file_ends} bytes"
    yield Chunk(number, number + 1, b"", lengths, {number: reason})


def _read_neighbours(file: Readable, run: SegmentRun, first: int, end: int, expected: int | None) -> Iterator[Chunk]:
    """Segments that are near each other, with one request."""
    offset, length = run.offset[first:end], run.length[first:end]
    start = int(offset[0])
    size = int((offset + length).max()) - start
    data = file.read_at(start, max(0, min(size, run.size - start)))
    if len(data) < size:
        there = _There(data, start)
        known = replace(run, size=min(run.size, start + len(data)))
        for number in range(first, end):
            yield from _read_alone(there, known, number, size)
        return
    data = _joined(data, offset - start, length)
    wrong: dict[int, str] = {}
    if run.crc32c is not None and crc32c(data) != expected:
        wrong = {first + number: MISMATCH for number in _mismatches(data, length, run.crc32c[first:end])}
    yield Chunk(first, end, data, length, wrong)


@dataclass(frozen=True)
class _There:
    """What there is of a file that ends too early."""

    data: bytes
    start: int

    def read_at(self, offset: int, length: int, /) -> bytes:
        begin = offset - self.start
        return self.data[begin : begin + length]


def _joined(data: bytes, begin: np.ndarray, length: np.ndarray) -> bytes:
    """Segments one after the other, without what lies between them in the file."""
    end = begin + length
    if bool((begin[1:] == end[:-1]).all()):
        return data
    if bool((begin[1:] < end[:-1]).any()):
        return b"".join([data[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True)])
    # Segments and what is between them are the strings of an array, of which every second one is taken.
    bounds: np.ndarray = np.stack([begin, end], axis=1).ravel().astype("<i4")
    strings = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    taken = strings.take(pa.array(np.arange(0, len(bounds), 2))).buffers()[2]
    return b"" if taken is None else taken.to_pybytes()[: int(length.sum())]


def _mismatches(data: bytes, length: np.ndarray, crc: np.ndarray) -> list[int]:
    """Which of the segments are not what they should be."""
    bounds = pairwise([0, *np.cumsum(length).tolist()])
    return [
        number
        for number, ((begin, end), expected) in enumerate(zip(bounds, crc.tolist(), strict=True))
        if crc32c(data[begin:end]) != expected
    ]
