"""Arbitrary state with `transformWithStateInPandas`: every aircraft's log book.

    python -m examples.follow_aircraft

For each flight, the log book has the number of the aircraft's flights and late minutes so far (value state), how often
the aircraft has gone to this airport (map state), and where it went the three times before (list state). Spark allows
`transformWithState` only with its own provider class, so merged state is turned on through the path door: `merged+` in
front of the checkpoint's path. The query is stopped half-way and restarted; the result equals the batch computation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from examples import harness

NAME = "follow_aircraft"
LOOK = ("state {checkpoint} --variable totals --limit 5", "diff {checkpoint} --variable visits --from 0 --limit 5")
ORDER = ["scheduled", "carrier", "flight", "origin"]
INPUT = ["tailnum", *ORDER, "dest", "dep_delay"]
DEST = INPUT.index("dest")
LOG = ["tailnum", *ORDER, "dest", "flights_so_far", "late_minutes", "visits", "came_by"]
LOG_SCHEMA = """
    tailnum string, scheduled timestamp, carrier string, flight int, origin string, dest string,
    flights_so_far int, late_minutes int, visits int, came_by string
"""


def by_schedule(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the values of `ORDER` in a row of `INPUT`."""
    return row[1 : 1 + len(ORDER)]


class LogBook(StatefulProcessor):
    """Writes one line for each flight of an aircraft."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declares the state: one of each kind."""
        self.totals = handle.getValueState("totals", "flights int, late int")
        self.visits = handle.getMapState("visits", "dest string", "times int")
        self.recent = handle.getListState("recent", "airport string")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Handles an aircraft's flights of one batch in the order of their schedule, since Spark promises no order."""
        flown = sorted((row for frame in rows for row in frame.itertuples(index=False, name=None)), key=by_schedule)
        count, late = self.totals.get() or (0, 0)
        recent = [airport for (airport,) in self.recent.get()]
        # Read and write each state once for a key and batch, not for each row: every access is a call to the JVM.
        visits = {dest: self._visits(dest) for dest in {row[DEST] for row in flown}}
        lines = []
        for *flight, dest, delay in flown:
            count += 1
            late += max(0, int(delay)) if pd.notna(delay) else 0
            visits[dest] += 1
            lines.append((*flight, dest, count, late, visits[dest], " ".join(recent)))
            recent = [*recent, dest][-3:]
        self.totals.update((count, late))
        self.recent.put([(airport,) for airport in recent])
        for dest, times in visits.items():
            self.visits.updateValue((dest,), (times,))
        yield pd.DataFrame(lines, columns=LOG)

    def _visits(self, dest: str) -> int:
        times = self.visits.getValue((dest,))
        return times[0] if times else 0

    def close(self) -> None:
        """Nothing to close."""


def start(spark: SparkSession, where: harness.FlightPaths) -> StreamingQuery:
    """Starts the query, or restarts it if its checkpoint is there."""
    by_aircraft = where.stream(spark).where("tailnum IS NOT NULL").select(INPUT).groupBy("tailnum")
    return where.write(
        by_aircraft.transformWithStateInPandas(LogBook(), LOG_SCHEMA, outputMode="append", timeMode="none")
    )


def expected(spark: SparkSession, where: harness.FlightPaths) -> DataFrame:
    """Does the same in batch, with window functions. The stream writes every flight at once and holds nothing back.

    Within a batch the log book sorts by `ORDER`, and batches follow each other in event time, so an aircraft's lines
    are in `ORDER` over the whole stream; `ORDER` identifies a flight.
    """
    aircraft = Window.partitionBy("tailnum").orderBy(*ORDER)
    so_far = aircraft.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    three_before = F.array_compact(F.array(*(F.lag("dest", back).over(aircraft) for back in (3, 2, 1))))
    return (
        where.table(spark)
        .where("tailnum IS NOT NULL")
        .select(
            *("tailnum", *ORDER, "dest"),
            F.row_number().over(aircraft).alias("flights_so_far"),
            F.sum(F.greatest(F.lit(0), F.col("dep_delay"))).over(so_far).cast("int").alias("late_minutes"),
            F.row_number().over(Window.partitionBy("tailnum", "dest").orderBy(*ORDER)).alias("visits"),
            F.array_join(three_before, " ").alias("came_by"),
        )
    )


main = harness.command(__doc__, NAME, start, expected, LOOK, doors=("path",), stores=("rocksdb",), files_per_trigger=28)

if __name__ == "__main__":
    main()
