"""Where every byte of a merged file is: constants, fixed-width records, names. All numbers are little-endian.

::

    header   magic "PSSMERG1" | u32 header_length | u64 writer | u64 created_ms | u32 meta_length | meta | u32 crc32c
    group*   front (32 bytes, where the meta says "fronts") | payload | index block | trailer (64 bytes)

    index block   entry[count] (48 bytes each) | u32 path_offset[count+1] | path heap
                  | where the flags say so also: u32 file_count | u32 name_offset[file_count+1] | name heap
"""

from __future__ import annotations

import enum
import re
import struct
from dataclasses import dataclass

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format.checksum import crc32c

FORMAT_VERSION = "1"
MAGIC_FAMILY = b"PSSMERG"
HEADER_MAGIC = MAGIC_FAMILY + FORMAT_VERSION.encode()
TRAILER_MAGIC = b"PSSGROUP"

HEADER_FIXED = struct.Struct("<8sIQQI")
"""magic, header_length, writer, created_ms, meta_length; the meta and a u32 crc32c follow."""
HEADER_MIN_LENGTH = HEADER_FIXED.size + 4
HEADER_MAX_LENGTH = 1 << 20

ENTRY = struct.Struct("<BBHIQQQQII")
"""kind, type, generation, crc32c, stamp, writer, offset, length, file_ref, zero."""

TRAILER = struct.Struct("<8sIIQQQQQI")
"""magic, flags, count, index_offset, index_length, previous, group_stamp, name_table_offset, index_crc; a u32 follows:
the crc32c of these."""
TRAILER_SIZE = TRAILER.size + 4

FRONT_MAGIC = b"PSSFRONT"
FRONT = struct.Struct("<8sQQI")
"""magic, group_offset, group_length, zero; a u32 follows: the crc32c of these."""
FRONT_SIZE = FRONT.size + 4

META_FRONTS = "fronts"
"""In a header's meta: whether each group begins with a front."""
META_WHOLE = "whole"
"""In a header's meta: whether the file got its name only when it was sealed."""

U32 = struct.Struct("<I")

MAX_SIGNED = (1 << 63) - 1
"""Java has no unsigned 64 bits: stamps, writers, offsets and lengths stay below."""

FLAG_SEALED = 1
FLAG_CUMULATIVE = 2
FLAG_INDEX_ONLY = 4
FLAG_FOREIGN = 8

MAX_PATH_LENGTH = 4096
MAX_HEAP = (1 << 31) - 1
"""Bytes of paths in an index block at most: readers take no more."""

BAD_PATH_PATTERN = r"(^|/)\.{0,2}(/|$)|\\|\x00|^_merged(/|$)"
"""Matches a logical path that is absolute, leads out of ``state/``, or is the merged files' directory or in it. RE2
reads it, so that Arrow can check a whole index block at once: ``$`` is the end of the text. :func:`is_valid_path` says
the same of one path, and ``PathRules`` does in Java."""

MERGED_NAME_PATTERN = r"^[0-9]{13}-[0-9a-f]{16}-[0-9]{1,10}\.merged$"
"""Matches the name of a merged file with segments, as a name table has it. For RE2, too."""
_OWN = re.compile(MERGED_NAME_PATTERN[1:-1])

MERGED_ENDINGS = (".merged", ".index.merged")
"""End the names of merged files: of those with segments, and of index-only ones."""

_FILE_NAME = re.compile(
    r"([0-9]{13})-([0-9a-f]{16})-([0-9]{1,10})"
    r"(\.merged|\.index\.merged|\.relocating|\.fork|\.fork\.away|\.own|\.origin|\.exporting|\.exported|\.dropping"
    r"|\.running|\.ended)"
)

MERGED_DIRECTORY = "/state/_merged/"
"""What stands between a checkpoint's path and a merged file's name."""

FOREIGN_PATTERN = r"^(/[^/\\\x00]+)*/state/_merged/[0-9]{13}-[0-9a-f]{16}-[0-9]{1,10}\.merged$"
"""Matches the path of a merged file with segments in its file system, if :data:`NOT_NORMALISED_PATTERN` does not."""
_FOREIGN = re.compile(FOREIGN_PATTERN)

NOT_NORMALISED_PATTERN = r"/\.{1,2}/"
_NOT_NORMALISED = re.compile(NOT_NORMALISED_PATTERN)


class Kind(enum.IntEnum):
    """What an entry does to its path."""

    PUT = 1
    DELETE = 2


