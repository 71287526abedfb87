"""Relocation: copies live segments into new merged files (rule 5 of docs/guarantees.md).

A relocation leaves a marker in the checkpoint, takes a snapshot, copies what lives in it, and deletes the marker last.
Nothing is unlinked here: originals and copies say the same, and :mod:`~pyspark_statestore.maintenance.cleaning` unlinks
the originals once nothing lives in them.

The marker is what makes this safe beside others. A copy could bring back a segment that was deleted while it was being
copied; while a marker is there, everybody keeps the tombstones that prevent this. Others wait for a marker for
``closedAfter``, so no copy is begun after half of it: then a new marker and a new snapshot are due.

A crash leaves a temporary file that no reader looks at, and a marker that others stop waiting for after
``closedAfter``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fsspec.callbacks import Callback, NoOpCallback

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format import MergedFileWriter
from pyspark_statestore.format.layout import ENTRY, U32
from pyspark_statestore.log import relocatable
from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog
from pyspark_statestore.log.payload import copied, paths_of, read_segments
from pyspark_statestore.log.relocation_marker import RelocationMarker, holding_marker
from pyspark_statestore.log.scan import ATTEMPTS, ForeignFileGoneError, always_gone, our_files


@dataclass(frozen=True, order=True)
class SegmentRange:
    """The live segments that begin in one range of a file.

    A plan names them by the range, since their rows differ from snapshot to snapshot.

    Attributes:
        name: Name of the merged file, or of the reference file.
        start: Offset of the first segment.
        end: Offset before which the last segment begins.
        foreign: Path of the other checkpoint's file that holds the bytes; empty where the merged file itself does.
    """

    name: str
    start: int
    end: int
    foreign: str = ""


Bin: TypeAlias = tuple[SegmentRange, ...]
"""What goes into one new file."""


class Movable:
    """The live segments that may be moved (rule 5): in closed files, none of them copied too often already.

    Segments in files of other checkpoints stay there, unless a plan brings them home (:meth:`foreign_ranges`).

    Args:
        snapshot: What is there. Only what lives in a snapshot that was begun after the marker may be copied.
    """

    def __init__(self, snapshot: LogSnapshot) -> None:
        self.snapshot = snapshot
        entries = snapshot.scan.entries
        rows = relocatable(snapshot.scan.resolution, snapshot.states)
        rows = rows[np.lexsort((entries.offset[rows], entries.origin[rows], entries.file[rows]))]
        self._rows = rows
        self._numbers = {name: number for number, name in enumerate(entries.files)}
        self._origins = {"": 0} | {path: number for number, path in enumerate(entries.foreign, start=1)}
        places: np.ndarray = entries.file[rows].astype("i8") * len(self._origins) + entries.origin[rows]
        every = np.arange(len(entries.files) * len(self._origins) + 1)
        self._bounds: np.ndarray = np.asarray(np.searchsorted(places, every))

    @cached_property
    def _sizes(self) -> np.ndarray:
        """Bytes that each segment takes in a new file, its index entry included."""
        return self._sizes_of(self._rows)

    def _sizes_of(self, rows: np.ndarray) -> np.ndarray:
        entries = self.snapshot.scan.entries
        lengths = pc.binary_length(entries.path.take(pa.array(rows))).to_numpy()
        sizes: np.ndarray = entries.length[rows] + lengths + (ENTRY.size + U32.size)
        return sizes

    def size_of(self, rows: np.ndarray) -> int:
        """Bytes that segments take in a new file, with their index entries; given as rows of their entries."""
        return int(self._sizes_of(rows).sum())

    def count(self, name: str) -> int:
        """How many of a file's segments may be moved."""
        start, end = self._of(name)
        return end - start

    def size(self, name: str) -> int:
        """Bytes that these segments take in a new file, with their index entries."""
        start, end = self._of(name)
        return int(self._sizes[start:end].sum())

    def rows(self, ranges: Iterable[SegmentRange]) -> np.ndarray:
        """Rows of the entries in these ranges; within each range in the order of their offsets."""
        parts: list[np.ndarray] = [np.empty(0, "i8")]
        for part in ranges:
            start, end = self._of(part.name, part.foreign)
            rows = self._rows[start:end]
            offsets = self.snapshot.scan.entries.offset[rows]
            first = int(np.searchsorted(offsets, part.start))
            parts.append(rows[first : int(np.searchsorted(offsets, part.end))])
        joined: np.ndarray = np.concatenate(parts)
        return joined

    def foreign_ranges(
        self, capacity: int, wanted: Collection[str] | None = None
    ) -> Iterator[tuple[SegmentRange, int]]:
        """Cuts the segments that reference files name, as :meth:`ranges` does; those in ``wanted`` files, or all."""
        entries = self.snapshot.scan.entries
        found = np.unique(np.stack([entries.file[self._rows], entries.origin[self._rows]]), axis=1)
        for file, origin in found.T.tolist():
            if origin and (wanted is None or entries.foreign[origin - 1] in wanted):
                yield from self.ranges(entries.files[file], capacity, entries.foreign[origin - 1])

    def ranges(self, name: str, capacity: int, foreign: str = "") -> Iterator[tuple[SegmentRange, int]]:
        """Cuts the segments of a file into ranges that fit into a new file.

        Args:
            name: Name of the merged file, or of the reference file.
            capacity: Bytes that a range takes in a new file at most, unless it is a single segment.
            foreign: Of a reference file, the path of the other checkpoint's file.

        Yields:
            Each range, and the bytes that it takes in a new file.
        """
        first, last = self._of(name, foreign)
        offsets = self.snapshot.scan.entries.offset[self._rows[first:last]]
        # Segments at the same offset, such as empty ones, are not separated: the range could not tell them apart.
        begins = np.flatnonzero(np.diff(offsets, prepend=-1))
        totals: np.ndarray = np.append(0, np.cumsum(self._sizes[first:last]))
        totals = totals[np.append(begins, last - first)]
        at = 0
        while at < len(begins):
            end = max(at + 1, int(np.searchsorted(totals, totals[at] + capacity, "right")) - 1)
            stop = int(offsets[begins[end]]) if end < len(begins) else int(offsets[-1]) + 1
            yield SegmentRange(name, int(offsets[begins[at]]), stop, foreign), int(totals[end] - totals[at])
            at = end

    def _of(self, name: str, foreign: str = "") -> tuple[int, int]:
        number, origin = self._numbers.get(name), self._origins.get(foreign)
        if number is None or origin is None:
            return 0, 0
        place = number * len(self._origins) + origin
        return int(self._bounds[place]), int(self._bounds[place + 1])


