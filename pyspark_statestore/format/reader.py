"""Reads merged files: the group that ends the file, then back along ``previous``.

Where no group ends the file, either a killed writer left the beginning of one, or the file is damaged. Fronts tell
which: each announces where its group ends, so a group that is shorter than announced was torn, and one that is as long
is damaged. A file that is *whole* got its name when it was sealed: without the seal at its end it is damaged. In files
without fronts, which release 0.1 wrote, only a damaged trailer at the very end tells; see :attr:`MergedFile.accounted`.

A merged file is input. Nothing is allocated from a length in it before that length is known to fit, and an index that
says something impossible is an error, not a guess.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format.checksum import crc32c
from pyspark_statestore.format.index_block import IndexBlock, MalformedIndexError
from pyspark_statestore.format.layout import (
    FORMAT_VERSION,
    FRONT_SIZE,
    HEADER_FIXED,
    HEADER_MAX_LENGTH,
    HEADER_MIN_LENGTH,
    MAGIC_FAMILY,
    META_FRONTS,
    META_WHOLE,
    TRAILER,
    TRAILER_MAGIC,
    TRAILER_SIZE,
    U32,
    Entry,
    Trailer,
    pack_front,
    parse_file_name,
    unpack_front,
)

TAIL_LENGTH = 64 * 1024
"""Bytes of the read at the end, which is enough for most files."""

_HEAD_LENGTH = 4096
_FRONT_KNOWN = 16
"""So many bytes of a front are the same for every group that begins at the same offset."""

_META_TYPES: Mapping[str, type] = {
    **dict.fromkeys(("app_id", "executor_id", "query_run_id", "shim"), str),
    **dict.fromkeys(("plain", META_FRONTS, META_WHOLE), bool),
}


class RangeSource(Protocol):
    """A file of which ranges are read."""

    @property
    def size(self) -> int:
        """How many bytes can be read now."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Returns exactly this range of the file."""


@dataclass(frozen=True)
class BytesSource:
    """A merged file in memory."""

    data: bytes

    @property
    def size(self) -> int:
        """The size in bytes."""
        return len(self.data)

    def read_at(self, offset: int, length: int) -> bytes:
        """Returns a range of the file."""
        return self.data[offset : offset + length]


@dataclass(frozen=True)
class Header:
    """The start of a merged file.

    Attributes:
        writer: The id of the process that wrote the file.
        created_ms: When the file was begun, in Unix milliseconds.
        meta: What else the header says; keys that this release does not know are kept.
        length: The header's length in bytes.
    """

    writer: int
    created_ms: int
    meta: Mapping[str, Any]
    length: int

    @property
    def fronts(self) -> bool:
        """Whether each group begins with a front."""
        return self.meta.get(META_FRONTS) is True

    @property
    def whole(self) -> bool:
        """Whether the file got its name only when it was sealed."""
        return self.meta.get(META_WHOLE) is True


@dataclass(frozen=True)
class Group:
    """What one flush made durable."""

    trailer_offset: int
    trailer: Trailer
    index: IndexBlock = field(repr=False)

    @property
    def end(self) -> int:
        """The first byte after the group."""
        return self.trailer_offset + TRAILER_SIZE


@dataclass(frozen=True)
class MergedFile:
    """The index of a merged file.

    Attributes:
        name: The name that the caller gave, for messages.
        header: The header; None where the writer died before its first flush, and there are no groups.
        groups: The groups, oldest first. Where a group's index is cumulative, the groups before it are not read.
        size: The size in bytes.
        accounted: Whether it is known what all of its bytes are: groups, or the beginning of one that a killed writer
            left. If not, some may be a group that was damaged, and nobody may delete the file (rule 8).
    """

    name: str
    header: Header | None
    groups: tuple[Group, ...]
    size: int
    accounted: bool = True

    @property
    def sealed(self) -> bool:
        """Whether the file never changes any more."""
        return bool(self.groups) and self.groups[-1].trailer.sealed

    @property
    def has_own_name(self) -> bool:
        """Whether its name gives the same writer and time as its header: nobody has renamed or copied it."""
        named = parse_file_name(self.name)
        return (
            named is not None and self.header is not None and named[:2] == (self.header.created_ms, self.header.writer)
        )

    @property
    def foreign(self) -> tuple[str, ...]:
        """In a reference file, the paths of the files that hold its entries' segments; empty in others."""
        return self.groups[-1].index.names if self.groups and self.groups[-1].index.foreign else ()

    @property
    def valid_length(self) -> int:
        """Where the last whole group ends. The bytes after it are a torn tail, which readers leave out."""
        return self.groups[-1].end if self.groups else 0

    def __len__(self) -> int:
        return sum(len(group.index) for group in self.groups)

    def __iter__(self) -> Iterator[Entry]:
        """Yields the entries in the order in which they were written."""
        for group in self.groups:
            yield from group.index

    def to_arrow(self) -> Any:
        """Returns all entries as one ``pyarrow.Table``, mapped from the file's bytes without a loop over them."""
        import pyarrow as pa

        tables = [group.index.to_arrow() for group in self.groups]
        return pa.concat_tables(tables) if tables else IndexBlock.empty().to_arrow()


