"""A process of its own, with little memory, that goes on with a query; test_heap_store.py runs it.

    python small_heap.py <directory> <provider class>...

Prints as JSON, for each provider, how the query ended: the conditions that its error names, outermost first.
"""

import json
import re
import sys

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_statestore import configure
from tests.streaming.runs import PROVIDER, session_conf

HEAP = "140m"
KEYS, PAD = 14, 8_000_000
"""112 MB of state, in small files because they can be compressed; few rows, so that collecting garbage ends soon."""
CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")


def start(spark: SparkSession, provider: str, directory: str, given_out: dict[int, list[int]]) -> StreamingQuery:
    """Starts the query over all input that there is: how often a key came, and a long string for each in the state."""

    def take(batch: DataFrame, _: int) -> None:
        given_out.update({row["key"]: [row["n"], row["padded"]] for row in batch.collect()})

    with session_conf(spark, {PROVIDER: provider, "spark.sql.shuffle.partitions": "1"}):
        events = spark.readStream.schema("key long, size int").parquet(f"{directory}/source")
        padded = events.selectExpr("key", "repeat(cast(key % 10 AS string), size) AS pad")
        counts = padded.groupBy("key").agg({"*": "count", "pad": "max"})
        result = counts.selectExpr("key", "`count(1)` AS n", "length(`max(pad)`) AS padded")
        writer = result.writeStream.outputMode("update").foreachBatch(take).trigger(availableNow=True)
        return writer.option("checkpointLocation", f"{directory}/{provider}").start()


def main() -> None:
    """Runs the queries, one after the other."""
    directory, *providers = sys.argv[1:]
    builder = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", HEAP)
        .config("spark.driver.extraJavaOptions", "-Xmn48m")
        .config("spark.testing.reservedMemory", "0")
        # By default the process ends with the task, before it could say which error it was.
        .config("spark.executor.killOnFatalError.depth", "0")
        .config("spark.sql.streaming.stateStore.maintenanceInterval", "1h")
    )
    spark = configure(builder, store="heap").getOrCreate()
    found: dict[str, list[str]] = {}
    for provider in providers:
        try:
            start(spark, provider, directory, {}).awaitTermination()
        except StreamingQueryException as error:
            found[provider] = list(dict.fromkeys(CONDITION.findall(str(error))))
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
