"""Copies live segments into new files: rule 5 of docs/guarantees.md."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from pyspark_statestore.log import MAX_GENERATION
from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog
from pyspark_statestore.log.payload import copied, paths_of, read_segments
from pyspark_statestore.log.relocation_marker import RelocationMarker, holding_marker
from pyspark_statestore.log.scan import ATTEMPTS, MERGED, ForeignFileGoneError, always_gone, check_checkpoint

# What of a look may be moved to another file, and how it is named in a plan.


@dataclass(frozen=True, order=True)
class Piece:
    """Live segments of one file that are next to each other.

    Attributes:
        name: Of the merged file, or of the reference file.
        start: The first begins here,
        end: and each before here.
        foreign: Path of the other checkpoint's file that they are in; empty where they are in the merged file itself.
    """

    name: str
    start: int
    end: int
    foreign: str = ""


class Movable:
    """The live segments that may be moved (rule 5): in closed files, none of them copied too often already.

    Those in files of other checkpoints stay there, unless a plan brings them home: see :meth:`foreign_pieces`.

    Args:
        snapshot: The look. Only what lives in one that began after an marker may be copied.
    """

    def __init__(self, snapshot: LogSnapshot) -> None:
        self.snapshot = snapshot
        entries, resolution = snapshot.scan.entries, snapshot.scan.resolution
        closed = np.array([self._is_source(name) for name in entries.files], bool)
        rows = np.flatnonzero(resolution.live & (entries.generation < MAX_GENERATION) & closed[entries.file])
        rows = rows[np.lexsort((entries.offset[rows], entries.origin[rows], entries.file[rows]))]
        self._rows = rows
        self._numbers = {name: number for number, name in enumerate(entries.files)}
        self._origins = {"": 0} | {path: number for number, path in enumerate(entries.foreign, start=1)}
        places: np.ndarray = entries.file[rows].astype("i8") * len(self._origins) + entries.origin[rows]
        every = np.arange(len(entries.files) * len(self._origins) + 1)
        self._bounds: np.ndarray = np.asarray(np.searchsorted(places, every))

    def _is_source(self, name: str) -> bool:
        state = self.snapshot.states[name]
        return state.closed and not state.index_only

    @cached_property
    def _sizes(self) -> np.ndarray:
        """Bytes that each takes in a new file, its part of the index included."""
        entries = self.snapshot.scan.entries
        lengths = pc.binary_length(entries.path.take(pa.array(self._rows))).to_numpy()
        sizes: np.ndarray = entries.length[self._rows] + lengths + (ENTRY.size + U32.size)
        return sizes

    def count(self, name: str) -> int:
        """How many a file has."""
        start, end = self._of(name)
        return end - start

    def size(self, name: str) -> int:
        """Bytes that they take in a new file, with their part of the index."""
        start, end = self._of(name)
        return int(self._sizes[start:end].sum())

    def rows(self, pieces: Iterable[Piece]) -> np.ndarray:
        """Rows of the entries, file by file, in the order of their offsets."""
        parts: list[np.ndarray] = [np.empty(0, "i8")]
        for piece in pieces:
            start, end = self._of(piece.name, piece.foreign)
            rows = self._rows[start:end]
            offsets = self.snapshot.scan.entries.offset[rows]
            first = int(np.searchsorted(offsets, piece.start))
            parts.append(rows[first : int(np.searchsorted(offsets, piece.end))])
        joined: np.ndarray = np.concatenate(parts)
        return joined

    def foreign_pieces(self, capacity: int) -> Iterator[tuple[Piece, int]]:
        """Cuts what files of other checkpoints have, as :meth:`pieces`."""
        entries = self.snapshot.scan.entries
        found = np.unique(np.stack([entries.file[self._rows], entries.origin[self._rows]]), axis=1)
        for file, origin in found.T.tolist():
            if origin:
                yield from self.pieces(entries.files[file], capacity, entries.foreign[origin - 1])

    def pieces(self, name: str, capacity: int, foreign: str = "") -> Iterator[tuple[Piece, int]]:
        """Cuts what a file has.

        Args:
            name: Of the file.
            capacity: Bytes in a piece at most, unless it is a single segment.
            foreign: Where it is a reference file, path of the other checkpoint's file.

        Yields:
            A piece and its bytes, as :meth:`size`.
        """
        first, last = self._of(name, foreign)
        offsets = self.snapshot.scan.entries.offset[self._rows[first:last]]
        # Segments at the same place, such as empty ones, cannot be told apart by it.
        begins = np.flatnonzero(np.diff(offsets, prepend=-1))
        totals: np.ndarray = np.append(0, np.cumsum(self._sizes[first:last]))
        totals = totals[np.append(begins, last - first)]
        at = 0
        while at < len(begins):
            end = max(at + 1, int(np.searchsorted(totals, totals[at] + capacity, "right")) - 1)
            stop = int(offsets[begins[end]]) if end < len(begins) else int(offsets[-1]) + 1
            yield Piece(name, int(offsets[begins[at]]), stop, foreign), int(totals[end] - totals[at])
            at = end

    def _of(self, name: str, foreign: str = "") -> tuple[int, int]:
        number, origin = self._numbers.get(name), self._origins.get(foreign)
        if number is None or origin is None:
            return 0, 0
        place = number * len(self._origins) + origin
        return int(self._bounds[place]), int(self._bounds[place + 1])


_LOOKING = "looking at what lives"

Bin: TypeAlias = tuple[Piece, ...]
"""What goes into one new file."""


@dataclass(frozen=True)
class NewFile:
    """A file that was written.

    Attributes:
        name: Its name.
        size: In bytes.
        live_bytes: Of the segments in it.
        sources: Names of the files that they are from.
    """

    name: str
    size: int
    live_bytes: int
    sources: tuple[str, ...]


@dataclass
class Relocation:
    """What became of some bins.

    Attributes:
        added: Files that were written.
        failures: Why others were not.
    """

    added: list[NewFile] = field(default_factory=list)
    failures: list[StateStoreFilesError] = field(default_factory=list)


def relocate(
    log: MergedLog,
    bins: Iterable[Bin] | Callable[[Movable], Iterable[Bin]],
    callback: Callback | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Relocation:
    """Writes a new sealed file for each bin, of what lives of it by then; where nothing does, none.

    Args:
        log: Of the checkpoint.
        bins: What to copy; or what decides it, given the first look, which spares another one.
        callback: Told of each live byte that was copied.
        clock: Seconds that do not jump.

    Returns:
        What was written. A bin with a corrupt segment, or in files that cannot be read, is left as it was.

    Raises:
        StateStoreFilesError: The checkpoint cannot be looked at, or nothing can be written.
    """
    done = Relocation()
    if not log.directory.files(MERGED):
        # An marker would make the directory.
        check_checkpoint(log.directory)
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
            raise log.too_slow(_LOOKING)
    return done


def _relocate_one(
    log: MergedLog,
    pieces: Bin,
    movable: Movable,
    marker: RelocationMarker,
    done: Relocation,
    callback: Callback | None,
    clock: Callable[[], float],
) -> Movable:
    """Returns the latest look."""
    gone: ForeignFileGoneError | None = None
    for _ in range(ATTEMPTS):
        try:
            added = _Copy(log, movable, pieces, callback, clock).write(marker)
        except _SourceGoneError as error:
            if gone is not None and error.foreign is not None and error.foreign.path == gone.path:
                done.failures.append(gone.as_error(log.directory))
                return movable
            gone = error.foreign
            # Somebody else has moved what lived in it.
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
    """One new file."""

    def __init__(
        self,
        log: MergedLog,
        movable: Movable,
        pieces: Sequence[Piece],
        callback: Callback | None,
        clock: Callable[[], float],
    ) -> None:
        self._log = log
        self._snapshot = movable.snapshot
        self._pieces = pieces
        self._rows = movable.rows(pieces)
        self._callback = callback or NoOpCallback()
        self._clock = clock

    def write(self, marker: RelocationMarker) -> NewFile | None:
        """Copies; None where nothing lives any more."""
        if not len(self._rows):
            return None
        entries = self._snapshot.scan.entries
        try:
            with ExitStack() as in_doubt, self._log.new_file(self._snapshot) as (name, out):
                start = out.position
                self._payload(out)
                rows = self._rows
                offsets: np.ndarray = start + _begins(entries.length[rows])
                snapshot = self._snapshot
                if not marker.is_timely():
                    # Others wait no longer: announced again, and looked again, before anybody can see the copies.
                    marker = in_doubt.enter_context(holding_marker(self._log, self._clock))
                    snapshot = self._log.snapshot()
                    still = self._still_living(Movable(snapshot))
                    rows, offsets = rows[still], offsets[still]
                    if not marker.is_timely():
                        raise self._log.too_slow(_LOOKING)
                if not len(rows):
                    raise _NothingLivesError
                in_doubt.enter_context(marker.copying())
                out.add_columns(*copied(entries, rows, offsets))
                out.seal(group_stamp=max(snapshot.highest_stamp, self._snapshot.highest_stamp))
        except _NothingLivesError:
            return None
        sources = tuple(entries.files[number] for number in np.unique(entries.file[rows]).tolist())
        return NewFile(name, out.position, int(entries.length[rows].sum()), sources)

    def _payload(self, out: MergedFileWriter) -> None:
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
        """Which of the rows live in a later look; a closed file says the same of its segments in every look."""
        later = now.rows(self._pieces)
        still: np.ndarray = np.asarray(
            pc.is_in(_places(self._snapshot, self._rows), value_set=_places(now.snapshot, later))
        )
        return still


class _SourceGoneError(Exception):
    """A file that is to be copied from does not exist any more."""

    def __init__(self, foreign: ForeignFileGoneError | None = None) -> None:
        super().__init__()
        self.foreign = foreign


class _NothingLivesError(Exception):
    """Nothing is left to be copied."""


def _begins(lengths: np.ndarray) -> np.ndarray:
    begins: np.ndarray = np.cumsum(lengths) - lengths
    return begins


def _places(snapshot: LogSnapshot, rows: np.ndarray) -> pa.Array:
    """A text for each row that says which file, where in it, and what it is."""
    entries = snapshot.scan.entries
    names = pa.array(entries.files, pa.string()).take(pa.array(entries.file[rows]))
    origins = pa.array(["", *entries.foreign], pa.string()).take(pa.array(entries.origin[rows]))
    names = pc.binary_join_element_wise(names, origins, "")
    offsets = pa.array(entries.offset[rows]).cast(pa.string())
    return pc.binary_join_element_wise(names, offsets, paths_of(entries, rows), "/")
