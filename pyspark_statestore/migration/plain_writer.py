"""The writing of plain files in an export: segments become files of their own, and each is read back.

The work is cut into tasks of a few files, which run in threads here or in Spark tasks. Each file appears whole or not
at all, is checked against its segment's checksum before it appears and read back afterwards; a file that reads back
wrong is deleted. So a crash leaves right files only, and the next export finds and keeps them.
"""

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
from pyspark_statestore.migration.checks import LiveSegments
from pyspark_statestore.storage.changes import delete, publish
from pyspark_statestore.storage.directory import Directory, FileInfo, OpenFile, in_parallel, in_parts

if TYPE_CHECKING:
    from fsspec.callbacks import Callback
    from pyspark.sql import SparkSession


OnProgress = Callable[[int], object]

_TASK_BYTES = 64 << 20
"""Bytes that one task copies at most, unless it is a single file."""

_TASK_FILES = 200
"""Files that one task writes at most, so that many small files are spread."""


@dataclass(frozen=True)
class SegmentTask:
    """Writes segments of one merged file; ``paths`` are theirs below ``state/``, in the order of ``run``."""

    run: SegmentRun = field(repr=False)
    paths: tuple[str, ...] = field(repr=False)

    @property
    def total(self) -> int:
        """Bytes that are written."""
        return self.run.total


@dataclass(frozen=True)
class CopyTask:
    """Copies files as they are, to the same paths in the checkpoint."""

    files: tuple[FileInfo, ...] = field(repr=False)

    @property
    def total(self) -> int:
        """Bytes that are written."""
        return sum(info.size for info in self.files)


ExportTask = SegmentTask | CopyTask


def segment_tasks(found: Scan, live: LiveSegments, rows: np.ndarray) -> list[ExportTask]:
    """Divides the segments in some rows of ``live`` into tasks."""
    paths = {int(live.row[at]): live.path[at] for at in rows.tolist()}
    tasks: list[ExportTask] = []
    for run in segment_runs(found.entries, live.row[rows], found.sizes):
        for few in np.split(np.arange(len(run.row)), range(_TASK_FILES, len(run.row), _TASK_FILES)):
            chosen = run.take(few)
            tasks.append(SegmentTask(chosen, tuple(paths[row] for row in chosen.row.tolist())))
    return tasks


def copy_tasks(files: Sequence[FileInfo]) -> list[ExportTask]:
    """Divides files that are to be copied into tasks."""
    tasks: list[ExportTask] = []
    few: list[FileInfo] = []
    size = 0
    for info in files:
        if few and (len(few) == _TASK_FILES or size + info.size > _TASK_BYTES):
            tasks.append(CopyTask(tuple(few)))
            few, size = [], 0
        few.append(info)
        size += info.size
    return [*tasks, CopyTask(tuple(few))] if few else tasks


def run_task(
    source: Directory, target: Directory, task: ExportTask, on_progress: OnProgress = lambda size: None
) -> bool:
    """Writes the files of a task; ``on_progress`` receives the number of bytes written, again and again.

    Returns:
        Whether it was done; otherwise a file of the source is gone, and the source has to be scanned again.

    Raises:
        StateStoreFilesError: PSS_CORRUPT_SEGMENT, PSS_FOREIGN_FILE_MISSING, PSS_WRITE_FAILED, or a file cannot be read
            or written.
    """
    try:
        if isinstance(task, CopyTask):
            for info in task.files:
                _copy(source, target, info)
                on_progress(info.size)
        else:
            _write_segments(source, target, task, on_progress)
    except ForeignFileGoneError as error:
        raise error.as_error(source) from error
    except FileNotFoundError:
        return False
    return True


def _write_segments(source: Directory, target: Directory, task: SegmentTask, on_progress: OnProgress) -> None:
    chunks = read_run(source, task.run, lambda: task.paths[0])
    for chunk in chunks:
        if chunk.is_end:
            for number, data in chunk.segments():
                _check(source, task, chunk)
                _write_and_read_back(target, f"{STATE}/{task.paths[number]}", iter([data]))
        else:
            path = f"{STATE}/{task.paths[chunk.first]}"
            _write_and_read_back(target, path, _long(source, task, chunk, chunks))
        on_progress(int(chunk.length.sum()))


