"""Try a change on production's state: a second query goes on from a fork while the first one runs.

    python -m examples.fork_for_a_trial

The query of `windowed_delays` is forked half-way and runs to its end. Then the trial, with larger batches, does the
same from the fork on. The output of each, together with that before the fork, equals the batch computation. In the end
the fork is made independent, the first checkpoint is deleted, and the trial's state is still whole.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace

import click

from examples import harness, windowed_delays
from examples.options import Settings, with_settings
from pyspark_statestore import Checkpoint, merged_path

NAME = "fork_for_a_trial"
HALF_WAY = 5
SINK_LOG = "_spark_metadata"


def fork(where: harness.FlightPaths, door: str) -> tuple[harness.FlightPaths, list[str]]:
    """Forks the query. Returns the trial's paths and the files that the query had written before."""
    folder = where.folder.with_name("trial")
    # The trial gets a sink of its own. Spark's file sink counts batches: its list has to begin with those before.
    output = where.output.with_name("trial-output")
    made = Checkpoint(where.folder).fork(folder, sinks={where.output: output})
    click.echo(
        f"forked at version {made.version}: {made.referenced_segments_count} segments, "
        f"{made.referenced_bytes_count:,} bytes, none of them copied"
    )
    before: list[str] = []
    for batch in range(made.version):
        log = where.output / SINK_LOG / str(batch)
        before += [json.loads(line)["path"] for line in log.read_text().splitlines()[1:]]
    checkpoint = merged_path(folder) if door == "path" else folder.as_uri()
    return replace(where, folder=folder, output=output, checkpoint=checkpoint, files_per_trigger=2), before


def make_independent(trial: harness.FlightPaths, source: harness.FlightPaths) -> bool:
    """Copies the shared state into the fork, deletes the first checkpoint, and returns whether the fork is sound."""
    checkpoint = Checkpoint(trial.folder)
    [before] = checkpoint.inspect.summary().to_pylist()
    checkpoint.maintenance.compact(localize=True)
    [after] = checkpoint.inspect.summary().to_pylist()
    click.echo(f"read elsewhere: {before['foreign_live_bytes']:,} bytes, then {after['foreign_live_bytes']:,}")
    shutil.rmtree(source.folder)
    return checkpoint.maintenance.verify().is_clean


@click.command(help=__doc__)
@with_settings(files_per_trigger=1)
def main(settings: Settings) -> None:
    """Runs the example."""
    if settings.state != "merged":
        raise click.BadParameter("only merged state can be forked", param_hint="--state")
    with harness.session(settings, NAME) as spark:
        where = harness.prepare_run(settings, NAME)
        query = windowed_delays.start(spark, where)
        harness.follow(query, harness.Quiet(), until=HALF_WAY)
        trial, before = fork(where, settings.door)
        query.awaitTermination()
        windowed_delays.start(spark, trial).awaitTermination()
        expected = windowed_delays.expected(spark, where)
        results = {
            "the query": spark.read.parquet(str(where.output)),
            "the trial": spark.read.parquet(*before).union(spark.read.parquet(str(trial.output))),
        }
        equal = [harness.tell(harness.compare(result, expected), name) for name, result in results.items()]
    sound = all(equal) and make_independent(trial, where)
    harness.look_next(trial.folder, "summary {checkpoint}", "list {run}")
    sys.exit(0 if sound else 1)


if __name__ == "__main__":
    main()
