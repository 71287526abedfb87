"""Windowed aggregation with a watermark: departures and delays of each airport, hour by hour.

    python -m examples.windowed_delays

The query counts what was scheduled, what was cancelled and how late the rest left. Append mode writes an hour once,
when the watermark has passed its end. It is stopped half-way and restarted; the result equals the batch computation.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from examples import harness

NAME = "windowed_delays"
LATENESS = "2 hours"
LOOK = ("report {checkpoint} -o {run}/report.html    # and open it in a browser", "top {checkpoint} -n 3")


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


def start(spark: SparkSession, where: harness.FlightPaths) -> StreamingQuery:
    """Starts the query, or restarts it if its checkpoint is there."""
    return where.write(delays(where.stream(spark)))


def expected(spark: SparkSession, where: harness.FlightPaths) -> DataFrame:
    """Does the same in batch, without the hours that the stream holds back.

    Append mode writes a window when `end <= watermark`. The watermark at the end of the stream is the newest event time
    less the lateness: files come in event-time order, so no row is older than the watermark and none is dropped; and a
    query with `availableNow` ends with a batch without data if its last batch moved the watermark.
    """
    departures = where.table(spark)
    watermark = departures.agg((F.max("scheduled") - F.expr(f"INTERVAL {LATENESS}")).alias("watermark"))
    return delays(departures).crossJoin(watermark).where("end <= watermark")


main = harness.command(__doc__, NAME, start, expected, LOOK)

if __name__ == "__main__":
    main()
