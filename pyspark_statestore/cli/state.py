"""The commands ``state`` and ``diff``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from pyspark_statestore.cli import options
from pyspark_statestore.cli.commands import Command
from pyspark_statestore.cli.options import ParamType

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_statestore.checkpoint import Checkpoint
    from pyspark_statestore.cli.output import Output, RowChoice


class KeyOption(ParamType):
    """``FIELD=VALUE``, a JSON object, or a value; what is JSON is taken as JSON, any other as text."""

    name = "KEY"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns values by field, or a value."""
        text = str(value)
        found = _FIELD.fullmatch(text)
        if found is None:
            return _value(text)
        key: Any = _value(found[2])
        for name in reversed(found[1].split(".")):
            key = {name: key}
        return key


Function = Callable[..., Any]


def _which_state(command: Function) -> Function:
    """Adds what says which state is meant; the command gets the arguments of ``Checkpoint.state``."""
    number = click.IntRange(min=0)
    for option in (
        click.option(
            "--key",
            "keys",
            type=KeyOption(),
            multiple=True,
            help="Only of this key: FIELD=VALUE, as often as needed (window.start=2026-01-01T10:00 for a field in a "
            "struct), the same as JSON, or a value where the key has one field.",
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
            help="The store; a stream-stream join has left-keyToNumValues and three others.",
        ),
        click.option("--partition", "partition_id", type=number, help="Only of this state partition."),
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
@click.option("--version", type=click.IntRange(min=0), help="The state version; without it, the newest committed one.")
@options.rows
@options.output
def state_command(checkpoint: Checkpoint, keys: tuple[Any, ...], output: Output, rows: RowChoice, **which: Any) -> None:
    """Show the keys and values of a state store, without Spark.

    RocksDB's state needs: pip install "pyspark-statestore[state]".
    """
    found = checkpoint.state(**which, key=one_key(keys))
    at = found.schema.metadata[b"pyspark_statestore.version"].decode()
    _show(found, f"{_count(found, 'value')} in version {at} of {checkpoint.url}", output, rows)


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
    "--from", "from_version", type=click.IntRange(min=0), required=True, help="The earlier version; 0 is empty."
)
@click.option(
    "--to", "to_version", type=click.IntRange(min=0), help="The later version; without it, the newest committed one."
)
@options.rows
@options.output
def diff_command(checkpoint: Checkpoint, keys: tuple[Any, ...], output: Output, rows: RowChoice, **which: Any) -> None:
    """Show which keys were added, changed or removed between two versions of a state store."""
    found = checkpoint.state_changes(**which, key=one_key(keys))
    first, last = (found.schema.metadata[f"pyspark_statestore.{each}_version".encode()] for each in ("from", "to"))
    title = f"{_count(found, 'changed key')} from version {first.decode()} to {last.decode()} of {checkpoint.url}"
    _show(found, title, output, rows)


def _show(table: pa.Table, title: str, output: Output, rows: RowChoice) -> None:
    from pyspark_statestore.cli.output import JsonOutput
    from pyspark_statestore.cli.views import whole
    from pyspark_statestore.state.decoding import UNDECODED

    for field in table.schema:
        reason = (field.metadata or {}).get(UNDECODED)
        if reason is not None:
            click.echo(f"{field.name} is shown as bytes: {reason.decode()}.", err=True)
    if not isinstance(output, JsonOutput):
        table = _flat(table)
    output.table(table, whole(table.schema), title, rows)


def _flat(table: pa.Table) -> pa.Table:
    """A column for each field of a struct, named by its path; an empty struct is none."""
    import pyarrow.types as types

    while any(types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return table


def _count(table: pa.Table, what: str) -> str:
    return f"{table.num_rows:,} {what}{'' if table.num_rows == 1 else 's'}"


# How a key is written on the command line.

_FIELD = re.compile(r"([A-Za-z_][\w.]*)=(.*)", re.DOTALL)


def one_key(keys: Sequence[Any]) -> Any:
    """Puts what was given for ``--key`` together; None where nothing was.

    Raises:
        click.BadParameter: It does not go together.
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
