"""The command ``show``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pyspark_statestore.cli import options
from pyspark_statestore.cli.commands import Command, Failure

if TYPE_CHECKING:
    from pyspark_statestore.cli.output import Output


@click.command(
    "show",
    cls=Command,
    examples=[
        "pyspark-statestore show /checkpoints/q1/state/_merged/1795213742298-70b569a9b1bed2be-1.merged",
        "pyspark-statestore show s3://bucket/q1/state/_merged/1795213742298-70b569a9b1bed2be-1.merged --output json",
    ],
)
@click.argument("file")
@options.storage_options
@options.output
def show_command(file: str, storage_options: tuple[tuple[str, Any], ...], output: Output) -> None:
    """Take one merged file apart, group by group.

    FILE is a path or a URL. Of a damaged file, the groups after the damage are shown, and the exit status is 1.
    """
    from pyspark_statestore.cli.shown_file import show_file

    shown = show_file(file, dict(storage_options))
    output.file(shown)
    if shown.error is not None:
        raise Failure(shown.error)
