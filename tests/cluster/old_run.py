"""A run of the query of ``sums`` in a process of its own: ``python -m tests.cluster.old_run <root> <hold> <jars>``.

It works off its input batch after batch. When its query fails it says so and stays, with all that its executor does.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_statestore import configure
from tests.cluster.sums import OPTIONS, Sums, settings


def main() -> None:
    """Runs until it is killed."""
    root, hold, jars = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3].split(os.pathsep)
    conf = {
        **settings(map(Path, jars)),
        "spark.driver.extraClassPath": os.pathsep.join(jars),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(root / "tmp"),
        "spark.sql.warehouse.dir": str(root / "warehouse"),
    }
    builder = SparkSession.builder.master("local[2,4]").config(map=conf)
    spark = configure(builder, mode="provider", **OPTIONS).getOrCreate()
    try:
        Sums(spark, root, hold=hold).start(available_now=False).awaitTermination()
    except PySparkException as error:
        (root / "failed").write_text(str(error))
    sys.stdin.read()


if __name__ == "__main__":
    main()
