"""The zip of a RocksDB snapshot: which immutable files it needs.

Spark's ``RocksDBFileManager.saveCheckpointToDfs`` zips what is not an SST or a log, and a file ``metadata`` (written by
``RocksDBCheckpointMetadata``): a line ``v1`` or ``v2`` and a JSON object with ``sstFiles`` and ``logFiles``, each with
``dfsSstFileName`` or ``dfsLogFileName`` and ``sizeBytes``.
"""

from __future__ import annotations

import io
import json
import zipfile


def files_named(data: bytes) -> dict[str, int] | None:
    """Tells what a snapshot needs besides itself.

    Args:
        data: The whole zip.

    Returns:
        Sizes in bytes by path relative to the store's directory, such as ``SSTs/000008-<uuid>.sst``; None where the
        bytes are no zip of a snapshot.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _, _, text = archive.read("metadata").decode("utf-8").partition("\n")
        metadata = json.loads(text)
        ssts = {f"SSTs/{file['dfsSstFileName']}": int(file["sizeBytes"]) for file in metadata.get("sstFiles") or ()}
        logs = {f"logs/{file['dfsLogFileName']}": int(file["sizeBytes"]) for file in metadata.get("logFiles") or ()}
    except Exception:  # what zipfile, its decompressors and json raise at something else is no short list
        return None
    return ssts | logs
