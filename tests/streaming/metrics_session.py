"""A process of its own with two executors, whose metrics a CSV sink writes; test_metrics.py runs it.

    python metrics_session.py <directory> <test jar>

It runs a query until both executors show what is on the disk, and prints as JSON what every process shows, what is on
the disk, how many logical files were written, and what the tab in Spark's pages shows.
"""

import csv
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pyspark_statestore import configure
from tests.streaming.runs import Run, Setting, segments
from tests.streaming.tab import tab
from tests.streaming.test_metrics import GAUGES, PLUGIN, USER_PLUGIN, on_disk
from tests.streaming.workloads import write_batches

MASTER = "local-cluster[2,1,1024]"


def shown(directory: Path) -> dict[str, dict[str, float]]:
    """The last values that each process has written, by its id; counts of what is no gauge."""
    values: dict[str, dict[str, float]] = {}
    for file in directory.glob("*.csv"):
        found = re.fullmatch(
            rf".*?\.(\d+|driver)\.plugin\.({re.escape(PLUGIN)}\.fileMerging|{USER_PLUGIN})\.(\w+)\.csv", file.name
        )
        if found:
            with file.open(encoding="utf-8") as lines:
                rows = [row for row in csv.DictReader(lines) if None not in row.values()]
            if rows:
                values.setdefault(found[1], {})[found[3]] = float(rows[-1].get("value") or rows[-1]["count"])
    return values


def agree(values: dict[str, dict[str, float]], expected: dict[str, float], written: int) -> bool:
    """Whether the driver shows what is on the disk, and the executors what they have written and that they ask."""
    driver, executors = values.get("driver", {}), [values.get(executor, {}) for executor in "01"]
    all_written = sum(executor.get("commits", 0) for executor in executors) == written
    all_ask = all(executor.get("indexQuestions", 0) > 0 for executor in executors)
    # The sink writes one metric after the other: the one may be of after a flush, and the other one of before.
    of_one_moment = all(executor.get("flushTime", 0) == executor.get("groupCommits", -1) for executor in executors)
    return (
        all_written
        and all_ask
        and of_one_moment
        and all(abs(driver.get(name, -1.0) - expected[name]) < 1e-6 for name in GAUGES)
    )


def main() -> None:
    """Runs the query and waits until all processes show their metrics."""
    directory, test_jar = Path(sys.argv[1]), sys.argv[2]
    (directory / "csv").mkdir()
    builder = (
        SparkSession.builder.master(MASTER)
        .config("spark.ui.port", "0")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.local.dir", str(directory / "local"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.executor.memory", "600m")
        .config("spark.jars", test_jar)
        .config("spark.driver.extraClassPath", test_jar)
        .config("spark.plugins", USER_PLUGIN)
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.sql.streaming.stateStore.maintenanceInterval", "1s")
    )
    for process in ("driver", "executor"):
        sink = f"spark.metrics.conf.{process}.sink.csv"
        builder.config(f"{sink}.class", "org.apache.spark.metrics.sink.CsvSink").config(f"{sink}.period", "1")
        builder.config(f"{sink}.directory", str(directory / "csv"))
    spark = configure(builder, store="heap").getOrCreate()
    run = Run(spark, "aggregation", Setting("provider", "heap"), directory)
    write_batches(run.input, range(2))
    # It goes on, so that its stores stay where they are and are maintained.
    query = run.start(available_now=False)
    query.processAllAvailable()
    state = run.checkpoint / "state"
    end = time.monotonic() + 180
    values: dict[str, Any] = {}
    expected: dict[str, float] = {}
    written = 0
    while time.monotonic() < end:
        expected, values = on_disk(state), shown(directory / "csv")
        written = len(segments(run.checkpoint))
        if agree(values, expected, written) and on_disk(state) == expected:
            break
        time.sleep(0.2)
    page: dict[str, tuple[str, str]] = {}
    # Each process tells the tab every few seconds: executors their commits, the driver the files.
    awaited = {"Commits": written, "Merged files": expected["physicalFileCount"]}
    while time.monotonic() < end and any(
        name not in page or float(page[name][1]) != value for name, value in awaited.items()
    ):
        time.sleep(0.2)
        page = tab(spark).of_one()
    query.stop()
    print(json.dumps({"shown": values, "on_disk": expected, "written": written, "tab": page}))
    spark.stop()


if __name__ == "__main__":
    main()
