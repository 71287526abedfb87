"""What all pictures share: panels drawn with matplotlib but without its global state, and a page around them."""

from __future__ import annotations

import html
import io
import math
from collections.abc import Iterable
from typing import Any

import matplotlib
import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from pyspark_statestore import rendering

GREEN, ORANGE, GREY, BLUE = "#2a7f62", "#d1603d", "#b9b9b9", "#4c78a8"

_POINTS = 2000
"""Of a line at most."""

_NAMED = 40
"""Bars with names that a panel has room for."""

_BARS = 12
"""The panel has room for at least so many bars, so that a single one does not fill it."""

# Names and paths are text, whatever is in them: a dollar begins no formula.
_PLAIN = {"text.parse_math": False, "text.usetex": False}
_STYLE = {"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "pyspark-statestore", **_PLAIN}
_LONGEST_LABEL = 80
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
{bars}
</body>
</html>
"""


class Picture:
    """Three panels about a directory, whose axes count bytes.

    Attributes:
        url: The directory's URL.
        nothing: What a panel says that has nothing to show.
    """

    url: str
    nothing: str

    @property
    def headline(self) -> str:
        """What is drawn, in one line."""
        raise NotImplementedError

    def figures(self) -> Iterable[tuple[str, str, str]]:
        """The rows of the page's table: name, value and meaning."""
        raise NotImplementedError

    def bars(self) -> Iterable[tuple[str, str, str]]:
        """What the numbers under the bars of the first panel stand for: number, size and name."""
        return ()

    def draw(self, first: Any, second: Any, third: Any) -> None:
        """Draws the panels."""
        raise NotImplementedError

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
        figure.suptitle(f"{label(self.url, 160)}\n{self.headline}", fontsize=11)
        panels = figure.subplots(3, 1)
        self.draw(*panels)
        for axes in panels:
            axes.yaxis.set_major_locator(MultipleLocator(_step(axes.get_ylim()[1])))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: rendering.size(int(value))))
            axes.spines[["top", "right"]].set_visible(False)
            if axes.get_legend_handles_labels()[0]:
                axes.legend(frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0)
            else:
                axes.text(0.5, 0.5, self.nothing, ha="center", transform=axes.transAxes)
        return figure


def page_of(picture: Picture) -> str:
    """Returns an HTML page with the picture as SVG and its figures as a table. It loads nothing from elsewhere."""
    bars = _rows(picture.bars())
    listed = f"<h2>Bars of the first panel</h2>\n<table>\n{bars}\n</table>" if bars else ""
    return _PAGE.format(url=_escaped(picture.url), svg=picture.svg(), rows=_rows(picture.figures()), bars=listed)


def _rows(rows: Iterable[tuple[str, str, str]]) -> str:
    return "\n".join("<tr>" + "".join(f"<td>{_escaped(each)}</td>" for each in row) + "</tr>" for row in rows)


def _escaped(text: str) -> str:
    return html.escape(rendering.lines(text))


def label(text: str, longest: int = _LONGEST_LABEL) -> str:
    """A text from a checkpoint or a sink as a picture has it: in one line that can be drawn, not too long."""
    shown = rendering.lines(text).replace("\n", "\\n")
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def stack(axes: Any, at: np.ndarray, parts: tuple[tuple[str, np.ndarray, str], ...]) -> None:
    """Draws bars of several parts."""
    bottom = np.zeros(len(at))
    for label, height, color in parts:
        axes.bar(at, height, 0.8, bottom=bottom, label=label, color=color)
        bottom = bottom + height
    axes.set_xlim(at[0] - 0.6, max(at[-1] + 0.6, at[0] + _BARS))


def points(length: int) -> np.ndarray:
    """The places of a long series that are drawn, the first and the last among them."""
    places: np.ndarray = np.unique(np.linspace(0, length - 1, _POINTS).astype(int))
    return places


def largest(count: int) -> tuple[int, str]:
    """How many of so many bars are drawn, and how a title says so."""
    return (count, f"{count:,}") if count <= _NAMED else (_NAMED, f"the {_NAMED} largest of {count:,}")


def _step(highest: float) -> float:
    """The distance between two marks of an axis of bytes: a power of two, so that the marks are round numbers."""
    return float(2 ** max(0, math.ceil(math.log2(max(highest, 1) / 6))))


def dates(axes: Any) -> None:
    """Marks times on the horizontal axis."""
    locator = AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
