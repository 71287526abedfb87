"""Find one key in the state of a running query: what the checkpoint has of an aircraft, and since which version.

    python -m examples.find_one_key

The query of `first_sightings` runs half-way. While it goes on, the example reads from the checkpoint, without Spark,
the aircraft that the query remembers, then one of them, and its changes from version to version. When the query has
ended, all of its state is compared with what Spark's own `statestore` source reads.
"""

from __future__ import annotations

import sys
from typing import Any

import click
from pyspark.sql import SparkSession

from examples import first_sightings, harness
from examples.options import Settings, with_settings
from pyspark_statestore import Checkpoint

NAME = "find_one_key"
HALF_WAY = 3


def find_aircraft(checkpoint: Checkpoint) -> str:
    """Reads the state of a running query, and returns one of the aircraft in it."""
    found = checkpoint.state().flatten().to_pylist()
    aircraft = str(max(row["key.tailnum"] for row in found))
    click.echo(f"the query remembers {len(found):,} sightings, one of them of {aircraft}")
    for row in checkpoint.state(key={"tailnum": aircraft}).to_pylist():
        click.echo(f"  partition {row['partition_id']}: {row['key']} -> {row['value']}")
    return aircraft


def history(checkpoint: Checkpoint, aircraft: str, newest: int) -> list[int]:
    """Prints the changes of an aircraft from version to version, and returns the versions with a change."""
    changes = []
    for version in range(1, newest + 1):
        for row in checkpoint.state_changes(version - 1, version, key={"tailnum": aircraft}).to_pylist():
            click.echo(f"  version {version}: {row['change']} {row['key']}")
            changes.append(version)
    return changes


def as_spark_says(spark: SparkSession, where: harness.RunPaths) -> set[tuple[Any, ...]]:
    """Returns the same state as Spark reads it."""
    rows = spark.read.format("statestore").load(where.checkpoint).selectExpr("partition_id", "key.*", "value.*")
    return {tuple(row) for row in rows.collect()}


@click.command(help=__doc__)
@with_settings(files_per_trigger=2)
def main(settings: Settings) -> None:
    """Runs the example."""
    with harness.session(settings, NAME) as spark:
        where = harness.prepare_run(settings, NAME)
        checkpoint = Checkpoint(where.folder)
        query = first_sightings.start(spark, where)
        harness.follow(query, harness.Quiet(), until=HALF_WAY)
        aircraft = find_aircraft(checkpoint)
        query.awaitTermination()
        newest = query.lastProgress["batchId"] + 1
        changes = history(checkpoint, aircraft, newest)
        ours = {tuple(row.values()) for row in checkpoint.state(version=newest).flatten().to_pylist()}
        spark_says = as_spark_says(spark, where)
    equal = ours == spark_says
    click.echo(f"{'equal to' if equal else 'DIFFERENT from'} what Spark's statestore source reads ({len(ours):,} keys)")
    for version in changes[:1]:
        diff = f"--from {version - 1} --to {version} --key tailnum={aircraft}"
        harness.look_next(where.folder, f"diff {{checkpoint}} {diff}", "state {checkpoint} --limit 5 --output json")
    sys.exit(0 if equal and changes else 1)


if __name__ == "__main__":
    main()
