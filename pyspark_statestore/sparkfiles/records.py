"""Which keys a changelog, a delta or a heap snapshot changes, in order.

RocksDB's changelog version 1, deltas and snapshots of the heap store: a key's length (-1 at the end), the key, the
value's length (-1 for a deletion), the value. Version 2: a byte that says what happens, then length and bytes of what
it takes. Versions 3 and 4 are 1 and 2 with a lineage before them. Lengths are big-endian and have four bytes; all is
compressed.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

from pyspark_statestore.sparkfiles.changelog import java_utf
from pyspark_statestore.sparkfiles.compression import decompressed


class Change(enum.IntEnum):
    """What a record does; the numbers are Spark's."""

    END = 0x00
    PUT = 0x01
    DELETE = 0x10
    MERGE = 0x11
    DELETE_RANGE = 0x20


Record = tuple[Change, bytes, bytes]
"""What happens, to which key, and the value (of a range: its end); b"" where there is none."""


def records_of_changelog(data: bytes) -> Iterator[Record]:
    """Yields what a RocksDB changelog does.

    Raises:
        ValueError: It was cut off, is damaged, or of a version that is not known.
    """
    plain = decompressed(data)
    version, rest = java_utf(plain)
    if version is None or not version.startswith("v"):
        yield from _pairs(plain)
        return
    if version not in ("v2", "v3", "v4"):
        raise ValueError(f"its version is {version!r}, and this release reads up to v4")
    if version != "v2":
        lineage, rest = java_utf(rest)
        if lineage is None:
            raise ValueError("its lineage was cut off")
    yield from _pairs(rest) if version == "v3" else _changes(rest)


def records_of_pairs(data: bytes) -> Iterator[Record]:
    """Yields what a delta or a snapshot of the heap store does.

    Raises:
        ValueError: It was cut off or is damaged.
    """
    yield from _pairs(decompressed(data))


def _pairs(data: bytes) -> Iterator[Record]:
    at = 0
    while True:
        length = _length(data, at)
        if length == -1:
            return
        key = _bytes(data, at + 4, length)
        at += 4 + length
        length = _length(data, at)
        at += 4
        if length < 0:
            yield Change.DELETE, key, b""
        else:
            yield Change.PUT, key, _bytes(data, at, length)
            at += length


def _changes(data: bytes) -> Iterator[Record]:
    at = 0
    while at < len(data):
        kind = data[at]
        if kind == Change.END:
            return
        length = _length(data, at + 1)
        key = _bytes(data, at + 5, length)
        at += 5 + length
        length = _length(data, at)
        at += 4
        if kind == Change.DELETE:
            yield Change.DELETE, key, b""
        elif kind in (Change.PUT, Change.MERGE, Change.DELETE_RANGE):
            yield Change(kind), key, _bytes(data, at, length)
            at += length
        else:
            raise ValueError(f"it has a record of the kind {kind}, which is not known")
    raise ValueError("its end is missing")


def _length(data: bytes, at: int) -> int:
    if at + 4 > len(data):
        raise ValueError("it was cut off")
    return int.from_bytes(data[at : at + 4], "big", signed=True)


def _bytes(data: bytes, at: int, length: int) -> bytes:
    if length < 0 or at + length > len(data):
        raise ValueError("a length in it does not fit")
    return data[at : at + length]
