"""The query of test_queries.py in a process of its own, to be killed; its lines say which batches it has done.

    python query_process.py <mode> <store> <input directory> <checkpoint location> [<key>=<value> ...]

It keeps running, waiting for input.
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_statestore import configure


def totals(rows: DataFrame) -> DataFrame:
    """The query, of a stream or of a batch."""
    return rows.groupBy((sf.col("id") % 7).alias("k")).agg(sf.count("*").alias("n"), sf.sum("id").alias("total"))


def stream(spark: SparkSession, source: str) -> DataFrame:
    """Its result as a stream, one file in a batch."""
    return totals(spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(source))


def main() -> None:
    """Runs it until this process is killed."""
    mode, store, source, checkpoint, *settings = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]")
    for setting in settings:
        builder = builder.config(*setting.split("=", 1))
    spark = configure(builder, mode=mode, store=store).getOrCreate()

    def done(batch: DataFrame, batch_id: int) -> None:
        batch.collect()
        print(f"computed {batch_id}", flush=True)

    query = stream(spark, source).writeStream.foreachBatch(done).outputMode("update")
    query.option("checkpointLocation", checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main()
