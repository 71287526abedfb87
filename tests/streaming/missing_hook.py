"""A process of its own, with another Spark class in front of Spark's jars; test_heap_store.py runs it.

    python missing_hook.py <directory> <jar>

Runs an aggregation with a restart on the heap store, and prints as JSON what it gave out, and the methods of Spark's
provider.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pyspark_statestore import configure


def main() -> None:
    """Runs the query."""
    directory, jar = sys.argv[1:]
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "600m")
        .config("spark.driver.extraClassPath", jar)
        .config("spark.sql.shuffle.partitions", "3")
    )
    spark = configure(builder, store="heap").getOrCreate()
    given_out: dict[int, int] = {}

    def take(batch: DataFrame, _: int) -> None:
        given_out.update({row["key"]: row["total"] for row in batch.collect()})

    source = Path(directory, "source")
    source.mkdir()
    for part in range(2):
        lines = [json.dumps({"key": number % 7, "v": number}) for number in range(100 * part, 100 * part + 50)]
        (source / f"{part}.json").write_text("\n".join(lines))
        sums = spark.readStream.schema("key long, v long").json(str(source)).groupBy("key").agg({"v": "sum"})
        writer = sums.withColumnRenamed("sum(v)", "total").writeStream.outputMode("update").foreachBatch(take)
        writer = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True)
        writer.start().awaitTermination()
    stock = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    methods = spark.sparkContext._jvm.java.lang.Class.forName(stock).getDeclaredMethods()
    print(json.dumps({"given_out": given_out, "methods": [method.getName() for method in methods]}), flush=True)


if __name__ == "__main__":
    main()
