"""Nexmark's queries as a PySpark user writes them, and what a batch computation says that they have to give out.

Each query is a function of the events, and has a batch query in SQL beside it, written from Nexmark's definition with
other means: window functions instead of state. They have to give the same:

* A query that appends gives out each row once, when the watermark has passed it. The files of events are followed by
  two files that move the watermark past all events, so nothing is left out, and the batch query sees the events only.
  What belongs to these two files stays in the state.
* A query that updates gives out a row whenever it has changed. The last one of each key counts. These queries have no
  rows that wait for a watermark, so the batch query sees the last two files, too.

Nothing is dropped as late: events are in the order of their time, and the watermark is four seconds behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from benchmarks.nexmark_events import AUCTION, BID, PERSON, Shape

LATENESS = "4 seconds"
WINDOW = "10 seconds"
TOP = 10


@dataclass(frozen=True)
class Query:
    """A query and what it has to give.

    Attributes:
        name: "q4" and so on, as Nexmark numbers them.
        asks: What it asks, in a few words.
        operators: The stateful operators that it needs.
        build: Makes the streaming result of the events.
        expected: The same as a batch query in SQL over the views ``person``, ``auction`` and ``bid``, and
            ``arrivals``, which are bids with the time at which they got into the log.
        key: The columns that name a row of a query that updates; empty for a query that appends.
    """

    name: str
    asks: str
    operators: str
    build: Callable[[DataFrame, Shape], DataFrame]
    expected: str
    key: tuple[str, ...] = ()

    @property
    def output_mode(self) -> str:
        """For the query's writer."""
        return "update" if self.key else "append"


def persons(events: DataFrame) -> DataFrame:
    """The events of new persons."""
    return events.where(f"event_type = {PERSON}").select("person.*").withWatermark("dateTime", LATENESS)


def auctions(events: DataFrame) -> DataFrame:
    """The events of new auctions."""
    return events.where(f"event_type = {AUCTION}").select("auction.*").withWatermark("dateTime", LATENESS)


def bids(events: DataFrame) -> DataFrame:
    """The events of bids."""
    return events.where(f"event_type = {BID}").select("bid.*").withWatermark("dateTime", LATENESS)


def _bids_while_open(events: DataFrame, shape: Shape) -> DataFrame:
    """Auctions with the bids that came while they were open.

    Spark drops state by bounds between two event times, and ``expires`` is a column as any other. So the query says
    what it knows besides: how long the longest auction lasts. No row is different for that.
    """
    longest = f"A.dateTime + INTERVAL {shape.longest_auction_seconds} SECONDS"
    near = f"B.auction = A.id AND B.dateTime BETWEEN A.dateTime AND A.expires AND B.dateTime <= {longest}"
    return auctions(events).alias("A").join(bids(events).alias("B"), sf.expr(near))


def q4(events: DataFrame, shape: Shape) -> DataFrame:
    """The average final price of a category: a join, the maximum of each auction, and the average of the maxima.

    In SQL on Flink the average is over all time and is corrected with each bid. Structured Streaming cannot chain an
    aggregation behind another one in update mode, so this query gives the average of the auctions that were opened in
    the same ten seconds, when all of them are over.
    """
    won = _bids_while_open(events, shape).select("A.id", "A.category", "A.dateTime", "B.price")
    final = won.groupBy("id", "category", "dateTime").agg(sf.max("price").alias("final"))
    average = final.groupBy(sf.window("dateTime", WINDOW), "category").agg(sf.avg("final").alias("average"))
    return average.select("window.start", "category", "average")


def q5(events: DataFrame, shape: Shape) -> DataFrame:
    """The auctions with the most bids in the last ten seconds, every two seconds: counts, joined with their maximum."""

    def counts() -> DataFrame:
        windows = sf.window("dateTime", WINDOW, "2 seconds")
        return bids(events).groupBy(windows, "auction").agg(sf.count("*").alias("num"))

    most = counts().groupBy("window").agg(sf.max("num").alias("most"))
    return counts().join(most, "window").where("num >= most").select("window.start", "auction", "num")