def read_merged_file(source: RangeSource, name: str = "<memory>") -> MergedFile:
    """Reads the index of a merged file.

    Args:
        source: The file.
        name: What messages call the file.

    Returns:
        The file's header and groups; a torn tail is left out.

    Raises:
        StateStoreFilesError: PSS_CORRUPT_FILE or PSS_CORRUPT_INDEX where the file is damaged or says the impossible,
            PSS_UNSUPPORTED_FORMAT_VERSION where a newer release wrote it.
    """
    return _Reader(source, name).read()


def read_groups(source: RangeSource, name: str = "<memory>") -> tuple[Header | None, Iterator[Group]]:
    """Reads a merged file group by group, to show it to people.

    Args:
        source: The file, which has to stay open until the groups were read.
        name: What messages call the file.

    Returns:
        The header, None where there is none; and the groups, the newest first, also those before a cumulative one.
        Where the last group is damaged, the groups before it come first, and then the error.

    Raises:
        StateStoreFilesError: As :func:`read_merged_file`; the groups raise it when the damage is reached.
    """
    reader = _Reader(source, name)
    header = reader.header()
    return header, iter(()) if header is None else reader.readable_groups(header)


def read_segment(source: RangeSource, entry: Entry, name: str = "<memory>") -> bytes:
    """Reads a whole segment and checks it.

    Args:
        source: The merged file that holds it.
        entry: Its entry in the index.
        name: What messages call the file.

    Raises:
        StateStoreFilesError: PSS_CORRUPT_SEGMENT where the bytes are not those that were written.
    """
    reason = None
    if entry.offset + entry.length > source.size:
        reason = f"the file has only {source.size} bytes"
    else:
        data = source.read_at(entry.offset, entry.length)
        if len(data) == entry.length and crc32c(data) == entry.crc32c:
            return data
        reason = "their checksum does not match"
    where = {"path": entry.path, "file": name, "offset": entry.offset, "length": entry.length}
    raise StateStoreFilesError("PSS_CORRUPT_SEGMENT", {**where, "reason": reason})


