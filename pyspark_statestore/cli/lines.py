"""Lays the rows of a table out as lines: no name is broken, so that it can be pasted, and no column is left out.

Where a terminal is too narrow for a row, headings are folded to the width of their columns. Where that does not do,
names get lines of their own above the others, or a row of short cells goes on in a second line. Where nothing of that
does, each cell has a line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_GAP = 2
_MOST_LINES = 3
"""More lines of a row than these are harder to read than a line for each cell."""

_NAME = 16
"""Texts that are as wide as this get a line of their own before others do."""

_LEAST = 8
"""Headings are not folded to less."""

_PIECE = re.compile(r"[^_ ]+_?| \S+|.")
"""What a heading is folded between: its words."""


class Lines:
    """How the rows of a table become lines.

    Args:
        headings: The columns' headings.
        right: Which columns are aligned to the right: numbers.
        room: The width of the terminal; None where lines may have any length.
    """

    def __init__(self, headings: Sequence[str], right: Sequence[bool], room: int | None) -> None:
        self._headings = list(headings)
        self._right = list(right)
        self._room = room
        self._widths = [0 for _ in headings]
        self._lines: list[list[int]] | None = [list(range(len(headings)))]
        """The columns of each line of a row; None where each cell has a line."""
        self._begun = False

    def heading(self, rows: Sequence[Sequence[str]]) -> str:
        """Returns the lines above the first rows, which say how wide columns are. Call it before :meth:`body`."""
        self._widen(rows)
        whole = [max(len(heading), width) for heading, width in zip(self._headings, self._widths, strict=True)]
        if self._room is None or _length(whole) <= self._room:
            self._widths = whole
            return self._row(self._headings)
        folded = [_folded(heading, width) for heading, width in zip(self._headings, self._widths, strict=True)]
        self._widths = [max(width, *map(len, lines)) for width, lines in zip(self._widths, folded, strict=True)]
        self._lines = _lines_of(self._widths, self._right, self._room)
        if self._lines is None:
            return ""
        shown = ""
        for number, columns in enumerate(self._lines):
            cut = [[self._headings[i]] if len(columns) == 1 else folded[i] for i in columns]
            height = max(map(len, cut))
            for at in range(height):
                shown += self._line(number, [lines[at - height] if at >= height - len(lines) else "" for lines in cut])
        return shown

    def body(self, rows: Sequence[Sequence[str]]) -> str:
        """Returns the lines of some rows. Later rows may widen columns, but the form stays."""
        self._widen(rows)
        if self._lines is not None:
            return "".join(map(self._row, rows))
        width = max(map(len, self._headings))
        shown = ""
        for row in rows:
            shown += "\n" if self._begun else ""
            self._begun = True
            for heading, cell in zip(self._headings, row, strict=True):
                shown += f"{heading:<{width}}{'':{_GAP}}{cell}".rstrip() + "\n"
        return shown

    def _widen(self, rows: Sequence[Sequence[str]]) -> None:
        for row in rows:
            self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, row, strict=True)]

    def _row(self, cells: Sequence[str]) -> str:
        assert self._lines is not None
        return "".join(self._line(number, [cells[i] for i in columns]) for number, columns in enumerate(self._lines))

    def _line(self, number: int, cells: Sequence[str]) -> str:
        assert self._lines is not None
        columns = self._lines[number]
        if len(columns) > 1 or len(self._lines) == 1:
            cells = [
                f"{cell:>{self._widths[i]}}" if self._right[i] else f"{cell:<{self._widths[i]}}"
                for i, cell in zip(columns, cells, strict=True)
            ]
        return (" " * (_GAP if number else 0) + (" " * _GAP).join(cells)).rstrip() + "\n"


def _length(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _folded(heading: str, width: int) -> list[str]:
    """A heading in lines that are as long as its column is wide, or as its longest word, and not too many."""
    pieces = _PIECE.findall(heading)
    width = max(width, _LEAST, *(len(piece.strip()) for piece in pieces))
    lines = [""]
    for piece in pieces:
        if len(lines[-1] + piece) > width and lines[-1]:
            lines.append("")
        lines[-1] += piece if lines[-1] else piece.strip()
    return lines


def _lines_of(widths: Sequence[int], right: Sequence[bool], room: int) -> list[list[int]] | None:
    """The columns of each line of a row; None where a few lines are not enough."""
    rest = list(range(len(widths)))
    if _length(widths) <= room:
        return [rest]
    own: list[int] = []
    while names := [i for i in rest if not right[i] and widths[i] >= _NAME]:
        own.append(max(names, key=lambda i: widths[i]))
        rest.remove(own[-1])
        if len(own) == _MOST_LINES or not rest:
            return None
        if _length([widths[i] for i in rest]) + _GAP <= room:
            return [*([i] for i in sorted(own)), rest]
    lines = [[i] for i in sorted(own)] + [[]]
    for i in rest:
        indent = _GAP if len(lines) > 1 else 0
        if lines[-1] and _length([widths[j] for j in [*lines[-1], i]]) + indent > room:
            lines.append([])
        lines[-1].append(i)
    is_too_wide = any(widths[i] + _GAP > room for i in rest)
    return None if is_too_wide or len(lines) > _MOST_LINES else lines
