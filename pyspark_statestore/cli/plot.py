"""The command ``plot``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pyspark_statestore.cli import options
from pyspark_statestore.cli.commands import Command
from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.plot import checked_path

if TYPE_CHECKING:
    from pyspark_statestore.checkpoint import Checkpoint


def _path(ctx: click.Context, param: click.Parameter, value: str) -> Path:
    try:
        return checked_path(value)
    except StateStoreFilesError as error:
        raise click.BadParameter(str(error)) from error


@click.command(
    "plot",
    cls=Command,
    examples=[
        "pyspark-statestore plot /checkpoints/q1 -o q1.png",
        "pyspark-statestore plot hdfs://nn/checkpoints/q1 -o q1.html",
    ],
)
@options.checkpoint
@click.option(
    "-o",
    "--out",
    required=True,
    callback=_path,
    metavar="FILE",
    help="An image (.png), or a page (.html) with the same and the summary, which needs nothing else.",
)
def plot_command(checkpoint: Checkpoint, out: Path) -> None:
    """Draw the checkpoint: its files, their growth, its partitions.

    This needs matplotlib: pip install "pyspark-statestore[plot]".
    """
    from pyspark_statestore.cli.progress import progress
    from pyspark_statestore.plot import plot

    with progress() as callback:
        plot(checkpoint, out, callback)
    click.echo(f"Wrote {out}", err=True)