class _Reader:
    """Reads one file; remembers the part that it read last, because neighbouring groups share one read."""

    def __init__(self, source: RangeSource, name: str) -> None:
        self._source = source
        self._name = name
        self._size = source.size
        self._window = b""
        self._window_start = 0
        self._accounted = True

    def read(self) -> MergedFile:
        header = self.header()
        if header is None:
            return MergedFile(self._name, None, (), self._size, accounted=not self._zeros_from(0))
        groups: list[Group] = []
        for group in self.groups(header):
            groups.append(group)
            if group.trailer.cumulative:
                break
        return MergedFile(self._name, header, tuple(reversed(groups)), self._size, self._accounted)

    def groups(self, header: Header) -> Iterator[Group]:
        """Yields the groups, the newest first."""
        last = self._group_at_end(header)
        if header.whole and (last is None or not last.trailer.sealed):
            reason = "it got its name when it was sealed, and does not end with the seal"
            raise self._damaged("PSS_CORRUPT_INDEX", max(header.length, self._size - TRAILER_SIZE), reason)
        if last is None and header.fronts:
            yield from reversed(list(self._announced_groups(header)))
            return
        if last is None:
            last = self._last_group(header)
            self._accounted = self._size == (header.length if last is None else last.end)
        yield from self._back_from(last, header)

    def _back_from(self, group: Group | None, header: Header) -> Iterator[Group]:
        while group is not None:
            yield group
            group = self._group_at(group.trailer.previous, header) if group.trailer.previous else None

    def header(self) -> Header | None:
        head = self._range(0, min(self._size, TAIL_LENGTH if self._size <= TAIL_LENGTH else _HEAD_LENGTH))
        if not any(head):
            return None  # the machine died before the file's first bytes reached the disk
        family = head[: len(MAGIC_FAMILY)]
        if family != MAGIC_FAMILY[: len(family)]:
            raise self._damaged("PSS_CORRUPT_FILE", 0, "it does not start with PSSMERG")
        version = head[len(MAGIC_FAMILY) : len(MAGIC_FAMILY) + 1]
        if version and version != FORMAT_VERSION.encode():
            found = version.decode("ascii", "backslashreplace")
            where = {"file": self._name, "found": found, "supported": FORMAT_VERSION}
            raise StateStoreFilesError("PSS_UNSUPPORTED_FORMAT_VERSION", where)
        if len(head) < HEADER_FIXED.size:
            return None
        _, length, writer, created_ms, meta_length = HEADER_FIXED.unpack_from(head)
        if not HEADER_MIN_LENGTH <= length <= HEADER_MAX_LENGTH or meta_length != length - HEADER_MIN_LENGTH:
            raise self._damaged("PSS_CORRUPT_FILE", 8, f"its header cannot be {length} bytes long")
        if length > self._size:
            return None  # the writer died before its first flush was complete
        if length > len(head):
            head = self._range(0, length)
        if U32.unpack_from(head, length - 4)[0] != crc32c(head[: length - 4]):
            raise self._damaged("PSS_CORRUPT_FILE", length - 4, "its header's checksum does not match")
        return Header(writer, created_ms, self._meta(head[HEADER_FIXED.size : length - 4]), length)

    def _meta(self, encoded: bytes) -> dict[str, Any]:
        try:
            meta = json.loads(encoded.decode())
        except (ValueError, RecursionError) as error:
            raise self._damaged("PSS_CORRUPT_FILE", HEADER_FIXED.size, "its header's meta is not JSON") from error
        if not isinstance(meta, dict):
            raise self._damaged("PSS_CORRUPT_FILE", HEADER_FIXED.size, "its header's meta is not a JSON object")
        for key, expected in _META_TYPES.items():
            if key in meta and not isinstance(meta[key], expected):
                reason = f"{key!r} in its header's meta is not a {expected.__name__}"
                raise self._damaged("PSS_CORRUPT_FILE", HEADER_FIXED.size, reason)
        return meta

    def readable_groups(self, header: Header) -> Iterator[Group]:
        """Yields the groups, the newest first, those before a damaged last one too; the error comes after them."""
        any_read = False
        try:
            for group in self.groups(header):
                any_read = True
                yield group
        except StateStoreFilesError:
            if not any_read:
                yield from self._groups_before_damage(header)
            raise

    def _groups_before_damage(self, header: Header) -> Iterator[Group]:
        found: list[Group] = []
        with suppress(StateStoreFilesError):
            if header.fronts:
                for group in self._announced_groups(header):
                    found.insert(0, group)
            else:
                last = self._last_group(header, before=self._size - TRAILER_SIZE)
                for group in self._back_from(last, header):
                    found.append(group)
        yield from found

    def _group_at_end(self, header: Header) -> Group | None:
        """The group that ends the file: nearly every file has one.

        A killed writer leaves the first part of a group, and the trailer is its last part. So where something like a
        trailer ends the file, the whole group was there once.
        """
        at = self._size - TRAILER_SIZE
        if at < header.length:
            return None
        data = self._range(at, TRAILER_SIZE)
        trailer = Trailer.unpack(data, at)
        if trailer is not None and trailer.index_offset >= header.length:
            return self._checked_group(at, trailer)
        if not header.fronts and _was_trailer(data):
            raise self._damaged("PSS_CORRUPT_INDEX", at, "the trailer of its last group is damaged")
        return None

    def _announced_groups(self, header: Header) -> Iterator[Group]:
        """Goes from front to front, up to the group that was never finished."""
        at, previous = header.length, 0
        sealed = False
        while at < self._size:
            if sealed:
                raise self._damaged("PSS_CORRUPT_INDEX", at, "bytes follow the group that seals it")
            end = self._announced_end(at)
            if end is None:
                return
            group = self._announced_group(at, end, previous)
            if group is None:
                return
            yield group
            at, previous, sealed = end, group.trailer_offset, group.trailer.sealed

    def _announced_end(self, at: int) -> int | None:
        """Where the group that begins there ends; None where its writer was killed before its end."""
        front = self._range(at, min(FRONT_SIZE, self._size - at), ahead=True)
        if not any(front) and self._zeros_from(at):
            self._accounted = False  # a machine may have died before they reached its disk, or they were overwritten
            return None
        if len(front) < FRONT_SIZE:
            if pack_front(at, 0).startswith(front[:_FRONT_KNOWN]):
                return None
            raise self._damaged("PSS_CORRUPT_INDEX", at, "the bytes after its last group are not the front of another")
        length = unpack_front(front, at)
        if length is None:
            raise self._damaged("PSS_CORRUPT_INDEX", at, "the front of a group is damaged")
        if at + length <= self._size:
            return at + length
        # The trailer, which is written last, is there. So something was cut out of the group.
        end = self._size - TRAILER_SIZE
        if end >= at + FRONT_SIZE and _was_trailer(self._range(end, TRAILER_SIZE)):
            raise self._damaged("PSS_CORRUPT_INDEX", at, f"{at + length - self._size} bytes of a group are missing")
        return None

    def _announced_group(self, at: int, end: int, previous: int) -> Group | None:
        """A group that is as long as announced; None where only zeros are where its trailer should be."""
        data = self._range(end - TRAILER_SIZE, TRAILER_SIZE, ahead=True)
        trailer = Trailer.unpack(data, end - TRAILER_SIZE)
        if trailer is None or trailer.index_offset < at + FRONT_SIZE or trailer.previous != previous:
            if not any(data) and self._zeros_from(end - TRAILER_SIZE):
                self._accounted = False
                return None
            raise self._damaged("PSS_CORRUPT_INDEX", end - TRAILER_SIZE, "the trailer of a group is damaged")
        return self._checked_group(end - TRAILER_SIZE, trailer)

    def _zeros_from(self, at: int) -> bool:
        """Whether there are bytes from there on, and all of them are zeros."""
        starts = range(at, self._size, TAIL_LENGTH)
        return at < self._size and not any(
            any(self._range(start, min(TAIL_LENGTH, self._size - start))) for start in starts
        )

    def _last_group(self, header: Header, before: int | None = None) -> Group | None:
        """Searches a file without fronts backwards for the last trailer whose checksum holds."""
        end = self._size if before is None else before
        while end - TRAILER_SIZE >= header.length:
            start = max(header.length, end - TAIL_LENGTH)
            chunk = self._range(start, end - start)
            at = chunk.rfind(TRAILER_MAGIC, 0, len(chunk) - TRAILER_SIZE + len(TRAILER_MAGIC))
            while at >= 0:
                trailer = Trailer.unpack(chunk[at : at + TRAILER_SIZE], start + at)
                if trailer is not None and trailer.index_offset >= header.length:
                    return self._found_group(start + at, trailer)
                at = chunk.rfind(TRAILER_MAGIC, 0, at + len(TRAILER_MAGIC) - 1)
            if start == header.length:
                break
            end = start + TRAILER_SIZE - 1
        return None

    def _found_group(self, at: int, trailer: Trailer) -> Group:
        group = self._checked_group(at, trailer)
        if trailer.sealed and group.end < self._size:
            raise self._damaged("PSS_CORRUPT_INDEX", group.end, "bytes follow the group that seals it")
        return group

    def _checked_group(self, at: int, trailer: Trailer) -> Group:
        encoded = self._range(trailer.index_offset, trailer.index_length)
        if crc32c(encoded) != trailer.index_crc:
            reason = "the checksum of an index block does not match"
            raise self._damaged("PSS_CORRUPT_INDEX", trailer.index_offset, reason)
        return self._group(at, trailer, encoded)

    def _group_at(self, offset: int, header: Header) -> Group:
        # A trailer that a valid one points to was flushed before it: here damage is damage, not a torn tail.
        trailer = None
        if offset >= header.length:
            trailer = Trailer.unpack(self._range(offset, TRAILER_SIZE), offset)
        if trailer is None or trailer.index_offset < header.length:
            raise self._damaged("PSS_CORRUPT_INDEX", offset, "the trailer of a group is damaged")
        return self._checked_group(offset, trailer)

    def _group(self, offset: int, trailer: Trailer, encoded: bytes) -> Group:
        try:
            return Group(offset, trailer, IndexBlock.decode(encoded, trailer))
        except MalformedIndexError as error:
            raise self._damaged("PSS_CORRUPT_INDEX", trailer.index_offset, str(error)) from error

    def _range(self, offset: int, length: int, *, ahead: bool = False) -> bytes:
        """Returns a range that is known to lie in the file, from the window where that holds it.

        Args:
            offset: Where the range begins.
            length: Its bytes.
            ahead: Whether the bytes after it are read next, and not those before it.
        """
        if offset < self._window_start or offset + length > self._window_start + len(self._window):
            end = offset + length
            start = offset if ahead else min(offset, max(0, end - TAIL_LENGTH))
            end = max(end, min(self._size, start + TAIL_LENGTH)) if ahead else end
            data = self._source.read_at(start, end - start)
            if len(data) != end - start:
                raise self._damaged("PSS_CORRUPT_FILE", start, f"only {len(data)} of {end - start} bytes could be read")
            self._window, self._window_start = data, start
        at = offset - self._window_start
        return self._window[at : at + length]

    def _damaged(self, error_class: str, offset: int, reason: str) -> StateStoreFilesError:
        return StateStoreFilesError(error_class, {"file": self._name, "offset": offset, "reason": reason})


def _was_trailer(data: bytes) -> bool:
    """Whether these are the 64 bytes of a trailer, one of which may have changed."""
    mended = TRAILER_MAGIC + data[len(TRAILER_MAGIC) :]
    return data.startswith(TRAILER_MAGIC) or U32.unpack_from(data, TRAILER.size)[0] == crc32c(mended[: TRAILER.size])
