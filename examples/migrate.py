"""Migrate a job to merged state and back: stock Spark, merged, stock Spark.

    python -m examples.migrate

The query of `windowed_delays` begins on stock Spark. After a third of the year it is stopped, its checkpoint is
converted, and it goes on merged; after two thirds its state is written back as plain files, and stock Spark ends the
year. The result equals the batch computation. In the end the merged files, which nobody reads any more, are dropped.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import click

from examples import harness, windowed_delays
from examples.options import Settings, with_settings
from pyspark_statestore import Checkpoint, attach, convert, export

NAME = "migrate"


def go_on(settings: Settings, where: harness.FlightPaths, batches: int | None, *, merged: bool = False) -> int:
    """Starts or restarts the query, stops it after so many batches or at the end, and returns how many it has done."""
    with harness.session(settings, NAME) as spark:
        if merged:
            attach(spark, store=settings.store)  # the session was started without the jar, like stock Spark
        query = windowed_delays.start(spark, where)
        done = harness.follow(query, harness.Quiet(), batches)
        harness.stop(spark, query)
    files = harness.state_files(where.folder)
    how = "merged" if merged else "stock"
    click.echo(f"{how}: until batch {done}; {files['plain']} plain files and {files['merged']} merged ones")
    return done


@click.command(help=__doc__)
@with_settings(doors=("provider",))
def main(settings: Settings) -> None:
    """Runs the example."""
    if settings.state != "merged":
        raise click.BadParameter("the example begins and ends with stock Spark anyway", param_hint="--state")
    stock = replace(settings, state="stock")
    where = harness.prepare_run(settings, NAME)
    checkpoint = Checkpoint(where.folder)
    third = max(1, settings.days // settings.files_per_trigger // 3)

    done = go_on(stock, where, third)
    # force: the query was stopped only a moment ago, so it still looks as if it were running.
    converted = convert(where.folder, to="merged", force=True)
    click.echo(f"converted {converted.changed_entries_count} entries of the offset log, kept in {converted.kept_copy}")

    go_on(stock, where, done + third, merged=True)
    exported = export(where.folder, force=True)
    click.echo(f"exported {exported.exported_files_count} files, {exported.exported_bytes_count:,} bytes")

    go_on(stock, where, None)
    click.echo(f"dropped {checkpoint.drop_merged(dry_run=False).removed_files_count} merged files")

    with harness.session(stock, NAME) as spark:
        equal = harness.tell(
            harness.compare(spark.read.parquet(str(where.output)), windowed_delays.expected(spark, where))
        )
    harness.look_next(where.folder, "list {run}", "files {checkpoint} --plain --limit 5")
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
