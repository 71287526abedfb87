"""What is written for a checkpoint stays in it, also where somebody has put symbolic links into it."""

from __future__ import annotations

import os

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.storage.directory import Directory


def require_inside(directory: Directory, relative: str) -> None:
    """Refuses a path that a symbolic link in the checkpoint leads out of it; the checkpoint itself may be below one.

    Args:
        directory: Of the checkpoint. Only local disks have such links.
        relative: Path in it.

    Raises:
        StateStoreFilesError: PSS_BAD_PATH.
    """
    if not directory.is_local or relative.startswith("/"):
        return
    root = os.path.realpath(directory.location.path)
    real = os.path.realpath(directory.location.below(relative))
    if os.path.commonpath([root, real]) != root:
        reason = f"a symbolic link in the checkpoint leads out of it, to {real}; replace the link by what it stands for"
        raise StateStoreFilesError("PSS_BAD_PATH", {"path": directory.location.display(relative), "reason": reason})
