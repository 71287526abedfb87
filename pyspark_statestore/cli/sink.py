"""The commands of ``pyspark-statestore sink``: files, log, waiting, plot, report, verify, compact, publish, orphans."""

from __future__ import annotations

import datetime
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pyspark_statestore.cli import next_steps, options
from pyspark_statestore.cli.commands import DAMAGED, Command, Group
from pyspark_statestore.cli.echo import say

if TYPE_CHECKING:
    from pyspark_statestore.cli.output import Output, RowChoice
    from pyspark_statestore.sink.sink import Sink


TWICE = (
    "Readers that go by Spark's list see each row once. Who reads directories (a glob, PyArrow, Trino, DuckDB) sees "
    "the rows of the joined files twice until these are removed: with the command orphans, or --and-remove next time."
)
"""What is to be known after a compaction."""


@click.group("sink", cls=Group)
def sink_group() -> None:
    """Look at a file sink, and join its small files.

    PATH is the directory to which a query writes files with writeStream, also one that stock Spark has written. The
    query may be running.
    """


def _sink(command: options.Function) -> options.Function:
    """Adds PATH and its options; the command gets a ``Sink`` as its first argument."""

    @click.argument("path")
    @options.storage_options
    @functools.wraps(command)
    def with_sink(path: str, storage_options: tuple[tuple[str, Any], ...], **others: Any) -> Any:
        from pyspark_statestore.sink.sink import Sink

        return command(Sink(path, dict(storage_options)), **others)

    return with_sink


@sink_group.command(
    "plot",
    examples=[
        "pyspark-statestore sink plot /tables/clicks -o clicks.png",
        "pyspark-statestore sink plot hdfs://nn/tables/clicks -o clicks.html",
    ],
    interrupted="Nothing was written.",
)
@_sink
@options.out
def plot_command(sink: Sink, out: Path) -> None:
    """Draw the sink: its files by size, their growth, its partition values.

    It needs matplotlib: pip install "pyspark-statestore[plot]".
    """
    from pyspark_statestore.cli.output import progress
    from pyspark_statestore.plot import plot_sink

    with progress("Drawing", ""):
        plot_sink(sink, out)
    say(f"Wrote {out}", err=True)


@sink_group.command(
    "report",
    examples=[
        "pyspark-statestore sink report /tables/clicks -o clicks.html",
        "pyspark-statestore sink report hdfs://nn/tables/clicks -o - > clicks.html",
    ],
    interrupted="Nothing was written.",
)
@_sink
@options.page
def report_command(sink: Sink, out: str) -> None:
    """Write a page about the sink for a browser, with what to do about it.

    The page is one HTML file without scripts, and loads nothing. The command lists the sink's directory and reads
    Spark's list, but no data file.
    """
    from pyspark_statestore.cli.output import progress
    from pyspark_statestore.cli.report import write_page

    with progress("Reading the sink", ""):
        report = sink.report()
    write_page(report, out)


def _writer(command: options.Function) -> options.Function:
    """Adds what a command that joins files has to know of the query that wrote them, and where Spark runs."""
    decorators = (
        click.option("--format", help="The format of the files, where their names do not tell."),
        click.option(
            "--option",
            "writer_options",
            type=options.Setting(),
            multiple=True,
            help="An option with which the query writes, such as header=true, which CSV needs. Repeat it for more.",
        ),
        options.spark,
    )
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


_target_file_size = click.option(
    "--target-file-size", type=options.Size(), default="128m", show_default=True, help="The size of new files."
)


@sink_group.command(
    "files",
    examples=[
        "pyspark-statestore sink files hdfs://nn/tables/clicks --sort file_size_in_bytes",
        "pyspark-statestore sink files /tables/clicks --output json",
    ],
)
@_sink
@options.rows
@options.output
def files_command(sink: Sink, output: Output, rows: RowChoice) -> None:
    """List the files that readers see."""
    from pyspark_statestore.cli.layouts import SINK_FILES
    from pyspark_statestore.rendering import counted

    table = sink.files()
    output.table(table, SINK_FILES, f"{counted(table.num_rows, 'listed file')} in {sink.url}", rows)


@sink_group.command(
    "log",
    examples=["pyspark-statestore sink log /tables/clicks", "pyspark-statestore sink log s3a://bucket/clicks --wide"],
)
@_sink
@options.rows
@options.output
def log_command(sink: Sink, output: Output, rows: RowChoice) -> None:
    """List the files that make up Spark's list of the sink's files."""
    from pyspark_statestore.cli.layouts import SINK_LOG
    from pyspark_statestore.rendering import counted

    table = sink.log()
    output.table(table, SINK_LOG, f"List of {sink.url}: {counted(table.num_rows, 'file')}", rows)


