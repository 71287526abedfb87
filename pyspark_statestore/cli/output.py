"""Where results go: commands hand over what they found, an output decides how it looks."""

from __future__ import annotations

import abc
import datetime
import decimal
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
from fsspec.callbacks import Callback
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from pyspark_statestore.cli.views import View

if TYPE_CHECKING:
    from pyspark_statestore.cli.shown_file import ShownFile


_BATCH = 1000


@dataclass(frozen=True)
class RowChoice:
    """Which rows and columns of a table are wanted.

    Attributes:
        sort: Column to order by; None for the table's own order.
        descending: Whether the highest come first.
        limit: At most so many rows; 0 for all, None for as many as are sensible.
        wide: Whether a table for people has all columns.
    """

    sort: str | None = None
    descending: bool = False
    limit: int | None = None
    wide: bool = False

    def ordered(self, table: pa.Table) -> pa.Table:
        """The rows in the order that is wanted.

        Raises:
            click.BadParameter: There is no such column.
        """
        if self.sort is None:
            return table
        import pyarrow.compute as pc

        if self.sort not in table.column_names:
            raise click.BadParameter(
                f"{self.sort!r} is not a column. There are: {', '.join(table.column_names)}.", param_hint="--sort"
            )
        order = "descending" if self.descending else "ascending"
        return table.take(pc.sort_indices(table, sort_keys=[(self.sort, order)]))  # nulls come last


ALL = RowChoice(limit=0)


def python_rows(table: pa.Table) -> Iterator[list[dict[str, Any]]]:
    """The rows of a table, some at a time; timestamps are in UTC and do not say so.

    Arrow looks the time zone up for each value, which takes long, and loses a Ctrl-C that comes meanwhile.
    """
    for i, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz:
            table = table.set_column(i, field.name, table.column(i).cast(pa.timestamp(field.type.unit)))
    for batch in table.to_batches(max_chunksize=_BATCH):
        if batch.num_rows:
            yield batch.to_pylist()


@dataclass(frozen=True)
class Report:
    """What a command has done, or would do.

    Attributes:
        title: Says it to people.
        figures: By name, in their order.
        details: Tables by name, each with how people see it.
        note: What nobody may overlook.
    """

    title: str
    figures: Mapping[str, Any]
    details: Mapping[str, tuple[pa.Table, View]]
    note: str

    @classmethod
    def of(
        cls,
        title: str,
        figures: Mapping[str, Any],
        details: Mapping[str, tuple[pa.Table, View]] = MappingProxyType({}),
        *,
        dry_run: bool,
        really: str = "",
        note: str = "",
    ) -> Report:
        """Makes the report of a command that may have changed nothing.

        Args:
            title: Says what it is about.
            figures: By name.
            details: Tables by name, each with how people see it.
            dry_run: Whether nothing was changed.
            really: The option that makes the command do it, where that is not its default.
            note: What else nobody may overlook.
        """
        title = f"{title} (dry run)" if dry_run else title
        notes = [note] if note else []
        if dry_run:
            really = f" with {really}" if really else " without --dry-run"
            notes.append(f"DRY RUN: nothing was changed. The same command{really} does it.")
        return cls(title, {"dry_run": dry_run, **figures}, details, "\n".join(notes))


def figures_of(result: Any, *left_out: str) -> dict[str, Any]:
    """What a verb returned, by name and in its order, for a report.

    Args:
        result: A dataclass.
        left_out: Names of what the report says elsewhere, besides ``dry_run`` and ``files``.
    """
    names = [each.name for each in fields(result)]
    return {name: getattr(result, name) for name in names if name not in ("dry_run", "files", *left_out)}


class Output(abc.ABC):
    """Writes results to stdout."""

    @abc.abstractmethod
    def table(self, table: pa.Table, view: View, title: str, rows: RowChoice) -> None:
        """Writes many rows.

        Args:
            table: They.
            view: How people see them.
            title: Says what they are.
            rows: Which of them.
        """

    @abc.abstractmethod
    def record(self, table: pa.Table, title: str) -> None:
        """Writes a table's only row, with a line for each column."""

    @abc.abstractmethod
    def tables(self, tables: Mapping[str, tuple[pa.Table, View, str]]) -> None:
        """Writes several tables: by name, each with its view and title."""

    @abc.abstractmethod
    def report(self, report: Report) -> None:
        """Writes what a command has done, or would do."""

    @abc.abstractmethod
    def file(self, shown: ShownFile) -> None:
        """Writes what is in one merged file."""


