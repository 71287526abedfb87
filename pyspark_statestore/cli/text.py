"""Writes results as tables for people, with rich on a terminal."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
from rich.console import Console
from rich.text import Text

from pyspark_statestore import rendering
from pyspark_statestore.cli.echo import shown
from pyspark_statestore.cli.layouts import ColumnLayout, TableLayout, all_columns
from pyspark_statestore.cli.lines import Lines
from pyspark_statestore.cli.output import ALL, Output, Report, RowChoice, python_rows
from pyspark_statestore.rendering import form_of

if TYPE_CHECKING:
    from pyspark_statestore.cli.shown_file import ShownFile, ShownGroup


ROWS_ON_A_TERMINAL = 50
"""The number of rows on a terminal, where the user does not ask for another one."""

_ANY_WIDTH = 100_000

_ENTRIES: TableLayout = (
    ColumnLayout("kind", ("kind",), rendering.text),
    ColumnLayout("type", ("type",), rendering.text),
    ColumnLayout("logical_path", ("logical_path",), rendering.text),
    ColumnLayout("offset", ("offset",), rendering.text),
    ColumnLayout("length", ("length",), rendering.text),
    ColumnLayout("generation", ("generation",), rendering.text),
    ColumnLayout("crc32c", ("crc32c",), rendering.text),
    ColumnLayout("written_at (UTC)", ("written_at",), rendering.time),
    ColumnLayout("file_name", ("file_name",), rendering.text, optional=True),
)


class TextOutput(Output):
    """Writes tables: on a terminal as wide as it is and with few rows, elsewhere with all rows and a line for each."""

    def __init__(self) -> None:
        self._on_terminal = sys.stdout.isatty()

    def table(self, table: pa.Table, layout: TableLayout, title: str, rows: RowChoice) -> None:
        """Writes the title, the rows, and how many more there are."""
        self._rows(table, layout, title, rows, "--limit 0")

    def record(self, table: pa.Table, title: str) -> None:
        """Writes a line for each column, with sizes also in bytes."""
        columns = zip(table.schema, table.columns, strict=True)
        self._figures(title, {field.name: (column[0].as_py(), field.type) for field, column in columns})

    def report(self, report: Report) -> None:
        """Writes a line for each figure, then the tables, the note, and last what comes next, in one line."""
        self._figures(report.title, {name: (value, _type_of(value)) for name, value in report.figures.items()})
        for name, (table, layout) in report.details.items():
            if table.num_rows:
                self._line()
                self._rows(table, layout, name, RowChoice(), "--output json")
        if report.note:
            self._line()
            self._line(report.note, style="bold yellow", wrap=True)
        if report.next_step:
            self._line()
            self._line(f"Next: {report.next_step}")

    def tables(self, tables: Mapping[str, tuple[pa.Table, TableLayout, str]]) -> None:
        """Writes the tables one after the other."""
        for number, (table, layout, title) in enumerate(tables.values()):
            if number:
                self._line()
            self.table(table, layout, title, ALL)

    def file(self, shown: ShownFile) -> None:
        """Writes the header, then each group with its entries."""
        self._line(rendering.text(shown.file_path), style="bold")
        self._line(f"{shown.file_size_in_bytes:,} bytes")
        if shown.writer is None:
            self._line("no header: the writer has not flushed the file yet, or died before it did")
        else:
            created = rendering.cell([shown.created_at], rendering.time)
            self._line(f"header: {shown.header_length} bytes, writer {shown.writer}, created {created} UTC")
            for key, value in shown.meta.items():
                said = value if isinstance(value, str) else json.dumps(value)
                self._line(f"  {rendering.text(key)} = {rendering.text(said)}")
        if shown.error is not None:
            self._line("damaged: only the groups that follow can be read", style="red")
        for number, group in enumerate(shown.groups, start=1):
            self._group(group, number, len(shown.groups))
        if shown.torn_tail_bytes:
            start = shown.file_size_in_bytes - shown.torn_tail_bytes
            self._line(f"\ntorn tail: {shown.torn_tail_bytes:,} bytes from {start} on, which readers ignore")

    def alarm(self, text: str) -> None:
        """Writes it in red."""
        self._line(text, style="bold red")

    def _group(self, group: ShownGroup, number: int, of: int) -> None:
        start = "?" if group.offset is None else str(group.offset)
        flags = ", ".join(group.flags) or "no flags"
        stamped = rendering.cell([group.stamped_at], rendering.time)
        self._line()
        self._line(f"group {number} of {of}: bytes {start} to {group.end}, {flags}, stamp {stamped} UTC", style="bold")
        limit = self._limit(RowChoice()) if self._on_terminal else len(group.entries)
        rows = [asdict(entry) for entry in group.entries[:limit]]
        if rows:
            self._draw_rows(rows, _ENTRIES)
        if len(group.entries) > limit:
            self._line(f"... and {len(group.entries) - limit:,} more; --output json shows all.", style="dim")

    def _rows(self, table: pa.Table, layout: TableLayout, title: str, rows: RowChoice, whole_with: str) -> None:
        ordered = rows.ordered(table)  # which may refuse, before anything is written
        self._line(title, style="bold")
        if not table.num_rows:
            return
        limit = self._limit(rows)
        self._draw(ordered.slice(0, limit), all_columns(table.schema) if rows.wide else layout, wrap=not rows.wide)
        if table.num_rows > limit:
            self._line(f"... and {table.num_rows - limit:,} more; {whole_with} shows all.", style="dim")

    def _figures(self, title: str, figures: Mapping[str, tuple[Any, pa.DataType]]) -> None:
        self._line(title, style="bold")
        width = max(map(len, figures), default=0)
        for name, (value, type_) in figures.items():
            self._line(f"{name:<{width}}  {rendering.exact(value, form_of(name, type_)) or rendering.NOTHING}".rstrip())

    def _room(self) -> int | None:
        """The characters of a line. Who exports COLUMNS, as ``watch`` does, means it for what is piped, too."""
        given = os.environ.get("COLUMNS", "")
        if not self._on_terminal and not (given.isdecimal() and int(given)):
            return None
        return shutil.get_terminal_size().columns

    def _limit(self, rows: RowChoice) -> int:
        if rows.limit is None:
            return ROWS_ON_A_TERMINAL if self._on_terminal else sys.maxsize
        return rows.limit or sys.maxsize

    def _draw(self, table: pa.Table, layout: TableLayout, *, wrap: bool = True) -> None:
        present = [
            field
            for field in layout
            if not field.optional or any(_says_something(table[column]) for column in field.columns)
        ]
        columns = sorted({column for field in present for column in field.columns})
        self._draw_batches(python_rows(table.select(columns)), tuple(present), wrap=wrap)

    def _draw_rows(self, rows: list[dict[str, Any]], layout: TableLayout) -> None:
        present = (field for field in layout if not field.optional or any(row[field.columns[0]] for row in rows))
        self._draw_batches(iter([rows]), tuple(present), wrap=True)

    def _draw_batches(self, batches: Iterator[list[dict[str, Any]]], layout: TableLayout, *, wrap: bool) -> None:
        """Draws batch by batch, so that a reader of the beginning need not wait for the end."""
        # rich would take minutes for a million rows, and would break names that are to be pasted.
        room = self._room() if wrap else None
        right = [field.form in rendering.IS_NUMBER for field in layout]
        lines = Lines([rendering.text(field.heading) for field in layout], right, room)
        for number, rows in enumerate(batches):
            cells = [[rendering.cell([row[c] for c in field.columns], field.form) for field in layout] for row in rows]
            if number == 0:
                self._line(lines.heading(cells).removesuffix("\n"), style="bold", skip_empty=True)
            click.echo(lines.body(cells), nl=False)  # each cell is what its form has made safe

    def _line(self, text: str = "", style: str = "", *, wrap: bool = False, skip_empty: bool = False) -> None:
        """Writes lines. The terminal may break them, but not this program: they may have names in them.

        Args:
            text: The lines.
            style: How they look on a terminal.
            wrap: Whether they are sentences, and break between words.
            skip_empty: Whether an empty text is no line.
        """
        if text or not skip_empty:
            self._print(Text(shown(text), style=style), soft_wrap=not wrap)

    def _print(self, what: Any, *, soft_wrap: bool = False) -> None:
        """Draws to text and writes that, so that this command line handles a broken stdout and rich does not."""
        width = shutil.get_terminal_size().columns if self._on_terminal else _ANY_WIDTH
        drawn = io.StringIO()
        console = Console(file=drawn, width=width, force_terminal=self._on_terminal, highlight=False)
        console.print(what, soft_wrap=soft_wrap)
        lines = drawn.getvalue().split("\n")
        click.echo("\n".join(line.rstrip() for line in lines), nl=False)


def _type_of(value: Any) -> pa.DataType:
    """The type of a figure. Texts are not tried: Arrow takes none with a name that is no UTF-8."""
    return pa.string() if isinstance(value, str) else pa.scalar(value).type


def _says_something(column: pa.ChunkedArray) -> bool:
    import pyarrow.compute as pc

    if pa.types.is_boolean(column.type):
        return bool(pc.any(column, min_count=0).as_py())
    if pa.types.is_integer(column.type):
        return bool(pc.any(pc.not_equal(column, 0), min_count=0).as_py())
    return bool(column.null_count < len(column))
