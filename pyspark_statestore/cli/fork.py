"""The commands ``fork`` and ``release``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pyspark_statestore.cli import options
from pyspark_statestore.cli.commands import Command

if TYPE_CHECKING:
    from pyspark_statestore.checkpoint import Checkpoint
    from pyspark_statestore.cli.output import Output


@click.command(
    "fork",
    cls=Command,
    examples=[
        "pyspark-statestore fork /checkpoints/q1 /checkpoints/q1-test",
        "pyspark-statestore fork s3a://bucket/q1 s3a://bucket/q1-blue --version 1042",
        "pyspark-statestore fork hdfs://nn/checkpoints/q1 hdfs://nn/backup/q1 --mode copy",
    ],
    interrupted="What there is of the fork was taken back. The checkpoint that was to be forked is as it was.",
)
@options.dry_run("Only say what the fork would have.")
@options.checkpoint
@click.argument("fork")
@click.option(
    "--mode",
    type=click.Choice(["no_claim", "claim", "copy"]),
    default="no_claim",
    show_default=True,
    help="Read the state where it is; or own it, too, so that PATH must not be used any more; or copy it.",
)
@click.option(
    "--version",
    type=click.IntRange(min=1),
    show_default="that of the last committed batch",
    help="State version that the fork begins with; batch version - 1 has left it.",
)
@click.option("--force", is_flag=True, help="Claim it though its query seems to be running; it has to be stopped.")
@options.output
def fork_command(
    checkpoint: Checkpoint, output: Output, dry_run: bool, fork: str, mode: str, version: int | None, force: bool
) -> None:
    """Make a second checkpoint that goes on from a version of PATH.

    FORK is the checkpointLocation of another query: a new version of the job, or the same one on trial. State is not
    copied, and neither side deletes what the other one needs; see docs/fork.md.
    """
    from pyspark_statestore.cli.output import Report, figures_of
    from pyspark_statestore.cli.progress import progress

    with progress("Forking", ""):
        made = checkpoint.fork(fork, mode, version, dry_run=dry_run, force=force)
    title = f"Fork of {made.source}: {made.path}"
    output.report(Report.of(title, figures_of(made, "path", "source"), dry_run=made.dry_run))


@click.command(
    "release",
    cls=Command,
    examples=["pyspark-statestore release /checkpoints/q1 /checkpoints/q1-test"],
    interrupted="Run it again at any time.",
)
@options.dry_run("Only say what would be released.")
@options.checkpoint
@click.argument("fork")
@click.option("--force", is_flag=True, help="Also if FORK still reads files of PATH: it is lost when these are gone.")
@options.output
def release_command(checkpoint: Checkpoint, output: Output, dry_run: bool, fork: str, force: bool) -> None:
    """Let the files of PATH go that a FORK has pinned.

    That is for a fork that is not wanted any more. A fork that was deleted is noticed by the command orphans, and one
    whose state was brought home with compact --localize releases them by itself.
    """
    from pyspark_statestore.cli.output import Report, figures_of

    done = checkpoint.maintenance.release_fork(fork, dry_run=dry_run, force=force)
    note = f"{done.fork} cannot be restored once these files are gone." if done.broken_segments_count else ""
    output.report(Report.of(f"Release of {done.fork}", figures_of(done, "fork"), dry_run=done.dry_run, note=note))