class SegmentType(enum.IntEnum):
    """What a logical file is to Spark."""

    OTHER = 0
    SST = 1
    CHANGELOG = 2
    SNAPSHOT = 3
    DELTA = 4
    CHECKSUM = 5
    LOG = 6

    @classmethod
    def of(cls, path: str) -> SegmentType:
        """Returns the type of the file at a logical path."""
        return _TYPE_BY_SUFFIX.get(path[path.rfind(".") + 1 :], cls.OTHER) if "." in path else cls.OTHER


_TYPE_BY_SUFFIX = {
    "sst": SegmentType.SST,
    "changelog": SegmentType.CHANGELOG,
    "zip": SegmentType.SNAPSHOT,
    "snapshot": SegmentType.SNAPSHOT,
    "delta": SegmentType.DELTA,
    "crc": SegmentType.CHECKSUM,
    "log": SegmentType.LOG,
}


@dataclass(frozen=True)
class Entry:
    """One entry of an index block.

    Attributes:
        kind: PUT, or DELETE: what was known of the path was deleted.
        type: What the logical file is.
        generation: How often the segment was relocated; of equal keys the highest is read.
        crc32c: The checksum of the segment's bytes; 0 for a DELETE.
        stamp: The hybrid logical clock of the write; for a DELETE, that of the write that it kills.
        writer: The id of the writing process; for a DELETE, that of the process whose write it kills.
        offset: Where the segment begins in its merged file.
        length: Bytes of the segment.
        file_ref: 0 where the segment is in the file that holds the entry; otherwise a number, from 1 on, in the name
            table of an index-only or a reference file.
        path: The path of the logical file, relative to ``<checkpoint>/state/``.
    """

    kind: Kind
    type: SegmentType
    generation: int
    crc32c: int
    stamp: int
    writer: int
    offset: int
    length: int
    file_ref: int
    path: str

    @property
    def key(self) -> tuple[int, int]:
        """The (stamp, writer) that decides between two writes of a path: the highest wins."""
        return self.stamp, self.writer

    def pack(self) -> bytes:
        """Returns the entry's 48 bytes; its path goes to the path heap."""
        return ENTRY.pack(
            self.kind,
            self.type,
            self.generation,
            self.crc32c,
            self.stamp,
            self.writer,
            self.offset,
            self.length,
            self.file_ref,
            0,
        )


@dataclass(frozen=True)
class Trailer:
    """The last 64 bytes of a group; a group without a valid one does not exist."""

    flags: int
    count: int
    index_offset: int
    index_length: int
    previous: int
    group_stamp: int
    name_table_offset: int
    index_crc: int

    @property
    def sealed(self) -> bool:
        """Whether the file never changes any more."""
        return bool(self.flags & FLAG_SEALED)

    @property
    def index_only(self) -> bool:
        """Whether the entries only repeat what other files say."""
        return bool(self.flags & FLAG_INDEX_ONLY)

    @property
    def foreign(self) -> bool:
        """Whether the entries' segments are in files of other checkpoints."""
        return bool(self.flags & FLAG_FOREIGN)

    @property
    def cumulative(self) -> bool:
        """Whether the index block holds every entry of the file."""
        return bool(self.flags & FLAG_CUMULATIVE)

    def pack(self) -> bytes:
        """Returns the 64 bytes, checksum included."""
        body = TRAILER.pack(
            TRAILER_MAGIC,
            self.flags,
            self.count,
            self.index_offset,
            self.index_length,
            self.previous,
            self.group_stamp,
            self.name_table_offset,
            self.index_crc,
        )
        return body + U32.pack(crc32c(body))

    @classmethod
    def unpack(cls, data: bytes, file_offset: int) -> Trailer | None:
        """Reads a trailer, and refuses bytes that cannot be one at their place.

        Args:
            data: 64 bytes.
            file_offset: Where they begin in the file.

        Returns:
            The trailer, or None where there is no whole and plausible one.
        """
        if len(data) != TRAILER_SIZE or data[:8] != TRAILER_MAGIC:
            return None
        if U32.unpack_from(data, TRAILER.size)[0] != crc32c(data[: TRAILER.size]):
            return None
        trailer = cls(*TRAILER.unpack_from(data)[1:])
        plausible = (
            HEADER_MIN_LENGTH <= trailer.index_offset <= file_offset
            and trailer.index_offset + trailer.index_length == file_offset
            and trailer.previous < trailer.index_offset
            and trailer.group_stamp <= MAX_SIGNED
            and index_min_length(trailer.count) <= trailer.index_length
        )
        return trailer if plausible else None


