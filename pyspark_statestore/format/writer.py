"""Writes merged files; :mod:`pyspark_statestore.format.layout` says where every byte is.

A group does not exist before its trailer is written, and the trailer is written last. So a writer may die at any byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format.checksum import crc32c
from pyspark_statestore.format.index_block import IndexEncoder
from pyspark_statestore.format.layout import (
    FLAG_CUMULATIVE,
    FLAG_FOREIGN,
    FLAG_INDEX_ONLY,
    FLAG_SEALED,
    FRONT_SIZE,
    HEADER_FIXED,
    HEADER_MAGIC,
    HEADER_MAX_LENGTH,
    HEADER_MIN_LENGTH,
    MAX_SIGNED,
    META_FRONTS,
    TRAILER_SIZE,
    U32,
    Entry,
    Kind,
    SegmentType,
    Trailer,
    is_reference,
    is_valid_path,
    pack_front,
    parse_file_name,
)

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


class Sink(Protocol):
    """What a merged file is written to: any binary file that is open for writing."""

    def write(self, data: bytes, /) -> object:
        """Takes all of the bytes."""


class MergedFileWriter:
    """Appends groups to one merged file. The header is written at once, each group in one write.

    :meth:`append` writes at once, too; nobody sees these bytes before their group ends. Files whose groups have fronts
    do not allow it, since a front says how long its group is.
    The caller flushes and closes: only it knows when a group has to be durable.

    Args:
        out: Takes the bytes.
        writer: The id of this process, a random number of 63 bits.
        created_ms: When the file was begun, in Unix milliseconds.
        meta: What else the header says, as JSON: ``app_id``, ``executor_id``, ``query_run_id``, ``shim``, ``plain``;
            ``fronts`` if groups begin with a front, ``whole`` if nobody sees the file before it is sealed.

    Example:
        >>> out = io.BytesIO()
        >>> file = MergedFileWriter(out, writer=7, created_ms=1_700_000_000_000)
        >>> entry = file.put("0/0/default/1.changelog", b"...", stamp=1)
        >>> file.end_group()
        >>> file.seal()
    """

    def __init__(
        self, out: Sink, *, writer: int, created_ms: int, meta: Mapping[str, str | bool] | None = None
    ) -> None:
        self._out = out
        self.writer = _unsigned(writer)
        encoded = json.dumps(dict(meta or {}), separators=(",", ":"), ensure_ascii=False).encode()
        length = HEADER_MIN_LENGTH + len(encoded)
        if length > HEADER_MAX_LENGTH:
            raise ValueError(f"the header's meta is {len(encoded)} bytes long")
        header = HEADER_FIXED.pack(HEADER_MAGIC, length, writer, _unsigned(created_ms), len(encoded)) + encoded
        self._pending = IndexEncoder()
        self._payload: list[bytes] = []
        self._written = IndexEncoder()
        self._previous = 0
        self._group_stamp = 0
        self._sealed = False
        self._fronts = (meta or {}).get(META_FRONTS) is True
        self._front_at = -1
        self._out.write(header + U32.pack(crc32c(header)))
        self.position = length

    def put(self, path: str, data: bytes, *, stamp: int, writer: int | None = None, generation: int = 0) -> Entry:
        """Adds a segment to the group that is being collected.

        Args:
            path: The path of the logical file, relative to ``state/``.
            data: Its bytes.
            stamp: The hybrid logical clock of the write.
            writer: The id of the process that wrote it; this writer's, unless the segment is relocated.
            generation: How often the segment was relocated.

        Returns:
            The entry that the index will hold.
        """
        self._begin_group()
        entry = Entry(
            Kind.PUT,
            SegmentType.of(path),
            generation,
            crc32c(data),
            _unsigned(stamp),
            self.writer if writer is None else _unsigned(writer),
            self.position,
            len(data),
            0,
            _checked(path),
        )
        self._add(entry)
        self._payload.append(data)
        self.position += len(data)
        return entry

    def delete(self, path: str, *, stamp: int, writer: int, generation: int = 0) -> Entry:
        """Adds a tombstone, which kills the entries of a path up to and including a key.

        Args:
            path: The path of the logical file.
            stamp: The stamp of the entry that is deleted.
            writer: The writer of the entry that is deleted.
            generation: How often the tombstone was carried over.
        """
        key = (_unsigned(stamp), _unsigned(writer))
        entry = Entry(Kind.DELETE, SegmentType.of(path), generation, 0, *key, 0, 0, 0, _checked(path))
        self._add(entry)
        return entry

    def append(self, data: bytes) -> None:
        """Writes bytes of segments whose entries come with :meth:`add_columns`, before the group ends.

        Args:
            data: The bytes of one segment, of a part of one, or of many.
        """
        if self._fronts:
            raise ValueError("a group with a front cannot be written little by little")
        if self._payload:
            self._out.write(b"".join(self._payload))
            self._payload = []
        self._out.write(data)
        self.position += len(data)

    def add_columns(self, records: np.ndarray[Any, Any], paths: pa.StringArray) -> None:
        """Adds entries to the group that is being collected, many at once.

        Args:
            records: As :attr:`IndexBlock.records` of a valid file; the segments of PUTs are in this file.
            paths: The paths of the logical files, as :attr:`IndexBlock.paths` of a valid file.
        """
        if self._sealed:
            raise ValueError("the file is sealed")
        self._pending.add_columns(records, paths)
        if len(records):
            self._group_stamp = max(self._group_stamp, _unsigned(int(records["stamp"].max())))

    def end_group(self, *, group_stamp: int | None = None) -> None:
        """Writes the collected segments, their index block and the trailer.

        Args:
            group_stamp: The highest stamp that the writer has seen; the highest of the entries if not given.
        """
        self._written.extend(self._pending)
        self._write_group(self._pending, None, 0, group_stamp)

    def seal(self, *, group_stamp: int | None = None) -> None:
        """Ends the file: writes what is still collected, and an index of everything in the file."""
        self._written.extend(self._pending)
        self._write_group(self._written, None, FLAG_SEALED | FLAG_CUMULATIVE, group_stamp)

    def seal_index_only(self, files: Mapping[str, Iterable[Entry]], *, group_stamp: int | None = None) -> None:
        """Ends a file that only repeats the entries of other, sealed files.

        Args:
            files: The entries of each of these files, by its name.
            group_stamp: As in :meth:`end_group`.
        """
        if self._pending:
            raise ValueError("an index-only file holds no segments of its own")
        for number, entries in enumerate(files.values(), start=1):
            for entry in entries:
                self._add(replace(entry, file_ref=number))
        self.seal_index_of(list(files), group_stamp=group_stamp)

    def seal_index_of(self, names: Sequence[str], *, group_stamp: int | None = None) -> None:
        """Ends a file that only repeats the entries of other, sealed files; the entries come with :meth:`add_columns`.

        Args:
            names: The names of these files; the entries' ``file_ref`` says which, from 1 on.
            group_stamp: As in :meth:`end_group`.
        """
        if self._written:
            raise ValueError("an index-only file holds no segments of its own")
        for name in names:
            if parse_file_name(name) is None:
                raise StateStoreFilesError(
                    "PSS_BAD_PATH", {"path": name, "reason": "this is not the name of a merged file"}
                )
        self._write_group(self._pending, names, FLAG_SEALED | FLAG_CUMULATIVE | FLAG_INDEX_ONLY, group_stamp)

    def seal_references(self, files: Mapping[str, Iterable[Entry]], *, group_stamp: int | None = None) -> None:
        """Ends a reference file: its entries belong to this checkpoint, their segments are in other files.

        Args:
            files: The entries by the file that holds them, all of them PUTs. A file of another checkpoint is given as
                :func:`~pyspark_statestore.format.layout.foreign_path` makes it, an own one by its name.
            group_stamp: As in :meth:`end_group`.
        """
        for number, entries in enumerate(files.values(), start=1):
            for entry in entries:
                self._add(replace(entry, file_ref=number))
        self.seal_references_to(list(files), group_stamp=group_stamp)

    def seal_references_to(self, paths: Sequence[str], *, group_stamp: int | None = None) -> None:
        """Ends a reference file; the entries come with :meth:`add_columns`, and may be from several files.

        Args:
            paths: The paths or names of the files that hold the segments; the entries' ``file_ref`` says which, from 1
                on.
            group_stamp: As in :meth:`end_group`.
        """
        if self._written or self._payload or self._previous:
            raise ValueError("a reference file holds no segments of its own")
        for path in paths:
            if not is_reference(path):
                reason = "it is neither the absolute, normalised path nor the name of a merged file with segments"
                raise StateStoreFilesError("PSS_BAD_PATH", {"path": path, "reason": reason})
        self._write_group(self._pending, paths, FLAG_SEALED | FLAG_CUMULATIVE | FLAG_FOREIGN, group_stamp)

    def _begin_group(self) -> None:
        if self._fronts and self._front_at < 0:
            self._front_at = self.position
            self.position += FRONT_SIZE

    def _add(self, entry: Entry) -> None:
        if self._sealed:
            raise ValueError("the file is sealed")
        self._pending.add(entry)
        self._group_stamp = max(self._group_stamp, entry.stamp)

    def _write_group(
        self, entries: IndexEncoder, names: Sequence[str] | None, flags: int, group_stamp: int | None
    ) -> None:
        if self._sealed:
            raise ValueError("the file is sealed")
        self._group_stamp = max(self._group_stamp, _unsigned(group_stamp or 0))
        self._begin_group()
        index, name_table = entries.encode(names)
        trailer = Trailer(
            flags,
            entries.count,
            self.position,
            len(index),
            self._previous,
            self._group_stamp,
            self.position + name_table if name_table else 0,
            crc32c(index),
        )
        self._previous = self.position + len(index)
        self.position = self._previous + TRAILER_SIZE
        front = [pack_front(self._front_at, self.position - self._front_at)] if self._fronts else []
        self._out.write(b"".join([*front, *self._payload, index, trailer.pack()]))
        self._pending, self._payload, self._front_at = IndexEncoder(), [], -1
        self._sealed = bool(flags & FLAG_SEALED)


def _unsigned(number: int) -> int:
    if not 0 <= number <= MAX_SIGNED:
        raise ValueError(f"{number} does not fit into 63 bits")
    return number


def _checked(path: str) -> str:
    if not is_valid_path(path):
        raise StateStoreFilesError("PSS_BAD_PATH", {"path": path, "reason": "it is not a relative path below state/"})
    return path
