"""The commands about the number of state partitions: repartition, undo-repartition, old-partitions."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import click

from pyspark_statestore.cli import next_steps, options
from pyspark_statestore.cli.commands import Command

if TYPE_CHECKING:
    from pyspark_statestore.checkpoint import Checkpoint
    from pyspark_statestore.cli.output import Output

_force = click.option("--force", is_flag=True, help="Do it even if the query seems to be running.")


@click.command(
    "repartition",
    cls=Command,
    examples=[
        "pyspark-statestore repartition /checkpoints/q1 --partitions 400 --dry-run",
        "pyspark-statestore repartition /checkpoints/q1 --partitions 400",
        "pyspark-statestore repartition hdfs://nn/checkpoints/q1 --partitions 50 --master yarn",
    ],
    interrupted="Run it again with the same number, or take it back: pyspark-statestore undo-repartition PATH",
)
@options.dry_run("Only check, and show what would be done. This needs no Spark.")
@options.checkpoint
@click.option("--partitions", type=click.IntRange(min=1), required=True, help="State partitions of each operator.")
@_force
@options.spark
@options.output
def repartition_command(
    checkpoint: Checkpoint,
    output: Output,
    dry_run: bool,
    partitions: int,
    force: bool,
    master: str,
    conf: tuple[tuple[str, str], ...],
) -> None:
    """Give a stopped query another number of state partitions, with Spark.

    It adds a batch to the query's logs which has the same state in other partitions. The old ones stay, for
    undo-repartition, until old-partitions removes them. It takes Spark 4.3. See docs/reshape.md.
    """
    from pyspark_statestore.cli.output import Report, figures_of
    from pyspark_statestore.cli.session import session, task_progress

    with ExitStack() as stack:
        # What can be refused without Spark is refused before it is started.
        change = partial(checkpoint.repartition, partitions, force=force)
        done = change(dry_run=True)
        if not dry_run:
            spark = None if done.batch is None else stack.enter_context(session(master, dict(conf)))
            stack.enter_context(task_progress("Repartitioning", spark))
            done = change(spark=spark)
    note = "" if done.batch is not None else "It has that number of partitions already."
    title = f"Repartitioning of {checkpoint.url}"
    step = next_steps.after_repartition(checkpoint.url, done)
    output.report(Report.of(title, figures_of(done), dry_run=done.dry_run, note=note, next_step=step))


@click.command(
    "undo-repartition",
    cls=Command,
    examples=[
        "pyspark-statestore undo-repartition /checkpoints/q1 --dry-run",
        "pyspark-statestore undo-repartition /checkpoints/q1",
    ],
    interrupted="Run it again before you start the query.",
)
@options.dry_run("Only show what would be deleted.")
@options.checkpoint
@_force
@options.output
def undo_repartition_command(checkpoint: Checkpoint, output: Output, dry_run: bool, force: bool) -> None:
    """Take a repartitioning back, as long as the query has not gone on.

    The query goes on with the partitions that it had before. A repartitioning that was interrupted is taken back, too.
    """
    from pyspark_statestore.cli.output import Report, figures_of, progress

    with progress("Taking back", ""):
        done = checkpoint.undo_repartition(dry_run=dry_run, force=force)
    title, step = f"Repartitioning of {checkpoint.url}", next_steps.after_undo_repartition(done)
    output.report(Report.of(title, figures_of(done), dry_run=done.dry_run, next_step=step))


@click.command(
    "old-partitions",
    cls=Command,
    examples=[
        "pyspark-statestore old-partitions /checkpoints/q1",
        "pyspark-statestore old-partitions /checkpoints/q1 --no-dry-run",
    ],
    interrupted="Run it again to remove the rest.",
)
@options.dry_run("Only show what would be removed. This is the default.", default=True)
@options.checkpoint
@options.output
def old_partitions_command(checkpoint: Checkpoint, output: Output, dry_run: bool) -> None:
    """Remove the state of partitions that the query has no more, since it was repartitioned to fewer.

    The files of the store that the query had before convert --store go, too. Nothing is removed without --no-dry-run.
    The repartitioning cannot be taken back then. The query may run.
    """
    from pyspark_statestore.cli.output import Report, figures_of, progress

    with progress("Looking for old partitions", ""):
        done = checkpoint.maintenance.remove_old_partitions(dry_run=dry_run)
    title, really = f"Old partitions of {checkpoint.url}", "--no-dry-run"
    step = next_steps.after_old_partitions(checkpoint.url, done)
    output.report(Report.of(title, figures_of(done), dry_run=done.dry_run, really=really, next_step=step))