class JsonOutput(Output):
    """JSON, exact and whole: an array with a row in each line, or an object."""

    def table(self, table: pa.Table, view: View, title: str, rows: RowChoice) -> None:
        """Writes an array; it is cut only where a limit was asked for."""
        ordered = rows.ordered(table)
        _write_array(ordered.slice(0, rows.limit) if rows.limit else ordered)
        click.echo()

    def record(self, table: pa.Table, title: str) -> None:
        """Writes an object."""
        click.echo(_encoded(table.to_pylist()[0], indent=2))

    def tables(self, tables: Mapping[str, tuple[pa.Table, View, str]]) -> None:
        """Writes an object with an array for each table."""
        for number, (name, (table, _, _)) in enumerate(tables.items()):
            click.echo(f"{',' if number else '{'}\n{json.dumps(name)}: ", nl=False)
            _write_array(table)
        click.echo("\n}")

    def report(self, report: Report) -> None:
        """Writes an object with the figures, and an array for each table; the note goes to stderr."""
        separator = "{\n"
        for name, value in report.figures.items():
            click.echo(f"{separator}{json.dumps(name)}: {_encoded(value)}", nl=False)
            separator = ",\n"
        for name, (table, _) in report.details.items():
            click.echo(f"{separator}{json.dumps(name)}: ", nl=False)
            _write_array(table)
        click.echo("\n}")
        if report.note:
            click.echo(report.note, err=True)

    def file(self, shown: ShownFile) -> None:
        """Writes an object, with the groups as they follow each other in the file."""
        click.echo(_encoded(asdict(shown), indent=1))


def _write_array(table: pa.Table) -> None:
    separator = "[\n"
    for rows in python_rows(table):
        click.echo(separator + ",\n".join(map(_encoded, rows)), nl=False)
        separator = ",\n"
    click.echo("\n]" if table.num_rows else "[]", nl=False)


def _encoded(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, default=_iso, indent=indent)


def _iso(value: Any) -> str:
    if isinstance(value, datetime.datetime):
        return (value if value.tzinfo else value.replace(tzinfo=datetime.UTC)).isoformat()
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (decimal.Decimal, datetime.timedelta, pa.MonthDayNano)):
        return str(value)
    raise TypeError(f"{type(value).__name__} in a result")


# How far it is, on stderr, for who watches.


class ProgressBar(Callback):
    """An fsspec callback that draws a bar on stderr until it is closed; nothing of it stays.

    Files are read in several threads; each may tell it.

    Args:
        what: The words before the bar.
        unit: What is counted: ``files``, ``bytes``, or nothing where it is not known how far it is.
    """

    def __init__(self, what: str = "Reading merged files", unit: str = "files") -> None:
        super().__init__()
        counted: dict[str, tuple[ProgressColumn, ...]] = {
            "files": (MofNCompleteColumn(), TimeRemainingColumn()),
            "bytes": (DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn()),
        }
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            *counted.get(unit, (TimeElapsedColumn(),)),
            console=Console(file=sys.stderr),
            transient=True,
        )
        self._task = self._progress.add_task(what, total=None)
        self._progress.start()

    def set_size(self, size: int) -> None:
        """How many there are; said anew where reading begins again, because files have vanished."""
        self._progress.reset(self._task, total=size)

    def relative_update(self, inc: int = 1) -> None:
        """So many more were done."""
        self._progress.advance(self._task, inc)

    def close(self) -> None:
        """Takes the bar away."""
        self._progress.refresh()
        self._progress.stop()


@contextmanager
def progress(what: str = "Reading merged files", unit: str = "files") -> Iterator[Callback | None]:
    """Shows progress where stderr is a terminal, and gives None where it is not.

    Args:
        what: As of :class:`ProgressBar`.
        unit: As of :class:`ProgressBar`.
    """
    if not sys.stderr.isatty():
        yield None
        return
    bar = ProgressBar(what, unit)
    try:
        yield bar
    finally:
        bar.close()
