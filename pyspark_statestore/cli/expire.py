"""The command ``expire``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pyspark_statestore.cli import options
from pyspark_statestore.cli.commands import Command

if TYPE_CHECKING:
    from pyspark_statestore.checkpoint import Checkpoint
    from pyspark_statestore.cli.output import Output


@click.command(
    "expire",
    cls=Command,
    examples=[
        "pyspark-statestore expire /checkpoints/q1 --retain-last 2",
        "pyspark-statestore expire /checkpoints/q1 --retain-last 2 --no-dry-run",
    ],
    interrupted="The versions that are to be retained are whole; run it again to delete the rest.",
)
@options.dry_run("Only say what would be deleted; so it is unless --no-dry-run is given.", default=True)
@options.checkpoint
@click.option(
    "--retain-last",
    type=click.IntRange(min=1),
    required=True,
    help="How many batches can be gone back to afterwards; the last committed one always can.",
)
@click.option("--force", is_flag=True, help="Do it though the query seems to be running; it has to be stopped.")
@options.output
def expire_command(checkpoint: Checkpoint, output: Output, dry_run: bool, retain_last: int, force: bool) -> None:
    """Delete the oldest versions of a stopped query.

    They are deleted with --no-dry-run only. Files in which nothing lives any more go at once; other space that comes
    free does so with the next: pyspark-statestore compact PATH.
    """
    from pyspark_statestore.cli.output import Report, figures_of
    from pyspark_statestore.cli.progress import progress

    with progress("Reading versions", ""):
        done = checkpoint.maintenance.expire(retain_last, dry_run=dry_run, force=force)
    title = f"Versions of {checkpoint.url}"
    output.report(Report.of(title, figures_of(done), dry_run=done.dry_run, really="--no-dry-run"))
