"""Pictures inside of a page: growth over time, and maps of partitions.

Each has a title and a description for those who do not see it, and its parts say their figures when a pointer rests on
them. Growth is drawn as SVG that scales with its place on the page; a map is a grid of cells, of which a line has as
many as there is room for.
"""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pyspark_statestore import rendering
from pyspark_statestore.report.advice import SKEWED
from pyspark_statestore.report.markup import Markup, element
from pyspark_statestore.report.page import legend

POINTS = 160
"""Of a line at most: a page stays small whatever it is about."""

_HOVERS = 40
"""Places along a line that say their figures."""

CELLS = 800
"""Of a map at most; beyond that, neighbours share a cell."""

_NUMBERED = 256
"""Cells that have room for their numbers."""

_WIDTH, _HEIGHT = 540, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 536, 10, 176

_BANDS = (
    (0.5, "low", "less than half of the average"),
    (0.8, "less", "less"),
    (1.25, "even", "about the average"),
    (SKEWED, "more", "more"),
    (math.inf, "skewed", f"more than {SKEWED:g} times the average"),
)
"""Of a map: up to which part of the average a cell has which color, and its words."""

_LAST = 14
"""Of the width: what came last is seen, too."""

Form = Callable[[int], str]


@dataclass(frozen=True)
class Series:
    """What grows over time.

    Attributes:
        kind: Its color: ``live``, ``dead``, ``rest``, ``plain`` or ``seen``.
        label: Its words.
        at: When, in microseconds since 1970, ascending.
        value: How much there was from then on.
    """

    kind: str
    label: str
    at: np.ndarray
    value: np.ndarray

    @classmethod
    def growing(cls, kind: str, label: str, at: np.ndarray, added: np.ndarray) -> Series:
        """Adds up what came, in any order, at these times."""
        order = np.argsort(at, kind="stable")
        return cls(kind, label, at[order], np.cumsum(added[order]))

    def values_at(self, times: np.ndarray) -> np.ndarray:
        """How much there was at these times."""
        before = np.searchsorted(self.at, times, side="right")
        values: np.ndarray = np.append(0, self.value)[before]
        return values


def growth(title: str, form: Form, series: Sequence[Series], *, stacked: bool = True) -> Markup:
    """Draws what grows over time: areas on top of each other, or lines.

    Args:
        title: What it is.
        form: How a value looks.
        series: What grows; those without a point are left out.
        stacked: Whether areas are stacked; otherwise each is a line.
    """
    present = [each for each in series if len(each.at)]
    if not present:
        return _framed(title, element("p", "Nothing to show.", class_="small"))
    times = _times(present)
    rows: np.ndarray = np.array([each.values_at(times) for each in present], dtype="f8")
    tops = np.cumsum(rows, axis=0) if stacked else rows
    highest = _round_up(float(tops.max()), binary=form is rendering.size)
    first, last = int(times[0]), int(times[-1])
    x = _LEFT + (times - first) / max(last - first, 1) * (_RIGHT - _LAST - _LEFT)
    y = _BOTTOM - tops / highest * (_BOTTOM - _TOP)
    drawn: list[Markup] = [*_scale(highest, form), *_ends(first, last)]
    for number, each in enumerate(present):
        if stacked:
            floor = y[number - 1] if number else np.full(len(x), _BOTTOM)
            drawn.append(element("polygon", class_=each.kind, points=_area(x, y[number], floor)))
        else:
            drawn.append(element("polyline", class_=f"line {each.kind}", points=_steps(x, y[number])))
    drawn += _hovers(times, x, rows, present, form)
    ends = ", ".join(f"{each.label} {form(int(row[-1]))}" for each, row in zip(present, rows, strict=True))
    about = f"From {_moment(first)} to {_moment(last)} UTC. At the end: {ends}."
    key = legend([(each.kind, f"{each.label} {form(int(row[-1]))}") for each, row in zip(present, rows, strict=True)])
    return _framed(title, _svg(title, about, _HEIGHT, drawn), key if stacked or len(present) > 1 else None)