def _long(source: Directory, task: SegmentTask, chunk: Chunk, rest: Iterator[Chunk]) -> Iterator[bytes]:
    """The parts of a segment; one that is not whole ends with an error, and its file is not published."""
    while not chunk.is_end:
        yield chunk.data
        chunk = next(rest)
    _check(source, task, chunk)
    yield chunk.data


def _check(source: Directory, task: SegmentTask, chunk: Chunk) -> None:
    for number, reason in chunk.wrong.items():
        raise task.run.corrupt(source, number, task.paths[number], f"{reason}; the file was not exported")


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
        reason = f"it has {size} bytes, but had {info.size} when it was listed"
        raise StateStoreFilesError("PSS_READ_FAILED", {"action": "read", "path": where, "reason": reason})


def _write_and_read_back(target: Directory, relative: str, data: Iterator[bytes]) -> None:
    checksum = size = 0
    with publish(target, relative) as out:
        for chunk in data:
            out.write(chunk)
            checksum = crc32c(chunk, checksum)
            size += len(chunk)
    reason = "the bytes that are read back are not those that were written"
    try:
        with target.open(relative, size) as file:
            is_right = checksum_of(file, 0, size) == checksum
    except StateStoreFilesError as error:  # not raised as a failure to read, which says that nothing was changed
        is_right, reason = False, f"it cannot be read back ({error.getMessageParameters().get('reason', error)})"
    if not is_right:
        delete(target, relative)  # a later export would refuse to replace it
        raise StateStoreFilesError("PSS_WRITE_FAILED", {"path": target.location.display(relative), "reason": reason})


class PlainWriter:
    """Runs the tasks of one export, and remembers which segments are there as plain files.

    Args:
        source: The checkpoint that is exported.
        target: The directory that is written to; may be the same.
        spark: The session whose tasks write; threads of this process do if not given.
        callback: Receives the number of bytes to write, and then of those that were written.
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
        """Remembers that the segments in these rows are there as plain files, with the right bytes."""
        for at in rows.tolist():
            self._done[live.path[at]] = (int(live.stamp[at]), int(live.writer[at]))

    def missing(self, live: LiveSegments) -> np.ndarray:
        """Rows of the segments that are not known to be there as plain files."""
        keys = zip(live.path, live.stamp.tolist(), live.writer.tolist(), strict=True)
        rows = [at for at, (path, stamp, writer) in enumerate(keys) if self._done.get(path) != (stamp, writer)]
        found: np.ndarray = np.array(rows, "i8")
        return found

    def attempts(self) -> Iterator[int]:
        """Numbers the attempts until nothing is missing.

        Raises:
            StateStoreFilesError: PSS_READ_FAILED after the last attempt.
        """
        yield from range(ATTEMPTS)
        raise always_gone(self._source)

    def run(
        self, tasks: Sequence[ExportTask], live: LiveSegments | None = None, rows: np.ndarray | None = None
    ) -> bool:
        """Runs tasks, and returns whether no file of the source was gone; then the rows of ``live`` are written.

        Raises:
            StateStoreFilesError: The first error of a task.
        """
        if self._callback is not None:
            self._callback.set_size(sum(task.total for task in tasks))
        if self._spark is None:
            done = in_parallel(partial(run_task, self._source, self._target, on_progress=self._report), tasks)
        else:
            done = run_on_spark(self._spark, partial(run_task, self._source, self._target), tasks)
            for task in tasks:
                self._report(task.total)
        if live is not None and rows is not None and all(done):
            self.note(live, rows)
        return all(done)

    def _report(self, written: int) -> None:
        if self._callback is not None:
            with self._lock:
                self._callback.relative_update(written)