def q7(events: DataFrame, shape: Shape) -> DataFrame:
    """The highest bids of each ten seconds: all bids, joined with the maximum of their window."""
    highest = bids(events).groupBy(sf.window("dateTime", WINDOW)).agg(sf.max("price").alias("highest"))
    # The window's end as an event time again, less a microsecond.
    highest = highest.select(sf.window_time("window").alias("closed"), "highest")
    inside = f"price = highest AND dateTime > closed - INTERVAL {WINDOW} AND dateTime <= closed"
    return bids(events).join(highest, sf.expr(inside)).select("auction", "price", "bidder", "dateTime", "extra")


def q8(events: DataFrame, shape: Shape) -> DataFrame:
    """Who opened an auction within the ten seconds in which they came: a deduplication, and a join of windows."""
    new = persons(events).select("id", "name", sf.window("dateTime", WINDOW)).alias("P")
    sellers = auctions(events).select("seller", sf.window("dateTime", WINDOW)).dropDuplicates(["seller", "window"])
    joined = new.join(sellers.alias("A"), sf.expr("P.id = A.seller AND P.window = A.window"))
    return joined.select("P.id", "P.name", "P.window.start")


def q9(events: DataFrame, shape: Shape) -> DataFrame:
    """The winning bid of each auction: a join, and the best of each auction when it is over.

    Of equal prices the earlier bid wins, as in the original; of those at the same time the one with the smaller number
    of the bidder, so that there is one answer.
    """
    rest = ("itemName", "description", "initialBid", "reserve", "expires", "seller", "category", "extra")
    # Only one event time may go on to the aggregation, so that of the bid becomes a number.
    rows = _bids_while_open(events, shape).select(
        *("A.id", "A.dateTime", sf.struct(*(f"A.{name}" for name in rest)).alias("of")),
        sf.struct("B.bidder", "B.price", sf.unix_micros("B.dateTime").alias("micros"), "B.extra").alias("won"),
    )
    rank = sf.struct("won.price", -sf.col("won.micros"), -sf.col("won.bidder"))
    best = rows.groupBy("id", "dateTime").agg(sf.first("of").alias("of"), sf.max_by("won", rank).alias("won"))
    bid = (sf.timestamp_micros("won.micros").alias("bid_dateTime"), sf.col("won.extra").alias("bid_extra"))
    return best.select("id", "dateTime", "of.*", "won.bidder", "won.price", *bid)


def q11(events: DataFrame, shape: Shape) -> DataFrame:
    """How many bids each bidder made in a session, which ends when ten seconds go by without a bid: session windows."""
    sessions = bids(events).groupBy(sf.session_window("dateTime", WINDOW), "bidder").agg(sf.count("*").alias("bids"))
    return sessions.select("bidder", "bids", "session_window.start", "session_window.end")


def q12(events: DataFrame, shape: Shape) -> DataFrame:
    """How many bids each bidder made in ten seconds of processing time: windows whose counts are updated.

    Processing time is another one in every run. This query takes the time at which an event got into the log, as a
    reader of Kafka has it in the column ``timestamp``. It never goes back, so nobody has to wait for a window.
    """
    arrivals = events.where(f"event_type = {BID}").select("arrival", "bid.bidder").withWatermark("arrival", "0 seconds")
    counted = arrivals.groupBy(sf.window("arrival", WINDOW), "bidder").agg(sf.count("*").alias("bids"))
    return counted.select("bidder", "bids", "window.start", "window.end")


def q18(events: DataFrame, shape: Shape) -> DataFrame:
    """The last bid of each bidder for each auction: the newest row of each key, for ever.

    The original numbers rows by their time, backwards. ``dropDuplicates`` would keep the first one, so this is an
    aggregation. Of bids at the same time the highest counts.
    """
    row = sf.struct("price", "channel", "url", "dateTime", "extra")
    newest = sf.max_by(row, sf.struct("dateTime", "price", "url", "extra"))
    last = bids(events).groupBy("bidder", "auction").agg(newest.alias("last"))
    return last.select("auction", "bidder", "last.*")


