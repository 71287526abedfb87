"""Reads what changelogs, deltas and snapshots say: which keys they change, in order, and which files they need.

RocksDB's changelog version 1, deltas and snapshots of the heap store: a key's length (-1 at the end), the key, the
value's length (-1 for a deletion), the value. Version 2: a byte that says what happens, then the lengths and bytes of
the key and the value. Versions 3 and 4 are 1 and 2 with a lineage before them. Lengths are big-endian and have four
bytes; all is compressed.
"""

from __future__ import annotations

import enum
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark_statestore.parsing import LONGEST, objects, opened_zip, parse_json, parse_object, whole_number
from pyspark_statestore.sparkfiles.compression import decompressed, decompressed_start


class Change(enum.IntEnum):
    """What a record does, with Spark's numbers."""

    END = 0x00
    PUT = 0x01
    DELETE = 0x10
    MERGE = 0x11
    DELETE_RANGE = 0x20


Record = tuple[Change, bytes, bytes]
"""The change, the key, and the value (of a range: its end); b"" where there is no value."""


def records_of_changelog(data: bytes) -> Iterator[Record]:
    """Yields the records of a RocksDB changelog.

    Raises:
        ValueError: It was cut off, is damaged, or has an unknown version.
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
    """Yields the records of a delta or a snapshot of the heap store.

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


# Lineages: with checkpoint format 2, the start of a RocksDB changelog says which versions it follows.

_ENOUGH = 64 * 1024
"""Bytes of a lineage at most: it has about 70 for each batch between two snapshots."""


def lineage_of(data: bytes) -> dict[int, str] | None:
    """Returns the attempts at earlier versions that a changelog builds on.

    Args:
        data: The file, or its start.

    Returns:
        The checkpoint ids by version, from the last snapshot on; empty where the changelog has no lineage; None where
        it cannot be read (an unknown compression codec, or damage).
    """
    start = decompressed_start(data, _ENOUGH)
    version, rest = java_utf(start)
    if version is None or not re.fullmatch(r"v\d+", version):
        return None if version is None and not start else {}  # version 1 begins with a key's length
    if int(version[1:]) < 3:
        return {}
    text, _ = java_utf(rest)
    try:
        items = objects(parse_json(text or ""), "its lineage")
        return {whole_number(item.get("version"), "a version"): str(item["checkpointUniqueId"]) for item in items}
    except (ValueError, KeyError):
        return None


def java_utf(data: bytes) -> tuple[str | None, bytes]:
    """Reads a text of Java's ``writeUTF``, two big-endian bytes of length and then ASCII; and what follows it."""
    if len(data) < 2:
        return None, b""
    end = 2 + int.from_bytes(data[:2], "big")
    if len(data) < end:
        return None, b""
    return data[2:end].decode("utf-8", "replace"), data[end:]


class JavaReader:
    """Reads what Java's ``DataOutputStream`` has written."""

    def __init__(self, data: bytes) -> None:
        self._rest = data

    def number(self, length: int) -> int:
        """Reads a whole number of so many bytes.

        Raises:
            ValueError: The data was cut off.
        """
        if len(self._rest) < length:
            raise ValueError("it was cut off")
        number = int.from_bytes(self._rest[:length], "big", signed=True)
        self._rest = self._rest[length:]
        return number

    def text(self) -> str:
        """Reads a text.

        Raises:
            ValueError: The data was cut off.
        """
        text, self._rest = java_utf(self._rest)
        if text is None:
            raise ValueError("it was cut off")
        return text

    def chunks(self) -> str:
        """Reads a long text, which Spark writes in pieces.

        Raises:
            ValueError: The data was cut off.
        """
        return "".join(self.text() for _ in range(self.number(4)))


def has_one_key(schema: bytes) -> bool:
    """Whether a schema file of a store leaves its keys no choice: they have no columns, or only some of type ``void``.

    Global aggregations and limits have such keys. Files of version 3 have a name and keys for each column family; the
    operators that write these always have keys.
    """
    try:
        reader = JavaReader(schema)
        version = reader.text()
        if version not in ("v1", "v2"):
            return False
        key = parse_object(reader.text() if version == "v1" else reader.chunks())
        return all(field["type"] in ("void", "null") for field in objects(key["fields"], "fields"))
    except (ValueError, KeyError):
        return False


