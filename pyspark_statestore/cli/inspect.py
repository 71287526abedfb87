"""The commands that show what is in a checkpoint: summary, files, segments, versions, top, show, plot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pyspark_statestore.cli import options
from pyspark_statestore.cli.commands import Command, Failure
from pyspark_statestore.cli.echo import say

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_statestore.checkpoint import Checkpoint
    from pyspark_statestore.cli.output import Output, RowChoice


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
    """Sum up the whole checkpoint, and say whether a query could go on from it.

    What comes first says so where the last committed batch cannot be restored, and names the version that can.
    """
    from pyspark_statestore.log.restart import alarm

    table = _read(checkpoint, "summary")
    if said := alarm(checkpoint.url, table.to_pylist()[0]):
        output.alarm(said)
    output.record(table, checkpoint.url)


@click.command(
    "files",
    cls=Command,
    examples=[
        "pyspark-statestore files hdfs://nn/checkpoints/q1",
        "pyspark-statestore files /checkpoints/q1 --sort live_bytes --limit 5",
        "pyspark-statestore files s3a://bucket/q1 --storage-option anon=true --output json",
        "pyspark-statestore files /checkpoints/of-stock-spark --plain --sort file_size_in_bytes --descending",
    ],
)
@options.checkpoint
@click.option("--plain", is_flag=True, help="List the state files that are not merged instead.")
@options.rows
@options.output
def files_command(checkpoint: Checkpoint, output: Output, rows: RowChoice, plain: bool) -> None:
    """List the merged files, with how much of each is live.

    The heading counts the plain state files beside them. In a checkpoint of stock Spark, all are plain: see --plain.
    """
    from pyspark_statestore.cli.layouts import TABLES
    from pyspark_statestore.cli.output import progress
    from pyspark_statestore.rendering import counted, size

    with progress() as callback:
        read = checkpoint.inspect.tables("files", "plain_files", callback=callback)
    beside, bytes_ = read["plain_files"].num_rows, sum(read["plain_files"]["file_size_in_bytes"].to_pylist())
    shown = "plain_files" if plain else "files"
    title = f"{counted(read['files'].num_rows, 'merged file')} in {checkpoint.url}"
    if plain:
        title = f"{counted(beside, 'plain state file')}, {size(bytes_)}, in {checkpoint.url}"
    elif beside:
        title += f"; {counted(beside, 'plain state file')}, {size(bytes_)} (--plain lists them)"
    output.table(read[shown], TABLES[shown], title, rows)


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

    It opens RocksDB's snapshots to see which files they need, so it takes longer than the other commands.
    """
    _list(checkpoint, "versions", "version", output, rows, **store)


@click.command(
    "top",
    cls=Command,
    examples=[
        "pyspark-statestore top /checkpoints/q1",
        "pyspark-statestore top /checkpoints/q1 --by operators",
        "pyspark-statestore top /checkpoints/q1 --by partitions -n 3 --output json",
    ],
)
@options.checkpoint
@click.option(
    "--by",
    type=click.Choice(["partitions", "files", "operators", "types"]),
    help="What to add the bytes up by; partitions and then files if not given.",
)
@click.option("-n", "number", type=click.IntRange(min=1), default=10, show_default=True, help="How many of each.")
@options.output
def top_command(checkpoint: Checkpoint, output: Output, by: str | None, number: int) -> None:
    """Show which partitions and files hold the most bytes.

    By partitions, operators and types, the segments in merged files are added up. A segment is dead when it was deleted
    or replaced; its bytes are there until its file is removed. By files, all that is not a live segment counts as dead,
    also the index. Plain state files, as stock Spark writes them, are counted, too, and live.
    """
    from pyspark_statestore.cli.layouts import COSTS
    from pyspark_statestore.cli.output import ALL, progress
    from pyspark_statestore.inspect import costs_of_files, costs_of_segments

    asked = (by,) if by else ("partitions", "files")
    needed = {"plain_files", *("files" if what == "files" else "segments" for what in asked)}
    with progress() as callback:
        read = checkpoint.inspect.tables(*needed, callback=callback)
    found = {
        what: costs_of_files(read["files"], read["plain_files"])
        if what == "files"
        else costs_of_segments(read["segments"], read["plain_files"], what)
        for what in asked
    }
    tables = {
        what: (
            table.slice(0, number),
            COSTS[what],
            f"{what}, {min(number, len(table))} of {len(table):,}, in {checkpoint.url}",
        )
        for what, table in found.items()
    }
    if by:
        output.table(*tables[by], rows=ALL)
    else:
        output.tables(tables)


