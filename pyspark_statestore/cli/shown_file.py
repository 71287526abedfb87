"""Reads one merged file group by group, for the command ``show``."""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format import Kind, read_groups
from pyspark_statestore.format.layout import FLAG_CUMULATIVE, FLAG_FOREIGN, FLAG_INDEX_ONLY, FLAG_SEALED
from pyspark_statestore.format.reader import Group, Header
from pyspark_statestore.log.entries import CLOCK_BITS
from pyspark_statestore.log.nearby import checkpoint_of, is_sink
from pyspark_statestore.storage import Directory, Location
from pyspark_statestore.storage.directory import OpenFile

_FLAGS = {FLAG_SEALED: "sealed", FLAG_CUMULATIVE: "cumulative", FLAG_INDEX_ONLY: "index-only", FLAG_FOREIGN: "foreign"}


@dataclass(frozen=True)
class ShownEntry:
    """An entry of an index.

    Attributes:
        kind: ``put`` or ``delete``.
        type: What the logical file is to Spark, such as ``changelog``.
        logical_path: The logical file's path below ``state/``.
        offset: Where the segment begins; null for a deletion.
        length: The segment's length in bytes; null for a deletion.
        generation: How often the segment was copied.
        crc32c: The checksum of the segment's bytes in hexadecimal; null for a deletion.
        written_at: The time in the stamp. For a deletion, it is that of the newest write that it kills.
        stamp: The stamp.
        writer: The writer, which with the stamp is the key of the write.
        file_name: In an index-only file, the file that the entry repeats. In a reference file, the file that holds the
            segment. Null in any other file.
    """

    kind: str
    type: str
    logical_path: str
    offset: int | None
    length: int | None
    generation: int
    crc32c: str | None
    written_at: datetime.datetime | None
    stamp: int
    writer: str
    file_name: str | None


@dataclass(frozen=True)
class ShownGroup:
    """What one flush made durable.

    Attributes:
        offset: Where the group begins; null where what is before it cannot be read.
        trailer_offset: Where its trailer begins.
        end: Where it ends.
        flags: The flags that are set, of sealed, cumulative, index-only and foreign.
        stamp: The highest stamp that the writer had seen.
        stamped_at: The time in that stamp.
        entries: The entries in their order.
    """

    offset: int | None
    trailer_offset: int
    end: int
    flags: tuple[str, ...]
    stamp: int
    stamped_at: datetime.datetime | None
    entries: tuple[ShownEntry, ...]


@dataclass(frozen=True)
class ShownFile:
    """A merged file.

    Attributes:
        file_path: The file's URL.
        file_size_in_bytes: The file's size.
        writer: The writer in the header; null where there is no header.
        created_at: The time in the header; null where there is no header.
        header_length: The header's length in bytes.
        meta: The header's meta.
        groups: The groups, the oldest first. In a damaged file, those after the damage.
        torn_tail_bytes: The number of bytes after the last whole group, which readers ignore.
        error: The message about damage; null where there is none.
    """

    file_path: str
    file_size_in_bytes: int
    writer: str | None
    created_at: datetime.datetime | None
    header_length: int
    meta: Mapping[str, Any]
    groups: tuple[ShownGroup, ...]
    torn_tail_bytes: int
    error: str | None


def show_file(path: str, storage_options: Mapping[str, Any] | None = None) -> ShownFile:
    """Reads all indexes of a merged file, but no segments.

    Args:
        path: The file's URL or local path.
        storage_options: Options of the fsspec file system.

    Raises:
        StateStoreFilesError: The file cannot be read, or its header is damaged. Damage after the header is in the
            result.
    """
    folder, _, name = path.rstrip("/").rpartition("/")
    location = Location.of(folder or ("/" if path.startswith("/") else "."), storage_options)
    directory = Directory(location)
    found = [info for info in directory.files("") if info.name == name]
    if not found:
        reason = _why_no_file(Directory(Location.of(path, storage_options)))
        parameters = {"action": "read", "path": location.display(name), "reason": reason}
        raise StateStoreFilesError("PSS_READ_FAILED", parameters)
    try:
        with directory.open(name, found[0].size) as file:
            return _shown(file, location.display(name))
    except FileNotFoundError:
        parameters = {"action": "read", "path": location.display(name), "reason": "it was deleted a moment ago"}
        raise StateStoreFilesError("PSS_READ_FAILED", parameters) from None


def _why_no_file(there: Directory) -> str:
    """What is at a path at which there is no file."""
    if not there.names() and not there.exists():
        return "there is no such file"
    checkpoint, url = checkpoint_of(there), shlex.quote(there.location.url)
    if checkpoint:
        files = f"the merged files of its checkpoint (pyspark-statestore files {shlex.quote(checkpoint)})"
    elif is_sink(there.names()):
        files = f"of a file sink, show reads none (those in it: pyspark-statestore sink files {url})"
    else:
        files = f"the checkpoints below it (pyspark-statestore list {url})"
    return f"it is a directory, and show takes one merged file; {files}"


def _shown(file: OpenFile, url: str) -> ShownFile:
    header, newest_first = read_groups(file, url)
    groups: list[Group] = []
    error = None
    try:
        groups.extend(newest_first)
    except StateStoreFilesError as damage:
        error = str(damage)
    groups.reverse()
    end = groups[-1].end if groups else header.length if header else 0
    return ShownFile(
        file_path=url,
        file_size_in_bytes=file.size,
        writer=f"{header.writer:016x}" if header else None,
        created_at=_time(header.created_ms) if header else None,
        header_length=header.length if header else 0,
        meta=dict(header.meta) if header else {},
        groups=tuple(_group(group, start) for group, start in zip(groups, _starts(groups, header), strict=True)),
        torn_tail_bytes=file.size - end if error is None or groups else 0,
        error=error,
    )


def _starts(groups: list[Group], header: Header | None) -> list[int | None]:
    """Returns where each group begins, which is where the one before it ends."""
    if not groups or header is None:
        return []
    first = None if groups[0].trailer.previous else header.length
    return [first, *(group.end for group in groups[:-1])]


def _group(group: Group, start: int | None) -> ShownGroup:
    trailer = group.trailer
    names = (None, *group.index.names)
    entries = []
    for entry in group.index:
        is_put = entry.kind is Kind.PUT
        entries.append(
            ShownEntry(
                kind=entry.kind.name.lower(),
                type=entry.type.name.lower(),
                logical_path=entry.path,
                offset=entry.offset if is_put else None,
                length=entry.length if is_put else None,
                generation=entry.generation,
                crc32c=f"{entry.crc32c:08x}" if is_put else None,
                written_at=_time(entry.stamp >> CLOCK_BITS),
                stamp=entry.stamp,
                writer=f"{entry.writer:016x}",
                file_name=names[entry.file_ref],
            )
        )
    flags = tuple(name for flag, name in _FLAGS.items() if trailer.flags & flag)
    at = _time(trailer.group_stamp >> CLOCK_BITS)
    return ShownGroup(start, group.trailer_offset, group.end, flags, trailer.group_stamp, at, tuple(entries))


def _time(milliseconds: int) -> datetime.datetime | None:
    """Returns the time, or None for a number that is not one."""
    try:
        return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None
