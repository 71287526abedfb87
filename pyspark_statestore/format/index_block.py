"""Index blocks: maps one that was read, and makes new ones.

A block that was read is not parsed entry by entry: its entries, paths and file names stay in the bytes that were read,
as NumPy and Arrow arrays. Nothing in it is trusted before it was checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark_statestore.format.checksum import crc32c
from pyspark_statestore.format.layout import (
    BAD_PATH_PATTERN,
    ENTRY,
    FLAG_INDEX_ONLY,
    FOREIGN_PATTERN,
    MAX_HEAP,
    MAX_PATH_LENGTH,
    MAX_SIGNED,
    MERGED_NAME_PATTERN,
    NOT_NORMALISED_PATTERN,
    U32,
    Entry,
    Kind,
    SegmentType,
    Trailer,
    fits,
    index_min_length,
)

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_FIELDS = ("kind", "type", "generation", "crc32c", "stamp", "writer", "offset", "length", "file_ref", "zero")

_TYPES = ("<u1", "<u1", "<u2", "<u4", "<u8", "<u8", "<u8", "<u8", "<u4", "<u4")

ENTRY_TYPE = list(zip(_FIELDS, _TYPES, strict=True))
"""The NumPy type of an entry's fixed-width fields."""

_KNOWN_TYPES = frozenset(SegmentType)


class MalformedIndexError(ValueError):
    """An index block says something impossible; the caller, which knows the file, adds its name and the offset."""


