"""The command ``compact``."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import click

from pyspark_statestore.cli import options
from pyspark_statestore.cli.commands import Command

if TYPE_CHECKING:
    from pyspark_statestore.checkpoint import Checkpoint
    from pyspark_statestore.cli.output import Output


@click.command(
    "compact",
    cls=Command,
    examples=[
        "pyspark-statestore compact /checkpoints/q1 --dry-run",
        "pyspark-statestore compact s3a://bucket/q1 --smaller-than 16m --target-file-size 256m",
        "pyspark-statestore compact hdfs://nn/checkpoints/q1 --max-space-amplification 1.1 --abandoned-after 10m",
    ],
    interrupted="Nothing that is needed is gone. Run it again at any time; what was copied in vain goes then or later.",
)
@options.dry_run("Only say what would be rewritten and removed.")
@options.checkpoint
@click.option(
    "--max-space-amplification",
    type=click.FloatRange(min=1),
    default=1.5,
    show_default=True,
    help="Rewrite files of which more than this many bytes are kept for each live one.",
)
@click.option(
    "--target-file-size", type=options.Size(), default="128m", show_default=True, help="How large new files become."
)
@click.option(
    "--smaller-than",
    type=options.Size(),
    show_default="three quarters of --target-file-size",
    help="Join files smaller than this.",
)
@click.option(
    "--localize",
    is_flag=True,
    help="In a fork: also copy everything that it reads in other checkpoints, so that it needs them no more.",
)
@options.abandoned_after
@options.output
def compact_command(
    checkpoint: Checkpoint,
    output: Output,
    dry_run: bool,
    max_space_amplification: float,
    target_file_size: int,
    smaller_than: int | None,
    localize: bool,
    abandoned_after: datetime.timedelta,
) -> None:
    """Rewrite files that are mostly dead or small.

    Those that nothing lives in are removed. The query may be running, or not: files that it may still append to stay as
    they are. In a Spark session the same is spread over executors; see docs/keep-it-small.md.
    """
    from pyspark_statestore.cli.output import Report, figures_of
    from pyspark_statestore.cli.progress import progress
    from pyspark_statestore.cli.views import REWRITTEN

    with progress("Rewriting merged files", "bytes") as callback:
        done = checkpoint.maintenance.compact(
            max_space_amplification=max_space_amplification,
            target_file_size=target_file_size,
            where=None if smaller_than is None else _where(smaller_than, max_space_amplification),
            localize=localize,
            abandoned_after=abandoned_after,
            dry_run=dry_run,
            callback=callback,
        )
    title, details = f"Compaction of {checkpoint.url}", {"files": (done.files, REWRITTEN)}
    output.report(Report.of(title, figures_of(done), details, dry_run=done.dry_run))


def _where(smaller_than: int, max_space_amplification: float) -> Any:
    import pyarrow.compute as pc

    # Of a file that nothing lives in, the second is null, which "or" passes over.
    return (pc.field("file_size_in_bytes") < smaller_than) | (pc.field("space_amplification") > max_space_amplification)
