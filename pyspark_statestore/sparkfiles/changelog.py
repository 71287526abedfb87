"""The start of a RocksDB changelog: with checkpoint format 2, which versions it follows.

Spark's ``StateStoreChangelogWriter`` compresses the whole file. With state store checkpoint ids (its versions 3 and 4)
``writeVersion`` and ``writeLineage`` come first, each a Java ``writeUTF``: ``v4``, then a JSON array of
``{"version": 7, "checkpointUniqueId": "..."}`` from the last snapshot on.
"""

from __future__ import annotations

import re

from pyspark_statestore.parsing.json_text import objects, parse_json, whole_number
from pyspark_statestore.sparkfiles.compression import decompressed_start

_ENOUGH = 64 * 1024
"""A lineage is at most as long as there are batches between two snapshots, about 70 bytes each."""


def lineage_of(data: bytes) -> dict[int, str] | None:
    """Tells which attempts at earlier versions a changelog builds on.

    Args:
        data: The file, or its start.

    Returns:
        Checkpoint id by version, from the last snapshot on; empty where the changelog has no lineage; None where it
        cannot be read (an unknown compression codec, or damage).
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
    """Java's ``writeUTF``: two bytes of length, big-endian; what Spark writes there is ASCII."""
    if len(data) < 2:
        return None, b""
    end = 2 + int.from_bytes(data[:2], "big")
    if len(data) < end:
        return None, b""
    return data[2:end].decode("utf-8", "replace"), data[end:]
