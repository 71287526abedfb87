"""The checksum files that Hadoop keeps beside every file that it writes on a local disk.

``.<name>.crc``: ``crc`` and a zero byte, the number of bytes that a checksum is of, then the CRC-32 of each such part,
all big-endian (``org.apache.hadoop.fs.ChecksumFileSystem``). Hadoop refuses to read what does not match.
"""

from __future__ import annotations

import struct
import zlib

from pyspark_statestore.storage.directory import OpenFile

_HEADER = struct.Struct(">4sI")
_MAGIC = b"crc\x00"
_AT_ONCE = 4 << 20
_MAX_PART = 1 << 20


def matches(file: OpenFile, size: int, checksums: bytes) -> bool:
    """Whether a file has the bytes that its checksum file was written for.

    Args:
        file: Of any size; it is read little by little.
        size: Of it, in bytes.
        checksums: The checksum file. One that is none says nothing, and counts as matching.
    """
    if len(checksums) < _HEADER.size:
        return True
    magic, part = _HEADER.unpack_from(checksums)
    if magic != _MAGIC or not 0 < part <= _MAX_PART:
        return True
    if len(checksums) != _HEADER.size + 4 * -(-size // part):
        return False
    at_once = _AT_ONCE // part * part
    place = _HEADER.size
    for start in range(0, size, at_once):
        data = file.read_at(start, min(at_once, size - start))
        if len(data) < min(at_once, size - start):
            return False
        found = [zlib.crc32(data[at : at + part]) for at in range(0, len(data), part)]
        if struct.pack(f">{len(found)}I", *found) != checksums[place : place + 4 * len(found)]:
            return False
        place += 4 * len(found)
    return True
