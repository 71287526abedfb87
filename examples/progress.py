"""Progress of a streaming query, batch by batch: a bar where there is a terminal, plain lines where there is none."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class BatchProgress:
    """Shows on stderr how far a query is; a context manager.

    Args:
        name: what is shown in front of the bar or line.
        batches: how many batches with data there will be.
        quiet: show nothing.
    """

    def __init__(self, name: str, batches: int, *, quiet: bool = False) -> None:
        self._name = name
        self._batches = batches
        self._quiet = quiet
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> BatchProgress:
        if self._console.is_terminal and not self._quiet:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[last]}"),
            )
            self._bar = Progress(*columns, TimeElapsedColumn(), console=self._console)
            self._task = self._bar.add_task(self._name, total=self._batches, last="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def batch(self, progress: Any) -> None:
        """Shows a finished batch.

        Args:
            progress: a query's progress, or a dictionary with batchId, numInputRows and batchDuration (milliseconds).
        """
        number, rows = progress["batchId"] + 1, progress["numInputRows"]
        last = f"{rows:,} rows in {progress['batchDuration'] / 1000:.1f} s"
        if self._bar is not None:
            self._bar.update(self._task, completed=min(number, self._batches), last=last)
        elif not self._quiet:
            # A batch without data follows the last one when the watermark has moved: it has no place in "of".
            self._line(
                f"batch {number} of {self._batches}: {last}" if number <= self._batches else f"batch {number}: {last}"
            )

    def say(self, text: str) -> None:
        """Shows a line of text."""
        if not self._quiet:
            self._line(text)

    def _line(self, text: str) -> None:
        self._console.print(f"{self._name}: {text}", highlight=False, soft_wrap=True)
