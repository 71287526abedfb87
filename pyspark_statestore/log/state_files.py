"""The logical files that make up the state: live segments, and plain files beside them (rule 10).

A checkpoint that stock Spark began has plain files. Where a merged file and a plain file have the same path, the merged
one counts, as for executors. What the names of state files say (store, version, checkpoint id) is read here, too.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.errors import StateStoreFilesError, not_allowed
from pyspark_statestore.format import foreign_path, split_foreign_path
from pyspark_statestore.log import Entries, Resolution
from pyspark_statestore.log.payload import SegmentRun, read_run
from pyspark_statestore.log.scan import MERGED, Scan
from pyspark_statestore.sparkfiles import files_named, is_whole_stream
from pyspark_statestore.storage.directory import LARGEST_WHOLE, Directory, FileInfo, in_parallel

IMMUTABLE = re.compile(r".+/(SSTs/[^/.][^/]*\.sst|logs/[^/.][^/]*\.log)")

STATE = "state"
"""The state's directory in a checkpoint."""

MERGED_NAME = MERGED.rpartition("/")[2]

Result = TypeVar("Result")

_PLAIN_PARTS = 32
"""Plain files are read one by one, by so many threads' worth of work at most."""

PLAIN = -1
"""Stands for a merged file's number where a state file is plain."""

DEFAULT_STORE = "default"

_STORE = re.compile(r"([0-9]{1,9})/([0-9]{1,9})(?:/(?!(?:SSTs|logs)$|_)([^/]+?))?(?:/(?:SSTs|logs))?")

_NAME = r"^(?P<version>[0-9]{1,18})(?:_(?P<id>[^./]+))?\.(?P<extension>(?:zip|changelog|delta|snapshot)(?:\.crc)?)$"


def check_id(name: str, value: object) -> None:
    """Refuses what is neither the number of an operator or a partition nor None.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION.
    """
    if value is not None and (not isinstance(value, Integral) or isinstance(value, bool) or int(value) < 0):
        raise not_allowed(name, value, "a whole number, 0 or more")


def check_name(name: str, value: object) -> None:
    """Refuses what is neither text nor None.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION.
    """
    if value is not None and not isinstance(value, str):
        raise not_allowed(name, value, "text, such as 'default'")


@dataclass(frozen=True)
class StoreFilter:
    """Which state stores are wanted; None stands for all."""

    operator_id: int | None = None
    partition_id: int | None = None
    store_name: str | None = None

    def __post_init__(self) -> None:
        for name, value in (("operator_id", self.operator_id), ("partition_id", self.partition_id)):
            check_id(name, value)
        check_name("store_name", self.store_name)

    def __bool__(self) -> bool:
        return (self.operator_id, self.partition_id, self.store_name) != (None, None, None)

    def wants(self, store: tuple[int, int, str]) -> bool:
        """Whether a store, given as (operator id, partition id, store name), is wanted."""
        asked = (self.operator_id, self.partition_id, self.store_name)
        return all(want is None or want == have for want, have in zip(asked, store, strict=True))

    def rows(self, stores: Stores) -> np.ndarray:
        """Marks the paths that belong to wanted stores."""
        if not self:
            return np.ones(len(stores.store), bool)
        wanted = np.array([self.wants(store) for store in stores.known] + [False])  # -1 is the last one
        rows: np.ndarray = wanted[stores.store]
        return rows


EVERYTHING = StoreFilter()