def pack_front(group_offset: int, group_length: int) -> bytes:
    """Returns the 32 bytes that announce a group.

    Args:
        group_offset: Where the front is in its file.
        group_length: From there to the end of the group's trailer.
    """
    body = FRONT.pack(FRONT_MAGIC, group_offset, group_length, 0)
    return body + U32.pack(crc32c(body))


def unpack_front(data: bytes, group_offset: int) -> int | None:
    """Returns the length of the group that a front announces, or None where there is no whole front of this place.

    Args:
        data: 32 bytes.
        group_offset: Where they are in the file.
    """
    if len(data) != FRONT_SIZE or U32.unpack_from(data, FRONT.size)[0] != crc32c(data[: FRONT.size]):
        return None
    magic, offset, length, _ = FRONT.unpack_from(data)
    if magic != FRONT_MAGIC or offset != group_offset or not SMALLEST_GROUP <= length <= MAX_SIGNED - offset:
        return None
    return int(length)


def index_min_length(count: int) -> int:
    """Returns the least bytes of an index block with so many entries: a hostile count allocates nothing."""
    return ENTRY.size * count + 4 * (count + 1)


SMALLEST_GROUP = FRONT_SIZE + index_min_length(0) + TRAILER_SIZE
"""Bytes of a group with a front and without entries."""


def is_valid_path(path: str) -> bool:
    """Tells whether a logical path is relative, below ``state/``, and does not lead out of it."""
    return fits(path) and _is_safe(path) and path.split("/", 1)[0] != "_merged"


def fits(path: str) -> bool:
    """Tells whether a path is short enough, as Java counts: in units of UTF-16."""
    return 2 * len(path) <= MAX_PATH_LENGTH or len(path) + sum(each > "\uffff" for each in path) <= MAX_PATH_LENGTH


def _is_safe(path: str) -> bool:
    return "\\" not in path and "\0" not in path and not any(part in ("", ".", "..") for part in path.split("/"))


def file_name(created_ms: int, writer: int, number: int, *, index_only: bool = False) -> str:
    """Returns the name of a merged file.

    Args:
        created_ms: When the file was begun, in Unix milliseconds.
        writer: The id of the process that writes it.
        number: Counts the files of that process.
        index_only: Whether the file repeats the indexes of others; readers read these first.
    """
    return f"{created_ms:013d}-{writer:016x}-{number}{'.index' if index_only else ''}.merged"


def name_ending(name: str) -> str:
    """Returns how the name of a file in ``_merged/`` ends, which says what it is; empty where it is not one of ours.

    Everything that this package puts there has a name of :func:`file_name`'s form. Whatever else there is, such as what
    a file manager leaves or a copy under another name, counts as nothing: ``PathRules.ending`` says the same in Java.
    """
    found = _FILE_NAME.fullmatch(name)
    return found[4] if found else ""


def parse_file_name(name: str) -> tuple[int, int, int] | None:
    """Returns (created_ms, writer, number) of a merged file's name, or None if it is not one."""
    found = _FILE_NAME.fullmatch(name)
    if not found or found[4] not in MERGED_ENDINGS:
        return None
    return int(found[1]), int(found[2], 16), int(found[3])


def foreign_path(checkpoint: str, name: str) -> str:
    """Returns the path by which a reference file names a merged file of another checkpoint.

    Args:
        checkpoint: The other checkpoint's absolute path in its file system: for HDFS without ``hdfs://host``, for S3
            ``/`` and the key.
        name: The merged file's name.

    Raises:
        StateStoreFilesError: PSS_BAD_PATH where a reference file must not hold that path.
    """
    path = f"{checkpoint.rstrip('/')}{MERGED_DIRECTORY}{name}"
    if not is_foreign_path(path):
        reason = "it is not the absolute, normalised path of a merged file with segments"
        raise StateStoreFilesError("PSS_BAD_PATH", {"path": path, "reason": reason})
    return path


def is_foreign_path(path: str) -> bool:
    """Tells whether a reference file may hold a path: absolute, normalised, of a merged file with segments."""
    return fits(path) and bool(_FOREIGN.fullmatch(path)) and not _NOT_NORMALISED.search(path)


def is_reference(path: str) -> bool:
    """Tells whether a reference file may hold a path: another checkpoint's merged file, or the name of an own one."""
    return is_foreign_path(path) or _OWN.fullmatch(path) is not None


def split_foreign_path(path: str) -> tuple[str, str]:
    """Splits a path for which :func:`is_foreign_path` is true into the checkpoint's path and the merged file's name."""
    checkpoint, _, name = path.rpartition(MERGED_DIRECTORY)
    return checkpoint or "/", name
