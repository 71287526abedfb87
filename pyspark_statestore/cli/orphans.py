"""The command ``orphans``."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import click

from pyspark_statestore.cli import options
from pyspark_statestore.cli.commands import Command

if TYPE_CHECKING:
    from pyspark_statestore.checkpoint import Checkpoint
    from pyspark_statestore.cli.output import Output


@click.command(
    "orphans",
    cls=Command,
    examples=[
        "pyspark-statestore orphans /checkpoints/q1",
        "pyspark-statestore orphans /checkpoints/q1 --no-dry-run",
        "pyspark-statestore orphans s3a://bucket/q1 --older-than 1d --no-dry-run --output json",
    ],
    interrupted="Only files that nobody can need are gone; run it again at any time.",
)
@options.dry_run("Only say what would be removed; so it is unless --no-dry-run is given.", default=True)
@options.checkpoint
@click.option(
    "--older-than",
    type=options.Duration(),
    default="3d",
    show_default=True,
    help="Younger files stay: somebody may be about to refer to them.",
)
@click.option("--force", is_flag=True, help="Allow --older-than of less than an hour.")
@options.output
def orphans_command(
    checkpoint: Checkpoint, output: Output, dry_run: bool, older_than: datetime.timedelta, force: bool
) -> None:
    """Find and remove files that nobody can need.

    They are removed with --no-dry-run only. These are merged files that nothing can be read from, what crashed writers
    and compactions have left, and plain state files that nothing refers to. The query may be running.
    """
    from pyspark_statestore.cli.output import Report, figures_of
    from pyspark_statestore.cli.progress import progress
    from pyspark_statestore.cli.views import ORPHANS

    with progress("Looking for orphans", ""):
        done = checkpoint.maintenance.remove_orphan_files(older_than, dry_run=dry_run, force=force)
    title, details = f"Orphans of {checkpoint.url}", {"files": (done.files, ORPHANS)}
    output.report(Report.of(title, figures_of(done), details, dry_run=done.dry_run, really="--no-dry-run"))