@dataclass(frozen=True)
class StateFiles:
    """A row for each logical file.

    Attributes:
        path: Relative to ``state/``.
        length: In bytes.
        merged: Number of the merged file in ``names``, or :data:`PLAIN`.
        offset: Where the segment begins in the merged file.
        crc32c: The checksum of a segment's bytes; 0 for a plain file.
        names: Names of all merged files.
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
        """Puts what lives in merged files and the plain files beside them together.

        Args:
            scan: A scan of the merged files.
            plain: The plain files: see :func:`plain_files`.
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
        """Marks those of these rows that are segments."""
        is_merged: np.ndarray = self.merged[rows] != PLAIN
        return is_merged

    @staticmethod
    def entry_rows(scan: Scan) -> np.ndarray:
        """The row of each segment's entry, in the order of the rows here; segments come before plain files."""
        return np.flatnonzero(scan.resolution.live)

    def without(self, rows: np.ndarray) -> StateFiles:
        """Returns all rows but these."""
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
        """Tells which store each file belongs to."""
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
            directory: The checkpoint's directory.
            rows: The files' rows.
            parse: Makes something of a file's bytes, which are not kept. It gets None where the bytes are not those
                that were written.
            at_most: Read only so many bytes from the start of each file; their checksums are not compared then.
            most: Bytes that a file may have at most. A file may say that it is longer than the memory.

        Returns:
            What ``parse`` has returned, in the order of the rows.

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
            group = group[np.lexsort((lengths[group], self.offset[rows[group]]))]
            offset, crc = self.offset[rows[group]], self.crc32c[rows[group]] if at_most is None else None
            run = SegmentRun(path, int((offset + lengths[group]).max()), group, offset, lengths[group], crc)
            whole: list[bytes] = []
            for chunk in read_run(directory, run, lambda: str(self.path[int(rows[group[0]])].as_py()), most):
                for number, data in chunk.segments():
                    whole.append(data)
                    if chunk.is_end:
                        found[int(group[number])] = parse(None if number in chunk.wrong else b"".join(whole))
                        whole.clear()

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

    def named(self, directory: Directory, zips: np.ndarray) -> dict[str, int]:
        """The files that snapshots name: their sizes in bytes, by path relative to ``state/``.

        Args:
            directory: The checkpoint's directory.
            zips: Rows of the snapshots; what is none of Spark's names nothing.

        Raises:
            FileNotFoundError: A snapshot is gone.
            StateStoreFilesError: It cannot be read.
        """
        stores = self.stores()
        found = self.read(directory, zips, lambda data: files_named(data or b"") or {})
        folders = [store_folder(stores.known[store]) for store in stores.store[zips].tolist()]
        pairs = zip(folders, found, strict=True)
        return {f"{folder}/{name}": size for folder, names in pairs for name, size in names.items()}

    def plain_are_whole(self, directory: Directory, rows: np.ndarray) -> np.ndarray:
        """Marks those of these plain changelogs, deltas and snapshots that were not cut off, as far as their ends tell.

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
        """Positions in ``rows``, and the paths of these files in the checkpoint."""
        paths = self.path.take(pa.array(rows[group])).to_pylist()
        return zip(group.tolist(), [f"{STATE}/{path}" for path in paths], strict=True)


def plain_files(directory: Directory, scan: Scan) -> list[FileInfo]:
    """Lists the plain state files; what Spark keeps beside them, such as metadata, is left out.

    Where the merged files say that the checkpoint was begun with merging there are none, and nothing is listed.
    """
    if not scan.may_have_plain:
        return []
    return [info for name, info in files_below_state(directory).items() if is_state_file(name)]


def files_below_state(directory: Directory) -> dict[str, FileInfo]:
    """Lists all files below ``state/`` but those in the merged files' directory, by their paths from there.

    Raises:
        StateStoreFilesError: They cannot be listed.
    """
    found = directory.find(STATE, leave_out=(MERGED_NAME,))
    return {info.name: info for info in found if not info.name.startswith(f"{MERGED_NAME}/")}


def is_state_file(path: str) -> bool:
    """Whether a state store has written the file at a path below ``state/``, as ``StatePath`` of the shim decides."""
    folder, _, name = path.rpartition("/")
    extension = name.removesuffix(".crc").rpartition(".")[2]
    if extension not in ("zip", "changelog", "delta", "snapshot", "sst", "log") or name.startswith("."):
        return False
    return parse_store(folder) is not None


@dataclass(frozen=True)
class Stores:
    """Which store each path belongs to.

    Attributes:
        known: (operator id, partition id, store name) of the stores that occur, in ascending order.
        store: Per path, a number into ``known``; -1 where the path is none of Spark's.
        path: The paths.
        name: What is after the last slash of each.
    """

    known: tuple[tuple[int, int, str], ...]
    store: np.ndarray = field(repr=False)
    path: pa.StringArray = field(repr=False)
    name: pa.StringArray = field(repr=False)

    @classmethod
    def of(cls, paths: pa.ChunkedArray) -> Stores:
        """Takes logical paths apart."""
        path = pa.concat_arrays([pa.array([], pa.string()), *paths.chunks])
        folders, names = _split(path)
        encoded = folders.dictionary_encode()
        by_folder = [parse_store(folder) for folder in encoded.dictionary.to_pylist()]
        known = tuple(sorted({store for store in by_folder if store is not None}))
        number = {store: i for i, store in enumerate(known)}
        lookup = np.array([-1 if store is None else number[store] for store in by_folder] or [0], "i4")
        return cls(known, lookup[encoded.indices.to_numpy(zero_copy_only=False)], path, names)

    def columns(self, rows: np.ndarray) -> tuple[pa.Array, pa.Array, pa.Array]:
        """operator_id, partition_id and store_name of some rows; null where the path is none of Spark's."""
        return self.columns_of(self.store[rows])

    def columns_of(self, store: np.ndarray) -> tuple[pa.Array, pa.Array, pa.Array]:
        """operator_id, partition_id and store_name of stores that are given as numbers into ``known``."""
        indices = pa.array(store, pa.int32(), mask=store < 0)
        types: Sequence[pa.DataType] = (pa.int32(), pa.int32(), pa.string())
        return tuple(pa.array([s[i] for s in self.known], types[i]).take(indices) for i in range(3))

    def versions(self, rows: np.ndarray) -> tuple[pa.Array, pa.Array]:
        """The version and the checkpoint id in the names of some rows; null where there is none."""
        return self.version_files(rows)[:2]

    def version_files(self, rows: np.ndarray) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Version, checkpoint id and extension ("zip", "zip.crc") in the names of some rows; null likewise."""
        # Versions are few beside the files of all partitions, and a regular expression for each file would take long.
        names = self.name.take(pa.array(rows)).dictionary_encode()
        parts = pc.extract_regex(names.dictionary, _NAME)
        version, checkpoint_id, extension = (pc.struct_field(parts, i) for i in range(3))
        is_empty = pc.equal(checkpoint_id, "")
        checkpoint_id = pc.if_else(is_empty, pa.scalar(None, pa.string()), checkpoint_id)
        return tuple(column.take(names.indices) for column in (version.cast(pa.int64()), checkpoint_id, extension))


def parse_store(folder: str) -> tuple[int, int, str] | None:
    """Tells (operator id, partition id, store name) from a directory below ``state/``, or None."""
    found = _STORE.fullmatch(folder)
    return (int(found[1]), int(found[2]), found[3] or DEFAULT_STORE) if found else None


def store_folder(store: tuple[int, int, str]) -> str:
    """Returns the directory of a store below ``state/``."""
    operator, partition, name = store
    return f"{operator}/{partition}" if name == DEFAULT_STORE else f"{operator}/{partition}/{name}"


def live_foreign(scan: Scan) -> dict[str, frozenset[str]]:
    """The files of other checkpoints that a checkpoint still reads, as :func:`by_checkpoint` returns them."""
    return foreign_of(scan.entries, scan.resolution.live)


def second_paths(resolution: Resolution, checkpoint: str) -> dict[str, np.ndarray]:
    """A checkpoint's own files in which segments with second paths live: by name, rows of these paths' entries.

    Args:
        resolution: What lives.
        checkpoint: The checkpoint's path in its file system.
    """
    entries = resolution.entries
    own: dict[int, str] = {}
    for number, path in enumerate(entries.foreign, start=1):
        where, name = split_foreign_path(path)
        if where == checkpoint:
            own[number] = name
    rows = np.flatnonzero(resolution.live & np.isin(entries.origin, list(own)))
    if not len(rows):
        return {}
    rows = rows[np.argsort(entries.origin[rows], kind="stable")]
    numbers, begins = np.unique(entries.origin[rows], return_index=True)
    return {own[int(n)]: part for n, part in zip(numbers, np.split(rows, begins[1:]), strict=True)}


def foreign_of(entries: Entries, rows: np.ndarray) -> dict[str, frozenset[str]]:
    """The files of other checkpoints that some rows, or those of a mask, are in: see :func:`by_checkpoint`."""
    numbers = np.unique(entries.origin[rows])
    return by_checkpoint(entries.foreign[number - 1] for number in numbers.tolist() if number)


def missing_foreign(directory: Directory, entries: Entries, rows: np.ndarray) -> frozenset[str]:
    """Paths of the foreign files that some rows, or those of a mask, are in, and that do not exist.

    It takes one listing for each other checkpoint. Where nothing of a foreign file is needed any more, nobody keeps it.

    Raises:
        StateStoreFilesError: One cannot be listed.
    """
    missing: set[str] = set()
    for checkpoint, names in foreign_of(entries, rows).items():
        there = directory.beside(checkpoint).names(MERGED)
        missing.update(foreign_path(checkpoint, name) for name in names.difference(there))
    return frozenset(missing)


def by_checkpoint(paths: Iterable[str]) -> dict[str, frozenset[str]]:
    """Names of merged files by the path of the checkpoint that they are in."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in paths:
        checkpoint, name = split_foreign_path(path)
        found[checkpoint].add(name)
    return {checkpoint: frozenset(names) for checkpoint, names in found.items()}


