"""How many files were read, on stderr, for who watches."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from fsspec.callbacks import Callback
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class ProgressBar(Callback):
    """An fsspec callback that draws a bar on stderr until it is closed; nothing of it stays.

    Files are read in several threads; each may tell it.

    Args:
        what: The word before the bar.
    """

    def __init__(self, what: str = "Reading merged files") -> None:
        super().__init__()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
            transient=True,
        )
        self._task = self._progress.add_task(what, total=None)
        self._progress.start()

    def set_size(self, size: int) -> None:
        """How many files there are; said anew where reading begins again, because files have vanished."""
        self._progress.reset(self._task, total=size)

    def relative_update(self, inc: int = 1) -> None:
        """So many more were read."""
        self._progress.advance(self._task, inc)

    def close(self) -> None:
        """Takes the bar away."""
        self._progress.refresh()
        self._progress.stop()


@contextmanager
def progress() -> Iterator[Callback | None]:
    """Shows progress where stderr is a terminal, and gives None where it is not."""
    if not sys.stderr.isatty():
        yield None
        return
    bar = ProgressBar()
    try:
        yield bar
    finally:
        bar.close()
