"""What the pages share: the frame around them, tiles, tables, cards with advice; and the finished ``Report``."""

from __future__ import annotations

import datetime
import html
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pyspark_statestore import rendering
from pyspark_statestore._version import __version__
from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.report.advice import LEVELS, Advice
from pyspark_statestore.report.markup import Markup, Part, document, element, style
from pyspark_statestore.report.style import SHEET

ROWS = 15
"""Rows of a table that ranks something."""

_COMMON = frozenset(("checkpoint", "checkpoints", "_checkpoint", "data", "table"))
"""Names of directories that say nothing without the one above."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""A browser loads nothing for a page with this policy, whatever is in it."""


@dataclass(frozen=True)
class Report:
    """A page about a checkpoint or a sink.

    In a notebook, the object shows itself.

    Attributes:
        html: The page: one HTML file without scripts, which loads nothing.
        advice: What the page tells people to do, the most urgent first; empty where nothing is to be done.
    """

    html: str = field(repr=False)
    advice: tuple[Advice, ...]

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the page to a file on this machine, whole or not at all. A file that exists is replaced.

        Args:
            path: The file, such as ``report.html``.

        Raises:
            StateStoreFilesError: PSS_WRITE_FAILED.
        """
        write_whole(Path(path), encoded(self.html))

    def _repr_html_(self) -> str:
        # In a frame, so that the page's style is the page's alone.
        return f'<iframe srcdoc="{html.escape(self.html)}" style="width:100%;height:48em;border:0"></iframe>'


def encoded(page: str) -> bytes:
    """The bytes of a page. Half of a surrogate pair, as a strange file name has, is shown by its number."""
    return page.encode("utf-8", "backslashreplace")


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
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StateStoreFilesError("PSS_WRITE_FAILED", {"path": path, "reason": reason}) from error


def check_place(path: Path) -> None:
    """Refuses a file that cannot be written, as far as its directory tells, before anything is read for it.

    Raises:
        StateStoreFilesError: PSS_WRITE_FAILED.
    """
    folder = path.parent
    reason = ""
    if path.is_dir():
        reason = "it is a directory"
    elif not folder.exists():
        reason = f"the directory {folder} does not exist"
    elif not folder.is_dir():
        reason = f"{folder} is no directory"
    elif not os.access(folder, os.W_OK):
        reason = f"no permission to write to the directory {folder}"
    if reason:
        raise StateStoreFilesError("PSS_WRITE_FAILED", {"path": path, "reason": reason})


def page(title: str, url: str, verdict: str, at: datetime.datetime, sections: Iterable[Part]) -> str:
    """Puts sections into the frame that all pages have.

    Args:
        title: What the page is about, such as ``Checkpoint q1``.
        url: Where that is.
        verdict: The most important, in a sentence or two.
        at: When it was read, in UTC.
        sections: What follows.
    """
    head = [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        style(SHEET),
    ]
    made = f"Read at {rendering.time(at)} UTC by pyspark-statestore {__version__}. Times are UTC. "
    made += "This page is one file: it has no scripts, and loads nothing."
    body = [
        element("header", element("h1", title), element("div", url, class_="url")),
        element("p", verdict, class_="verdict"),
        element("main", *sections),
        element("footer", element("p", made, class_="small")),
    ]
    return document(head, body)


def section(title: str, *parts: Part) -> Markup:
    """A part of the page with a heading."""
    return element("section", element("h2", title), parts)


def tiles(shown: Iterable[tuple[str, str, str, str]]) -> Markup:
    """The figures that matter first: each with its label, value, what it means, and a level or nothing.

    No line of them is left half empty, however wide the page is.
    """
    given = list(shown)
    beside = zip(*(_in_lines(len(given), most) for most in _BESIDE.values()), strict=True)
    made = [
        element(
            "div",
            element("span", label),
            element("b", value),
            element("span", note),
            class_=f"tile {level}".strip(),
            style=";".join(f"--{width}:{number}" for width, number in zip(_BESIDE, numbers, strict=True)),
        )
        for (label, value, note, level), numbers in zip(given, beside, strict=True)
    ]
    return element("div", made, class_="tiles")


_BESIDE = {"wide": 6, "middle": 4, "narrow": 2}
"""Tiles that a line has at most, by the width of the page. The style sheet says which widths these are."""


def _in_lines(count: int, most: int) -> list[int]:
    """Of each of so many things, how many are in its line, if lines are as long as each other, or one longer."""
    lines = -(-count // most)
    lengths = [count // lines + (line < count % lines) for line in range(lines)]
    return [length for length in lengths for _ in range(length)]


def cards(given: Sequence[Advice], fine: str) -> Markup:
    """What to do, a card for each advice.

    Args:
        given: The advice.
        fine: What the only card says where there is none.
    """
    made = []
    for each in given or (Advice("", "fine", "Nothing", fine),):
        heading = [element("span", LEVELS[each.level], class_="level"), each.title]
        pasted = [element("pre", text) for text in each.commands]
        if each.python:
            pasted += [element("p", "In Python:", class_="small"), element("pre", _with_imports(each.python))]
        more = element("p", f"More: {each.page}", class_="small") if each.page else None
        made.append(
            element(
                "article",
                element("h3", heading),
                element("p", each.why),
                pasted,
                more,
                class_=f"card {each.level}",
            )
        )
    return element("div", made, class_="cards")


_HOMES = {
    "Checkpoint": "pyspark_statestore",
    "Sink": "pyspark_statestore",
    "SparkSession": "pyspark.sql",
    "configure": "pyspark_statestore",
    "maintain": "pyspark_statestore",
    "merged_path": "pyspark_statestore",
}
"""Where names that advice uses are imported from."""


def _with_imports(lines: Sequence[str]) -> str:
    """Lines of Python that can be pasted as they are."""
    text = "\n".join(lines)
    homes: dict[str, list[str]] = {}
    for name, home in _HOMES.items():
        if re.search(rf"\b{name}[(.]", text):
            homes.setdefault(home, []).append(name)
    imports = [f"from {home} import {', '.join(names)}" for home, names in sorted(homes.items())]
    return "\n".join([*imports, *lines])


@dataclass(frozen=True)
class Column:
    """A column of a table on a page.

    Attributes:
        heading: What is above it.
        kind: How its cells look: ``number``, ``name``, ``wide`` for sentences, or nothing.
    """

    heading: str
    kind: str = ""


def table(label: str, columns: Sequence[Column], rows: Iterable[Sequence[Part]], kind: str = "") -> Markup:
    """A table that scrolls by itself where the page is too narrow for it.

    Args:
        label: What it shows, for those who do not see it.
        columns: Its columns.
        rows: The cells of each row.
        kind: ``figures`` for one whose sentences are below its figures where the page is narrow.
    """
    head = element("tr", [element("th", each.heading, class_=each.kind or None, scope="col") for each in columns])
    body = [
        element(
            "tr",
            [element("td", cell, class_=column.kind or None) for cell, column in zip(row, columns, strict=True)],
            "\n",
        )
        for row in rows
    ]
    made = element("table", element("thead", head), element("tbody", body))
    return element("div", made, class_=f"scroll {kind}".strip(), tabindex="0", role="region", aria_label=label)


def bar(parts: Iterable[tuple[str, int]], whole: int, *, tall: bool = False) -> Markup:
    """A bar of several parts, whose lengths are shares of ``whole``."""
    shown = [(kind, value) for kind, value in parts if value > 0 and whole > 0]
    drawn = [element("i", class_=kind, style=f"width:{100 * value / whole:.2f}%") for kind, value in shown]
    return element("div", drawn, class_="bar tall" if tall else "bar", aria_hidden="true")


def by_size(sizes: np.ndarray, large: int) -> list[Part]:
    """How many files there are of each size, in steps of twice the size before.

    Args:
        sizes: Their sizes in bytes; at least one.
        large: What is smaller than this many bytes is called small.
    """
    classes = np.log2(np.maximum(sizes, 1)).astype(int)
    counts, held = np.bincount(classes), np.bincount(classes, weights=sizes)
    columns = (Column("size"), Column("files", "number"), Column(""), Column("bytes", "number"), Column(""))
    rows: list[list[Part]] = []
    for number in range(int(classes.min()), int(classes.max()) + 1):
        kind = "dead" if 2 ** (number + 1) <= large else "live"
        files, size = int(counts[number]), int(held[number])
        span = f"{rendering.size(2**number)} to {rendering.size(2 ** (number + 1))}"
        drawn = [bar([(kind, files)], int(counts.max())), bar([(kind, size)], int(held.max()))]
        rows.append([span, rendering.count(files), drawn[0], rendering.size(size), drawn[1]])
    key = legend([("dead", f"smaller than {rendering.size(large)}"), ("live", "larger")])
    return [key, table("Files by size", columns, rows)]


def legend(parts: Iterable[tuple[str, str]]) -> Markup:
    """What the colors mean: the kind of each part, and its words."""
    return element("div", [element("span", element("i", class_=kind), words) for kind, words in parts], class_="legend")


def note(text: str) -> Markup:
    """A small remark below something."""
    return element("p", text, class_="small")


def left_out(shown: int, there: int, command: str) -> Markup | None:
    """Says how much a table leaves out, and what shows all of it; nothing where it leaves out nothing."""
    if there <= shown:
        return None
    return element("p", f"{shown:,} of {there:,}. All of them: ", element("code", command), class_="small")


def figures(label: str, rows: Iterable[tuple[str, str, str]]) -> Markup:
    """All figures with their names and meanings."""
    columns = (Column("figure", "name"), Column("value", "number"), Column("meaning", "wide"))
    return table(label, columns, rows, "figures")


def title_of(what: str, url: str) -> str:
    """The title of a page: what it is about, and the last part of its path."""
    parts = url.rstrip("/").split("/")
    last = "/".join(parts[-2:]) if parts[-1] in _COMMON and len(parts) > 4 else parts[-1]
    return f"{what} {last or url}"
