"""The logical files that make up the state: live segments, and plain files beside them (rule 10)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format.checksum import crc32c
from pyspark_statestore.inspect.logical_paths import Stores, parse_store
from pyspark_statestore.inspect.scan import MERGED, Scan, naming_foreign
from pyspark_statestore.sparkfiles import is_whole_stream
from pyspark_statestore.storage.directory import LARGEST_WHOLE, Directory, FileInfo, in_parallel

STATE = "state"
"""Where state is, in a checkpoint."""

MERGED_NAME = MERGED.rpartition("/")[2]

Result = TypeVar("Result")

_PLAIN_PARTS = 32
"""Plain files are read one by one, in so many parts at the same time at most."""

PLAIN = -1
"""Stands for a merged file's number where the file lies by itself."""


@dataclass(frozen=True)
class StateFiles:
    """A row for each logical file.

    Attributes:
        path: Relative to ``state/``.
        length: In bytes.
        merged: Number of the merged file in ``names``, or :data:`PLAIN`.
        offset: In the merged file.
        crc32c: Of the bytes of a segment; 0 for a plain file.
        names: Of all merged files.
        origin: 0, or the number (from 1 on) in ``foreign`` of the other checkpoint's file that has a segment's bytes.
        foreign: Paths of files of other checkpoints.
    """

    path: pa.ChunkedArray = field(repr=False)
    length: np.ndarray = field(repr=False)
    merged: np.ndarray = field(repr=False)
    offset: np.ndarray = field(repr=False)
    crc32c: np.ndarray = field(repr=False)
    names: tuple[str, ...] = field(repr=False)
    origin: np.ndarray = field(repr=False)
    foreign: tuple[str, ...] = field(repr=False)

    @classmethod
    def of(cls, scan: Scan, plain: Iterable[FileInfo]) -> StateFiles:
        """Puts what lives in merged files and what lies beside them together.

        Args:
            scan: Of the merged files.
            plain: See :func:`plain_files`.
        """
        entries = scan.entries
        rows = cls.entry_rows(scan)
        live = entries.path.take(pa.array(rows))
        plain = list(plain)
        if plain:
            known = pc.is_in(pa.array([info.name for info in plain], pa.string()), value_set=live).to_pylist()
            plain = [info for info, is_known in zip(plain, known, strict=True) if not is_known]
        sizes = np.array([info.size for info in plain], "i8")
        return cls(
            pa.chunked_array([*live.chunks, pa.array([info.name for info in plain], pa.string())], pa.string()),
            np.concatenate([entries.length[rows], sizes]),
            np.concatenate([entries.file[rows], np.full(len(plain), PLAIN, "i4")]),
            np.concatenate([entries.offset[rows], np.zeros(len(plain), "i8")]),
            np.concatenate([entries.crc32c[rows], np.zeros(len(plain), "u4")]),
            entries.files,
            np.concatenate([entries.origin[rows], np.zeros(len(plain), "i4")]),
            entries.foreign,
        )

    @property
    def has_ids(self) -> bool:
        """Whether Spark's checkpoint format 2 is in use: names have an id after the version then."""
        return bool(pc.any(pc.match_substring_regex(self.path, r"/\d+_[^/]*$"), min_count=0).as_py())

    def is_merged(self, rows: np.ndarray) -> np.ndarray:
        """Which of these rows are segments."""
        is_merged: np.ndarray = self.merged[rows] != PLAIN
        return is_merged

    @staticmethod
    def entry_rows(scan: Scan) -> np.ndarray:
        """Of each segment, in the order of the rows, the row of its entry; segments come before plain files."""
        return np.flatnonzero(scan.resolution.live)

    def without(self, rows: np.ndarray) -> StateFiles:
        """Returns all but these rows."""
        kept: np.ndarray = np.ones(len(self.length), bool)
        kept[rows] = False
        columns = (self.length[kept], self.merged[kept], self.offset[kept], self.crc32c[kept])
        return StateFiles(self.path.filter(pa.array(kept)), *columns, self.names, self.origin[kept], self.foreign)

    def holder(self, row: int) -> str:
        """The path of what holds a file's bytes, as :class:`~pyspark_statestore.storage.Directory` takes it."""
        if self.merged[row] == PLAIN:
            return f"{STATE}/{self.path[row].as_py()}"
        return self.foreign[self.origin[row] - 1] if self.origin[row] else f"{MERGED}/{self.names[self.merged[row]]}"

    def stores(self) -> Stores:
        """Which store each file belongs to."""
        return Stores.of(self.path)

    def read(
        self,
        directory: Directory,
        rows: np.ndarray,
        parse: Callable[[bytes | None], Result],
        at_most: int | None = None,
        most: int = LARGEST_WHOLE,
    ) -> list[Result]:
        """Reads files, many at a time; those of a merged file with as few requests as possible.

        Args:
            directory: Of the checkpoint.
            rows: Which.
            parse: What to make of a file's bytes, which are not kept; None stands for others than were written.
            at_most: Only so many bytes from the start of each; these are not checked.
            most: Bytes of the longest one that is allowed: it may be longer than the memory, on a disk that has holes.

        Returns:
            What was made of them, in the order of the rows.

        Raises:
            FileNotFoundError: A file is gone.
            StateStoreFilesError: It cannot be read.
        """
        lengths = self.length[rows] if at_most is None else np.minimum(self.length[rows], at_most)
        self._check_lengths(directory, rows, lengths, most)
        found: dict[int, Result] = {}

        def read(group: np.ndarray) -> None:
            if self.merged[rows[group[0]]] == PLAIN:
                for at, path in self._paths(rows, group):
                    found[at] = parse(directory.read(path, int(lengths[at]), most))
                return
            path = self.holder(int(rows[group[0]]))
            ranges = list(zip(self.offset[rows[group]].tolist(), lengths[group].tolist(), strict=True))
            size = max(offset + length for offset, length in ranges)
            with naming_foreign(path, lambda: str(self.path[int(rows[group[0]])].as_py())):
                for number, data in directory.read_ranges(path, size, ranges):
                    at = int(group[number])
                    is_whole = len(data) == lengths[at]
                    if is_whole and at_most is None:
                        is_whole = crc32c(data) == self.crc32c[rows[at]]
                    found[at] = parse(data if is_whole else None)

        is_plain = self.merged[rows] == PLAIN
        place = self.merged[rows].astype("i8") * (len(self.foreign) + 1) + self.origin[rows]
        in_parallel(read, [*_parts(np.flatnonzero(is_plain)), *_by_value(np.where(is_plain, PLAIN, place))])
        return [found[at] for at in range(len(rows))]

    def _check_lengths(self, directory: Directory, rows: np.ndarray, lengths: np.ndarray, most: int) -> None:
        long = np.flatnonzero(lengths > most)
        if len(long):
            where = directory.location.display(f"{STATE}/{self.path[int(rows[long[0]])].as_py()}")
            reason = f"it has {lengths[long[0]]} bytes, and of such a file at most {most} are read at once"
            raise StateStoreFilesError("PSS_READ_FAILED", {"action": "read", "path": where, "reason": reason})

    def plain_are_whole(self, directory: Directory, rows: np.ndarray) -> np.ndarray:
        """Tells of plain changelogs, deltas and snapshots whether they were cut off, as far as their ends tell.

        Args:
            directory: Of the checkpoint.
            rows: Which.

        Raises:
            FileNotFoundError: A file is gone.
            StateStoreFilesError: It cannot be read.
        """
        whole: np.ndarray = np.zeros(len(rows), bool)

        def look(group: np.ndarray) -> None:
            for at, path in self._paths(rows, group):
                size = int(self.length[rows[at]])
                with directory.open(path, size) as file:
                    whole[at] = is_whole_stream(file.read_at, size)

        in_parallel(look, _parts(np.arange(len(rows))))
        return whole

    def _paths(self, rows: np.ndarray, group: np.ndarray) -> Iterator[tuple[int, str]]:
        """Positions in ``rows``, and these files' paths in the checkpoint."""
        paths = self.path.take(pa.array(rows[group])).to_pylist()
        return zip(group.tolist(), [f"{STATE}/{path}" for path in paths], strict=True)


