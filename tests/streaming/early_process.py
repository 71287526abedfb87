"""A process of its own that runs a query whose SSTs are uploaded early, and whose snapshots are never published.

    python early_process.py <folder of the run> <input>

It says that it has run what there was, and waits for its end. test_early_uploads.py kills it.
"""

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from pyspark_statestore import configure
from tests.streaming.runs import STATE_STORE, Run, Setting


def main(folder: str, events: str) -> None:
    """Runs what there is to run."""
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "3")
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC")
    builder = builder.config(f"{STATE_STORE}maintenanceInterval", "1h").config(
        f"{STATE_STORE}minDeltasForSnapshot", "1"
    )
    spark = configure(builder, mode="provider", upload="created", cache_size_limit="0").getOrCreate()
    getattr(spark.sparkContext._jvm.io.pyspark.statestore.tables.Early, "from")(1, 0)
    # As long as it runs its stores stay loaded.
    run = Run(spark, "aggregation", Setting("provider", "rocksdb"), Path(folder), Path(events))
    run.start(available_now=False).processAllAvailable()
    print("ran", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
