"""The zip of a RocksDB snapshot: which immutable files it needs, and what else is in it.

Spark's ``RocksDBFileManager.saveCheckpointToDfs`` zips what is not an SST or a log, and a file ``metadata`` (written by
``RocksDBCheckpointMetadata``): a line ``v1`` or ``v2`` and a JSON object with ``sstFiles`` and ``logFiles``, each with
``localFileName``, ``dfsSstFileName`` or ``dfsLogFileName`` and ``sizeBytes``; and with ``columnFamilyMapping``, the id
of each virtual column family.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_METADATA = "metadata"

_LOCAL_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
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
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {path: size for path, _, size in _named(_metadata(archive))}
    except Exception:  # what zipfile, its decompressors and json raise at something else is no short list
        return None


def read_snapshot(data: bytes) -> Snapshot:
    """Takes a snapshot's zip apart.

    Args:
        data: The whole zip.

    Raises:
        ValueError: The bytes are no zip of a snapshot.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            metadata = _metadata(archive)
            named = list(_named(metadata))
            families = {str(name): int(number) for name, number in (metadata.get("columnFamilyMapping") or {}).items()}
            files = {name: archive.read(name) for name in archive.namelist() if name != _METADATA}
    except Exception as error:
        raise ValueError(f"it is no snapshot ({type(error).__name__}: {error})") from error
    local_names = {path: name for path, name, _ in named}
    for name in (*files, *local_names.values()):
        if not _LOCAL_NAME.fullmatch(name):
            raise ValueError(f"it has a file {name!r}, which RocksDB has not written")
    return Snapshot({path: size for path, _, size in named}, local_names, families, files)


def _metadata(archive: zipfile.ZipFile) -> Mapping[str, Any]:
    _, _, text = archive.read(_METADATA).decode("utf-8").partition("\n")
    found: Mapping[str, Any] = json.loads(text)
    return found


def _named(metadata: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    """Path, local name and size of each file that a snapshot needs."""
    found = []
    for key, folder, name in (("sstFiles", "SSTs", "dfsSstFileName"), ("logFiles", "logs", "dfsLogFileName")):
        for file in metadata.get(key) or ():
            path = f"{folder}/{file[name]}"
            found.append((path, str(file.get("localFileName", file[name])), int(file["sizeBytes"])))
    return found
