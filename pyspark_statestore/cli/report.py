"""The command that writes a page about a checkpoint, and how all commands write pages."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from pyspark_statestore.cli import options
from pyspark_statestore.cli.commands import Command
from pyspark_statestore.cli.echo import say

if TYPE_CHECKING:
    from pyspark_statestore.checkpoint import Checkpoint
    from pyspark_statestore.report.page import Report


@click.command(
    "report",
    cls=Command,
    examples=[
        "pyspark-statestore report /checkpoints/q1 -o q1.html",
        "pyspark-statestore report s3a://bucket/checkpoints/q1 -o - | gzip > q1.html.gz",
    ],
    interrupted="Nothing was written.",
)
@options.checkpoint
@options.page
def report_command(checkpoint: Checkpoint, out: str) -> None:
    """Write a page about the checkpoint for a browser, with what to do about it.

    The page is one HTML file without scripts, and loads nothing. For all checkpoints below a directory, see the command
    list; for a file sink, see sink report.
    """
    from pyspark_statestore.cli.output import progress

    with progress() as callback:
        report = checkpoint.report(callback=callback)
    write_page(report, out)


def write_page(report: Report, out: str) -> None:
    """Writes a page to a file, or to stdout.

    Args:
        report: The page.
        out: The file's path, or ``-``.
    """
    if out == options.STDOUT:
        from pyspark_statestore.report.page import encoded

        stdout = sys.stdout.buffer
        left = memoryview(encoded(report.html))
        while left:  # with PYTHONUNBUFFERED, a stream writes what there is room for and says nothing of the rest
            left = left[stdout.write(left) or 0 :]
        stdout.flush()
        return
    report.write(out)
    say(f"Wrote {out}", err=True)
