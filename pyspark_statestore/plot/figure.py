"""The picture of a checkpoint: three panels, drawn with matplotlib but without its global state, and a page for it."""

from __future__ import annotations

import html
import io
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from pyspark_statestore import rendering
from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.inspect import TABLES, costs_of_segments
from pyspark_statestore.rendering import form_of

if TYPE_CHECKING:
    from fsspec.callbacks import Callback

    from pyspark_statestore.checkpoint import Checkpoint


_LIVE, _DEAD, _REST = "#2a7f62", "#d1603d", "#b9b9b9"
_PARTITIONS = 40
_NUMBERED = 20
_POINTS = 2000
_BARS = 12
"""The panel has room for at least so many bars, so that a single one does not fill it."""
_STYLE = {"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "pyspark-statestore"}
_INCHES = (11, 9)

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{url}</title>
<style>
body {{ font-family: sans-serif; max-width: 70em; margin: 1em auto; }}
svg {{ width: 100%; height: auto; }}
td {{ padding: 0.1em 1em 0.1em 0; }}
td:nth-child(2) {{ text-align: right; }}
td:nth-child(3) {{ color: #555; }}
</style>
</head>
<body>
<h1>{url}</h1>
{svg}
<h2>Summary</h2>
<table>
{rows}
</table>
</body>
</html>
"""


@dataclass(frozen=True)
class Picture:
    """What is drawn.

    Attributes:
        url: The checkpoint's URL.
        files: The table ``files``.
        segments: The table ``segments``.
        summary: The row of the table ``summary``.
    """

    url: str
    files: pa.Table
    segments: pa.Table
    summary: dict[str, Any]

    @classmethod
    def of(cls, checkpoint: Checkpoint, callback: Callback | None = None) -> Picture:
        """Reads the tables that a picture needs."""
        tables = checkpoint.inspect.tables("files", "segments", "summary", callback=callback)
        return cls(checkpoint.url, tables["files"], tables["segments"], tables["summary"].to_pylist()[0])

    @property
    def headline(self) -> str:
        """The checkpoint in one line."""
        figures = self.summary
        line = rendering.counted(figures["file_count"], "merged file")
        line += f", {rendering.size(figures['file_size_in_bytes'])}"
        line += f", of which {rendering.size(figures['live_bytes'])} live"
        if figures["plain_file_count"]:
            line += f"; {figures['plain_file_count']:,} plain state files beside them"
        return line

    def png(self) -> bytes:
        """Returns the picture as a PNG file."""
        return self._saved("png", dpi=110)

    def svg(self) -> str:
        """Returns the picture as SVG without an XML declaration, to be put into a page."""
        whole = self._saved("svg", metadata={"Date": None, "Creator": None}).decode()
        return whole[whole.index("<svg") :]

    def _saved(self, form: str, **options: Any) -> bytes:
        out = io.BytesIO()
        with matplotlib.rc_context(_STYLE):
            self._figure().savefig(out, format=form, **options)
        return out.getvalue()

    def _figure(self) -> Figure:
        figure = Figure(figsize=_INCHES, layout="constrained")
        figure.suptitle(f"{self.url}\n{self.headline}", fontsize=11)
        files, growth, partitions = figure.subplots(3, 1)
        self._files(files)
        self._growth(growth)
        self._partitions(partitions)
        for axes in (files, growth, partitions):
            axes.yaxis.set_major_locator(MultipleLocator(_step(axes.get_ylim()[1])))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: rendering.size(int(value))))
            axes.spines[["top", "right"]].set_visible(False)
            if axes.get_legend_handles_labels()[0]:
                axes.legend(frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0)
            else:
                axes.text(0.5, 0.5, "nothing in merged files", ha="center", transform=axes.transAxes)
        return figure

    def _files(self, axes: Any) -> None:
        axes.set_title("Merged files, the oldest first", loc="left")
        if not len(self.files):
            return
        size, live = (self.files[name].to_numpy() for name in ("file_size_in_bytes", "live_bytes"))
        held = self.segments.group_by("file_path").aggregate([("length", "sum")])
        by_path = dict(zip(held["file_path"].to_pylist(), held["length_sum"].to_pylist(), strict=True))
        segments = np.array([by_path.get(path, 0) for path in self.files["file_path"].to_pylist()])
        dead = segments - live
        rest = size - segments
        parts = (("live", live, _LIVE), ("dead", dead, _DEAD), ("index, header, torn tail", rest, _REST))
        _stack(axes, np.arange(1, len(size) + 1), parts)
        if len(size) <= _NUMBERED:
            axes.set_xticks(np.arange(1, len(size) + 1))

    def _growth(self, axes: Any) -> None:
        axes.set_title("Segments that are there, by the time when they were written (UTC)", loc="left")
        if not len(self.segments):
            return
        segments = self.segments.sort_by("written_at")
        length = segments["length"].to_numpy()
        live = np.where(pc.equal(segments["status"], "live").to_numpy(), length, 0)
        at = segments["written_at"].cast(pa.timestamp("us")).to_numpy()
        some = np.unique(np.linspace(0, len(at) - 1, _POINTS).astype(int))
        all_, living = np.cumsum(length)[some], np.cumsum(live)[some]
        axes.fill_between(at[some], living, all_, step="post", color=_DEAD, label="dead by now", alpha=0.8)
        axes.fill_between(at[some], 0, living, step="post", color=_LIVE, label="live", alpha=0.8)
        axes.set_ylim(bottom=0)
        locator = AutoDateLocator()
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))

    def _partitions(self, axes: Any) -> None:
        found = costs_of_segments(self.segments, "partitions")
        shown = found.slice(0, _PARTITIONS)
        those = f"the {_PARTITIONS} largest of {len(found):,}" if len(found) > len(shown) else f"{len(found):,}"
        axes.set_title(f"State partitions by bytes, as operator/partition: {those}", loc="left")
        if not len(shown):
            return
        names = [f"{operator}/{partition}" for operator, partition in _pairs(shown, "operator_id", "partition_id")]
        live, dead = (shown[name].to_numpy() for name in ("live_bytes", "dead_bytes"))
        _stack(axes, np.arange(len(shown)), (("live", live, _LIVE), ("dead", dead, _DEAD)))
        axes.set_xticks(np.arange(len(shown)), names, rotation=90 if len(shown) > 20 else 0)


def page_of(picture: Picture) -> str:
    """Returns an HTML page with the picture as SVG and the summary as a table. It loads nothing from elsewhere."""
    rows = []
    for column in TABLES["summary"]:
        shown = rendering.exact(picture.summary[column.name], form_of(column.name, column.type))
        cells_of_row = (column.name, shown, column.about)
        rows.append("<tr>" + "".join(f"<td>{html.escape(each)}</td>" for each in cells_of_row) + "</tr>")
    return _PAGE.format(url=html.escape(picture.url), svg=picture.svg(), rows="\n".join(rows))


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all. A file that exists is replaced once all is written.

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


def _stack(axes: Any, at: np.ndarray, parts: tuple[tuple[str, np.ndarray, str], ...]) -> None:
    bottom = np.zeros(len(at))
    for label, height, color in parts:
        axes.bar(at, height, 0.8, bottom=bottom, label=label, color=color)
        bottom = bottom + height
    axes.set_xlim(at[0] - 0.6, max(at[-1] + 0.6, at[0] + _BARS))


def _step(highest: float) -> float:
    """The distance between two marks of an axis of bytes: a power of two, so that the marks are round numbers."""
    return float(2 ** max(0, math.ceil(math.log2(max(highest, 1) / 6))))


def _pairs(table: pa.Table, first: str, second: str) -> list[tuple[Any, Any]]:
    return list(zip(table[first].to_pylist(), table[second].to_pylist(), strict=True))
