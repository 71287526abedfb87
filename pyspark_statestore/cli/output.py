"""Writes results: commands hand over tables and reports, and an ``Output`` decides how they look."""

from __future__ import annotations

import abc
import datetime
import json
import sys
from collections.abc import Callable, Iterator, Mapping
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

from pyspark_statestore.cli.echo import say, shown
from pyspark_statestore.cli.layouts import TableLayout
from pyspark_statestore.cli.next_steps import Idle
from pyspark_statestore.values import finite, json_values, python_values, unique_names

if TYPE_CHECKING:
    from pyspark_statestore.cli.shown_file import ShownFile


_BATCH = 1000


@dataclass(frozen=True)
class RowChoice:
    """The rows and columns of a table that a user asks for.

    Attributes:
        sort: The column to sort by; None for the table's own order.
        descending: Whether the highest come first.
        limit: The highest number of rows; 0 for all, None for as many as the output chooses.
        wide: Whether a table for people has all columns.
    """

    sort: str | None = None
    descending: bool = False
    limit: int | None = None
    wide: bool = False

    def ordered(self, table: pa.Table) -> pa.Table:
        """Returns the table in the chosen order.

        Raises:
            click.BadParameter: There is no such column, or its values have no order.
        """
        if self.sort is None:
            return table
        import pyarrow.compute as pc

        columns = table if self.sort in table.column_names else flat(table)
        if self.sort not in columns.column_names:
            known = shown(", ".join(columns.column_names))
            raise click.BadParameter(f"{self.sort!r} is not a column. There are: {known}.", param_hint="--sort")
        order = "descending" if self.descending else "ascending"
        try:
            return table.take(
                pc.sort_indices(columns.select([self.sort]), sort_keys=[(self.sort, order)])
            )  # nulls last
        except (pa.ArrowTypeError, pa.ArrowNotImplementedError):
            reason = f"the values of {self.sort!r} have no order: it holds lists or maps."
            raise click.BadParameter(shown(reason), param_hint="--sort") from None