@click.command(
    "show",
    cls=Command,
    examples=[
        "pyspark-statestore show /checkpoints/q1/state/_merged/1795213742298-70b569a9b1bed2be-1.merged",
        "pyspark-statestore show s3://bucket/q1/state/_merged/1795213742298-70b569a9b1bed2be-1.merged --output json",
    ],
)
@click.argument("file")
@options.storage_options
@options.output
def show_command(file: str, storage_options: tuple[tuple[str, Any], ...], output: Output) -> None:
    """Show what is in one merged file, group by group.

    FILE is a path or a URL. If the file is damaged, the groups after the damage are shown, and the exit status is 1.
    """
    from pyspark_statestore.cli.shown_file import show_file

    shown = show_file(file, dict(storage_options))
    output.file(shown)
    if shown.error is not None:
        raise Failure(shown.error)


@click.command(
    "plot",
    cls=Command,
    examples=[
        "pyspark-statestore plot /checkpoints/q1 -o q1.png",
        "pyspark-statestore plot hdfs://nn/checkpoints/q1 -o q1.html",
    ],
    interrupted="Nothing was written.",
)
@options.checkpoint
@options.out
def plot_command(checkpoint: Checkpoint, out: Path) -> None:
    """Draw the checkpoint: its files, their growth, its partitions.

    It needs matplotlib: pip install "pyspark-statestore[plot]".
    """
    from pyspark_statestore.cli.output import progress
    from pyspark_statestore.plot import plot

    with progress() as callback:
        plot(checkpoint, out, callback)
    say(f"Wrote {out}", err=True)


def _read(checkpoint: Checkpoint, name: str, **narrowed: Any) -> pa.Table:
    from pyspark_statestore.cli.output import progress

    with progress() as callback:
        return checkpoint.inspect.table(name, **narrowed, callback=callback)


def _list(checkpoint: Checkpoint, name: str, what: str, output: Output, rows: RowChoice, **store: Any) -> None:
    from pyspark_statestore.cli.layouts import TABLES
    from pyspark_statestore.rendering import counted

    table = _read(checkpoint, name, **store)
    output.table(table, TABLES[name], f"{counted(table.num_rows, what)} in {checkpoint.url}", rows)
    if not table.num_rows and any(value is not None for value in store.values()):
        said = _what_is_there(checkpoint, name, store)
        if said:
            say(said, err=True)


_NARROWED = {"operator_id": "operator", "partition_id": "partition", "store_name": "store"}
"""The options that narrow a table, by the columns that they are about."""


def _what_is_there(checkpoint: Checkpoint, name: str, store: dict[str, Any]) -> str:
    """Says which option matches nothing, and what it could have matched; nothing where each matches something."""
    found = checkpoint.inspect.tables("segments", "plain_files")
    tables = [found["segments"]] if name == "segments" else list(found.values())
    there = {row for table in tables for row in zip(*(table[column].to_pylist() for column in _NARROWED), strict=True)}
    for at, (column, word) in enumerate(_NARROWED.items()):
        wanted = store.get(column)
        if wanted is None:
            continue
        matching = {row for row in there if row[at] == wanted}
        if not matching:
            known = sorted({row[at] for row in there if row[at] is not None})
            shown = ", ".join(map(str, known[:20])) + (", ..." if len(known) > 20 else "")
            plain = len(found["plain_files"])
            beside = f" {plain:,} state files are plain: see pyspark-statestore files --plain." if plain else ""
            return f"Nothing has --{word} {wanted}. There are: {shown or 'none'}.{beside if name == 'segments' else ''}"
        there = matching
    return ""
