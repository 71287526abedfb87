"""Entry point of ``pyspark-statestore``."""

from __future__ import annotations

import os
import sys

import click

from pyspark_statestore import __version__
from pyspark_statestore.errors import StateStoreFilesError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pyspark-statestore")
def cli() -> None:
    """Spark Structured Streaming state in a few merged files instead of thousands of small ones."""


@cli.command("jar-path")
def jar_path_command() -> None:
    """Print the path of the jar, as in: spark-submit --jars $(pyspark-statestore jar-path)."""
    from pyspark_statestore.jars import jar_path

    click.echo(jar_path())


def main() -> None:
    """Runs the command line. What goes wrong is one message on stderr and exit status 1, not a stack trace."""
    try:
        cli()
    except StateStoreFilesError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    except Exception as error:
        if os.environ.get("PYSPARK_STATESTORE_DEBUG"):
            raise
        click.echo(f"Unexpected {type(error).__name__}: {error}", err=True)
        click.echo("This is a defect. Set PYSPARK_STATESTORE_DEBUG=1 to see where it happened.", err=True)
        sys.exit(1)
