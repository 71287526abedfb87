"""A process of its own that starts a session in one of the ways there are; test_fresh_sessions.py runs it.

    python fresh_session.py attach|configure <master> <directory> <mode>...

For each door in turn it runs a short aggregation with a restart, and prints as JSON what the query gave out, what a
batch computation gives, and the files of the checkpoint.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_statestore import Checkpoint, attach, configure, merged_path


def start_session(how: str, master: str, mode: str) -> SparkSession:
    """Starts a session with the jar, or attaches one that was started without."""
    builder = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.codegen.wholeStage", "true")  # other tests go without
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.executor.memory", "600m")
    )
    if how == "configure":
        return configure(builder, mode=mode).getOrCreate()
    spark = builder.getOrCreate()
    spark.range(10).groupBy("id").count().collect()  # executors are up, without the jar
    return attach(spark, mode=mode)


def run(spark: SparkSession, mode: str, directory: Path) -> dict[str, object]:
    """Runs an aggregation in two parts, the second from the checkpoint."""
    source, checkpoint = str(directory / "source"), directory / "checkpoint"
    location = merged_path(checkpoint) if mode == "path" else str(checkpoint)
    given_out: dict[int, list[int]] = {}

    def take(batch: DataFrame, batch_id: int) -> None:
        given_out.update({row["k"]: [row["n"], row["total"]] for row in batch.collect()})

    def totals(rows: DataFrame) -> DataFrame:
        return rows.groupBy((sf.col("id") % 7).alias("k")).agg(sf.count("*").alias("n"), sf.sum("id").alias("total"))

    for part in range(2):
        for file in range(2):
            spark.range(100 * (part + file), 100 * (part + file) + 50, 1, 1).write.mode("append").parquet(source)
        stream = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(source)
        query = totals(stream).writeStream.foreachBatch(take).outputMode("update")
        query.option("checkpointLocation", location).trigger(availableNow=True).start().awaitTermination()
    expected = {row["k"]: [row["n"], row["total"]] for row in totals(spark.read.parquet(source)).collect()}
    if spark.version.startswith("3.5"):  # it has no state reader
        found = Checkpoint(checkpoint).state().to_pylist()
        state = [[*row["key"].values(), *row["value"].values()] for row in found]
    else:
        state = spark.read.format("statestore").load(location).select("key.*", "value.*").collect()
    files = [str(file.relative_to(checkpoint)) for file in checkpoint.rglob("*") if file.is_file()]
    return {
        "given_out": sorted(given_out.items()),
        "expected": sorted(expected.items()),
        "state": sorted([k, [n, total]] for k, n, total in state),
        "files": files,
    }


def main() -> None:
    """Runs the query through each door."""
    how, master, directory, *modes = sys.argv[1:]
    found = {}
    for mode in modes:
        spark = start_session(how, master, mode)
        found[mode] = run(spark, mode, Path(directory, mode))
        if how == "configure":
            spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