def q19(events: DataFrame, shape: Shape) -> DataFrame:
    """The ten highest bids of each auction, for ever: ``applyInPandasWithState``, since no aggregate keeps ten rows.

    A rank over all rows of a stream, as in the original, is what Structured Streaming refuses.
    ``transformWithState`` could say it as well, and takes RocksDB and the path door only.
    """
    fields = ("price: bigint", "micros: bigint", "bidder: bigint", "channel: string", "url: string", "extra: string")
    time = sf.unix_micros("dateTime").alias("micros")
    rows = bids(events).select("auction", "price", time, "bidder", "channel", "url", "extra")
    top = rows.groupBy("auction").applyInPandasWithState(
        _keep_top(TOP),
        f"auction: bigint, rank_number: bigint, {', '.join(fields)}",
        # Workers of PySpark 4.3 cannot read the schema of a state with arrays.
        "top: string",
        "update",
        "NoTimeout",
    )
    columns = ("auction", "bidder", "price", "channel", "url", sf.timestamp_micros("micros").alias("dateTime"))
    return top.select(*columns, "extra", "rank_number")


def _keep_top(most: int) -> Any:
    """The function of `q19`. Workers get it whole, and need not import this module."""
    import heapq
    import json

    import pandas as pd

    names = ["price", "micros", "bidder", "channel", "url", "extra"]

    def rank(row: tuple[Any, ...]) -> tuple[Any, ...]:
        return (-row[0], row[1], row[2], row[5])

    def top(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        before = [tuple(row) for row in json.loads(state.get[0])] if state.exists else []
        rows = list(before)
        for frame in frames:
            rows += zip(*(frame[name].tolist() for name in names), strict=True)
        best = heapq.nsmallest(most, rows, key=rank)
        if best != before:
            state.update((json.dumps(best),))
            found = pd.DataFrame(best, columns=names)
            found.insert(0, "rank_number", range(1, len(best) + 1))
            found.insert(0, "auction", key[0])
            yield found

    return top


def q20(events: DataFrame, shape: Shape) -> DataFrame:
    """All bids for auctions of a category, with the auction: a join without bounds in time, which keeps all rows."""
    of = events.where(f"event_type = {AUCTION} AND auction.category = 10").select("auction.*").alias("A")
    bid = events.where(f"event_type = {BID}").select("bid.*").alias("B")
    return bid.join(of, sf.expr("B.auction = A.id")).selectExpr(*_BID_WITH_AUCTION)


_BID_WITH_AUCTION = (
    *("B.auction", "B.bidder", "B.price", "B.channel", "B.url", "B.dateTime AS bid_dateTime", "B.extra AS bid_extra"),
    *("A.itemName", "A.description", "A.initialBid", "A.reserve", "A.dateTime AS auction_dateTime", "A.expires"),
    *("A.seller", "A.category", "A.extra AS auction_extra"),
)
_TEN = "unix_seconds(dateTime) div 10 * 10"
_OPEN = "B.auction = A.id AND B.dateTime BETWEEN A.dateTime AND A.expires"

QUERIES = {
    query.name: query
    for query in (
        Query(
            "q4",
            "average final price by category",
            "join, two aggregations",
            q4,
            f"""SELECT timestamp_seconds({_TEN}) AS start, category, avg(final) AS average
                FROM (SELECT A.id, A.category, A.dateTime, max(B.price) AS final
                      FROM auction A JOIN bid B ON {_OPEN} GROUP BY A.id, A.category, A.dateTime)
                GROUP BY {_TEN}, category""",
        ),
        Query(
            "q5",
            "auctions with the most bids",
            "three aggregations, join of windows",
            q5,
            """SELECT timestamp_seconds(start) AS start, auction, num
               FROM (SELECT start, auction, count(*) AS num, max(count(*)) OVER (PARTITION BY start) AS most
                     FROM (SELECT auction, explode(sequence(even - 8, even, 2)) AS start
                           FROM (SELECT auction, unix_seconds(dateTime) div 2 * 2 AS even FROM bid))
                     GROUP BY start, auction)
               WHERE num = most""",
        ),
        Query(
            "q7",
            "highest bids",
            "aggregation, join in time",
            q7,
            f"""SELECT auction, price, bidder, dateTime, extra
                FROM (SELECT *, max(price) OVER (PARTITION BY {_TEN}) AS highest FROM bid) WHERE price = highest""",
        ),
        Query(
            "q8",
            "new sellers",
            "deduplication, join of windows",
            q8,
            """SELECT DISTINCT P.id, P.name, timestamp_seconds(unix_seconds(P.dateTime) div 10 * 10) AS start
               FROM person P JOIN auction A
               ON P.id = A.seller AND unix_seconds(P.dateTime) div 10 = unix_seconds(A.dateTime) div 10""",
        ),
        Query(
            "q9",
            "winning bids",
            "join in time, aggregation",
            q9,
            f"""SELECT id, dateTime, itemName, description, initialBid, reserve, expires, seller, category, extra,
                       bidder, price, bid_dateTime, bid_extra
                FROM (SELECT A.*, B.bidder, B.price, B.dateTime AS bid_dateTime, B.extra AS bid_extra,
                             row_number() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime, B.bidder) AS place
                      FROM auction A JOIN bid B ON {_OPEN})
                WHERE place = 1""",
        ),
        Query(
            "q11",
            "bids in a session",
            "session windows",
            q11,
            """SELECT bidder, count(*) AS bids, min(dateTime) AS start, max(dateTime) + INTERVAL 10 SECONDS AS `end`
               FROM (SELECT *, sum(int(is_first)) OVER (PARTITION BY bidder ORDER BY dateTime) AS session
                     FROM (SELECT *, coalesce(lag(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime)
                                              < dateTime - INTERVAL 10 SECONDS, true) AS is_first FROM bid))
               GROUP BY bidder, session""",
        ),
        Query(
            "q12",
            "bids in ten seconds of arrival",
            "windowed aggregation, updated",
            q12,
            """SELECT bidder, count(*) AS bids, timestamp_seconds(ten) AS start, timestamp_seconds(ten + 10) AS `end`
               FROM (SELECT bidder, unix_seconds(arrival) div 10 * 10 AS ten FROM arrivals) GROUP BY ten, bidder""",
            key=("bidder", "start"),
        ),
        Query(
            "q18",
            "last bids",
            "aggregation without end",
            q18,
            """SELECT auction, bidder, price, channel, url, dateTime, extra
               FROM (SELECT *, row_number() OVER (PARTITION BY bidder, auction
                            ORDER BY dateTime DESC, price DESC, url DESC, extra DESC) AS place FROM bid)
               WHERE place = 1""",
            key=("auction", "bidder"),
        ),
        Query(
            "q19",
            "ten highest bids",
            "applyInPandasWithState",
            q19,
            f"""SELECT auction, bidder, price, channel, url, dateTime, extra, rank_number
                FROM (SELECT *, row_number() OVER (PARTITION BY auction
                             ORDER BY price DESC, dateTime, bidder, extra) AS rank_number FROM bid)
                WHERE rank_number <= {TOP}""",
            key=("auction", "rank_number"),
        ),
        Query(
            "q20",
            "bids with their auctions",
            "join without bounds",
            q20,
            f"""SELECT {", ".join(_BID_WITH_AUCTION)}
                FROM bid B JOIN auction A ON B.auction = A.id AND A.category = 10""",
        ),
    )
}
"""All queries, by their names, in Nexmark's order."""
