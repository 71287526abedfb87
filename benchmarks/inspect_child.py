"""One question about a checkpoint in a process of its own, so that its memory and its caches are its own.

python -m benchmarks.inspect_child segments /path/to/checkpoint      # prints one line of JSON
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import sys
import time
from typing import Any

BY_PARTITION = ("operator_id", "partition_id")


def ask(table: str, checkpoint: str) -> dict[str, Any]:
    """Reads a table, and measures that without the imports before it.

    Returns:
        seconds, rows, and for segments ``grouped_seconds``: the same with a count by partition.
    """
    import pyarrow.compute  # noqa: F401

    from pyspark_statestore.checkpoint import Checkpoint

    asked = Checkpoint(checkpoint).inspect
    begin = time.perf_counter()
    found = asked.table(table)
    answer = {"seconds": time.perf_counter() - begin, "rows": found.num_rows}
    if table == "segments":
        groups = found.group_by(list(BY_PARTITION)).aggregate([([], "count_all")])
        answer |= {"grouped_seconds": time.perf_counter() - begin, "groups": groups.num_rows}
    return answer


def ask_spark(checkpoint: str) -> dict[str, Any]:
    """Counts the segments by partition in SQL.

    Returns:
        seconds from nothing to the answer, again_seconds for the same once more in the session that now runs, groups,
        rows; or ``missing``: why not.
    """
    if importlib.util.find_spec("pyspark_checkpoint_files") is None:
        return {"missing": "pyspark_checkpoint_files cannot be imported: run it in the environment that make builds"}
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    begin = time.perf_counter()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").config("spark.log.level", "ERROR").getOrCreate()
    try:
        segments = spark.read.format("checkpoint_files").option("table", "segments").load(checkpoint)
        groups = segments.groupBy(*BY_PARTITION).count().collect()
        answered = time.perf_counter()
        segments.groupBy(*BY_PARTITION).count().collect()
        again = time.perf_counter() - answered
    finally:
        spark.stop()
    rows = sum(row["count"] for row in groups)
    return {"seconds": answered - begin, "again_seconds": again, "groups": len(groups), "rows": rows}


def main() -> None:
    """Writes the answer to stdout."""
    question, checkpoint = sys.argv[1:]
    answer = ask_spark(checkpoint) if question == "spark" else ask(question, checkpoint)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB on Linux, bytes on macOS
    answer["peak_mb"] = peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
