"""The command that shows all checkpoints below a directory, a line for each."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from pyspark_statestore.cli import options
from pyspark_statestore.cli.commands import Command
from pyspark_statestore.errors import StateStoreFilesError

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_statestore.cli.output import Output, RowChoice
    from pyspark_statestore.storage import Directory

_FIGURES = (
    "file_count",
    "file_size_in_bytes",
    "live_bytes",
    "space_amplification",
    "plain_file_count",
    "plain_bytes",
    "operator_count",
    "partition_count",
    "max_version",
    "committed_version",
    "restorable_version",
    "not_restorable",
)
"""The columns of the table ``summary`` that the list has; the page goes by all."""

_OF_A_QUERY = {"offsets", "commits"}
"""What Spark makes in each checkpoint when its query starts."""


@click.command(
    "list",
    cls=Command,
    examples=[
        "pyspark-statestore list hdfs://nn/checkpoints",
        "pyspark-statestore list /checkpoints --sort space_amplification --descending --limit 10",
        "pyspark-statestore list s3a://bucket/checkpoints --depth 1 --output json",
        "pyspark-statestore list /checkpoints -o overview.html",
    ],
)
@click.argument("root")
@options.storage_options
@click.option(
    "--depth",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="How many directories below ROOT to look into for checkpoints; 0 for ROOT alone.",
)
@options.rows
@options.output
@options.optional_page
def list_command(
    root: str,
    storage_options: tuple[tuple[str, Any], ...],
    output: Output,
    rows: RowChoice,
    depth: int,
    out: str | None,
) -> None:
    """List the checkpoints below ROOT, with what each holds.

    What comes first names the checkpoints from which a query could not start, and the version that it could. A
    checkpoint that cannot be read has the reason in its line. What is inside of a checkpoint is not looked into.

    With --out, the list is a page for a browser, which also says what to do.
    """
    from pyspark_statestore.cli.layouts import CHECKPOINTS
    from pyspark_statestore.cli.output import progress
    from pyspark_statestore.log.restart import alarm
    from pyspark_statestore.rendering import counted
    from pyspark_statestore.storage import Directory, Location

    directory = Directory(Location.of(root, dict(storage_options)))
    if not directory.names():
        parameters = {"action": "list", "path": directory.location.url, "reason": directory.why_empty()}
        raise StateStoreFilesError("PSS_READ_FAILED", parameters)
    at = datetime.datetime.now(datetime.timezone.utc)
    with progress("Reading checkpoints", ""):
        table = _table(directory, list(_below(directory, depth)), dict(storage_options))
    if out is not None:
        from pyspark_statestore.cli.report import write_page
        from pyspark_statestore.report.overview import overview_report

        ordered = rows.ordered(table)
        limited = ordered.slice(0, rows.limit) if rows.limit else ordered
        write_page(overview_report(directory.location.url, limited, at), out)
        return
    for row in table.select(["checkpoint", "committed_version", "restorable_version", "not_restorable"]).to_pylist():
        if said := alarm(row["checkpoint"], row):
            output.alarm(said)
    title = f"{counted(table.num_rows, 'checkpoint')} in {directory.location.url}"
    output.table(table.select(["checkpoint", *_FIGURES, "error"]), CHECKPOINTS, title, rows)


def _below(directory: Directory, depth: int, folder: str = "") -> Iterator[str]:
    """Yields the paths of the checkpoints in a folder, in the order of their names."""
    below = directory.directories(folder)
    if _OF_A_QUERY.issubset(below):
        yield folder
        return
    if not depth:
        return
    for name in sorted(below):
        if not name.startswith(("_", ".")):
            yield from _below(directory, depth - 1, f"{folder}/{name}" if folder else name)


def _table(directory: Directory, paths: list[str], storage_options: dict[str, Any]) -> pa.Table:
    import pyarrow as pa

    from pyspark_statestore.checkpoint import Checkpoint
    from pyspark_statestore.inspect import schema_of

    figures = schema_of("summary")
    schema = pa.schema([("checkpoint", pa.string()), *figures, ("error", pa.string())])
    found: list[dict[str, Any]] = []
    for path in paths:
        row: dict[str, Any] = {"checkpoint": directory.location.display(path)}
        try:
            where = f"{directory.location.exact_url}/{path}".rstrip("/")
            # Of stock Spark's state, thousands of files would have to be opened for each checkpoint.
            read = Checkpoint(where, storage_options).inspect.tables("summary", opens_plain=False)
            row |= read["summary"].to_pylist()[0]
        except StateStoreFilesError as error:
            row["error"] = str(error)
        found.append({name: row.get(name) for name in schema.names})
    return pa.Table.from_pylist(found, schema)
