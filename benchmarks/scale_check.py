"""One small cluster for `scale_model.py --check`: a few batches, SIGKILL for all, a restart; calls of all processes.

Usage: `python -m benchmarks.scale_check IN.json OUT.json`, once for each life and side.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from benchmarks.filesystems import CallCounters, Counts, minus
from benchmarks.scenario import Scenario
from benchmarks.sides import Side, jvm_pid, merged_settings, start_session

FUNCTION = "io.pyspark.statestore.testing.ProcessCounts"
PATIENCE_SECONDS = 120


class ProcessCounters(CallCounters):
    """The counters of a session's driver and all of its executors, added up."""

    def __init__(self, spark: SparkSession, executors: int) -> None:
        super().__init__(spark)
        self._spark = spark
        self._executors = executors
        self.pids: list[int] = []
        spark.udf.registerJavaFunction("process_counts", FUNCTION, "string")

    def register(self, label: str, path: str) -> None:
        """Does nothing: executors would not know the labels, so only one side may run."""

    def snapshot(self, label: str) -> dict[str, Counts]:
        """Returns the counts of all processes since their starts."""
        processes: dict[int, dict[str, Counts]] = {}
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            tasks = 4 * max(1, self._executors)
            rows = self._spark.range(0, tasks, 1, tasks).select(sf.expr("process_counts(50L)")).collect()
            for (said,) in rows:
                found = json.loads(said)
                processes[found["pid"]] = found["counts"].get("", {})
            self.pids = sorted(processes)
            if len(processes) >= max(1, self._executors):
                break
            if time.monotonic() > end:
                raise RuntimeError(f"only {len(processes)} of {self._executors} executors answered")
        if self._executors:
            processes[0] = super().snapshot("")
        total: dict[str, Counts] = {}
        for counts in processes.values():
            for thread, categories in counts.items():
                for category, operations in categories.items():
                    into = total.setdefault(thread, {}).setdefault(category, {})
                    for operation, count in operations.items():
                        into[operation] = into.get(operation, 0) + count
        return total


def main() -> int:
    """Runs the batches that IN.json asks for. A first life then waits to be killed."""
    order, answer = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    scenario = Scenario.from_json(order["scenario"])
    (name,) = scenario.sides
    executors, work = order["executors"], Path(order["work"])
    megabytes = order["megabytes"]
    master = f"local-cluster[{executors},1,{megabytes}]" if executors else "local[2]"
    merged = merged_settings(scenario) if name == "merged" else {}
    more = {"spark.executor.memory": f"{megabytes}m"} if executors else {}
    spark = start_session(scenario, work, merged, master, more)
    counters = ProcessCounters(spark, executors)
    side = Side(name, spark.newSession(), scenario, work / name, counters)
    side.start(merged)
    said: dict[str, Any] = {}
    if order["first"]:
        # The second half is steady: all files are open, all stores are loaded.
        half = len(order["files"]) // 2
        for file in order["files"][:half]:
            side.run_batch(Path(file))
        before, begin = counters.snapshot(name), time.monotonic()
        for file in order["files"][half:]:
            side.run_batch(Path(file))
        said["seconds"] = (time.monotonic() - begin) / (len(order["files"]) - half)
        said["counts"] = minus(counters.snapshot(name), before)
        said["batches"] = len(order["files"]) - half
    else:
        # Passes come from the first batch on.
        begin = time.monotonic()
        said["counts"] = counters.snapshot(name)
        said["seconds"] = time.monotonic() - begin + side.progress()["durationMs"]["triggerExecution"] / 1000
    said["pids"] = [*counters.pids, jvm_pid(spark), os.getpid()]
    partial = answer.with_suffix(".partial")
    partial.write_text(json.dumps(said))
    partial.rename(answer)
    if order["first"]:
        time.sleep(3600)
    side.stop()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
