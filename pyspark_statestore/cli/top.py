"""The command ``top``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pyspark_statestore.cli import options
from pyspark_statestore.cli.commands import Command

if TYPE_CHECKING:
    from pyspark_statestore.checkpoint import Checkpoint
    from pyspark_statestore.cli.output import Output

_BOTH = ("partitions", "files")


@click.command(
    "top",
    cls=Command,
    examples=[
        "pyspark-statestore top /checkpoints/q1",
        "pyspark-statestore top /checkpoints/q1 --by operators",
        "pyspark-statestore top /checkpoints/q1 --by partitions -n 3 --output json",
    ],
)
@options.checkpoint
@click.option(
    "--by",
    type=click.Choice(["partitions", "files", "operators", "types"]),
    help="What the bytes are added up by; partitions, and then files, if not given.",
)
@click.option("-n", "number", type=click.IntRange(min=1), default=10, show_default=True, help="How many of each.")
@options.output
def top_command(checkpoint: Checkpoint, output: Output, by: str | None, number: int) -> None:
    """Show which partitions and files hold the most bytes.

    Partitions, operators and types add up the segments in merged files; dead ones were deleted or replaced, and wait
    for their file to go. In a file all that is not a live segment counts as dead, its index too.
    """
    from pyspark_statestore.cli.output import ALL
    from pyspark_statestore.cli.progress import progress
    from pyspark_statestore.cli.views import COSTS
    from pyspark_statestore.inspect.costs import costs_of_files, costs_of_segments

    asked = (by,) if by else _BOTH
    needed = {"files" if what == "files" else "segments" for what in asked}
    with progress() as callback:
        read = checkpoint.inspect.tables(*needed, callback=callback)
    found = {
        what: costs_of_files(read["files"]) if what == "files" else costs_of_segments(read["segments"], what)
        for what in asked
    }
    tables = {
        what: (
            table.slice(0, number),
            COSTS[what],
            f"{what}, {min(number, len(table))} of {len(table):,}, in {checkpoint.url}",
        )
        for what, table in found.items()
    }
    if by:
        output.table(*tables[by], rows=ALL)
    else:
        output.tables(tables)
