"""What tests have in common: a session with queries, streams and a state store of each kind."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

PROVIDERS = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "heap": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}


def main(work: Path, class_path: str) -> None:
    """Uses what most tests use."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.log.level", "ERROR")
    builder = builder.config("spark.sql.warehouse.dir", str(work / "warehouse"))
    spark = builder.config("spark.driver.extraClassPath", class_path).getOrCreate()
    rows = spark.range(100).selectExpr("id", "id % 7 as k", "cast(id as timestamp) as at")
    rows.write.parquet(str(work / "rows"))
    rows.createOrReplaceTempView("rows")
    spark.sql("select k, count(*), max(at) from rows group by k order by k").toPandas()
    for store, provider in PROVIDERS.items():
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
        stream = spark.readStream.schema(rows.schema).parquet(str(work / "rows")).withWatermark("at", "1 second")
        counted = stream.groupBy("k").count().writeStream.outputMode("update").format("noop")
        checkpoint = str(work / store)
        query = counted.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        if not spark.version.startswith("3."):  # the reader came with Spark 4.0
            spark.read.format("statestore").load(checkpoint).collect()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
