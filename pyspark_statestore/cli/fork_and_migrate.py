"""The commands that fork a checkpoint or migrate it: fork, release, convert, export, drop-merged."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from pyspark_statestore.cli import next_steps, options
from pyspark_statestore.cli.commands import Command

if TYPE_CHECKING:
    from pyspark_statestore.checkpoint import Checkpoint
    from pyspark_statestore.cli.output import Output

_force = click.option(
    "--force",
    is_flag=True,
    help="Do it even if the query seems to be running, or merged files seem to be older than plain ones.",
)


@click.command(
    "fork",
    cls=Command,
    examples=[
        "pyspark-statestore fork /checkpoints/q1 /checkpoints/q1-test",
        "pyspark-statestore fork s3a://bucket/q1 s3a://bucket/q1-blue --version 1042",
        "pyspark-statestore fork hdfs://nn/checkpoints/q1 hdfs://nn/backup/q1 --mode copy",
        "pyspark-statestore fork /checkpoints/q1 /checkpoints/q1-wide --partitions 400",
        "pyspark-statestore fork /checkpoints/q1 /checkpoints/q1-test --sink /tables/clicks /tables/clicks-test",
    ],
    interrupted="The unfinished fork was deleted. The checkpoint that it was made of is unchanged.",
)
@options.dry_run("Only show what the fork would hold.")
@options.checkpoint
@click.argument("fork")
@click.option(
    "--mode",
    type=click.Choice(["no_claim", "claim", "copy"]),
    default="no_claim",
    show_default=True,
    help="no_claim: read the state where it is. claim: also own it, and PATH must not be used any more. copy: copy it.",
)
@click.option(
    "--version",
    type=click.IntRange(min=1),
    show_default="that of the last committed batch",
    help="The state version that the fork begins with. Batch n leaves version n + 1.",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    show_default="as PATH has",
    help="Repartition the fork, with Spark. --master and --conf are for that.",
)
@click.option(
    "--sink",
    "sink_pairs",
    nargs=2,
    metavar="FROM TO",
    multiple=True,
    help="The query of PATH writes files to FROM; make the empty directory TO ready for the query of FORK to do so. "
    "Repeat it for each.",
)
@options.compact_interval
@options.spark
@click.option("--force", is_flag=True, help="Claim PATH even if its query seems to be running. It must be stopped.")
@options.output
def fork_command(
    checkpoint: Checkpoint,
    output: Output,
    dry_run: bool,
    fork: str,
    mode: str,
    version: int | None,
    partitions: int | None,
    sink_pairs: tuple[tuple[str, str], ...],
    compact_interval: int | None,
    master: str,
    conf: tuple[tuple[str, str], ...],
    force: bool,
) -> None:
    """Make a second checkpoint that goes on from a version of PATH.

    FORK is the checkpointLocation for another query, such as a new version of the job or a trial of it. State is not
    copied, and neither side deletes what the other one needs. See docs/fork.md.
    """
    from pyspark_statestore.cli.output import Report, figures_of
    from pyspark_statestore.cli.session import session, task_progress

    if len(dict(sink_pairs)) < len(sink_pairs):
        raise click.UsageError("--sink names a directory FROM twice.")
    with ExitStack() as stack:
        spark = None
        if partitions is not None and not dry_run:
            # What can be refused without Spark is refused before it is started.
            checkpoint.fork(fork, mode, version, partitions=partitions, dry_run=True, force=force)
            spark = stack.enter_context(session(master, dict(conf)))
        stack.enter_context(task_progress("Forking", spark))
        made = checkpoint.fork(
            fork,
            mode,
            version,
            partitions=partitions,
            sinks=dict(sink_pairs),
            compact_interval=compact_interval,
            spark=spark,
            dry_run=dry_run,
            force=force,
        )
    title = f"Fork of {made.source}: {made.path}"
    figures, step = figures_of(made, "path", "source"), next_steps.after_fork(made)
    output.report(Report.of(title, figures, dry_run=made.dry_run, next_step=step))


@click.command(
    "release",
    cls=Command,
    examples=["pyspark-statestore release /checkpoints/q1 /checkpoints/q1-test"],
    interrupted="Run it again at any time.",
)
@options.dry_run("Only show what would be released.")
@options.checkpoint
@click.argument("fork")
@click.option(
    "--force", is_flag=True, help="Do it even if FORK still reads files of PATH, and is lost when they are gone."
)
@options.output
def release_command(checkpoint: Checkpoint, output: Output, dry_run: bool, fork: str, force: bool) -> None:
    """Release the files of PATH that a fork has pinned.

    Use it for a fork that nobody needs any more. You need not release a fork that was deleted (the command orphans
    notices that, once it has been away for --older-than), nor one that was compacted with --localize (that releases
    the files itself).
    """
    from pyspark_statestore.cli.output import Report, figures_of

    done = checkpoint.maintenance.release_fork(fork, dry_run=dry_run, force=force)
    note = f"{done.fork} cannot be restored once these files are gone." if done.broken_segments_count else ""
    title, step = f"Release of {done.fork}", next_steps.after_release(checkpoint.url, done)
    output.report(Report.of(title, figures_of(done, "fork"), dry_run=done.dry_run, note=note, next_step=step))


@click.command(
    "convert",
    cls=Command,
    examples=[
        "pyspark-statestore convert /checkpoints/q1 --to merged --dry-run",
        "pyspark-statestore convert /checkpoints/q1 --to merged",
        "pyspark-statestore convert /checkpoints/q1 --to merged --door path",
        "pyspark-statestore convert /checkpoints/q1 --store rocksdb --master 'local[*]'",
    ],
    interrupted="Run it again before you start the query.",
)
@options.dry_run("Only show what would change.")
@options.checkpoint
@click.option("--to", type=click.Choice(["merged", "stock"]), help="How the query goes on.")
@click.option(
    "--store",
    type=click.Choice(["rocksdb", "heap"]),
    help="Write the state anew for this store instead, with Spark. --master and --conf are for that.",
)
@click.option(
    "--door",
    type=click.Choice(["provider", "path"]),
    default="provider",
    show_default=True,
    help="The door for the merged query; see docs/turn-it-on.md.",
)
@_force
@options.spark
@options.output
def convert_command(
    checkpoint: Checkpoint,
    output: Output,
    dry_run: bool,
    to: str | None,
    store: str | None,
    door: str,
    force: bool,
    master: str,
    conf: tuple[tuple[str, str], ...],
) -> None:
    """Switch a stopped query to merged state, or back; or to another store.

    This rewrites the class that keeps the state in the checkpoint's offset log, and keeps a copy of what it replaces.
    After an export in place, --to merged goes back to the merged files, unless stock Spark has gone on since. An
    offline repartitioning that Spark began and could not finish is undone.

    With --store, the state is written anew for RocksDB or for the heap store. It takes Spark 4.3. The old store's files
    stay until old-partitions removes them. See docs/reshape.md.
    """
    from pyspark_statestore.cli.output import Report, figures_of, progress
    from pyspark_statestore.cli.session import session, task_progress

    if (to is None) == (store is None):
        raise click.UsageError("Give --to or --store, one of them.")
    title = f"Conversion of {checkpoint.url}"
    if store is None:
        with progress("Converting", ""):
            done = checkpoint.convert(str(to), door=door, dry_run=dry_run, force=force)
        step, note = next_steps.after_convert(checkpoint.url, done, door=door), ""
        if isinstance(step, next_steps.Idle):
            note = "It is so already." if to == "stock" or door == "provider" else "Nothing has to be converted."
        output.report(Report.of(title, figures_of(done), dry_run=done.dry_run, note=note, next_step=step))
        return
    with ExitStack() as stack:
        # What can be refused without Spark is refused before it is started.
        other = checkpoint.convert(store=store, dry_run=True, force=force)
        if not dry_run:
            spark = None if other.version is None else stack.enter_context(session(master, dict(conf)))
            stack.enter_context(task_progress("Converting", spark))
            other = checkpoint.convert(store=store, spark=spark, force=force)
    step = next_steps.after_convert_store(checkpoint.url, other)
    note = "It has that store already." if isinstance(step, next_steps.Idle) else ""
    output.report(Report.of(title, figures_of(other), dry_run=other.dry_run, note=note, next_step=step))


@click.command(
    "export",
    cls=Command,
    examples=[
        "pyspark-statestore export /checkpoints/q1 --dry-run",
        "pyspark-statestore export /checkpoints/q1",
        "pyspark-statestore export hdfs://nn/checkpoints/q1 --to hdfs://nn/checkpoints/q1-stock",
    ],
    interrupted="Run it again to finish. To stay with merged state: pyspark-statestore convert PATH --to merged",
)
@options.dry_run("Only show what would be written.")
@options.checkpoint
@click.option("--to", "target", metavar="DST", help="An empty or new directory for a copy; in place if not given.")
@_force
@options.output
def export_command(checkpoint: Checkpoint, output: Output, dry_run: bool, target: str | None, force: bool) -> None:
    """Write merged state back as plain files.

    Stock Spark, without this package, can go on from them. After an export in place, the merged files stay until
    drop-merged. The query must be stopped.
    """
    from pyspark_statestore.cli.output import Report, figures_of, progress

    with progress("Writing plain files", "bytes") as callback:
        done = checkpoint.export(target, dry_run=dry_run, force=force, callback=callback)
    title, step = f"Export of {checkpoint.url}", next_steps.after_export(checkpoint.url, done)
    figures, note = figures_of(done, "is_idle"), "All of its state is plain already." if done.is_idle else ""
    output.report(Report.of(title, figures, dry_run=done.dry_run, note=note, next_step=step))


@click.command(
    "drop-merged",
    cls=Command,
    examples=[
        "pyspark-statestore drop-merged /checkpoints/q1",
        "pyspark-statestore drop-merged /checkpoints/q1 --no-dry-run",
    ],
    interrupted="Nothing reads what is left of the merged files. Run it again to delete the rest.",
)
@options.dry_run("Only show what would be deleted. This is the default.", default=True)
@options.checkpoint
@click.option(
    "--force",
    is_flag=True,
    help="Do it even if no export was made, or a file has changed since, provided plain files restore every version.",
)
@options.output
def drop_merged_command(checkpoint: Checkpoint, output: Output, dry_run: bool, force: bool) -> None:
    """Delete the merged files after an export in place.

    Nothing is deleted without --no-dry-run. There is no way back then.
    """
    from pyspark_statestore.cli.output import Report, figures_of, progress

    with progress("Comparing plain files", ""):
        done = checkpoint.drop_merged(dry_run=dry_run, force=force)
    title, really = f"Merged files of {checkpoint.url}", "--no-dry-run"
    step = next_steps.after_drop_merged(checkpoint.url, done.removed_files_count)
    output.report(Report.of(title, figures_of(done), dry_run=done.dry_run, really=really, next_step=step))
