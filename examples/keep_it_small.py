"""Keep a checkpoint small: in the background while its query runs, and by hand when it is stopped.

    python -m examples.keep_it_small

While the query of `windowed_delays` runs, `maintain` compacts its checkpoint every second. (Ten minutes are right for
production.) Then the session is stopped, and the rest needs no Spark: drop old versions, compact, remove orphans,
verify.
"""

from __future__ import annotations

import datetime
import sys
import time
from pathlib import Path
from typing import Any

import click

from examples import harness, windowed_delays
from examples.options import Settings, with_settings
from pyspark_statestore import Checkpoint, maintain
from pyspark_statestore.conf import settings_of

NAME = "keep_it_small"
INTERVAL = datetime.timedelta(seconds=1)

# Files are sealed after a tenth of it, so that there is something to see within a minute. The default is 10m.
CLOSED_AFTER = datetime.timedelta(seconds=5)


def print_run(run: Any) -> None:
    """Prints the report of a run. The thread of the maintenance calls it."""
    for query in run.queries:
        if query.error is not None:
            click.echo(f"run {run.number}: {query.error}", err=True)
        elif (done := query.results.get("compact")) and done.rewritten_files_count:
            click.echo(f"run {run.number}: {done.rewritten_files_count} files rewritten into {done.added_files_count}")


def keep_small(folder: Path) -> bool:
    """Makes the checkpoint of a stopped query as small as it can be, and returns whether it is sound."""
    checkpoint = Checkpoint(folder, closed_after=CLOSED_AFTER)
    show("when it was stopped", checkpoint)

    # force: the query was stopped only a moment ago, so it still looks as if it were running.
    checkpoint.maintenance.expire(retain_last=2, dry_run=False, force=True)
    checkpoint.maintenance.compact(max_space_amplification=1.1)
    checkpoint.maintenance.consolidate_index()
    checkpoint.maintenance.remove_orphan_files(datetime.timedelta(days=3), dry_run=False)
    show("with two batches to go back to", checkpoint)

    found = checkpoint.maintenance.verify()
    click.echo(f"verified: {found.segments_count} segments, {found.read_bytes_count:,} bytes")
    for damage in found.damages:
        click.echo(f"  {damage}", err=True)
    return found.is_clean


def wait_until_sealed(folder: Path) -> None:
    """Waits until the query's process has sealed all of its files, which it does after a while without a commit."""
    checkpoint = Checkpoint(folder)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and False in checkpoint.inspect.files()["is_sealed"].to_pylist():
        time.sleep(0.2)


def show(when: str, checkpoint: Checkpoint) -> None:
    """Prints the size of a checkpoint."""
    [row] = checkpoint.inspect.summary().to_pylist()
    versions = row["max_version"] - row["min_version"] + 1
    size, live = row["file_size_in_bytes"], row["live_bytes"]
    click.echo(f"{when}: {row['file_count']} files, {size:,} bytes ({live:,} live), {versions} versions")


@click.command(help=__doc__)
@with_settings()
def main(settings: Settings) -> None:
    """Runs the example."""
    if settings.state != "merged":
        raise click.BadParameter("there is nothing to maintain without merged state", param_hint="--state")
    more = settings_of({"closed_after": CLOSED_AFTER})
    # With FAIR, Spark gives the jobs of the maintenance a share. Without it they would queue with those of the query.
    with harness.session(settings, NAME, {"spark.scheduler.mode": "FAIR", **more}) as spark:
        where = harness.prepare_run(settings, NAME)
        with maintain(spark, INTERVAL, compact={"max_space_amplification": 1.2}, listener=print_run):
            query = windowed_delays.start(spark, where)
            query.awaitTermination()
        wait_until_sealed(where.folder)
        actual, expected = spark.read.parquet(str(where.output)), windowed_delays.expected(spark, where)
        equal = harness.tell(harness.compare(actual, expected))
    sound = keep_small(where.folder)
    harness.look_next(where.folder, "versions {checkpoint}", "verify {checkpoint}")
    sys.exit(0 if sound and equal else 1)


if __name__ == "__main__":
    main()