def heat_map(title: str, names: Sequence[int], values: Sequence[int], form: Form, note: str) -> Markup:
    """Draws a map of numbered things, such as partitions, with a color for how much each has beside the average.

    So a map of one color says that all have about the same, and what stands out is seen at once.

    Args:
        title: What it is.
        names: Their numbers, ascending.
        values: The value of each.
        form: How a value looks.
        note: What else is to be said about it.
    """
    step = -(-len(names) // CELLS) or 1
    groups = [(names[at : at + step], values[at : at + step]) for at in range(0, len(names), step)]
    average = _mean(values)
    cells, counts = [], Counter[str]()
    for which, held in groups:
        mean = _mean(held)
        what = f"{which[0]}" if len(which) == 1 else f"{which[0]} to {which[-1]}, on average"
        kind = _band(mean, average)
        counts[kind] += 1
        number = str(which[0]) if len(groups) <= _NUMBERED else None
        cells.append(element("i", number, class_=f"cell {kind}", title=f"partition {what}: {form(int(mean))}"))
    about = f"{title}. The highest: {form(int(max(values, default=0)))}. On average {form(int(average))}."
    shared = f" Each cell is {step} partitions." if step > 1 else ""
    size = "map" if len(groups) <= _NUMBERED else "map dense"
    drawn = element("div", cells, class_=size, role="img", aria_label=about)
    key = legend([(kind, f"{words}: {counts[kind]:,}") for _, kind, words in _BANDS if counts[kind]])
    return _framed(title, drawn, key, element("p", note + shared, class_="small"))


def _band(value: float, average: float) -> str:
    """The color of a cell."""
    return next(kind for top, kind, _ in _BANDS if value <= top * average or top == math.inf)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _framed(title: str, *parts: Markup | None) -> Markup:
    return element("figure", element("h3", title), parts, class_="chart")


def _svg(title: str, about: str, height: int, drawn: Sequence[Markup]) -> Markup:
    # No <title> of the whole: a browser would show it wherever the pointer rests.
    return element(
        "svg",
        element("desc", about),
        drawn,
        viewBox=f"0 0 {_WIDTH} {height}",
        role="img",
        aria_label=f"{title}. {about}",
    )


def _times(series: Sequence[Series]) -> np.ndarray:
    """The times that are drawn: all where they are few, else some of them, the first and the last among these."""
    every = np.unique(np.concatenate([each.at for each in series]))
    places = np.unique(np.linspace(0, len(every) - 1, POINTS).astype(int))
    times: np.ndarray = every[places]
    return times


def _area(x: np.ndarray, y: np.ndarray, floor: np.ndarray) -> str:
    return f"{_steps(x, y)} {_points(*_stepped(x, floor), reverse=True)}"


def _steps(x: np.ndarray, y: np.ndarray) -> str:
    return _points(*_stepped(x, y))


def _stepped(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps instead of slopes: what came, came at a moment. A single moment fills the picture."""
    if len(x) == 1:
        return np.array([_LEFT, _RIGHT], "f8"), np.repeat(y, 2)
    return np.append(np.repeat(x, 2)[1:], _RIGHT), np.repeat(y, 2)


def _points(x: np.ndarray, y: np.ndarray, *, reverse: bool = False) -> str:
    pairs = [f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    return " ".join(reversed(pairs) if reverse else pairs)


def _hovers(times: np.ndarray, x: np.ndarray, rows: np.ndarray, series: Sequence[Series], form: Form) -> list[Markup]:
    """Strips that say the figures of their moment."""
    chosen = np.unique(np.linspace(0, len(times) - 1, _HOVERS).astype(int)).tolist()
    made = []
    for place, at in enumerate(chosen):
        left = _LEFT if place == 0 else float(x[at])
        right = _RIGHT if place == len(chosen) - 1 else float(x[chosen[place + 1]])
        said = ", ".join(f"{each.label} {form(int(row[at]))}" for each, row in zip(series, rows, strict=True))
        strip = {"x": f"{left:.1f}", "y": _TOP, "width": f"{max(right - left, 2):.1f}", "height": _BOTTOM - _TOP}
        made.append(element("rect", element("title", f"{_moment(int(times[at]))}: {said}"), class_="hover", **strip))
    return made


def _scale(highest: float, form: Form) -> list[Markup]:
    made = []
    for part in (0.0, 0.5, 1.0):
        y = _BOTTOM - part * (_BOTTOM - _TOP)
        made.append(element("line", class_="grid", x1=_LEFT, x2=_RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}"))
        if part != 0.5 or highest >= 2:
            shown = form(int(highest * part)).replace(".0 ", " ")
            made.append(element("text", shown, x=_LEFT - 5, y=f"{y + 4:.1f}", text_anchor="end"))
    return made


def _ends(first: int, last: int) -> list[Markup]:
    made = [element("text", _moment(first), x=_LEFT, y=_BOTTOM + 17)]
    if last > first:
        made.append(element("text", _moment(last), x=_RIGHT - _LAST, y=_BOTTOM + 17, text_anchor="end"))
    return made


def _moment(microseconds: int) -> str:
    try:
        at = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=microseconds)
    except OverflowError:
        return "?"  # a stamp that no clock has shown
    return rendering.time(at)


def _round_up(value: float, *, binary: bool) -> float:
    """The top of a scale: a round number that is not lower."""
    if value <= 2:
        return 2.0
    if binary:
        below = 2.0 ** math.floor(math.log2(value))
        return next(below * part for part in (1, 1.5, 2) if below * part >= value)
    unit = 10.0 ** math.floor(math.log10(value))
    return next(unit * part for part in (1, 2, 3, 4, 6, 8, 10) if unit * part >= value)