@sink_group.command(
    "waiting",
    examples=["pyspark-statestore sink waiting /tables/clicks"],
)
@_sink
@options.rows
@options.output
def waiting_command(sink: Sink, output: Output, rows: RowChoice) -> None:
    """List the files whose rows wait to be published, as maxDelay allows."""
    from pyspark_statestore.cli.layouts import SINK_WAITING
    from pyspark_statestore.rendering import counted

    table = sink.waiting()
    output.table(table, SINK_WAITING, f"{counted(table.num_rows, 'file')} that wait in {sink.url}", rows)


@sink_group.command(
    "verify",
    examples=[
        "pyspark-statestore sink verify /tables/clicks",
        "pyspark-statestore sink verify s3a://bucket/clicks --output json | jq .damages",
        "pyspark-statestore sink verify /tables/clicks --repair --checkpoint /checkpoints/q1",
    ],
    interrupted="Run it again at any time.",
)
@options.dry_run("With --repair, only show what would be written. Without --repair nothing is changed anyway.")
@_sink
@click.option("--repair", is_flag=True, help="Write entries that a repartitioning has left out of the list.")
@click.option("--checkpoint", help="With --repair, the checkpoint of the query that writes to the sink.")
@options.compact_interval
@options.output
@click.pass_context
def verify_command(
    ctx: click.Context,
    sink: Sink,
    output: Output,
    dry_run: bool,
    repair: bool,
    checkpoint: str | None,
    compact_interval: int | None,
) -> None:
    """Check that every listed file is there, and that the list is whole.

    It lists files and reads none. The exit status is 3 where a reader would fail or read wrong rows. With --repair, it
    first writes what a repartitioning has left out of the list, by the query's own logs. What was lost is not made up.
    """
    import pyarrow.compute as pc

    from pyspark_statestore.cli.layouts import SINK_PROBLEMS
    from pyspark_statestore.cli.output import Report, figures_of, progress

    with progress("Verifying", ""):
        done = sink.verify(
            repair=repair, checkpoint=checkpoint, compact_interval=compact_interval, dry_run=dry_run and repair
        )
    details = {
        f"{severity}s": (done.problems.filter(pc.equal(done.problems["severity"], severity)), SINK_PROBLEMS)
        for severity in ("damage", "note")
    }
    figures = {"is_clean": done.is_clean, **figures_of(done, "problems", "repaired")}
    figures |= {"repaired_count": len(done.repaired)} if repair else {}
    note = "\n".join(f"{'To be written' if done.dry_run else 'Written'}: {each}" for each in done.repaired)
    step = next_steps.after_sink_verify(sink.url, done)
    title = f"Sink {sink.url}"
    was_dry = done.dry_run if repair else None
    output.report(Report.of(title, figures, details, dry_run=was_dry, note=note, next_step=step))
    if not done.is_clean:
        ctx.exit(DAMAGED)


@sink_group.command(
    "compact",
    examples=[
        "pyspark-statestore sink compact /tables/clicks --dry-run",
        "pyspark-statestore sink compact hdfs://nn/tables/clicks --older-than 0s --target-file-size 256m",
        "pyspark-statestore sink compact s3a://bucket/clicks --conf spark.jars=hadoop-aws.jar,bundle.jar",
        "pyspark-statestore sink compact /tables/logs --option header=true",
        "pyspark-statestore sink compact /tables/clicks --and-remove --remove-after 1d",
    ],
    interrupted="Readers see what they saw. Run it again at any time.",
)
@options.dry_run("Only show what would be joined.")
@_sink
@_target_file_size
@click.option(
    "--older-than",
    type=options.Duration(),
    default="14d",
    show_default=True,
    help="Join only files that are older than the sink's newest by this: what streams that read the sink may be "
    "behind, and their maxFileAge. Give 0s where no stream reads the sink.",
)
@click.option(
    "--and-remove", is_flag=True, help="Then remove what no list has named for --remove-after, as the command orphans."
)
@click.option(
    "--remove-after",
    type=options.Duration(),
    default="3d",
    show_default=True,
    help="With --and-remove, keep what was replaced later, for readers that began before. At least 1h.",
)
@_writer
@options.output
def compact_command(
    sink: Sink,
    output: Output,
    dry_run: bool,
    target_file_size: int,
    older_than: datetime.timedelta,
    and_remove: bool,
    remove_after: datetime.timedelta,
    format: str | None,
    writer_options: tuple[tuple[str, str], ...],
    master: str,
    conf: tuple[tuple[str, str], ...],
) -> None:
    """Join small files that are listed already, with Spark.

    Readers that go by Spark's list see each row once, before and after. The joined files stay for readers that have
    begun, until the command orphans or --and-remove removes them: who reads directories sees their rows twice until
    then. What cannot be joined without loss stays as it is, and the command says why. To use a session of your own, see
    docs/file-sink.md.
    """
    from pyspark_statestore.cli.layouts import SINK_FAILED, SINK_JOINED
    from pyspark_statestore.cli.output import Report, figures_of
    from pyspark_statestore.cli.session import session, task_progress
    from pyspark_statestore.sink.file_list import check_sink

    check_sink(sink._directory)  # before Spark is started
    with session(master, dict(conf)) as spark, task_progress("Joining files", spark):
        done = sink.compact(
            target_file_size=target_file_size,
            older_than=older_than,
            format=format,
            options=dict(writer_options),
            remove_after=remove_after if and_remove else None,
            dry_run=dry_run,
            spark=spark,
        )
    details = {"files": (done.files, SINK_JOINED), "failed": (done.failed, SINK_FAILED)}
    note = TWICE if done.rewritten_data_files_count and not done.dry_run else ""
    title = f"Compaction of {sink.url}"
    figures, step = figures_of(done, "failed"), next_steps.after_sink_compact(sink.url, done, and_remove=and_remove)
    output.report(Report.of(title, figures, details, dry_run=done.dry_run, note=note, next_step=step))


