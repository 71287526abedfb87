"""Kafka's records with JSON in them: a deduplication, and sums in windows of event time.

    python -m examples.kafka_shaped

There is no broker: `rate-micro-batch`, a source of Spark's, counts, and `records` makes a record of each number, with
the columns of Spark's Kafka source. One record in ten repeats an order of 25 minutes before, as a producer that tries
again does, and one in a thousand is no JSON. The query leaves both out, and adds up what each shop sells in ten
minutes. It is stopped half-way and restarted; the result equals the batch computation.
"""

from __future__ import annotations

import ast
import sys
import time

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples import harness
from examples.options import Settings, with_settings
from examples.progress import BatchProgress

NAME = "kafka_shaped"
LOOK = ("top {checkpoint} --by operators", "state {checkpoint} --limit 5", "state {checkpoint} --operator 1 --limit 5")

ORDER = "id BIGINT, shop STRING, cents BIGINT, at TIMESTAMP"
LATENESS = "1 hour"
WINDOW = "10 minutes"

TOPIC, PARTITIONS = "orders", 3
RECORDS_IN_A_BATCH = 1_000
FIRST_SECOND = 1_767_225_600  # 2026 begins; an order a second follows
TRIED_AGAIN_AFTER = 1_501  # seconds, which are records, too


def read(spark: SparkSession) -> DataFrame:
    """Returns the stream of records."""
    # With a broker, and spark-sql-kafka-0-10 in spark.jars.packages, this line is all that changes:
    # return spark.readStream.format("kafka").options(**{"kafka.bootstrap.servers": "…", "subscribe": TOPIC}).load()
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", RECORDS_IN_A_BATCH)
    return records(source.option("numPartitions", PARTITIONS).load())


def records(numbers: DataFrame) -> DataFrame:
    """Makes records, as the Kafka source has them, of the columns `value` (0, 1, 2, …) and `timestamp`."""
    number = F.col("value")
    order = F.when((number % 10 == 9) & (number >= TRIED_AGAIN_AFTER), number - TRIED_AGAIN_AFTER).otherwise(number)
    content = F.to_json(
        F.struct(
            order.alias("id"),
            F.concat(F.lit("shop-"), (order % 7).cast("string")).alias("shop"),
            (order * 37 % 9_000 + 100).alias("cents"),
            F.timestamp_seconds(order + FIRST_SECOND).alias("at"),
        )
    )
    return numbers.select(
        order.cast("string").cast("binary").alias("key"),
        F.when(number % 1_000 == 500, "no JSON").otherwise(content).cast("binary").alias("value"),
        F.lit(TOPIC).alias("topic"),
        (number % PARTITIONS).cast("int").alias("partition"),
        F.expr(f"value DIV {PARTITIONS}").alias("offset"),
        "timestamp",
        F.lit(0).alias("timestampType"),
    )


def orders(of_kafka: DataFrame) -> DataFrame:
    """Parses the JSON in the records' values. What is no JSON has no id, and is left out."""
    order = F.from_json(F.col("value").cast("string"), ORDER).alias("order")
    return of_kafka.select(order).select("order.*").where("id IS NOT NULL")


def once(all_orders: DataFrame) -> DataFrame:
    """Leaves out orders that come again. Their ids are state for as long as that may happen: LATENESS."""
    return all_orders.withWatermark("at", LATENESS).dropDuplicatesWithinWatermark(["id"])


def sales(all_orders: DataFrame) -> DataFrame:
    """Returns a row for each window and shop."""
    sums = F.count("*").alias("orders"), F.sum("cents").alias("cents")
    grouped = all_orders.groupBy(F.window("at", WINDOW), "shop").agg(*sums)
    return grouped.select("window.start", "window.end", "shop", "orders", "cents")


def expected(spark: SparkSession, count: int) -> DataFrame:
    """Does the same with the first ``count`` records in batch, without the windows that the stream holds back.

    Append mode writes a window when `end <= watermark`. At the end of a query with `availableNow`, that is the newest
    event time less LATENESS. No order comes as late as that, so none is dropped for being late.
    """
    numbers = spark.range(count).select(F.col("id").alias("value"), F.current_timestamp().alias("timestamp"))
    parsed = orders(records(numbers))
    watermark = parsed.agg((F.max("at") - F.expr(f"INTERVAL {LATENESS}")).alias("watermark"))
    return sales(parsed.dropDuplicates(["id"])).crossJoin(watermark).where("end <= watermark")


def run(spark: SparkSession, settings: Settings, batches: int, *, quiet: bool = False) -> harness.Outcome:
    """Runs the query, stops it twice in the middle of a batch, ends it, and compares its result with batch.

    Args:
        spark: a session for these settings.
        settings: how to run.
        batches: how many batches there are at least.
        quiet: no progress display.
    """
    where = harness.new_run(settings, NAME)
    began = time.monotonic()
    stopped_after = []
    with BatchProgress(NAME, batches, quiet=quiet) as progress:
        for until in (batches // 2, batches):
            query = where.write(sales(once(orders(read(spark)))), available_now=False)
            stopped_after.append(harness.follow(query, progress, until))
            harness.stop(spark, query)
            progress.say(f"stopped after {stopped_after[-1]} batches; restarting from the checkpoint")
        # The source never ends. With availableNow a query does what it has begun, and what is there at its start.
        query = where.write(sales(once(orders(read(spark)))))
        done = harness.follow(query, progress)
    # PySpark gives JSON, and in Spark 4.0 what Python shows of a dictionary; the numbers in it are the same.
    count = ast.literal_eval(str(query.lastProgress["sources"][0]["endOffset"]))["offset"]
    return harness.compare(
        spark.read.parquet(str(where.output)),
        expected(spark, count),
        stopped_after=stopped_after[0],
        batches=done,
        seconds=time.monotonic() - began,
    )


@click.command(help=__doc__)
@with_settings(files_per_trigger=None)
@click.option("--batches", type=click.IntRange(4), default=20, help="How many, at least.")
def main(settings: Settings, batches: int) -> None:
    """Runs the example."""
    with harness.session(settings, NAME) as spark:
        outcome = run(spark, settings, batches)
    sys.exit(harness.conclude(NAME, settings, outcome, LOOK))


if __name__ == "__main__":
    main()
