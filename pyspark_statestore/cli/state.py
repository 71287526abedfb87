"""The commands that show the state itself: state, diff."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from pyspark_statestore.cli import options
from pyspark_statestore.cli.commands import Command
from pyspark_statestore.cli.echo import say
from pyspark_statestore.cli.options import Function, ParamType

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_statestore.checkpoint import Checkpoint
    from pyspark_statestore.cli.output import Output, RowChoice

_FIELD = re.compile(r"([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
"""How ``FIELD=VALUE`` is written."""


class KeyOption(ParamType):
    """``FIELD=VALUE``, a JSON object, or a value. A value that is JSON is read as JSON, any other as text."""

    name = "KEY"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns values by field, or just a value."""
        text = str(value)
        found = _FIELD.fullmatch(text)
        if found is None:
            return _value(text)
        key: Any = _value(found[2])
        for name in reversed(found[1].split(".")):
            key = {name: key}
        return key


def _which_state(command: Function) -> Function:
    """Adds the options that choose the state; they are arguments of ``Checkpoint.state``."""
    number = click.IntRange(min=0)
    for option in (
        click.option(
            "--key",
            "keys",
            type=KeyOption(),
            multiple=True,
            help="Only this key. Give FIELD=VALUE, repeated for more fields (window.start=2026-01-01T10:00 for a field "
            "in a struct); or the key as JSON; or just the value, where the key has one field.",
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
def state_command(checkpoint: Checkpoint, keys: tuple[Any, ...], output: Output, rows: RowChoice, **which: Any) -> None:
    """Show the keys and values of a state store, without Spark."""
    from pyspark_statestore.rendering import counted

    found = checkpoint.state(**which, key=one_key(keys))
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
def diff_command(checkpoint: Checkpoint, keys: tuple[Any, ...], output: Output, rows: RowChoice, **which: Any) -> None:
    """Show the changes between two versions of a state store.

    These are the keys that were added, changed or removed, with their values before and after.
    """
    from pyspark_statestore.rendering import counted

    found = checkpoint.state_changes(**which, key=one_key(keys))
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


def one_key(keys: Sequence[Any]) -> Any:
    """Joins the values of ``--key`` to one key, or returns None where there are none.

    Raises:
        click.BadParameter: Two values are for the same field.
    """
    if not keys:
        return None
    whole = keys[0]
    for key in keys[1:]:
        whole = _merged(whole, key)
    return whole


def _merged(one: Any, other: Any) -> Any:
    if not isinstance(one, dict) or not isinstance(other, dict):
        raise click.BadParameter("two values for one field.", param_hint="--key")
    merged = dict(one)
    for name, value in other.items():
        merged[name] = _merged(merged[name], value) if name in merged else value
    return merged


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
