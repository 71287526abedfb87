"""Writing a file whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark_statestore.errors import StateStoreFilesError


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file, or replaces it; what was there stays until all is written.

    Raises:
        StateStoreFilesError: PSS_WRITE_FAILED.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            beside.write_bytes(data)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StateStoreFilesError("PSS_WRITE_FAILED", {"path": path, "reason": reason}) from error