@sink_group.command(
    "publish",
    examples=[
        "pyspark-statestore sink publish /tables/clicks --dry-run",
        "pyspark-statestore sink publish hdfs://nn/tables/clicks",
    ],
    interrupted="Readers see what they saw. Run it again at any time.",
)
@options.dry_run("Only show what waits.")
@_sink
@_target_file_size
@click.option(
    "--idle-for",
    type=options.Duration(),
    default="1h",
    show_default=True,
    help="Refuse where the sink's list has changed later than this ago: its query may be running.",
)
@click.option("--force", is_flag=True, help="Allow --idle-for of less than an hour.")
@_writer
@options.output
def publish_command(
    sink: Sink,
    output: Output,
    dry_run: bool,
    target_file_size: int,
    idle_for: datetime.timedelta,
    force: bool,
    format: str | None,
    writer_options: tuple[tuple[str, str], ...],
    master: str,
    conf: tuple[tuple[str, str], ...],
) -> None:
    """Publish rows that wait, for a query that does not run any more, with Spark.

    A query that runs publishes them by itself. Do not use this while it runs: rows could be there twice.
    """
    from pyspark_statestore.cli.output import Report, figures_of
    from pyspark_statestore.cli.session import session, task_progress
    from pyspark_statestore.sink.file_list import check_sink

    check_sink(sink._directory)  # before Spark is started
    with session(master, dict(conf)) as spark, task_progress("Publishing", spark):
        done = sink.publish(
            target_file_size=target_file_size,
            idle_for=idle_for,
            format=format,
            options=dict(writer_options),
            dry_run=dry_run,
            force=force,
            spark=spark,
        )
    title = f"Publication of what waits in {sink.url}"
    step = next_steps.after_sink_publish(sink.url, done)
    output.report(Report.of(title, figures_of(done), {}, dry_run=done.dry_run, next_step=step))


@sink_group.command(
    "orphans",
    cls=Command,
    examples=[
        "pyspark-statestore sink orphans /tables/clicks",
        "pyspark-statestore sink orphans /tables/clicks --older-than 1d --no-dry-run",
    ],
    interrupted="Only files that no reader sees are gone. Run it again at any time.",
)
@options.dry_run("Only show what would be removed. This is the default.", default=True)
@_sink
@click.option(
    "--older-than",
    type=options.Duration(),
    default="3d",
    show_default=True,
    help="Keep younger files, and those that were replaced later.",
)
@click.option("--force", is_flag=True, help="Allow --older-than of less than an hour.")
@options.output
def orphans_command(sink: Sink, output: Output, dry_run: bool, older_than: datetime.timedelta, force: bool) -> None:
    """Find and remove files that no reader sees.

    Nothing is removed without --no-dry-run. Orphans are what batches that failed have left, and what compact has
    replaced. Files that no query can have written, by their names and places, stay. Those of batch jobs are named as
    those of queries: where one has left _SUCCESS, only what compact has replaced goes.
    """
    from pyspark_statestore.cli.layouts import ORPHANS
    from pyspark_statestore.cli.output import Report, figures_of, progress

    with progress("Looking for orphans", ""):
        done = sink.remove_orphan_files(older_than, dry_run=dry_run, force=force)
    title, details = f"Orphans of {sink.url}", {"files": (done.files, ORPHANS)}
    really, step = "--no-dry-run", next_steps.after_sink_orphans(sink.url, done)
    output.report(Report.of(title, figures_of(done), details, dry_run=done.dry_run, really=really, next_step=step))