def flat(table: pa.Table) -> pa.Table:
    """Replaces a struct by a column for each field, named by its path. An empty struct has no column."""
    import pyarrow.types as types

    while any(types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return table.rename_columns(unique_names(table.column_names))  # a field's own name may have a dot


ALL = RowChoice(limit=0)


def python_rows(table: pa.Table) -> Iterator[list[dict[str, Any]]]:
    """Yields the rows of a table, some at a time. Timestamps are in UTC without a time zone."""
    return _rows(table, python_values)


def _rows(table: pa.Table, values: Callable[[pa.Array], list[Any]]) -> Iterator[list[dict[str, Any]]]:
    names = table.column_names
    for batch in table.to_batches(max_chunksize=_BATCH):
        if batch.num_rows:
            columns = [values(column) for column in batch.columns]
            yield [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


@dataclass(frozen=True)
class Report:
    """What a command has done, or would do.

    Attributes:
        title: The heading for people.
        figures: Values by name, in the order in which they are shown.
        details: Tables and their layouts, by name.
        note: A message that nobody should overlook; empty for none.
        next_step: What comes next, for people; empty for nothing.
    """

    title: str
    figures: Mapping[str, Any]
    details: Mapping[str, tuple[pa.Table, TableLayout]]
    note: str
    next_step: str = ""

    @classmethod
    def of(
        cls,
        title: str,
        figures: Mapping[str, Any],
        details: Mapping[str, tuple[pa.Table, TableLayout]] = MappingProxyType({}),
        *,
        dry_run: bool | None,
        really: str = "",
        note: str = "",
        next_step: str = "",
    ) -> Report:
        """Makes a report, which says so where the command was a dry run.

        Args:
            title: The heading.
            figures: Values by name.
            details: Tables and their layouts, by name.
            dry_run: Whether the command was a dry run; None for one that changes nothing anyway.
            really: The option that makes the command change something, where a dry run is its default.
            note: A message besides that about the dry run.
            next_step: What comes after the command, :class:`~pyspark_statestore.cli.next_steps.Idle` where there was
                nothing to do. After a dry run, that is the same command.
        """
        title = f"{title} (dry run)" if dry_run else title
        notes = [note] if note else []
        if dry_run:
            really = f" with {really}" if really else " without --dry-run"
            does_it = "There is nothing to do." if isinstance(next_step, Idle) else f"The same command{really} does it."
            notes.append(f"DRY RUN: nothing was changed. {does_it}")
        said = {} if dry_run is None else {"dry_run": dry_run}
        return cls(title, {**said, **figures}, details, "\n".join(notes), "" if dry_run else next_step)


def figures_of(result: Any, *left_out: str) -> dict[str, Any]:
    """Returns the fields of a verb's result for a report.

    Args:
        result: The result, a dataclass.
        left_out: Fields to leave out, besides ``dry_run`` and ``files``.
    """
    names = [each.name for each in fields(result)]
    return {name: getattr(result, name) for name in names if name not in ("dry_run", "files", *left_out)}


class Output(abc.ABC):
    """Writes results to stdout."""

    @abc.abstractmethod
    def table(self, table: pa.Table, layout: TableLayout, title: str, rows: RowChoice) -> None:
        """Writes a table.

        Args:
            table: The table.
            layout: How people see it.
            title: The heading for people.
            rows: The rows and columns to write.
        """

    @abc.abstractmethod
    def record(self, table: pa.Table, title: str) -> None:
        """Writes the only row of a table, with a line for each column."""

    @abc.abstractmethod
    def tables(self, tables: Mapping[str, tuple[pa.Table, TableLayout, str]]) -> None:
        """Writes several tables, each with its layout and title, by name."""

    @abc.abstractmethod
    def report(self, report: Report) -> None:
        """Writes what a command has done, or would do."""

    @abc.abstractmethod
    def file(self, shown: ShownFile) -> None:
        """Writes what is in one merged file."""

    @abc.abstractmethod
    def alarm(self, text: str) -> None:
        """Writes what comes before everything else: a query cannot start."""


class JsonOutput(Output):
    """Writes JSON, exact and complete: an array with a row in each line, or an object."""

    def table(self, table: pa.Table, layout: TableLayout, title: str, rows: RowChoice) -> None:
        """Writes an array, cut only where the user asks for a limit."""
        ordered = rows.ordered(table)
        _write_array(ordered.slice(0, rows.limit) if rows.limit else ordered)
        click.echo()

    def record(self, table: pa.Table, title: str) -> None:
        """Writes an object."""
        [rows] = _rows(table, json_values)
        click.echo(_encoded(rows[0], indent=2))

    def tables(self, tables: Mapping[str, tuple[pa.Table, TableLayout, str]]) -> None:
        """Writes an object with an array for each table."""
        for number, (name, (table, _, _)) in enumerate(tables.items()):
            click.echo(f"{',' if number else '{'}\n{json.dumps(name)}: ", nl=False)
            _write_array(table)
        click.echo("\n}")

    def report(self, report: Report) -> None:
        """Writes an object with the figures and an array for each table. The note goes to stderr."""
        separator = "{\n"
        for name, value in report.figures.items():
            click.echo(f"{separator}{json.dumps(name)}: {_encoded(value)}", nl=False)
            separator = ",\n"
        for name, (table, _) in report.details.items():
            click.echo(f"{separator}{json.dumps(name)}: ", nl=False)
            _write_array(table)
        click.echo("\n}")
        if report.note:
            say(report.note, err=True)

    def file(self, shown: ShownFile) -> None:
        """Writes an object with the groups in the file's order."""
        click.echo(_encoded(asdict(shown), indent=1))

    def alarm(self, text: str) -> None:
        """Writes it to stderr: the figures say it, too."""
        say(text, err=True)


def _write_array(table: pa.Table) -> None:
    separator = "[\n"
    for rows in _rows(table, json_values):
        click.echo(separator + ",\n".join(map(_encoded, rows)), nl=False)
        separator = ",\n"
    click.echo("\n]" if table.num_rows else "[]", nl=False)


def _encoded(value: Any, indent: int | None = None) -> str:
    return json.dumps(_finite(value), default=_iso, indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    return finite(value) if isinstance(value, float) else value


def _iso(value: Any) -> str:
    """Of figures; the values of tables are what ``json_values`` has made of them."""
    if isinstance(value, datetime.datetime):
        return (value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)).isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime.timedelta):
        return str(value)
    raise TypeError(f"{type(value).__name__} in a result")


class ProgressBar(Callback):
    """An fsspec callback that draws a bar on stderr and removes it at the end. Several threads may use it.

    Args:
        what: The words before the bar.
        unit: What is counted: ``files``, ``bytes`` or Spark's ``tasks``; empty where nobody knows how much there is to
            do.
    """

    def __init__(self, what: str = "Reading merged files", unit: str = "files") -> None:
        super().__init__()
        counted: dict[str, tuple[ProgressColumn, ...]] = {
            "files": (MofNCompleteColumn(), TimeRemainingColumn()),
            "tasks": (MofNCompleteColumn(), TextColumn("tasks"), TimeElapsedColumn()),
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
        """Sets how many there are. Reading that begins again, because files have vanished, sets it again."""
        self._progress.reset(self._task, total=size)

    def relative_update(self, inc: int = 1) -> None:
        """Adds so many that are done."""
        self._progress.advance(self._task, inc)

    def close(self) -> None:
        """Removes the bar."""
        self._progress.refresh()
        self._progress.stop()


@contextmanager
def progress(what: str = "Reading merged files", unit: str = "files") -> Iterator[Callback | None]:
    """Yields a :class:`ProgressBar` where stderr is a terminal, and None where it is not."""
    if not sys.stderr.isatty():
        yield None
        return
    bar = ProgressBar(what, unit)
    try:
        yield bar
    finally:
        bar.close()