_READING = "reading the indexes of the merged files"


@dataclass(frozen=True)
class NewFile:
    """A merged file that was written.

    Attributes:
        name: Its name.
        size: Its size in bytes.
        live_bytes: Bytes of the segments in it.
        sources: Names of the files that the segments were copied from.
    """

    name: str
    size: int
    live_bytes: int
    sources: tuple[str, ...]


@dataclass
class Relocation:
    """What became of the bins of a relocation.

    Attributes:
        added: The files that were written.
        failures: Why the other files were not written.
    """

    added: list[NewFile] = field(default_factory=list)
    failures: list[StateStoreFilesError] = field(default_factory=list)


def relocate(
    log: MergedLog,
    bins: Iterable[Bin] | Callable[[Movable], Iterable[Bin]],
    callback: Callback | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Relocation:
    """Writes a new sealed file for each bin, with what still lives of it; no file where nothing does.

    Args:
        log: The checkpoint's log.
        bins: What to copy; or a function that plans it for the first snapshot, which saves taking another one.
        callback: Receives the number of live bytes copied, again and again.
        clock: A monotonic clock, in seconds.

    Returns:
        What was written. A bin with a corrupt segment, or with files that cannot be read, is a failure; its files stay
        as they are.

    Raises:
        StateStoreFilesError: The checkpoint cannot be read, or nothing can be written.
    """
    done = Relocation()
    if not our_files(log.directory):
        # A relocation marker would make the directory, and then look like a checkpoint.
        log.snapshot()
        return done
    waiting = None if callable(bins) else list(bins)
    while waiting is None or waiting:
        with holding_marker(log, clock) as marker:
            movable = Movable(log.snapshot())
            if waiting is None:
                assert callable(bins)
                waiting = list(bins(movable))
            before = len(waiting)
            while waiting and marker.is_timely():
                movable = _relocate_one(log, waiting.pop(0), movable, marker, done, callback, clock)
        if waiting and len(waiting) == before:
            raise log.too_slow(_READING)
    return done


def _relocate_one(
    log: MergedLog,
    ranges: Bin,
    movable: Movable,
    marker: RelocationMarker,
    done: Relocation,
    callback: Callback | None,
    clock: Callable[[], float],
) -> Movable:
    """Writes one bin's file, and returns what may be moved by the latest snapshot."""
    gone: ForeignFileGoneError | None = None
    for _ in range(ATTEMPTS):
        try:
            added = _Copy(log, movable, ranges, callback, clock).write(marker)
        except _SourceGoneError as error:
            if gone is not None and error.foreign is not None and error.foreign.path == gone.path:
                done.failures.append(gone.as_error(log.directory))
                return movable
            gone = error.foreign
            # Another process has moved what lived in the file, and unlinked it.
            movable = Movable(log.snapshot())
            continue
        except StateStoreFilesError as error:
            if error.getErrorClass() not in ("PSS_CORRUPT_SEGMENT", "PSS_READ_FAILED", "PSS_NO_PERMISSION"):
                raise
            done.failures.append(error)
            return movable
        if added is not None:
            done.added.append(added)
        return movable
    raise always_gone(log.directory, "to be copied")


class _Copy:
    """The writing of one new file."""

    def __init__(
        self,
        log: MergedLog,
        movable: Movable,
        ranges: Sequence[SegmentRange],
        callback: Callback | None,
        clock: Callable[[], float],
    ) -> None:
        self._log = log
        self._snapshot = movable.snapshot
        self._ranges = ranges
        self._rows = movable.rows(ranges)
        self._callback = callback or NoOpCallback()
        self._clock = clock

    def write(self, marker: RelocationMarker) -> NewFile | None:
        """Copies what lives; None where nothing does any more."""
        if not len(self._rows):
            return None
        entries = self._snapshot.scan.entries
        try:
            with ExitStack() as in_doubt, self._log.new_file(self._snapshot) as (name, out):
                start = out.position
                self._copy_payload(out)
                rows = self._rows
                offsets: np.ndarray = start + _begins(entries.length[rows])
                snapshot = self._snapshot
                if not marker.is_timely():
                    # Others may wait no longer: a new marker and a new snapshot, before anybody can see the copies.
                    marker = in_doubt.enter_context(holding_marker(self._log, self._clock))
                    snapshot = self._log.snapshot()
                    still = self._still_living(Movable(snapshot))
                    rows, offsets = rows[still], offsets[still]
                    if not marker.is_timely():
                        raise self._log.too_slow(_READING)
                if not len(rows):
                    raise _NothingLivesError
                in_doubt.enter_context(marker.copying())
                out.add_columns(*copied(entries, rows, offsets))
                out.seal(group_stamp=max(snapshot.highest_stamp, self._snapshot.highest_stamp))
        except _NothingLivesError:
            return None
        sources = tuple(entries.files[number] for number in np.unique(entries.file[rows]).tolist())
        return NewFile(name, out.position, int(entries.length[rows].sum()), sources)

    def _copy_payload(self, out: MergedFileWriter) -> None:
        segments = read_segments(self._log.directory, self._snapshot.scan.entries, self._rows)
        while True:
            try:
                data = next(segments)
            except StopIteration:
                break
            except ForeignFileGoneError as error:
                raise _SourceGoneError(error) from error
            except FileNotFoundError as error:
                raise _SourceGoneError from error
            out.append(data)
            self._callback.relative_update(len(data))

    def _still_living(self, now: Movable) -> np.ndarray:
        """Which of the rows live in a later snapshot; a closed file has the same segments in every snapshot."""
        later = now.rows(self._ranges)
        still: np.ndarray = np.asarray(
            pc.is_in(_segment_ids(self._snapshot, self._rows), value_set=_segment_ids(now.snapshot, later))
        )
        return still


class _SourceGoneError(Exception):
    """A file to copy from does not exist any more."""

    def __init__(self, foreign: ForeignFileGoneError | None = None) -> None:
        super().__init__()
        self.foreign = foreign


class _NothingLivesError(Exception):
    """Nothing is left to be copied."""


def _begins(lengths: np.ndarray) -> np.ndarray:
    begins: np.ndarray = np.cumsum(lengths) - lengths
    return begins


def _segment_ids(snapshot: LogSnapshot, rows: np.ndarray) -> pa.Array:
    """A text for each row that is the same in every snapshot: the file, the offset in it and the logical path."""
    entries = snapshot.scan.entries
    names = pa.array(entries.files, pa.string()).take(pa.array(entries.file[rows]))
    origins = pa.array(["", *entries.foreign], pa.string()).take(pa.array(entries.origin[rows]))
    names = pc.binary_join_element_wise(names, origins, "")
    offsets = pa.array(entries.offset[rows]).cast(pa.string())
    return pc.binary_join_element_wise(names, offsets, paths_of(entries, rows), "/")
