"""A process of its own with stock Spark, which has never heard of this package's jar; test_round_trips.py runs it.

    python stock_process.py <cases as JSON>

Goes on with each query where its checkpoint is, and prints as JSON what it gave out, by batch.
"""

import json
import sys
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tests.streaming.runs import Run, Setting

SHIM = "io.pyspark.statestore.ShimInfo"


def main() -> None:
    """Runs all queries."""
    builder = SparkSession.builder.master("local[2]")
    for key, value in json.loads(sys.argv[2]).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        spark._jvm.java.lang.Class.forName(SHIM)
    except Py4JJavaError:
        pass
    else:
        sys.exit("the jar is there")
    found = {}
    for case in json.loads(sys.argv[1]):
        run = Run(spark, case["workload"], Setting(**case["setting"]), Path(case["folder"]), Path(case["input"]))
        run.run()
        found[case["name"]] = run.rows
    print(json.dumps(found))


if __name__ == "__main__":
    main()
