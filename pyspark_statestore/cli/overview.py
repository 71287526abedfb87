"""The command that shows all checkpoints below a directory, a line for each."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from pyspark_statestore.cli import options
from pyspark_statestore.cli.commands import Command
from pyspark_statestore.cli.echo import say
from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.paths import LIST_DEPTH

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
    default=LIST_DEPTH,
    show_default=True,
    help="How many directories below ROOT to look into for checkpoints; 0 for ROOT alone.",
)
@options.rows
@options.output
@options.optional_page
@click.pass_context
def list_command(
    ctx: click.Context,
    root: str,
    storage_options: tuple[tuple[str, Any], ...],
    output: Output,
    rows: RowChoice,
    depth: int,
    out: str | None,
) -> None:
    """List the checkpoints below ROOT, with what each holds.

    What comes first names the checkpoints from which a query could not start, and the version that it could. A
    checkpoint or a directory that cannot be read has the reason in its line. What is inside of a checkpoint is not
    looked into. The exit status is 1 where a directory cannot be listed, since there may be checkpoints in it.

    With --out, the list is a page for a browser, which also says what to do.
    """
    from pyspark_statestore.cli.output import progress
    from pyspark_statestore.log.nearby import checkpoints_below, hint
    from pyspark_statestore.storage import Directory, Location

    directory = Directory(Location.of(root, dict(storage_options)))
    _check_root(directory)
    at = datetime.datetime.now(datetime.timezone.utc)
    refused: dict[str, StateStoreFilesError] = {}
    with progress("Reading checkpoints", ""):
        found = list(checkpoints_below(directory, depth, refused=refused.__setitem__))
        table = _table(directory, found, refused, dict(storage_options))
    if out is None:
        _print(directory, table, len(found), len(refused), output, rows)
    else:
        from pyspark_statestore.cli.report import write_page
        from pyspark_statestore.report.overview import overview_report

        ordered = rows.ordered(table)
        limited = ordered.slice(0, rows.limit) if rows.limit else ordered
        write_page(overview_report(directory.location.url, limited, at), out)
    if not found and (near := hint(directory)):
        say(f"{near}.", err=True)
    for error in refused.values():
        say(str(error), err=True)
    if refused:
        ctx.exit(1)


def _check_root(directory: Directory) -> None:
    """Refuses a root that cannot be one. An empty one can: nothing is there yet."""
    if directory.names():
        return
    reason = "it is a file" if directory.is_file() else ""
    if not reason and not directory.exists() and not directory.is_flat:  # an object store has no empty directories
        reason = "it does not exist"
    if reason:
        parameters = {"action": "list", "path": directory.location.url, "reason": reason}
        raise StateStoreFilesError("PSS_READ_FAILED", parameters)
    say(f"{directory.location.url} is empty{', or does not exist' if directory.is_flat else ''}.", err=True)


def _print(directory: Directory, table: pa.Table, found: int, refused: int, output: Output, rows: RowChoice) -> None:
    from pyspark_statestore.cli.layouts import CHECKPOINTS
    from pyspark_statestore.log.restart import alarm
    from pyspark_statestore.rendering import counted

    for row in table.select(["checkpoint", "committed_version", "restorable_version", "not_restorable"]).to_pylist():
        if said := alarm(row["checkpoint"], row):
            output.alarm(said)
    title = f"{counted(found, 'checkpoint')} in {directory.location.url}"
    if refused:
        count = "1 directory" if refused == 1 else f"{refused:,} directories"
        title += f"; {count} could not be listed"
    output.table(table.select(["checkpoint", *_FIGURES, "error"]), CHECKPOINTS, title, rows)


def _table(
    directory: Directory,
    paths: list[str],
    refused: Mapping[str, StateStoreFilesError],
    storage_options: dict[str, Any],
) -> pa.Table:
    import pyarrow as pa

    from pyspark_statestore.checkpoint import Checkpoint
    from pyspark_statestore.inspect import schema_of

    figures = schema_of("summary")
    schema = pa.schema([("checkpoint", pa.string()), *figures, ("error", pa.string())])
    found: list[dict[str, Any]] = []
    for path in sorted([*paths, *refused], key=lambda path: path.split("/")):
        row: dict[str, Any] = {"checkpoint": directory.location.display(path)}
        if path in refused:
            found.append(dict.fromkeys(schema.names) | row | {"error": str(refused[path])})
            continue
        try:
            where = f"{directory.location.exact_url}/{path}".rstrip("/")
            # Of stock Spark's state, thousands of files would have to be opened for each checkpoint.
            read = Checkpoint(where, storage_options).inspect.tables("summary", opens_plain=False)
            row |= read["summary"].to_pylist()[0]
        except StateStoreFilesError as error:
            row["error"] = str(error)
        found.append({name: row.get(name) for name in schema.names})
    return pa.Table.from_pylist(found, schema)