@dataclass(frozen=True)
class IndexBlock:
    """The entries of a group.

    Attributes:
        records: A NumPy record array with the entries' fixed-width fields.
        paths: An Arrow string array of their logical paths.
        names: Names of other merged files to which the entries of an index-only or a reference file refer.
        foreign: Whether it is a reference file's. The names are then paths of files of other checkpoints, or names of
            this checkpoint's own.
    """

    records: np.ndarray[Any, Any] = field(repr=False)
    paths: pa.StringArray = field(repr=False)
    names: tuple[str, ...]
    foreign: bool = False

    @classmethod
    def empty(cls) -> IndexBlock:
        """Returns a block without entries."""
        encoded = U32.pack(0)
        return cls.decode(encoded, Trailer(0, 0, 0, len(encoded), 0, 0, 0, crc32c(encoded)))

    @property
    def ends_by_file(self) -> list[int]:
        """The least length of each named file: where the last of the segments ends that the entries have in it."""
        import numpy as np

        ends: np.ndarray[Any, Any] = np.zeros(len(self.names) + 1, "u8")
        puts = self.records[self.records["kind"] == Kind.PUT]
        np.maximum.at(ends, puts["file_ref"], puts["offset"] + puts["length"])
        return [int(end) for end in ends[1:]]

    @classmethod
    def decode(cls, encoded: bytes, trailer: Trailer) -> IndexBlock:
        """Maps a block whose checksum has been verified, trusting nothing in it.

        Args:
            encoded: The block's bytes.
            trailer: Its group's trailer, which is known to be plausible at its place.

        Raises:
            MalformedIndexError: The block says something impossible.
        """
        import numpy as np
        import pyarrow.compute as pc

        count = trailer.count
        table_start = len(encoded)
        if trailer.name_table_offset:
            table_start = trailer.name_table_offset - trailer.index_offset
        if not index_min_length(count) <= table_start <= len(encoded):
            raise MalformedIndexError("its name table lies outside of the index block")
        names: tuple[str, ...] = ()
        if trailer.name_table_offset:
            if table_start + U32.size > len(encoded):
                raise MalformedIndexError("its name table lies outside of the index block")
            file_count = U32.unpack_from(encoded, table_start)[0]
            strings = _strings(encoded, table_start + U32.size, len(encoded), file_count, "name table")
            is_right = _are_references(strings) if trailer.foreign else _are_names(strings)
            if not pc.all(is_right, min_count=0).as_py():
                what = "names or paths of merged files" if trailer.foreign else "names of merged files"
                raise MalformedIndexError(f"its name table holds something else than {what}")
            names = tuple(strings.to_pylist())
        records = np.frombuffer(encoded, dtype=np.dtype(ENTRY_TYPE), count=count)
        paths = _strings(encoded, ENTRY.size * count, table_start, count, "path heap")
        block = cls(records, paths, names, trailer.foreign)
        block._check(trailer)
        return block

    def _check(self, trailer: Trailer) -> None:
        import pyarrow.compute as pc

        records = self.records
        bad_path = pc.or_(pc.match_substring_regex(self.paths, BAD_PATH_PATTERN), _are_too_long(self.paths))
        self._refuse(bad_path.to_numpy(zero_copy_only=False), "is not a relative path below state/")
        is_put = records["kind"] == Kind.PUT
        self._refuse(~is_put & (records["kind"] != Kind.DELETE), "has an entry of unknown kind")
        out_of_range = records["file_ref"] > len(self.names)
        for name in ("stamp", "writer", "offset", "length"):
            out_of_range |= records[name] > MAX_SIGNED
        out_of_range |= records["offset"] + records["length"] > MAX_SIGNED
        self._refuse(out_of_range, "has a stamp, writer, offset, length or file reference that is out of range")
        # A segment of this file lies before its index block; those of other files are checked when they are read.
        # None of the sums overflows: both terms are below 2^63.
        here = is_put & (records["file_ref"] == 0)
        if trailer.foreign:
            if not (trailer.sealed and trailer.cumulative) or trailer.flags & FLAG_INDEX_ONLY or trailer.previous:
                raise MalformedIndexError("it refers to other checkpoints, but is not all that its file says")
            self._refuse(here | ~is_put, "is not a segment of another checkpoint in a reference file")
        beyond = here & (records["offset"] + records["length"] > trailer.index_offset)
        self._refuse(beyond, "has a segment that lies outside of the file")

    def _refuse(self, bad: Any, what: str) -> None:
        if bad.any():
            raise MalformedIndexError(f"the logical path {self.paths[int(bad.argmax())].as_py()!r} {what}")

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Entry]:
        for record, path in zip(self.records.tolist(), self.paths.to_pylist(), strict=True):
            kind, type_, generation, crc, stamp, writer, offset, length, file_ref, _ = record
            segment_type = SegmentType(type_) if type_ in _KNOWN_TYPES else SegmentType.OTHER
            yield Entry(Kind(kind), segment_type, generation, crc, stamp, writer, offset, length, file_ref, path)

    def to_arrow(self) -> pa.Table:
        """Returns the entries as a table with a column per field, and ``path``."""
        import pyarrow as pa

        columns = {name: pa.array(self.records[name].copy()) for name in _FIELDS if name != "zero"}
        return pa.table({**columns, "path": self.paths})


