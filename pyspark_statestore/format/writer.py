"""Writes merged files; :mod:`pyspark_statestore.format.layout` says where the bytes go."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format.checksum import crc32c
from pyspark_statestore.format.layout import (
    FLAG_CUMULATIVE,
    FLAG_INDEX_ONLY,
    FLAG_SEALED,
    HEADER_FIXED,
    HEADER_MAGIC,
    HEADER_MAX_LENGTH,
    HEADER_MIN_LENGTH,
    MAX_SIGNED,
    TRAILER_SIZE,
    U32,
    Entry,
    Kind,
    SegmentType,
    Trailer,
    is_valid_path,
    parse_file_name,
)


class Sink(Protocol):
    """What a merged file is written to: any binary file that is opened for writing."""

    def write(self, data: bytes, /) -> object:
        """Takes all of the bytes."""


class MergedFileWriter:
    """Appends groups to one merged file. The header is written at once, each group in one write.

    Flushing and closing are the caller's: only it knows when a group has to be durable.

    Args:
        out: Where the bytes go.
        writer: Id of this process, a random number of 63 bits.
        created_ms: When the file was begun, in Unix milliseconds.
        meta: What else the header says, as JSON: ``app_id``, ``executor_id``, ``query_run_id``, ``shim``, ``plain``.

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
        self._pending: list[Entry] = []
        self._payload: list[bytes] = []
        self._written: list[Entry] = []
        self._previous = 0
        self._group_stamp = 0
        self._sealed = False
        self._out.write(header + U32.pack(crc32c(header)))
        self.position = length

    def put(self, path: str, data: bytes, *, stamp: int, writer: int | None = None, generation: int = 0) -> Entry:
        """Adds a segment to the group that is being collected.

        Args:
            path: Of the logical file, relative to ``state/``.
            data: Its bytes.
            stamp: Hybrid logical clock of the write.
            writer: Who wrote it; this writer, unless the segment is relocated.
            generation: How often it was relocated.

        Returns:
            The entry that the index will hold.
        """
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

    def delete(self, path: str, *, stamp: int, writer: int) -> Entry:
        """Adds a tombstone, which kills the entries of a path up to and including a key.

        Args:
            path: Of the logical file.
            stamp: Of the entry that is deleted.
            writer: Of the entry that is deleted.
        """
        entry = Entry(
            Kind.DELETE, SegmentType.of(path), 0, 0, _unsigned(stamp), _unsigned(writer), 0, 0, 0, _checked(path)
        )
        self._add(entry)
        return entry

    def end_group(self, *, group_stamp: int | None = None) -> None:
        """Writes the collected segments, their index block and the trailer.

        Args:
            group_stamp: The highest stamp that the writer has seen; that of the entries if not given.
        """
        self._written += self._pending
        self._write_group(self._pending, (), 0, group_stamp)

    def seal(self, *, group_stamp: int | None = None) -> None:
        """Ends the file: what is still collected, and an index of all that was ever written to it."""
        self._written += self._pending
        self._write_group(self._written, (), FLAG_SEALED | FLAG_CUMULATIVE, group_stamp)

    def seal_index_only(self, files: Mapping[str, Iterable[Entry]], *, group_stamp: int | None = None) -> None:
        """Ends a file that only repeats the entries of other, sealed files.

        Args:
            files: The entries of each of them, by its name.
            group_stamp: As in :meth:`end_group`.
        """
        if self._written or self._pending:
            raise ValueError("an index-only file holds no segments of its own")
        names = list(files)
        for name in names:
            if parse_file_name(name) is None:
                raise StateStoreFilesError(
                    "PSS_BAD_PATH", {"path": name, "reason": "this is not the name of a merged file"}
                )
        for number, entries in enumerate(files.values(), start=1):
            for entry in entries:
                self._add(replace(entry, file_ref=number))
        self._write_group(self._pending, names, FLAG_SEALED | FLAG_CUMULATIVE | FLAG_INDEX_ONLY, group_stamp)

    def _add(self, entry: Entry) -> None:
        if self._sealed:
            raise ValueError("the file is sealed")
        self._pending.append(entry)
        self._group_stamp = max(self._group_stamp, entry.stamp)

    def _write_group(self, entries: Sequence[Entry], names: Sequence[str], flags: int, group_stamp: int | None) -> None:
        if self._sealed:
            raise ValueError("the file is sealed")
        self._group_stamp = max(self._group_stamp, _unsigned(group_stamp or 0))
        index = b"".join(entry.pack() for entry in entries) + _heap([entry.path for entry in entries])
        name_table_offset = 0
        if flags & FLAG_INDEX_ONLY:
            name_table_offset = self.position + len(index)
            index += U32.pack(len(names)) + _heap(names)
        trailer = Trailer(
            flags,
            len(entries),
            self.position,
            len(index),
            self._previous,
            self._group_stamp,
            name_table_offset,
            crc32c(index),
        )
        self._out.write(b"".join([*self._payload, index, trailer.pack()]))
        self._previous = self.position + len(index)
        self.position = self._previous + TRAILER_SIZE
        self._pending, self._payload = [], []
        self._sealed = bool(flags & FLAG_SEALED)


def _heap(strings: Sequence[str]) -> bytes:
    encoded = [text.encode() for text in strings]
    offsets = [0]
    for text in encoded:
        offsets.append(offsets[-1] + len(text))
    return b"".join([*map(U32.pack, offsets), *encoded])


def _unsigned(number: int) -> int:
    if not 0 <= number <= MAX_SIGNED:
        raise ValueError(f"{number} does not fit into 63 bits")
    return number


def _checked(path: str) -> str:
    if not is_valid_path(path):
        raise StateStoreFilesError("PSS_BAD_PATH", {"path": path, "reason": "it is not a relative path below state/"})
    return path
