"""The entry point of ``pyspark-statestore``: the list of its commands."""

from __future__ import annotations

import os
import sys

import click

from pyspark_statestore import __version__
from pyspark_statestore.cli.commands import INTERRUPTED, Group, forget_stdout, output_failure, prepare_stdout
from pyspark_statestore.cli.echo import say
from pyspark_statestore.cli.fork_and_migrate import (
    convert_command,
    drop_merged_command,
    export_command,
    fork_command,
    release_command,
)
from pyspark_statestore.cli.inspect import (
    files_command,
    plot_command,
    segments_command,
    show_command,
    summary_command,
    top_command,
    versions_command,
)
from pyspark_statestore.cli.maintain import (
    compact_command,
    consolidate_command,
    expire_command,
    orphans_command,
    verify_command,
)
from pyspark_statestore.cli.overview import list_command
from pyspark_statestore.cli.repartition import (
    old_partitions_command,
    repartition_command,
    undo_repartition_command,
)
from pyspark_statestore.cli.report import report_command
from pyspark_statestore.cli.settings import settings_command
from pyspark_statestore.cli.sink import sink_group
from pyspark_statestore.cli.state import diff_command, state_command
from pyspark_statestore.errors import first_line


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="pyspark-statestore")
def cli() -> None:
    """Spark Structured Streaming state in a few merged files instead of thousands of small ones.

    The commands show what is in a checkpoint, also while its query runs, and keep it small and sound. They need no
    Spark, unless state is written anew (repartition, convert --store, fork --partitions) or files of sinks are joined.
    Each command that changes anything has --dry-run.
    PATH is the query's checkpointLocation: a local path or a URL such as hdfs://, s3a://, abfss:// or gs://, with or
    without merged+ before it.
    """


@cli.command(
    "jar-path",
    examples=[
        "spark-submit --jars $(pyspark-statestore jar-path) application.py",
        "pyspark-statestore jar-path --spark 4.2",
    ],
)
@click.option("--spark", help="The version of Spark; that of the installed PySpark if not given.")
def jar_path_command(spark: str | None) -> None:
    """Print the path of the jar that Spark needs."""
    from pyspark_statestore.session.jvm import jar_path

    click.echo(jar_path(spark))


for command in (
    list_command,
    summary_command,
    files_command,
    segments_command,
    versions_command,
    state_command,
    diff_command,
    top_command,
    show_command,
    plot_command,
    report_command,
    compact_command,
    orphans_command,
    verify_command,
    expire_command,
    consolidate_command,
    convert_command,
    export_command,
    drop_merged_command,
    fork_command,
    release_command,
    repartition_command,
    undo_repartition_command,
    old_partitions_command,
    sink_group,
    settings_command,
):
    cli.add_command(command)


def main() -> None:
    """Runs the command line. An error ends it with a message on stderr and an exit status, not with a stack trace."""
    prepare_stdout()
    try:
        cli(prog_name="pyspark-statestore")
    except BrokenPipeError:
        forget_stdout()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        if isinstance(error, OSError) and (failure := output_failure(error)):  # of the help, which no command writes
            failure.show()
            sys.exit(failure.exit_code)
        if os.environ.get("PYSPARK_STATESTORE_DEBUG"):
            raise
        # Without what follows: a JVM's error has its stack trace in its text.
        said = first_line(error) + "".join(str(error).splitlines()[1:2] if "\n: " in str(error) else ())
        say(f"Unexpected {type(error).__name__}: {said}", err=True)
        say("This is a bug. Set PYSPARK_STATESTORE_DEBUG=1 to see where it happened.", err=True)
        sys.exit(1)
