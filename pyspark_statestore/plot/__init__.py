"""``plot`` and ``plot_sink``: draw a checkpoint or a sink as an image or as a page.

It needs the extra ``plot``, which is matplotlib.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_statestore.errors import StateStoreFilesError, first_line, not_allowed

if TYPE_CHECKING:
    from fsspec.callbacks import Callback

    from pyspark_statestore.checkpoint import Checkpoint
    from pyspark_statestore.plot.picture import Picture
    from pyspark_statestore.sink.sink import Sink

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

    def picture() -> Picture:
        from pyspark_statestore.plot.checkpoint import CheckpointPicture

        return CheckpointPicture.of(checkpoint, callback)

    _write(path, "Drawing a checkpoint", picture)


def plot_sink(sink: Sink, path: str | os.PathLike[str]) -> None:
    """Draws a file sink: its files by size, their growth over time, and its partition values by bytes.

    The file is written whole or not at all. A file that exists is replaced.

    Args:
        sink: The sink. Its query may be running.
        path: Where to write an image (``.png``), or a page (``.html``) with the same picture and its figures.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION, PSS_MISSING_DEPENDENCY (names the extra), PSS_WRITE_FAILED; otherwise
            as the methods of :class:`~pyspark_statestore.sink.sink.Sink`.
    """

    def picture() -> Picture:
        from pyspark_statestore.plot.sink import SinkPicture

        return SinkPicture.of(sink)

    _write(path, "Drawing a sink", picture)


def _write(path: str | os.PathLike[str], what: str, make: Callable[[], Picture]) -> None:
    from pyspark_statestore.report.page import check_place, write_whole

    target = checked_path(path)
    check_place(target)
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        install = 'pip install "pyspark-statestore[plot]"'
        parameters = {"what": what, "reason": first_line(error), "install": install}
        raise StateStoreFilesError("PSS_MISSING_DEPENDENCY", parameters) from error
    from pyspark_statestore.plot.picture import page_of

    picture = make()
    write_whole(target, picture.png() if target.suffix.lower() == ".png" else page_of(picture).encode())
