"""Lays the rows of a table out as lines: no name is broken, so that it can be pasted, and no column is left out.

Where a terminal is too narrow for a row, the widest texts get lines of their own above the others. Where that does not
do, each cell has a line.
"""

from __future__ import annotations

from collections.abc import Sequence

_GAP = 2
_MOST_OWN = 2
"""More lines of a row than these and the one with the rest are harder to read than a line for each cell."""


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
        self._widths = [len(heading) for heading in headings]
        self._own: list[int] | None = []
        self._begun = False

    def heading(self, rows: Sequence[Sequence[str]]) -> str:
        """Returns the lines above the first rows, which say how wide columns are. Call it before :meth:`body`."""
        self._widen(rows)
        if self._room is not None:
            self._own = _own_lines(self._widths, self._right, self._room)
        return "" if self._own is None else self._row(self._headings)

    def body(self, rows: Sequence[Sequence[str]]) -> str:
        """Returns the lines of some rows. Later rows may widen columns, but the form stays."""
        self._widen(rows)
        if self._own is not None:
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
        own = self._own or []
        above = "".join(f"{'' if not number else '  '}{cells[i]}\n" for number, i in enumerate(own))
        rest = [
            f"{cell:>{width}}" if is_right else f"{cell:<{width}}"
            for i, (cell, width, is_right) in enumerate(zip(cells, self._widths, self._right, strict=True))
            if i not in own
        ]
        return above + (" " * _GAP * bool(own) + (" " * _GAP).join(rest)).rstrip() + "\n"


def _own_lines(widths: Sequence[int], right: Sequence[bool], room: int) -> list[int] | None:
    """The columns that get a line of their own, so that the others fit into one; None where two are not enough."""
    own: list[int] = []
    while True:
        rest = [i for i in range(len(widths)) if i not in own]
        if sum(widths[i] + _GAP for i in rest) - _GAP + _GAP * bool(own) <= room:
            return sorted(own)
        texts = [i for i in rest if not right[i]]
        if len(own) == _MOST_OWN or not texts or len(rest) == 1:
            return None
        own.append(max(texts, key=lambda i: widths[i]))
