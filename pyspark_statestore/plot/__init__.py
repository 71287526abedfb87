"""``plot``: draws a checkpoint as an image or as a page. It needs the extra ``plot``, which is matplotlib."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_statestore.errors import StateStoreFilesError, not_allowed

if TYPE_CHECKING:
    from fsspec.callbacks import Callback

    from pyspark_statestore.checkpoint import Checkpoint

SUFFIXES = (".png", ".html")
"""The endings of the files that can be drawn."""


def checked_path(path: str | os.PathLike[str]) -> Path:
    """Makes sure that a path ends in one of :data:`SUFFIXES`.

    Args:
        path: A path on this machine.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION where it ends otherwise.
    """
    checked = Path(path)
    if checked.suffix.lower() not in SUFFIXES:
        allowed = f"a file that ends in {' or '.join(SUFFIXES)}"
        raise not_allowed("out", str(path), allowed)
    return checked


def plot(checkpoint: Checkpoint, path: str | os.PathLike[str], callback: Callback | None = None) -> None:
    """Draws a checkpoint's files by size and live share, their growth over time, and its partitions by bytes.

    The file is written whole or not at all. A file that exists is replaced.

    Args:
        checkpoint: The checkpoint. Its query may be running.
        path: Where to write an image (``.png``), or a page (``.html``) with the same picture and the summary.
        callback: An fsspec callback for progress in merged files.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION, PSS_MISSING_DEPENDENCY (names the extra), PSS_WRITE_FAILED; otherwise
            as :class:`~pyspark_statestore.inspect.Inspection`.
    """
    target = checked_path(path)
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        install = 'pip install "pyspark-statestore[plot]"'
        parameters = {"what": "Drawing a checkpoint", "reason": error, "install": install}
        raise StateStoreFilesError("PSS_MISSING_DEPENDENCY", parameters) from error
    from pyspark_statestore.plot.figure import Picture, page_of, write_whole

    picture = Picture.of(checkpoint, callback)
    write_whole(target, picture.png() if target.suffix.lower() == ".png" else page_of(picture).encode())