class IndexEncoder:
    """Collects the entries of an index block in the form in which they are written."""

    def __init__(self) -> None:
        self._entries: list[bytes] = []
        self._lengths: list[bytes] = []
        self._heap: list[bytes] = []
        self._heap_length = 0
        self.count = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def add(self, entry: Entry) -> None:
        """Adds an entry."""
        path = entry.path.encode()
        self._add(1, entry.pack(), U32.pack(len(path)), path)

    def add_columns(self, records: np.ndarray[Any, Any], paths: pa.StringArray) -> None:
        """Adds many entries.

        Args:
            records: As :attr:`IndexBlock.records`.
            paths: As :attr:`IndexBlock.paths`.
        """
        import numpy as np

        if not len(records):
            return
        # The buffers of an array that is a slice of another one begin elsewhere.
        offsets = np.frombuffer(paths.buffers()[1], "<i4", len(paths) + 1, 4 * paths.offset)
        data = paths.buffers()[2]
        heap = data[int(offsets[0]) : int(offsets[-1])].to_pybytes() if data is not None else b""
        self._add(len(records), records.tobytes(), np.diff(offsets).astype("<u4").tobytes(), heap)

    def extend(self, other: IndexEncoder) -> None:
        """Adds all entries of another block."""
        self._entries += other._entries
        self._lengths += other._lengths
        self._heap += other._heap
        self._heap_length += other._heap_length
        self.count += other.count

    def encode(self, names: Sequence[str] | None = None) -> tuple[bytes, int]:
        """Makes the block.

        Args:
            names: Names of other merged files, for an index-only or a reference file.

        Returns:
            The block, and where its name table begins; 0 without one.
        """
        block = b"".join([*self._entries, _offsets(b"".join(self._lengths)), *self._heap])
        if names is None:
            return block, 0
        encoded = [name.encode() for name in names]
        lengths = b"".join(U32.pack(len(name)) for name in encoded)
        return b"".join([block, U32.pack(len(names)), _offsets(lengths), *encoded]), len(block)

    def _add(self, count: int, entries: bytes, lengths: bytes, heap: bytes) -> None:
        if self._heap_length + len(heap) > MAX_HEAP:
            raise ValueError("the paths of an index block take more than 2 GiB")
        self._entries.append(entries)
        self._lengths.append(lengths)
        self._heap.append(heap)
        self._heap_length += len(heap)
        self.count += count


def _are_names(strings: pa.StringArray) -> Any:
    import pyarrow.compute as pc

    return pc.match_substring_regex(strings, MERGED_NAME_PATTERN)


def _are_references(strings: pa.StringArray) -> Any:
    import pyarrow.compute as pc

    is_path = pc.and_not(
        pc.match_substring_regex(strings, FOREIGN_PATTERN), pc.match_substring_regex(strings, NOT_NORMALISED_PATTERN)
    )
    is_path = pc.and_not(is_path, _are_too_long(strings))
    return pc.or_(is_path, pc.match_substring_regex(strings, MERGED_NAME_PATTERN))


def _are_too_long(strings: pa.StringArray) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    # UTF-8 has more bytes than what is counted, so Python has to look at few of them only.
    may_be = pc.greater(pc.binary_length(strings), MAX_PATH_LENGTH)
    if not pc.any(may_be, min_count=0).as_py():
        return may_be
    return pa.array(
        [each and not fits(text) for each, text in zip(may_be.to_pylist(), strings.to_pylist(), strict=True)]
    )


def _strings(encoded: bytes, start: int, end: int, count: int, what: str) -> pa.StringArray:
    """Maps ``count`` strings: their offsets from ``start`` on, then a heap that has to end at ``end``."""
    import numpy as np
    import pyarrow as pa

    heap = start + 4 * (count + 1)
    if heap > end:
        raise MalformedIndexError(f"its {what} is larger than the index block")
    if end - heap > MAX_HEAP:
        raise MalformedIndexError(f"its {what} is larger than any that this release writes")
    offsets = np.frombuffer(encoded, dtype="<u4", count=count + 1, offset=start)
    if offsets[0] != 0 or offsets[-1] != end - heap or bool((offsets[1:] < offsets[:-1]).any()):
        raise MalformedIndexError(f"the offsets of its {what} are not in order")
    # Arrow wants aligned offsets; the heap itself is used where it is.
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(memoryview(encoded)[heap:end])]
    array = pa.Array.from_buffers(pa.string(), count, buffers)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise MalformedIndexError(f"its {what} is not UTF-8") from error
    return array


def _offsets(lengths: bytes) -> bytes:
    """Where strings of these lengths begin, and where the last one ends."""
    import numpy as np

    offsets: np.ndarray[Any, Any] = np.zeros(len(lengths) // U32.size + 1, "<u4")
    np.cumsum(np.frombuffer(lengths, "<u4"), out=offsets[1:])
    return offsets.tobytes()
