"""The commands ``convert``, ``export`` and ``drop-merged``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pyspark_statestore.cli import options
from pyspark_statestore.cli.commands import Command

if TYPE_CHECKING:
    from pyspark_statestore.checkpoint import Checkpoint
    from pyspark_statestore.cli.output import Output


_force = click.option(
    "--force",
    is_flag=True,
    help="Do it though the query seems to be running, or merged files seem to be older than plain ones.",
)


@click.command(
    "convert",
    cls=Command,
    examples=[
        "pyspark-statestore convert /checkpoints/q1 --to merged --dry-run",
        "pyspark-statestore convert /checkpoints/q1 --to merged",
        "pyspark-statestore convert /checkpoints/q1 --to merged --door path",
    ],
    interrupted="Run it again before the query is started.",
)
@options.dry_run("Only say what would be changed.")
@options.checkpoint
@click.option("--to", type=click.Choice(["merged", "stock"]), required=True, help="How the query is to go on.")
@click.option(
    "--door",
    type=click.Choice(["provider", "path"]),
    default="provider",
    show_default=True,
    help="Which one the query goes through when merged; see docs/turn-it-on.md.",
)
@_force
@options.output
def convert_command(checkpoint: Checkpoint, output: Output, dry_run: bool, to: str, door: str, force: bool) -> None:
    """Let a stopped query go on with merged state, or with stock Spark.

    Rewrites which class keeps the state, in the checkpoint's offset log; a copy of what was there is kept. After an
    export in place, --to merged goes back to the merged files, unless stock Spark has gone on since. An offline
    repartitioning that Spark began and did not know how to end is undone.
    """
    from pyspark_statestore.cli.output import Report, figures_of
    from pyspark_statestore.cli.progress import progress

    with progress("Converting", ""):
        done = checkpoint.convert(to, door=door, dry_run=dry_run, force=force)
    output.report(Report.of(f"Conversion of {checkpoint.url}", figures_of(done), dry_run=done.dry_run))


@click.command(
    "export",
    cls=Command,
    examples=[
        "pyspark-statestore export /checkpoints/q1 --dry-run",
        "pyspark-statestore export /checkpoints/q1",
        "pyspark-statestore export hdfs://nn/checkpoints/q1 --to hdfs://nn/checkpoints/q1-stock",
    ],
    interrupted="Run it again to end it. To stay with merged state: pyspark-statestore convert PATH --to merged",
)
@options.dry_run("Only say what would be written.")
@options.checkpoint
@click.option("--to", "target", metavar="DST", help="An empty or new directory, for a copy; in place if not given.")
@_force
@options.output
def export_command(checkpoint: Checkpoint, output: Output, dry_run: bool, target: str | None, force: bool) -> None:
    """Write merged state back as plain files.

    Stock Spark, without this package, goes on from there. In place, the merged files stay until drop-merged. The query
    has to be stopped.
    """
    from pyspark_statestore.cli.output import Report, figures_of
    from pyspark_statestore.cli.progress import progress

    with progress("Writing plain files", "bytes") as callback:
        done = checkpoint.export(target, dry_run=dry_run, force=force, callback=callback)
    output.report(Report.of(f"Export of {checkpoint.url}", figures_of(done), dry_run=done.dry_run))


@click.command(
    "drop-merged",
    cls=Command,
    examples=[
        "pyspark-statestore drop-merged /checkpoints/q1",
        "pyspark-statestore drop-merged /checkpoints/q1 --no-dry-run",
    ],
    interrupted="Nobody reads what is left of the merged files. Run it again to delete the rest.",
)
@options.dry_run("Only say what would be deleted; so it is unless --no-dry-run is given.", default=True)
@options.checkpoint
@click.option(
    "--force",
    is_flag=True,
    help="Do it where no export was made, or a file has changed since, if plain files alone restore every version.",
)
@options.output
def drop_merged_command(checkpoint: Checkpoint, output: Output, dry_run: bool, force: bool) -> None:
    """Delete the merged files after an export in place.

    They are deleted with --no-dry-run only, and there is no way back then.
    """
    from pyspark_statestore.cli.output import Report, figures_of
    from pyspark_statestore.cli.progress import progress

    with progress("Comparing plain files", ""):
        done = checkpoint.drop_merged(dry_run=dry_run, force=force)
    title = f"Merged files of {checkpoint.url}"
    output.report(Report.of(title, figures_of(done), dry_run=done.dry_run, really="--no-dry-run"))
