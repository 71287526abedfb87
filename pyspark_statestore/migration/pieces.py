"""Pieces of an export: each writes some files of one merged file, or copies some, and reads them back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format.checksum import crc32c
from pyspark_statestore.log.on_spark import run_on_spark
from pyspark_statestore.log.payload import Chunk, SegmentRun, checksum_of, read_run, segment_runs
from pyspark_statestore.log.scan import ATTEMPTS, ForeignFileGoneError, Scan, always_gone
from pyspark_statestore.log.state_files import STATE
from pyspark_statestore.migration.live_segments import LiveSegments
from pyspark_statestore.storage.changes import delete, publish
from pyspark_statestore.storage.directory import Directory, FileInfo, OpenFile, in_parallel, in_parts

if TYPE_CHECKING:
    from fsspec.callbacks import Callback
    from pyspark.sql import SparkSession


OnProgress = Callable[[int], object]

_PART = 64 << 20
_FILES = 200
"""Of a piece of work at most, so that many small files are spread."""


@dataclass(frozen=True)
class SegmentPiece:
    """Segments of one merged file.

    Attributes:
        run: Where they are.
        paths: Below ``state/``, in the same order.
    """

    run: SegmentRun = field(repr=False)
    paths: tuple[str, ...] = field(repr=False)

    @property
    def total(self) -> int:
        """Bytes that are written."""
        return self.run.total


@dataclass(frozen=True)
class CopyPiece:
    """Files that are copied as they are.

    Attributes:
        files: By their paths in the checkpoint.
    """

    files: tuple[FileInfo, ...] = field(repr=False)

    @property
    def total(self) -> int:
        """Bytes that are written."""
        return sum(info.size for info in self.files)


Piece = SegmentPiece | CopyPiece


def segment_pieces(found: Scan, live: LiveSegments, rows: np.ndarray) -> list[Piece]:
    """Divides segments into pieces of work.

    Args:
        found: The merged files.
        live: What lives in them.
        rows: Of these, which are to be written.
    """
    paths = {int(live.row[at]): live.path[at] for at in rows.tolist()}
    pieces: list[Piece] = []
    for run in segment_runs(found.entries, live.row[rows], found.sizes):
        for few in np.split(np.arange(len(run.row)), range(_FILES, len(run.row), _FILES)):
            chosen = run.take(few)
            pieces.append(SegmentPiece(chosen, tuple(paths[row] for row in chosen.row.tolist())))
    return pieces


def copy_pieces(files: Sequence[FileInfo]) -> list[Piece]:
    """Divides files that are to be copied into pieces of work."""
    pieces: list[Piece] = []
    few: list[FileInfo] = []
    size = 0
    for info in files:
        if few and (len(few) == _FILES or size + info.size > _PART):
            pieces.append(CopyPiece(tuple(few)))
            few, size = [], 0
        few.append(info)
        size += info.size
    return [*pieces, CopyPiece(tuple(few))] if few else pieces


def carry_out(source: Directory, target: Directory, piece: Piece, on_progress: OnProgress = lambda size: None) -> bool:
    """Writes the files of a piece, each whole or not at all, and reads each back.

    Args:
        source: The checkpoint that is exported.
        target: The one that is written to; may be the same.
        piece: What is to be done.
        on_progress: How many bytes were written, again and again.

    Returns:
        Whether it was done; otherwise a file of the source is gone, and it has to be looked at again.

    Raises:
        StateStoreFilesError: PSS_CORRUPT_SEGMENT, PSS_FOREIGN_FILE_MISSING, PSS_WRITE_FAILED, or something cannot be
            read or written.
    """
    try:
        if isinstance(piece, CopyPiece):
            for info in piece.files:
                _copy(source, target, info)
                on_progress(info.size)
        else:
            _write_segments(source, target, piece, on_progress)
    except ForeignFileGoneError as error:
        raise error.as_error(source) from error
    except FileNotFoundError:
        return False
    return True


def _write_segments(source: Directory, target: Directory, piece: SegmentPiece, on_progress: OnProgress) -> None:
    chunks = read_run(source, piece.run, lambda: piece.paths[0])
    for chunk in chunks:
        if chunk.is_end:
            for number, data in chunk.segments():
                _check(source, piece, chunk)
                _write_and_read_back(target, f"{STATE}/{piece.paths[number]}", iter([data]))
        else:
            path = f"{STATE}/{piece.paths[chunk.first]}"
            _write_and_read_back(target, path, _long(source, piece, chunk, chunks))
        on_progress(int(chunk.length.sum()))


def _long(source: Directory, piece: SegmentPiece, chunk: Chunk, rest: Iterator[Chunk]) -> Iterator[bytes]:
    """The parts of a segment; one that is not whole ends with an error, and its file is not published."""
    while not chunk.is_end:
        yield chunk.data
        chunk = next(rest)
    _check(source, piece, chunk)
    yield chunk.data


def _check(source: Directory, piece: SegmentPiece, chunk: Chunk) -> None:
    for number, reason in chunk.wrong.items():
        raise piece.run.corrupt(source, number, piece.paths[number], f"{reason}; nothing was exported of it")


def _copy(source: Directory, target: Directory, info: FileInfo) -> None:
    with source.open(info.name, info.size) as file:
        _write_and_read_back(target, info.name, _whole(source, info, file))


def _whole(source: Directory, info: FileInfo, file: OpenFile) -> Iterator[bytes]:
    size = 0
    for data in in_parts(file, 0, info.size):
        size += len(data)
        yield data
    if size != info.size:
        where = source.location.display(info.name)
        reason = f"it has {size} bytes, and {info.size} when it was listed"
        raise StateStoreFilesError("PSS_READ_FAILED", {"action": "read", "path": where, "reason": reason})


def _write_and_read_back(target: Directory, relative: str, data: Iterator[bytes]) -> None:
    checksum = size = 0
    with publish(target, relative) as out:
        for chunk in data:
            out.write(chunk)
            checksum = crc32c(chunk, checksum)
            size += len(chunk)
    reason = "what is read back are other bytes than were written"
    try:
        with target.open(relative, size) as file:
            is_right = checksum_of(file, 0, size) == checksum
    except StateStoreFilesError as error:  # not told as a failure to read, which says that nothing was changed
        is_right, reason = False, f"it cannot be read back ({error.getMessageParameters().get('reason', error)})"
    if not is_right:
        delete(target, relative)  # or a later run would take it for somebody else's
        raise StateStoreFilesError("PSS_WRITE_FAILED", {"path": target.location.display(relative), "reason": reason})


# Carries out the pieces of an export, here or as a Spark job, and knows what is done.


class Writing:
    """One export at work.

    Args:
        source: The checkpoint.
        target: Where the plain files are written.
        spark: Writes in Spark tasks instead of in threads.
        callback: OnProgress how many bytes there are to write, and of those that were.
    """

    def __init__(
        self, source: Directory, target: Directory, spark: SparkSession | None, callback: Callback | None
    ) -> None:
        self._source = source
        self._target = target
        self._spark = spark
        self._callback = callback
        self._lock = threading.Lock()
        self._done: dict[str, tuple[int, int]] = {}

    def note(self, live: LiveSegments, rows: np.ndarray) -> None:
        """Remembers that these segments are there as plain files, with the right bytes."""
        for at in rows.tolist():
            self._done[live.path[at]] = (int(live.stamp[at]), int(live.writer[at]))

    def missing(self, live: LiveSegments) -> np.ndarray:
        """Which segments are not, as far as is known."""
        keys = zip(live.path, live.stamp.tolist(), live.writer.tolist(), strict=True)
        rows = [at for at, (path, stamp, writer) in enumerate(keys) if self._done.get(path) != (stamp, writer)]
        found: np.ndarray = np.array(rows, "i8")
        return found

    def attempts(self) -> Iterator[int]:
        """Numbers of the looks that are taken until nothing is missing.

        Raises:
            StateStoreFilesError: PSS_READ_FAILED where that does not end.
        """
        yield from range(ATTEMPTS)
        raise always_gone(self._source)

    def run(self, pieces: Sequence[Piece], live: LiveSegments | None = None, rows: np.ndarray | None = None) -> bool:
        """Carries out pieces; remembers the segments where no file was gone.

        Args:
            pieces: What is to be done.
            live: The segments that they write.
            rows: Of these.

        Returns:
            Whether no file was gone.

        Raises:
            StateStoreFilesError: The first that a piece has failed with.
        """
        if self._callback is not None:
            self._callback.set_size(sum(piece.total for piece in pieces))
        if self._spark is None:
            done = in_parallel(partial(carry_out, self._source, self._target, on_progress=self._tell), pieces)
        else:
            done = run_on_spark(self._spark, partial(carry_out, self._source, self._target), pieces)
            for piece in pieces:
                self._tell(piece.total)
        if live is not None and rows is not None and all(done):
            self.note(live, rows)
        return all(done)

    def _tell(self, written: int) -> None:
        if self._callback is not None:
            with self._lock:
                self._callback.relative_update(written)
