"""The picture of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore import rendering
from pyspark_statestore.grouping import grouped
from pyspark_statestore.inspect import TABLES, costs_of_segments
from pyspark_statestore.plot.picture import BLUE, GREEN, GREY, ORANGE, Picture, dates, largest, points, stack
from pyspark_statestore.rendering import form_of

if TYPE_CHECKING:
    from fsspec.callbacks import Callback

    from pyspark_statestore.checkpoint import Checkpoint

_NUMBERED = 20


@dataclass(frozen=True)
class CheckpointPicture(Picture):
    """What is drawn.

    Attributes:
        url: The checkpoint's URL.
        files: The table ``files``.
        segments: The table ``segments``.
        plain: The table ``plain_files``.
        summary: The row of the table ``summary``.
    """

    url: str
    files: pa.Table
    segments: pa.Table
    plain: pa.Table
    summary: dict[str, Any]
    nothing = "no state files"

    @classmethod
    def of(cls, checkpoint: Checkpoint, callback: Callback | None = None) -> CheckpointPicture:
        """Reads the tables that a picture needs."""
        names = ("files", "segments", "plain_files", "summary")
        tables = checkpoint.inspect.tables(*names, callback=callback)
        summary = tables["summary"].to_pylist()[0]
        return cls(checkpoint.url, tables["files"], tables["segments"], tables["plain_files"], summary)

    @property
    def headline(self) -> str:
        """The checkpoint in one line."""
        figures = self.summary
        line = rendering.counted(figures["file_count"], "merged file")
        line += f", {rendering.size(figures['file_size_in_bytes'])}"
        line += f", of which {rendering.size(figures['live_bytes'])} live"
        if figures["plain_file_count"]:
            line += f"; {rendering.counted(figures['plain_file_count'], 'plain state file')}"
            line += f", {rendering.size(figures['plain_bytes'])}"
        return line

    def figures(self) -> Iterable[tuple[str, str, str]]:
        """The summary."""
        for column in TABLES["summary"]:
            shown = rendering.exact(self.summary[column.name], form_of(column.name, column.type))
            yield column.name, shown, column.about

    def bars(self) -> Iterable[tuple[str, str, str]]:
        """The merged files by the numbers of their bars."""
        columns = (self.files[name].to_pylist() for name in ("file_size_in_bytes", "live_bytes", "file_path"))
        for number, (size, live, path) in enumerate(zip(*columns, strict=True), start=1):
            sizes = f"{rendering.size(size)}, {rendering.size(live)} live"
            yield str(number), sizes, rendering.name(path)

    def draw(self, first: Any, second: Any, third: Any) -> None:
        """Draws files, growth and partitions."""
        self._files(first)
        self._growth(second)
        self._partitions(third)

    def _files(self, axes: Any) -> None:
        beside = f"; last, {rendering.counted(len(self.plain), 'plain file')} in one bar" if len(self.plain) else ""
        axes.set_title(f"Merged files, numbered as `files` lists them: the oldest is 1{beside}", loc="left")
        if not len(self.files) and not len(self.plain):
            return
        size, live = (self.files[name].to_numpy() for name in ("file_size_in_bytes", "live_bytes"))
        held = grouped(self.segments, "file_path").aggregate([("length", "sum")])
        by_path = dict(zip(held["file_path"].to_pylist(), held["length_sum"].to_pylist(), strict=True))
        segments = np.array([by_path.get(path, 0) for path in self.files["file_path"].to_pylist()])
        dead = segments - live
        rest = size - segments
        parts = [("live", live, GREEN), ("dead", dead, ORANGE), ("index, header, torn tail", rest, GREY)]
        numbers: np.ndarray = np.arange(1, len(size) + 1)
        names = [str(number) for number in numbers]
        if len(self.plain):
            # There may be a hundred thousand.
            parts = [(label, np.append(height, 0), color) for label, height, color in parts if len(size)]
            plain: np.ndarray = np.zeros(len(size) + 1, "i8")
            plain[-1] = self.summary["plain_bytes"]
            parts.append(("plain", plain, BLUE))
            numbers, names = np.arange(1, len(size) + 2), [*names, "plain"]
        stack(axes, numbers, tuple(parts))
        if len(size) <= _NUMBERED:
            axes.set_xticks(numbers, names)

    def _growth(self, axes: Any) -> None:
        axes.set_title("State files that are there, by the time when they were written (UTC)", loc="left")
        self._plain_growth(axes)
        if not len(self.segments):
            return
        segments = self.segments.sort_by("written_at")
        length = segments["length"].to_numpy()
        live = np.where(pc.equal(segments["status"], "live").to_numpy(), length, 0)
        at = segments["written_at"].cast(pa.timestamp("us")).to_numpy()
        some = points(len(at))
        all_, living = np.cumsum(length)[some], np.cumsum(live)[some]
        axes.fill_between(at[some], living, all_, step="post", color=ORANGE, label="dead by now", alpha=0.8)
        axes.fill_between(at[some], 0, living, step="post", color=GREEN, label="live", alpha=0.8)
        axes.set_ylim(bottom=0)
        dates(axes)

    def _plain_growth(self, axes: Any) -> None:
        plain = self.plain.filter(pc.is_valid(self.plain["last_modified_at"])).sort_by("last_modified_at")
        if not len(plain):
            return
        at = plain["last_modified_at"].cast(pa.timestamp("us")).to_numpy()
        some = points(len(at))
        sizes = np.cumsum(plain["file_size_in_bytes"].to_numpy())[some]
        if len(self.segments):
            axes.step(at[some], sizes, where="post", color=BLUE, label="plain")
        else:
            axes.fill_between(at[some], 0, sizes, step="post", color=BLUE, label="plain", alpha=0.8)
        axes.set_ylim(bottom=0)
        dates(axes)

    def _partitions(self, axes: Any) -> None:
        found = costs_of_segments(self.segments, self.plain, "partitions")
        count, those = largest(len(found))
        shown = found.slice(0, count)
        axes.set_title(f"State partitions by bytes, as operator/partition: {those}", loc="left")
        if not len(shown):
            return
        names = [f"{operator}/{partition}" for operator, partition in _pairs(shown, "operator_id", "partition_id")]
        live, dead = (shown[name].to_numpy() for name in ("live_bytes", "dead_bytes"))
        parts = [("live", live, GREEN), ("dead", dead, ORANGE)]
        if len(self.plain):
            parts[0] = ("live or plain" if len(self.segments) else "plain", live, GREEN if len(self.segments) else BLUE)
        stack(axes, np.arange(len(shown)), tuple(parts))
        axes.set_xticks(np.arange(len(shown)), names, rotation=90 if len(shown) > 20 else 0)


def _pairs(table: pa.Table, first: str, second: str) -> list[tuple[Any, Any]]:
    return list(zip(table[first].to_pylist(), table[second].to_pylist(), strict=True))
