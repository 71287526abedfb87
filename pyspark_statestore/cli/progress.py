"""How far it is, on stderr, for who watches."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from fsspec.callbacks import Callback
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class ProgressBar(Callback):
    """An fsspec callback that draws a bar on stderr until it is closed; nothing of it stays.

    Files are read in several threads; each may tell it.

    Args:
        what: The words before the bar.
        unit: What is counted: ``files``, ``bytes``, or nothing where it is not known how far it is.
    """

    def __init__(self, what: str = "Reading merged files", unit: str = "files") -> None:
        super().__init__()
        counted: dict[str, tuple[ProgressColumn, ...]] = {
            "files": (MofNCompleteColumn(), TimeRemainingColumn()),
            "bytes": (DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn()),
        }
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            *counted.get(unit, (TimeElapsedColumn(),)),
            console=Console(file=sys.stderr),
            transient=True,
        )
        self._task = self._progress.add_task(what, total=None)
        self._progress.start()

    def set_size(self, size: int) -> None:
        """How many there are; said anew where reading begins again, because files have vanished."""
        self._progress.reset(self._task, total=size)

    def relative_update(self, inc: int = 1) -> None:
        """So many more were done."""
        self._progress.advance(self._task, inc)

    def close(self) -> None:
        """Takes the bar away."""
        self._progress.refresh()
        self._progress.stop()


@contextmanager
def progress(what: str = "Reading merged files", unit: str = "files") -> Iterator[Callback | None]:
    """Shows progress where stderr is a terminal, and gives None where it is not.

    Args:
        what: As of :class:`ProgressBar`.
        unit: As of :class:`ProgressBar`.
    """
    if not sys.stderr.isatty():
        yield None
        return
    bar = ProgressBar(what, unit)
    try:
        yield bar
    finally:
        bar.close()