def _parts(positions: np.ndarray) -> list[np.ndarray]:
    return [part for part in np.array_split(positions, _PLAIN_PARTS) if len(part)]


def _by_value(place: np.ndarray) -> list[np.ndarray]:
    """Positions by the file that holds them."""
    order = np.argsort(place, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(place[order])) + 1)
    return [group for group in groups if len(group) and place[group[0]] != PLAIN]


def plain_files(directory: Directory, scan: Scan) -> list[FileInfo]:
    """Lists the state files that are not in merged files; what Spark keeps beside them is left out.

    Where the merged files say that the checkpoint was begun with merging there are none, and nothing is listed.
    """
    if not scan.may_have_plain:
        return []
    return [info for name, info in files_below_state(directory).items() if is_state_file(name)]


def files_below_state(directory: Directory) -> dict[str, FileInfo]:
    """All files below ``state/`` but the merged ones, by their paths from there.

    Raises:
        StateStoreFilesError: They cannot be listed.
    """
    found = directory.find(STATE, leave_out=(MERGED_NAME,))
    return {info.name: info for info in found if not info.name.startswith(f"{MERGED_NAME}/")}


def is_state_file(path: str) -> bool:
    """Whether a path below ``state/`` is one that a state store has written, as ``StatePath`` of the shim decides."""
    folder, _, name = path.rpartition("/")
    extension = name.removesuffix(".crc").rpartition(".")[2]
    if extension not in ("zip", "changelog", "delta", "snapshot", "sst", "log") or name.startswith("."):
        return False
    return parse_store(folder) is not None
