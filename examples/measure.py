"""Runs one side of the demo in a process of its own, and writes what it costs to stdout as lines of JSON.

Two sides in one JVM would not be comparable: the second would find its code compiled already.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from benchmarks import disk
from benchmarks.filesystems import TEST_JAR, CallCounters, calls, filesystem_settings
from examples import harness, windowed_delays
from examples.options import Settings, with_settings

STATE = ("state", "merged", "state_meta")


class EventWriter:
    """Writes events as lines of JSON."""

    def batch(self, progress: Any) -> None:
        """Writes a finished batch."""
        self.event("batch", **{name: progress[name] for name in ("batchId", "numInputRows", "batchDuration")})

    def event(self, name: str, **facts: Any) -> None:
        """Writes an event with its facts."""
        click.echo(json.dumps({"event": name, **facts}))


@click.command()
@with_settings()
@click.option("--delay", type=click.IntRange(0), default=0)
def main(settings: Settings, delay: int) -> None:
    """Runs the windowed aggregation over the counting file system."""
    events = EventWriter()
    more = filesystem_settings(merged=settings.state == "merged") | {"spark.jars": str(TEST_JAR)}
    spark = harness.session(settings, "demo", more)
    where = harness.prepare_run(settings, "demo")
    checkpoint = f"counting:{where.folder}"
    if settings.state == "merged" and settings.door == "path":
        checkpoint = f"merged+{checkpoint}"
    counters = CallCounters(spark)
    counters.register("query", str(where.folder))
    counters.delay(delay)
    where.output.mkdir()

    def write(rows: DataFrame, batch: int) -> None:
        # One file for each batch, which a repeated batch overwrites. Spark's own sink would write a file for each
        # partition of each batch on both sides, and hide the files that matter here.
        pq.write_table(rows.toArrow(), where.output / f"{batch:06d}.parquet")

    began = time.monotonic()
    query = (
        windowed_delays.delays(where.stream(spark))
        .writeStream.foreachBatch(write)
        .outputMode("append")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    batches = harness.follow(query, events)
    seconds = time.monotonic() - began
    durations = [batch["durationMs"]["triggerExecution"] for batch in query.recentProgress if batch["numInputRows"]]
    counted = calls(counters.snapshot("query"), STATE)
    jvm: Any = spark._jvm
    processor = jvm.java.lang.ProcessHandle.current().info().totalCpuDuration().get().toMillis()
    spark.stop()
    usage = disk.usage(where.folder)
    events.event(
        "result",
        batches=batches,
        seconds=seconds,
        median_ms=statistics.median(durations),
        processor_ms=processor,
        calls=counted,
        files=usage["files"],
        bytes=usage["bytes"],
        amplification=amplification(where.folder) if settings.state == "merged" else None,
        checkpoint=str(where.folder),
        output=str(where.output),
    )


def amplification(checkpoint: Path) -> float | None:
    """Returns the bytes of the merged files per live byte."""
    return disk.merged_space(checkpoint).amplification


if __name__ == "__main__":
    main()