# Snapshots: the zip of a RocksDB snapshot names the immutable files that it needs.

_METADATA = "metadata"

_LARGEST = 256 << 20
"""Bytes of everything in a zip at most: metadata and RocksDB's own files, of which the manifest is the largest."""

_COLUMN_FAMILIES = (1 << 15) - 1
"""The highest id: a short in Java."""

_FILE_NAME = re.compile(r"[^/\x00]{1,255}")

_LOCAL_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}")
"""Names that RocksDB gives to files; no path leads out of the directory."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot's zip.

    Attributes:
        sizes: Bytes of the files that the snapshot needs, by path relative to the store's directory, such as
            ``SSTs/000008-<uuid>.sst``.
        local_names: RocksDB's names of these files, by the same paths.
        column_families: The ids of the virtual column families, by name; empty where the store has none.
        files: RocksDB's own files in the zip, by name.
    """

    sizes: Mapping[str, int]
    local_names: Mapping[str, str] = field(repr=False)
    column_families: Mapping[str, int]
    files: Mapping[str, bytes] = field(repr=False)


def files_named(data: bytes) -> dict[str, int] | None:
    """Returns the files that a snapshot needs besides its zip.

    Args:
        data: The whole zip.

    Returns:
        Their sizes in bytes, by path relative to the store's directory; None where the bytes are no snapshot's zip.
    """
    found = files_and_rows(data)
    return None if found is None else found[0]


def files_and_rows(data: bytes) -> tuple[dict[str, int], int | None] | None:
    """Returns what :func:`files_named` does, and how many rows a snapshot has.

    Args:
        data: The whole zip.

    Returns:
        The files, and the rows of all column families; these are None where the zip does not say, as without
        ``trackTotalNumberOfRows``. None where the bytes are no snapshot's zip.
    """
    try:
        with opened_zip(data, _LARGEST) as archive:
            metadata = _metadata(archive)
            files = {path: size for path, _, size in _named(metadata)}
    except ValueError:
        return None
    rows = 0
    for each in (metadata.get("numKeys"), metadata.get("numInternalKeys", 0)):
        if not isinstance(each, int) or each < 0:
            return files, None
        rows += each
    return files, rows


def read_snapshot(data: bytes) -> Snapshot:
    """Reads a snapshot's zip.

    Args:
        data: The whole zip.

    Raises:
        ValueError: The bytes are no snapshot's zip, or something in it is too large.
    """
    try:
        with opened_zip(data, _LARGEST) as archive:
            metadata = _metadata(archive)
            named = _named(metadata)
            families = _families(metadata.get("columnFamilyMapping"))
            files = {name: archive.read(name) for name in archive.namelist() if name != _METADATA}
    except ValueError as error:
        raise ValueError(f"it is no snapshot ({error})") from error
    local_names = {path: name for path, name, _ in named}
    for name in (*files, *local_names.values()):
        if not _LOCAL_NAME.fullmatch(name):
            raise ValueError(f"it has a file {name!r}, which RocksDB has not written")
    return Snapshot({path: size for path, _, size in named}, local_names, families, files)


def _metadata(archive: zipfile.ZipFile) -> Mapping[str, Any]:
    size = archive.getinfo(_METADATA).file_size
    if size > LONGEST:
        raise ValueError(f"its metadata has {size} bytes, and at most {LONGEST} are read")
    return parse_object(archive.read(_METADATA).partition(b"\n")[2])


def _families(mapping: object) -> dict[str, int]:
    if not isinstance(mapping, Mapping):
        if mapping is None:
            return {}
        raise ValueError("its columnFamilyMapping is no JSON object")
    return {name: whole_number(number, "a column family's id", _COLUMN_FAMILIES) for name, number in mapping.items()}


def _named(metadata: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    """The path, the local name and the size of each file that a snapshot needs."""
    found = []
    for key, folder, name in (("sstFiles", "SSTs", "dfsSstFileName"), ("logFiles", "logs", "dfsLogFileName")):
        for file in objects(metadata.get(key), key):
            named = str(file.get(name))
            if not _FILE_NAME.fullmatch(named) or named in (".", ".."):
                raise ValueError(f"it names a file {named[:100]!r}")
            size = whole_number(file.get("sizeBytes"), f"the size of {named}")
            found.append((f"{folder}/{named}", str(file.get("localFileName", named)), size))
    return found
