"""Deduplication: every aircraft once a day, however often it leaves New York.

    python -m examples.first_sightings

`dropDuplicatesWithinWatermark` forgets a key once the watermark is past the event time of its first row plus the
delay. It is stopped half-way and restarted; the result equals the batch computation.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from examples import harness

NAME = "first_sightings"
LOOK = ("state {checkpoint} --limit 5", "state {checkpoint} --sort key.tailnum --limit 5")


def sightings(departures: DataFrame) -> DataFrame:
    """Keeps one row for each aircraft and service day.

    A service day lasts less than 24 hours and the delay is 24 hours. So a key's later rows are always within the
    watermark of its first one, whatever the batches are. Only the key is selected, because which of a key's rows comes
    first within a batch differs from run to run.
    """
    return (
        departures.where("tailnum IS NOT NULL")
        .withWatermark("scheduled", "24 hours")
        .dropDuplicatesWithinWatermark(["tailnum", "service_day"])
        .select("service_day", "tailnum")
    )


def start(spark: SparkSession, where: harness.FlightPaths) -> StreamingQuery:
    """Starts the query, or restarts it if its checkpoint is there."""
    return where.write(sightings(where.stream(spark)))


def expected(spark: SparkSession, where: harness.FlightPaths) -> DataFrame:
    """Does the same in batch. The stream writes a first row at once, so it holds nothing back at its end."""
    return where.table(spark).where("tailnum IS NOT NULL").select("service_day", "tailnum").distinct()


main = harness.command(__doc__, NAME, start, expected, LOOK)

if __name__ == "__main__":
    main()