def _parts(positions: np.ndarray) -> list[np.ndarray]:
    return [part for part in np.array_split(positions, _PLAIN_PARTS) if len(part)]


def _by_value(place: np.ndarray) -> list[np.ndarray]:
    """Positions by the file that holds them."""
    order = np.argsort(place, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(place[order])) + 1)
    return [group for group in groups if len(group) and place[group[0]] != PLAIN]


def _split(paths: pa.StringArray) -> tuple[pa.StringArray, pa.StringArray]:
    """What is before, and what is after the last slash; nothing is before where there is none."""
    if not len(paths):
        return paths, paths
    offsets = np.frombuffer(paths.buffers()[1], "i4", len(paths) + 1, paths.offset * 4)
    text = np.frombuffer(paths.buffers()[2] or b"", "u1")[: offsets[-1]]
    starts, ends = offsets[:-1].astype("i8"), offsets[1:].astype("i8")
    slashes = np.concatenate([[-1], np.flatnonzero(text == ord("/"))])
    last = slashes[np.searchsorted(slashes, ends) - 1]
    folder_ends = np.maximum(last, starts)
    name_starts = np.maximum(last + 1, starts)
    return _substrings(text, starts, folder_ends), _substrings(text, name_starts, ends)


def _substrings(text: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> pa.StringArray:
    """The parts of a text, which are in order and do not overlap."""
    # What is left out before each part, and the part, in turn; then the rest.
    lengths: np.ndarray = np.empty(2 * len(starts) + 1, "i8")
    lengths[0:-1:2] = starts - np.concatenate([[0], ends[:-1]])
    lengths[1::2] = ends - starts
    lengths[-1] = len(text) - ends[-1]
    kept = text[np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)]
    offsets = np.concatenate([[0], np.cumsum(ends - starts)]).astype("i4")
    return pa.StringArray.from_buffers(len(starts), pa.py_buffer(offsets), pa.py_buffer(kept))
