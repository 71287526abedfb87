"""Windowed aggregation with a watermark: departures and delays of each airport, hour by hour.

    python -m examples.windowed_delays

The query counts what was scheduled, what was cancelled and how late the rest left. Append mode writes an hour once,
when the watermark has passed its end. It is stopped half-way and restarted; the result equals the batch computation.
"""

from __future__ import annotations

import sys

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from examples import flights, harness

NAME = "windowed_delays"
LATENESS = "2 hours"


def delays(departures: DataFrame) -> DataFrame:
    """Returns a row for each airport and hour. Delays are integers: their sum does not depend on the rows' order."""
    return (
        departures.withWatermark("scheduled", LATENESS)
        .groupBy("origin", F.window("scheduled", "1 hour"))
        .agg(
            F.count("*").alias("departures"),
            F.count_if(F.col("dep_delay").isNull()).alias("cancelled"),
            F.avg("dep_delay").alias("mean_delay"),
            F.max("dep_delay").alias("worst_delay"),
        )
        .select("origin", "window.start", "window.end", "departures", "cancelled", "mean_delay", "worst_delay")
    )


def start(spark: SparkSession, where: harness.RunPaths) -> StreamingQuery:
    """Starts the query, or restarts it if its checkpoint is there."""
    departures = flights.read_flights(spark, where.source, files_per_trigger=where.files_per_trigger)
    return (
        delays(departures)
        .writeStream.format("parquet")
        .outputMode("append")
        .option("path", str(where.output))
        .option("checkpointLocation", where.checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def expected(spark: SparkSession, where: harness.RunPaths) -> DataFrame:
    """Does the same in batch, without the hours that the stream holds back.

    Append mode writes a window when `end <= watermark`. The watermark at the end of the stream is the newest event time
    less the lateness: files come in event-time order, so no row is older than the watermark and none is dropped; and a
    query with `availableNow` ends with a batch without data if its last batch moved the watermark.
    """
    departures = flights.read_flights(spark, where.source)
    watermark = departures.agg((F.max("scheduled") - F.expr(f"INTERVAL {LATENESS}")).alias("watermark"))
    return delays(departures).crossJoin(watermark).where("end <= watermark")


@click.command(help=__doc__)
@harness.options()
def main(settings: harness.Settings) -> None:
    """Runs the example."""
    sys.exit(harness.main(NAME, settings, start, expected))


if __name__ == "__main__":
    main()
