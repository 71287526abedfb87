"""A process of its own on some version of Spark, which goes on with queries; test_travel.py runs it.

    python -m tests.each_spark.traveller <what as JSON>

``cases`` have what a ``Run`` is made of and the class of their state store, ``settings`` those of the session. If it is
not ``merged``, Spark is stock Spark, without the jar. Prints, after an @ and as JSON, the version of Spark and, by the
name of each case, what the query gave out, by batch.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from pyspark_statestore import configure
from tests.streaming.runs import PROVIDER, Run, Setting


def main() -> None:
    """Runs all queries."""
    what = json.loads(sys.argv[1])
    builder = SparkSession.builder.master("local[2]").config(map=what["settings"])
    if what["merged"]:
        configure(builder, mode="path")  # each query says itself which class it wants
    spark = builder.getOrCreate()
    runs, queries = {}, {}
    for case in what["cases"]:
        setting = Setting(**case["setting"])
        run = Run(spark, case["workload"], setting, Path(case["folder"]), Path(case["input"]))
        runs[case["name"]] = run
        queries[case["name"]] = run.start({PROVIDER: case["provider"]})
    for name, query in queries.items():
        runs[name].finish(query)
    found = {name: run.rows for name, run in runs.items()}
    print("@" + json.dumps({"spark": spark.version, "rows": found}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
