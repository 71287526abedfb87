"""Spark's row checksums (``spark.sql.streaming.stateStore.rowChecksum.enabled``): checked, and taken away.

Each is the crc32c of the key, with its column family's id, and the value. In RocksDB and its changelogs a value is
checksum, length, bytes, several of them one after another; the key of a deletion is checksum, bytes.
"""

from __future__ import annotations

import struct

from pyspark_statestore.format.checksum import crc32c

_CHECKSUM = struct.Struct("<I")
_CHECKSUM_AND_LENGTH = struct.Struct("<II")


def split_values(key: bytes, data: bytes, delimiter: bytes) -> list[bytes]:
    """Returns the values of a key, of which there may be several.

    Raises:
        ValueError: A checksum does not match, or a length does not fit.
    """
    values, at = [], 0
    while at < len(data):
        if at + 8 > len(data):
            raise ValueError("a row's checksum was cut off")
        checksum, length = _CHECKSUM_AND_LENGTH.unpack_from(data, at)
        value = data[at + 8 : at + 8 + length]
        if len(value) < length or crc32c(key + value) != checksum:
            raise ValueError("a row's checksum does not match")
        values.append(value)
        at += 8 + length + len(delimiter)
    return values


def without_checksum(data: bytes, key: bytes = b"") -> bytes:
    """Returns what a checksum without a length is before; that is of these bytes, or of a key and these.

    Raises:
        ValueError: It does not match.
    """
    if len(data) < 4 or crc32c(key + data[4:]) != _CHECKSUM.unpack_from(data)[0]:
        raise ValueError("a row's checksum does not match")
    return data[4:]
