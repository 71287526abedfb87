"""The zip of a RocksDB snapshot: which immutable files it needs, and what else is in it.

Spark's ``RocksDBFileManager.saveCheckpointToDfs`` zips what is not an SST or a log, and a file ``metadata`` (written by
``RocksDBCheckpointMetadata``): a line ``v1`` or ``v2`` and a JSON object with ``sstFiles`` and ``logFiles``, each with
``localFileName``, ``dfsSstFileName`` or ``dfsLogFileName`` and ``sizeBytes``; and with ``columnFamilyMapping``, the id
of each virtual column family.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark_statestore.parsing.json_text import LONGEST, objects, parse_object, whole_number
from pyspark_statestore.parsing.zip_files import opened_zip

_METADATA = "metadata"

_LARGEST = 256 << 20
"""Bytes of all that is in a zip: metadata, and RocksDB's own, the largest of which is the manifest."""

_COLUMN_FAMILIES = (1 << 15) - 1
"""Ids are Java's short."""

_FILE_NAME = re.compile(r"[^/\x00]{1,255}")

_LOCAL_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}")
"""RocksDB's names; a path that leaves the directory is none."""


@dataclass(frozen=True)
class Snapshot:
    """What a zip says.

    Attributes:
        sizes: Bytes of the files that it needs, by path relative to the store's directory, such as
            ``SSTs/000008-<uuid>.sst``.
        local_names: What RocksDB calls these, by the same paths.
        column_families: Ids of the virtual column families, by name; none where the store has none.
        files: What is in the zip for RocksDB, by name.
    """

    sizes: Mapping[str, int]
    local_names: Mapping[str, str] = field(repr=False)
    column_families: Mapping[str, int]
    files: Mapping[str, bytes] = field(repr=False)


def files_named(data: bytes) -> dict[str, int] | None:
    """Tells what a snapshot needs besides itself.

    Args:
        data: The whole zip.

    Returns:
        Sizes in bytes by path relative to the store's directory; None where the bytes are no zip of a snapshot.
    """
    try:
        with opened_zip(data, _LARGEST) as archive:
            return {path: size for path, _, size in _named(_metadata(archive))}
    except ValueError:
        return None


def read_snapshot(data: bytes) -> Snapshot:
    """Takes a snapshot's zip apart.

    Args:
        data: The whole zip.

    Raises:
        ValueError: The bytes are no zip of a snapshot, or of one that is too large to be one.
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
    """Path, local name and size of each file that a snapshot needs."""
    found = []
    for key, folder, name in (("sstFiles", "SSTs", "dfsSstFileName"), ("logFiles", "logs", "dfsLogFileName")):
        for file in objects(metadata.get(key), key):
            named = str(file.get(name))
            if not _FILE_NAME.fullmatch(named) or named in (".", ".."):
                raise ValueError(f"it names a file {named[:100]!r}")
            size = whole_number(file.get("sizeBytes"), f"the size of {named}")
            found.append((f"{folder}/{named}", str(file.get("localFileName", named)), size))
    return found
