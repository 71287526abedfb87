"""Stream-stream join: every flight with the weather observed at its airport within the hour before it.

    python -m examples.flights_with_weather

Two streams, each with its watermark, and a condition on their times, so that Spark can forget both sides. It is a left
outer join: a flight without an observation is written when the watermark shows that none can follow. The query is
stopped half-way and restarted; the result equals the batch computation.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from examples import harness

NAME = "flights_with_weather"
LATENESS = "2 hours"
LOOK = ("state {checkpoint} --store left-keyWithIndexToValue --limit 5", "top {checkpoint} --by operators")


def with_weather(departures: DataFrame, weather: DataFrame) -> DataFrame:
    """Joins each flight with the observation that is at most an hour older than its scheduled departure.

    The equality of the days follows from the times. It is there because Spark looks up state by equal columns: with it,
    Spark compares a flight with the observations of one day, without it with all in the state.
    """
    flight = departures.withWatermark("scheduled", LATENESS).alias("flight")
    observation = weather.withWatermark("observed", LATENESS).alias("weather")
    condition = F.expr(
        """
        flight.origin = weather.origin
        AND flight.service_day = weather.service_day
        AND weather.observed <= flight.scheduled
        AND flight.scheduled < weather.observed + INTERVAL 1 HOUR
        """
    )
    return flight.join(observation, condition, "left_outer").selectExpr(
        "scheduled",
        "flight.origin",
        "dest",
        "carrier",
        "flight.flight",
        "dep_delay",
        "observed",
        "temp",
        "wind_speed",
        "visib",
    )


def start(spark: SparkSession, where: harness.FlightPaths) -> StreamingQuery:
    """Starts the query, or restarts it if its checkpoint is there."""
    return where.write(with_weather(where.stream(spark), where.stream(spark, "weather")))


def expected(spark: SparkSession, where: harness.FlightPaths) -> DataFrame:
    """The same in batch, without the flights that the stream still waits for.

    A match is written at once. A flight without one is written when it leaves the state. With two streams the
    watermark W is the older of their two, and because of `observed <= scheduled` a flight waits for observations up
    to its own time: Spark removes it as soon as `scheduled < W`. (W is that of the stream's end, because a query with
    `availableNow` ends with a batch without data if its last batch moved the watermark. Files come in event-time
    order, so no row is late.) The weather of 2013 ends on 30 December, so the full year's last flights are among
    those held back.
    """
    departures, weather = where.table(spark), where.table(spark, "weather")
    newest = departures.agg(F.max("scheduled").alias("flight")).crossJoin(
        weather.agg(F.max("observed").alias("weather"))
    )
    watermark = newest.selectExpr(f"least(flight, weather) - INTERVAL {LATENESS} AS watermark")
    joined = with_weather(departures, weather).crossJoin(watermark)
    return joined.where("observed IS NOT NULL OR scheduled < watermark")


main = harness.command(__doc__, NAME, start, expected, LOOK)

if __name__ == "__main__":
    main()
