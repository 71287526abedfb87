"""One of Nexmark's queries in SQL on Flink, in a process of the environment that has Flink: no other module is there.

Usage: `python nexmark_flink_job.py ORDER.json`. The order has the settings, the folder that events appear in, and the
query. The job runs until the process is killed.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path

EVENTS = """
CREATE TABLE events (
    event_type INT,
    person ROW<id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING,
               `dateTime` TIMESTAMP(3), extra STRING>,
    auction ROW<id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT,
                `dateTime` TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING>,
    bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3),
            extra STRING>,
    `dateTime` AS CASE event_type WHEN 0 THEN person.`dateTime` WHEN 1 THEN auction.`dateTime` ELSE bid.`dateTime` END,
    p_time AS PROCTIME(),
    WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH (
    'connector' = 'filesystem', 'path' = '{folder}', 'source.monitor-interval' = '200 ms',
    'format' = 'json', 'json.timestamp-format.standard' = 'SQL'
)
"""

VIEWS = (
    """CREATE VIEW person AS
       SELECT person.id AS id, person.name AS name, `dateTime` FROM events WHERE event_type = 0""",
    """CREATE VIEW auction AS
       SELECT auction.id AS id, auction.itemName AS itemName, auction.description AS description,
              auction.initialBid AS initialBid, auction.reserve AS reserve, `dateTime`, auction.expires AS expires,
              auction.seller AS seller, auction.category AS category, auction.extra AS extra
       FROM events WHERE event_type = 1""",
    """CREATE VIEW bid AS
       SELECT bid.auction AS auction, bid.bidder AS bidder, bid.price AS price, bid.channel AS channel, bid.url AS url,
              `dateTime`, p_time, bid.extra AS extra
       FROM events WHERE event_type = 2""",
)

OPEN = "a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires"
HOPS = "HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND)"

QUERIES = {
    "q4": f"""
        SELECT category, AVG(final) FROM (
            SELECT MAX(b.price) AS final, a.category FROM auction a JOIN bid b ON {OPEN} GROUP BY a.id, a.category)
        GROUP BY category""",
    "q5": f"""
        SELECT c.auction, c.num FROM (
            SELECT auction, COUNT(*) AS num, window_start, window_end FROM TABLE({HOPS})
            GROUP BY auction, window_start, window_end) c
        JOIN (
            SELECT MAX(num) AS most, window_start, window_end FROM (
                SELECT COUNT(*) AS num, window_start, window_end FROM TABLE({HOPS})
                GROUP BY auction, window_start, window_end)
            GROUP BY window_start, window_end) m
        ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num >= m.most""",
    "q7": """
        SELECT b.auction, b.price, b.bidder, b.`dateTime`, b.extra FROM bid b JOIN (
            SELECT MAX(price) AS highest, window_end AS closed
            FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
            GROUP BY window_start, window_end) m
        ON b.price = m.highest
        WHERE b.`dateTime` BETWEEN m.closed - INTERVAL '10' SECOND AND m.closed""",
    "q8": """
        SELECT p.id, p.name, p.window_start FROM (
            SELECT id, name, window_start, window_end
            FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
            GROUP BY id, name, window_start, window_end) p
        JOIN (
            SELECT seller, window_start, window_end
            FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
            GROUP BY seller, window_start, window_end) a
        ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end""",
    "q9": f"""
        SELECT id, itemName, description, initialBid, reserve, `dateTime`, expires, seller, category, extra,
               auction, bidder, price, bid_time, bid_extra
        FROM (
            SELECT a.*, b.auction, b.bidder, b.price, b.`dateTime` AS bid_time, b.extra AS bid_extra,
                   ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.`dateTime` ASC) AS place
            FROM auction a JOIN bid b ON {OPEN})
        WHERE place <= 1""",
    "q11": """
        SELECT bidder, COUNT(*), window_start, window_end
        FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
        GROUP BY bidder, window_start, window_end""",
    "q12": """
        SELECT bidder, COUNT(*), window_start, window_end
        FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(p_time), INTERVAL '10' SECOND))
        GROUP BY bidder, window_start, window_end""",
    "q18": """
        SELECT auction, bidder, price, channel, url, `dateTime`, extra FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY `dateTime` DESC) AS place FROM bid)
        WHERE place <= 1""",
    "q19": """
        SELECT auction, bidder, price, channel, url, `dateTime`, extra, place FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid)
        WHERE place <= 10""",
    "q20": """
        SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.`dateTime`, b.extra, a.itemName, a.description,
               a.initialBid, a.reserve, a.`dateTime`, a.expires, a.seller, a.category, a.extra
        FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10""",
}
"""Nexmark's queries as SQL on Flink says them: corrected with each event, where the original is."""


def main() -> None:
    """Runs the job."""
    from pyflink.common import Configuration  # type: ignore[import-not-found]
    from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

    threading.Thread(target=_end_with_the_other_side, daemon=True).start()
    order = json.loads(Path(sys.argv[1]).read_text())
    conf = Configuration()
    for key, value in order["settings"].items():
        conf.set_string(key, value)
    environment = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(conf).build()
    )
    environment.execute_sql(EVENTS.format(folder=order["folder"]))
    for view in VIEWS:
        environment.execute_sql(view)
    # Nothing is written: what is measured is state.
    query = environment.sql_query(QUERIES[order["query"]])
    names = [f"c{number} {_sql(kind)}" for number, kind in enumerate(query.get_schema().get_field_data_types())]
    environment.execute_sql(f"CREATE TABLE nothing ({', '.join(names)}) WITH ('connector' = 'blackhole')")
    done = query.execute_insert("nothing")
    print(done.get_job_client().get_job_id(), flush=True)
    done.wait()


def _end_with_the_other_side() -> None:
    """Ends this process and its JVM when whoever has started it is gone, however that ended."""
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def _sql(kind: object) -> str:
    """The type of a column in SQL; whether it is an event time does not matter to a sink."""
    name = type(kind).__name__
    if name in ("TimestampType", "LocalZonedTimestampType"):
        return "TIMESTAMP(3)" if name == "TimestampType" else "TIMESTAMP_LTZ(3)"
    return {"BigIntType": "BIGINT", "IntType": "INT", "DoubleType": "DOUBLE"}.get(name, "STRING")


if __name__ == "__main__":
    main()
