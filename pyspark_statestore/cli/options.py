"""The arguments and options that several commands share."""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from pyspark_statestore.conf import OPTIONS, Option
from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.plot import checked_path

Function: TypeAlias = Callable[..., Any]

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # not generic before click 8.4


class StorageOption(ParamType):
    """``KEY=VALUE``. A value that is JSON is read as JSON, any other as text."""

    name = "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        """Returns the key and the value."""
        key, separator, text = str(value).partition("=")
        if not separator or not key.strip():
            self.fail("It is not KEY=VALUE, such as anon=true.", param, ctx)  # it may be a secret
        try:
            return key.strip(), json.loads(text)
        except ValueError:
            return key.strip(), text


class Setting(ParamType):
    """``KEY=VALUE``, both of which are text."""

    name = "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Returns the key and the value."""
        key, separator, text = str(value).partition("=")
        if not separator or not key.strip():
            self.fail(f"{value!r} is not KEY=VALUE, such as header=true.", param, ctx)
        return key.strip(), text


class Duration(ParamType):
    """A duration as in Spark's configuration, such as ``10m``.

    Args:
        minimum: The shortest allowed one, such as ``1s``.
    """

    name = "DURATION"

    def __init__(self, minimum: str = "") -> None:
        self._option = Option("", "", "duration", "", minimum=minimum)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime.timedelta:
        """Returns the duration as a timedelta."""
        if isinstance(value, datetime.timedelta):
            return value
        try:
            return datetime.timedelta(milliseconds=int(self._option.parse(value)))
        except StateStoreFilesError:
            self.fail(f"{value!r} is not {self._option.allowed}.", param, ctx)


class Size(ParamType):
    """A number of bytes as in Spark's configuration, such as ``128m``."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Returns the number of bytes."""
        option = Option("", "", "bytes", "")
        try:
            return int(option.parse(value))
        except StateStoreFilesError:
            self.fail(f"{value!r} is not {option.allowed}.", param, ctx)


def storage_options(command: Function) -> Function:
    """Adds ``--storage-option``; the command gets pairs as ``storage_options``."""
    return click.option(
        "--storage-option",
        "storage_options",
        type=StorageOption(),
        multiple=True,
        help="An option of the fsspec file system, such as anon=true. Repeat it for more options. A value that is JSON "
        "is read as JSON, any other as text.",
    )(command)


def compact_interval(command: Function) -> Function:
    """Adds ``--compact-interval``."""
    return click.option(
        "--compact-interval",
        type=click.IntRange(min=1),
        show_default="what the list or the session says, or Spark's 10",
        help="The query's spark.sql.streaming.fileSink.log.compactInterval, where no list tells it yet.",
    )(command)


def checkpoint(command: Function) -> Function:
    """Adds PATH and its options; the command gets a ``Checkpoint`` as its first argument."""

    @click.argument("path")
    @storage_options
    @click.option(
        "--closed-after",
        type=Duration(OPTIONS["closedAfter"].minimum),
        default=OPTIONS["closedAfter"].default,
        show_default=True,
        help="The query's closedAfter: nobody appends to a file that has not changed for this long.",
    )
    @functools.wraps(command)
    def with_checkpoint(
        path: str, storage_options: tuple[tuple[str, Any], ...], closed_after: datetime.timedelta, **others: Any
    ) -> Any:
        from pyspark_statestore.checkpoint import Checkpoint

        return command(Checkpoint(path, dict(storage_options), closed_after=closed_after), **others)

    return with_checkpoint


def dry_run(about: str, *, default: bool = False) -> Callable[[Function], Function]:
    """Adds ``--dry-run/--no-dry-run`` with this help; with ``default``, the command is a dry run unless told not to."""
    return click.option("--dry-run/--no-dry-run", default=default, show_default=True, help=about)


