"""The commands that show the state itself: state, diff."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from pyspark_statestore.cli import options
from pyspark_statestore.cli.commands import Command
from pyspark_statestore.cli.echo import say
from pyspark_statestore.cli.options import Function

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_statestore.checkpoint import Checkpoint
    from pyspark_statestore.cli.output import Output, RowChoice
    from pyspark_statestore.state.keys import KeyTexts


def _which_state(command: Function) -> Function:
    """Adds the options that choose the state; they are arguments of ``Checkpoint.state``."""
    number = click.IntRange(min=0)
    for option in (
        click.option(
            "--key",
            multiple=True,
            metavar="KEY",
            help="Only this key. Give FIELD=VALUE, repeated for more fields (window.start=2026-01-01T10:00 for a field "
            "in a struct); or the key as JSON; or just the value, where the key has one field. VALUE is read as the "
            "field's type has it; null is null.",
        ),
        click.option(
            "--variable",
            "state_variable",
            help="The state variable of transformWithState, or another column family of the store.",
        ),
        click.option(
            "--store",
            "store_name",
            default="default",
            show_default=True,
            help="The store. A stream-stream join has left-keyToNumValues and three others.",
        ),
        click.option("--partition", "partition_id", type=number, help="Only this state partition."),
        click.option(
            "--operator", "operator_id", type=number, default=0, show_default=True, help="The stateful operator."
        ),
    ):
        command = option(command)
    return command


@click.command(
    "state",
    cls=Command,
    examples=[
        "pyspark-statestore state /checkpoints/q1 --operator 0 --key user=42",
        "pyspark-statestore state /checkpoints/q1 --version 10 --partition 3 --output json",
        "pyspark-statestore state /checkpoints/q2 --variable sessions --key '{\"user\": 42}'",
    ],
)
@options.checkpoint
@_which_state
@click.option("--version", type=click.IntRange(min=0), help="The state version; the newest committed one if not given.")
@options.rows
@options.output
def state_command(checkpoint: Checkpoint, key: tuple[str, ...], output: Output, rows: RowChoice, **which: Any) -> None:
    """Show the keys and values of a state store, without Spark."""
    from pyspark_statestore.rendering import counted

    found = checkpoint.state(**which, key=_one_key(key))
    at = found.schema.metadata[b"pyspark_statestore.version"].decode()
    _show(found, f"{counted(found.num_rows, 'value')} in version {at} of {checkpoint.url}", output, rows)


@click.command(
    "diff",
    cls=Command,
    examples=[
        "pyspark-statestore diff /checkpoints/q1 --from 10 --to 12",
        "pyspark-statestore diff /checkpoints/q1 --from 10 --key user=42 --output json",
    ],
)
@options.checkpoint
@_which_state
@click.option(
    "--from",
    "from_version",
    type=click.IntRange(min=0),
    required=True,
    help="The earlier version; 0 is the empty state.",
)
@click.option(
    "--to", "to_version", type=click.IntRange(min=0), help="The later version; the newest committed one if not given."
)
@options.rows
@options.output
def diff_command(checkpoint: Checkpoint, key: tuple[str, ...], output: Output, rows: RowChoice, **which: Any) -> None:
    """Show the changes between two versions of a state store.

    These are the keys that were added, changed or removed, with their values before and after.
    """
    from pyspark_statestore.rendering import counted

    found = checkpoint.state_changes(**which, key=_one_key(key))
    first, last = (found.schema.metadata[f"pyspark_statestore.{each}_version".encode()] for each in ("from", "to"))
    title = (
        f"{counted(found.num_rows, 'changed key')} from version {first.decode()} to {last.decode()} of {checkpoint.url}"
    )
    _show(found, title, output, rows)


def _show(table: pa.Table, title: str, output: Output, rows: RowChoice) -> None:
    from pyspark_statestore.cli.layouts import all_columns
    from pyspark_statestore.cli.output import JsonOutput, flat
    from pyspark_statestore.state.decoding import UNDECODED

    for field in table.schema:
        reason = (field.metadata or {}).get(UNDECODED)
        if reason is not None:
            say(f"{field.name} is shown as bytes: {reason.decode()}.", err=True)
    if not isinstance(output, JsonOutput):
        table = flat(table)
    output.table(table, all_columns(table.schema), title, rows)


def _one_key(texts: tuple[str, ...]) -> KeyTexts | None:
    from pyspark_statestore.state.keys import KeyTexts

    try:
        # Where the locale knows no other letters than English ones, Python hands on the bytes of others.
        texts = tuple(os.fsencode(text).decode("utf-8") for text in texts)
    except UnicodeError:
        raise click.BadParameter("it is not text in UTF-8", param_hint="--key") from None
    return KeyTexts(texts) if texts else None
