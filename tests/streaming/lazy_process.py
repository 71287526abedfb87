"""A process of its own that runs a query lazily and waits, with stores that are not whole, for its end.

    python lazy_process.py <folder of the run> <input> <cache>

It prints how many files have holes. test_lazy_restore.py kills it.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_statestore import configure
from tests.streaming.runs import Run, Setting
from tests.streaming.workloads import WORKLOADS, Workload


def _counts(stream: Callable[[], DataFrame]) -> DataFrame:
    return stream().groupBy("key", "side", "v").agg(sf.count("*").alias("events"))


COUNTS = Workload(_counts, "update")
"""A query that reads what it changes only. Most others look through all of their state for what is too old."""


def main(folder: str, events: str, cache: str) -> None:
    """Runs what there is to run."""
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "3")
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC")
    # A second for each few hundred bytes: nothing is whole by itself before the process is killed.
    options: dict[str, Any] = {"restore": "lazy", "restore_max_bytes_per_second": "100", "cache_dir": cache}
    spark = configure(builder, mode="provider", **options).getOrCreate()
    control = spark.sparkContext._jvm.io.pyspark.statestore.tables.Lazily
    control.everywhere()
    WORKLOADS["counts"] = COUNTS
    # As long as it runs its stores stay loaded.
    run = Run(spark, "counts", Setting("provider", "rocksdb", changelog=False), Path(folder), Path(events))
    run.start(available_now=False).processAllAvailable()
    print(control.partialFiles(), flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