def spark(command: Function) -> Function:
    """Adds where Spark runs; the command gets ``master``, and pairs as ``conf``: see ``cli.session``."""
    for option in (
        click.option("--conf", type=Setting(), multiple=True, help="A setting of Spark. Repeat it for more."),
        click.option("--master", default="local[*]", show_default=True, help="Where Spark runs."),
    ):
        command = option(command)
    return command


def abandoned_after(command: Function) -> Function:
    """Adds ``--abandoned-after``; the command gets a timedelta."""
    return click.option(
        "--abandoned-after",
        type=Duration(),
        default="1d",
        show_default=True,
        help="An unsealed file counts as closed when it is this old. Give less only if you know that the query is "
        "stopped, and never less than --closed-after.",
    )(command)


def one_store(command: Function) -> Function:
    """Adds the options that narrow a table to some stores; they are arguments of the methods of ``Inspection``."""
    number = click.IntRange(min=0)
    for option in (
        click.option("--store", "store_name", help="Only this store, such as default or left-keyToNumValues."),
        click.option("--partition", "partition_id", type=number, help="Only this state partition."),
        click.option("--operator", "operator_id", type=number, help="Only this stateful operator."),
    ):
        command = option(command)
    return command


def output(command: Function) -> Function:
    """Adds ``--output``; the command gets an ``Output`` as ``output``."""

    @click.option(
        "--output",
        "form",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="table is for people, and as wide as the terminal or COLUMNS: where a row does not fit, headings are "
        "folded and names get lines of their own, but nothing is left out. What is piped has a line for each row. json "
        "is exact and complete, with times in ISO 8601.",
    )
    @functools.wraps(command)
    def with_output(*arguments: Any, form: str, **others: Any) -> Any:
        from pyspark_statestore.cli.output import JsonOutput
        from pyspark_statestore.cli.text import TextOutput

        return command(*arguments, output=JsonOutput() if form == "json" else TextOutput(), **others)

    return with_output


def rows(command: Function) -> Function:
    """Adds the options that choose rows and columns; the command gets a ``RowChoice`` as ``rows``."""

    @click.option("--sort", metavar="COLUMN", help="Sort by a column of the table, lowest first, nulls last.")
    @click.option("--descending", is_flag=True, help="With --sort: highest first.")
    @click.option(
        "--limit",
        type=click.IntRange(min=0),
        help="How many rows at most; 0 for all. Without it, a table on a terminal ends after 50 rows.",
    )
    @click.option("--wide", is_flag=True, help="Show all columns of the table, and whole paths, a line for each row.")
    @functools.wraps(command)
    def with_rows(*arguments: Any, sort: str | None, descending: bool, limit: int | None, wide: bool, **k: Any) -> Any:
        from pyspark_statestore.cli.output import RowChoice

        return command(*arguments, rows=RowChoice(sort, descending, limit, wide), **k)

    return with_rows


def _path(ctx: click.Context, param: click.Parameter, value: str) -> Path:
    try:
        return checked_path(value)
    except StateStoreFilesError as error:
        raise click.BadParameter(str(error)) from error


STDOUT = "-"
"""Stands for stdout where a file is asked for."""


def _page(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is None or value == STDOUT:
        return value
    if Path(value).suffix.lower() == ".html":
        from pyspark_statestore.report.page import check_place

        check_place(Path(value))  # reading a checkpoint may take a while
        return value
    raise click.BadParameter(f"{value!r} is not a file that ends in .html, nor {STDOUT} for stdout.")


page = click.option(
    "-o",
    "--out",
    required=True,
    callback=_page,
    metavar="FILE",
    help="The page (.html); - writes it to stdout.",
)
"""Where a page goes."""

optional_page = click.option(
    "-o",
    "--out",
    callback=_page,
    metavar="FILE",
    help="Write a page for a browser (.html) with a line for each; - writes it to stdout.",
)
"""Where a page goes, for a command that prints a table unless it is asked for a page."""

out = click.option(
    "-o",
    "--out",
    required=True,
    callback=_path,
    metavar="FILE",
    help="An image (.png), or a page (.html) with the same picture and the summary.",
)
"""Where a picture goes."""
