"""What of a look may be moved to another file, and how it is named in a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.format.layout import ENTRY, U32
from pyspark_statestore.index import MAX_GENERATION
from pyspark_statestore.maintenance.site import View


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
        view: The look. Only what lives in one that began after an announcement may be copied.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        entries, resolution = view.scan.entries, view.scan.resolution
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
        state = self.view.states[name]
        return state.closed and not state.index_only

    @cached_property
    def _sizes(self) -> np.ndarray:
        """Bytes that each takes in a new file, its part of the index included."""
        entries = self.view.scan.entries
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
            offsets = self.view.scan.entries.offset[rows]
            first = int(np.searchsorted(offsets, piece.start))
            parts.append(rows[first : int(np.searchsorted(offsets, piece.end))])
        joined: np.ndarray = np.concatenate(parts)
        return joined

    def foreign_pieces(self, capacity: int) -> Iterator[tuple[Piece, int]]:
        """Cuts what files of other checkpoints have, as :meth:`pieces`."""
        entries = self.view.scan.entries
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
        offsets = self.view.scan.entries.offset[self._rows[first:last]]
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
