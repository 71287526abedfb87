"""The commands ``files``, ``segments``, ``versions`` and ``summary``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pyspark_statestore.cli import options
from pyspark_statestore.cli.commands import Command

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_statestore.checkpoint import Checkpoint
    from pyspark_statestore.cli.output import Output, RowChoice


@click.command(
    "files",
    cls=Command,
    examples=[
        "pyspark-statestore files hdfs://nn/checkpoints/q1",
        "pyspark-statestore files /checkpoints/q1 --sort live_bytes --limit 5",
        "pyspark-statestore files s3a://bucket/q1 --storage-option anon=true --output json",
    ],
)
@options.checkpoint
@options.rows
@options.output
def files_command(checkpoint: Checkpoint, output: Output, rows: RowChoice) -> None:
    """List the merged files, with what lives in them."""
    _list(checkpoint, "files", "merged file", output, rows)


@click.command(
    "segments",
    cls=Command,
    examples=[
        "pyspark-statestore segments /checkpoints/q1 --operator 0 --partition 17",
        "pyspark-statestore segments /checkpoints/q1 --sort length --descending --limit 10",
        "pyspark-statestore segments /checkpoints/q1 --output json > segments.json",
    ],
)
@options.checkpoint
@options.one_store
@options.rows
@options.output
def segments_command(checkpoint: Checkpoint, output: Output, rows: RowChoice, **store: Any) -> None:
    """List the logical files that are or were in merged files."""
    _list(checkpoint, "segments", "segment", output, rows, **store)


@click.command(
    "versions",
    cls=Command,
    examples=[
        "pyspark-statestore versions /checkpoints/q1 --operator 0 --partition 0",
        "pyspark-statestore versions /checkpoints/q1 --output json",
    ],
)
@options.checkpoint
@options.one_store
@options.rows
@options.output
def versions_command(checkpoint: Checkpoint, output: Output, rows: RowChoice, **store: Any) -> None:
    """List the state versions, and which of them can be restored.

    This reads RocksDB's snapshots to see which files they need, so it takes longer than the other commands.
    """
    _list(checkpoint, "versions", "version", output, rows, **store)


@click.command(
    "summary",
    cls=Command,
    examples=[
        "pyspark-statestore summary /checkpoints/q1",
        "pyspark-statestore summary /checkpoints/q1 --output json | jq .space_amplification",
    ],
)
@options.checkpoint
@options.output
def summary_command(checkpoint: Checkpoint, output: Output) -> None:
    """Sum up the whole checkpoint."""
    output.record(_read(checkpoint, "summary"), checkpoint.url)


def _read(checkpoint: Checkpoint, name: str, **narrowed: Any) -> pa.Table:
    from pyspark_statestore.cli.progress import progress

    with progress() as callback:
        return checkpoint.inspect.table(name, **narrowed, callback=callback)


def _list(checkpoint: Checkpoint, name: str, what: str, output: Output, rows: RowChoice, **store: Any) -> None:
    from pyspark_statestore.cli.views import TABLES

    table = _read(checkpoint, name, **store)
    number = f"{table.num_rows:,} {what}{'' if table.num_rows == 1 else 's'}"
    output.table(table, TABLES[name], f"{number} in {checkpoint.url}", rows)
