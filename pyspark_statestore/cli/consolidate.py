"""The command ``consolidate``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pyspark_statestore.cli import options
from pyspark_statestore.cli.commands import Command

if TYPE_CHECKING:
    from pyspark_statestore.checkpoint import Checkpoint
    from pyspark_statestore.cli.output import Output


@click.command(
    "consolidate",
    cls=Command,
    examples=[
        "pyspark-statestore consolidate s3a://bucket/q1 --dry-run",
        "pyspark-statestore consolidate s3a://bucket/q1",
    ],
    interrupted="Nothing that is needed is gone; run it again at any time.",
)
@options.dry_run("Only say what would be written and removed.")
@options.checkpoint
@options.output
def consolidate_command(checkpoint: Checkpoint, output: Output, dry_run: bool) -> None:
    """Write one file with the indexes of all sealed ones.

    Who starts opens that one and not each of them. Older files of its kind are removed. The query may be running.
    """
    from pyspark_statestore.cli.output import Report, figures_of
    from pyspark_statestore.cli.progress import progress

    with progress("Consolidating the index", ""):
        done = checkpoint.maintenance.consolidate_index(dry_run=dry_run)
    output.report(Report.of(f"Index of {checkpoint.url}", figures_of(done), dry_run=done.dry_run))
