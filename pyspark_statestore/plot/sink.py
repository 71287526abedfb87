"""The picture of a file sink."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore import rendering
from pyspark_statestore.grouping import grouped
from pyspark_statestore.plot.picture import GREEN, GREY, ORANGE, Picture, dates, label, largest, points, stack
from pyspark_statestore.sink.sink import TARGET_FILE_SIZE

if TYPE_CHECKING:
    from pyspark_statestore.sink.sink import Sink

_SIZES = 32
"""Classes of sizes, each of twice the size of the one before: the last one begins with 2 GiB."""


@dataclass(frozen=True)
class SinkPicture(Picture):
    """What is drawn.

    Attributes:
        url: The sink's URL.
        files: The table ``sink_files``.
        log: The table ``sink_log``.
        waiting: The table ``sink_waiting``.
    """

    url: str
    files: pa.Table
    log: pa.Table
    waiting: pa.Table
    nothing = "no file is listed"

    @classmethod
    def of(cls, sink: Sink) -> SinkPicture:
        """Reads the tables that a picture needs."""
        return cls(sink.url, sink.files(), sink.log(), sink.waiting())

    @property
    def headline(self) -> str:
        """The sink in one line."""
        sizes = self._sizes
        line = f"{rendering.counted(len(sizes), 'listed file')}, {rendering.size(int(sizes.sum()))}"
        if len(sizes):
            line += f", half of them smaller than {rendering.size(int(np.median(sizes)))}"
        if self.waiting.num_rows:
            line += f"; waiting to be published: {rendering.counted(self.waiting.num_rows, 'file')}"
        return line

    @property
    def _sizes(self) -> np.ndarray:
        sizes: np.ndarray = np.array(self.files["file_size_in_bytes"].to_pylist(), dtype=np.int64)
        return sizes

    def figures(self) -> Iterable[tuple[str, str, str]]:
        """The page's table."""
        sizes = self._sizes
        small = sizes < TARGET_FILE_SIZE
        current = self.log.filter(self.log["is_current"])
        lines = sum(current["entry_count"].to_pylist())
        waits = sum(self.waiting["file_size_in_bytes"].to_pylist())
        yield "listed_files", f"{len(sizes):,}", "Files that readers see."
        yield "listed_bytes", rendering.size(int(sizes.sum())), "Their size."
        yield "small_files", f"{int(small.sum()):,}", "Of these, smaller than 128 MiB."
        yield "directories", f"{len(set(self.files['directory'].to_pylist())):,}", "Partition values with files."
        yield "list_entries", f"{lines:,}", "Files that Spark's list names, in all of its files that count."
        yield "waiting_files", f"{self.waiting.num_rows:,}", "Files whose rows no reader sees yet (maxDelay)."
        yield "waiting_bytes", rendering.size(waits), "Their size."

    def draw(self, first: Any, second: Any, third: Any) -> None:
        """Draws sizes, growth and directories."""
        self._by_size(first)
        self._growth(second)
        self._directories(third)

    def _by_size(self, axes: Any) -> None:
        axes.set_title("Bytes by size of their files, and how many files those are", loc="left")
        sizes = self._sizes
        if not len(sizes):
            return
        classes = np.clip(np.log2(np.maximum(sizes, 1)).astype(int), 0, _SIZES - 1)
        counts = np.bincount(classes, minlength=_SIZES)
        held = np.bincount(classes, weights=sizes, minlength=_SIZES)
        shown = np.arange(classes.min(), classes.max() + 1)
        is_small = 2.0 ** (shown + 1) <= TARGET_FILE_SIZE
        parts = (
            ("smaller than 128 MiB", np.where(is_small, held[shown], 0), ORANGE),
            ("larger", np.where(is_small, 0, held[shown]), GREEN),
        )
        stack(axes, np.arange(len(shown)), parts)
        names = [f"{rendering.size(2**number)}\n{counts[number]:,}" for number in shown.tolist()]
        axes.set_xticks(np.arange(len(shown)), names, fontsize=7)

    def _growth(self, axes: Any) -> None:
        axes.set_title("Listed bytes, by the time when they were written (UTC)", loc="left")
        # A list may have times that no calendar has.
        files = self.files.filter(pc.is_valid(self.files["last_modified_at"])).sort_by("last_modified_at")
        if not len(files):
            return
        at = files["last_modified_at"].cast(pa.timestamp("us")).to_numpy()
        some = points(len(at))
        total = np.cumsum(files["file_size_in_bytes"].to_numpy())[some]
        axes.fill_between(at[some], 0, total, step="post", color=GREEN, label="listed", alpha=0.8)
        axes.set_ylim(bottom=0)
        dates(axes)

    def _directories(self, axes: Any) -> None:
        listed, waits = ({d: (b, c) for d, b, c in _by_directory(table)} for table in (self.files, self.waiting))
        order = sorted({**listed, **waits}, key=lambda d: (-listed.get(d, (0, 0))[0], d))
        count, those = largest(len(order))
        shown = order[:count]
        axes.set_title(f"Partition values by bytes, with their number of files: {those}", loc="left")
        if not shown:
            return
        heights = [np.array([found.get(d, (0, 0))[0] for d in shown]) for found in (listed, waits)]
        stack(axes, np.arange(len(shown)), (("listed", heights[0], GREEN), ("wait to be published", heights[1], GREY)))
        names = [f"{label(d) or 'no partition'}: {listed.get(d, (0, 0))[1]:,}" for d in shown]
        axes.set_xticks(np.arange(len(shown)), names, rotation=90 if len(shown) > 6 else 0)


def _by_directory(table: pa.Table) -> list[tuple[str, int, int]]:
    found = grouped(table, "directory").aggregate([("file_size_in_bytes", "sum"), ("file_size_in_bytes", "count")])
    columns = ("directory", "file_size_in_bytes_sum", "file_size_in_bytes_count")
    return list(zip(*(found[name].to_pylist() for name in columns), strict=True))
