"""Queries on the heap store with maps that share their rows give out what they give out on stock Spark.

With one, two and ten versions in memory, snapshots written by maintenance meanwhile, row checksums on and off, a
restart half-way, and with the sharing switched off.
"""

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.conftest import MakeSpark
from tests.jvm.lab import TESTING
from tests.streaming.runs import STATE_STORE, Run, Setting, assert_state_is_merged, restart_maintenance
from tests.streaming.workloads import BATCHES, WORKLOADS, write_batches

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CONF = {f"{STATE_STORE}maintenanceInterval": "300ms", f"{STATE_STORE}minDeltasForSnapshot": "1"}
NAMES = [name for name, workload in WORKLOADS.items() if not workload.only_stock_class]
IN_MEMORY = "spark.sql.streaming.maxBatchesToRetainInMemory"
OFF = f"{STATE_STORE}fileMerging.heap.copyOnWrite"
CASES = {
    "one": {IN_MEMORY: "1", f"{STATE_STORE}rowChecksum.enabled": "true"},
    "two": {IN_MEMORY: "2"},
    "ten": {IN_MEMORY: "10"},
    "off": {OFF: "false"},
}


def run_all(spark: SparkSession, setting: Setting, folder: Path, conf: dict[str, str]) -> dict[str, Run]:
    """Runs the queries side by side over the first half of the input, and then from their checkpoints over the rest."""
    runs = {name: Run(spark, name, setting, folder / name) for name in NAMES}
    for half in (range(BATCHES // 2), range(BATCHES // 2, BATCHES)):
        queries = []
        for run in runs.values():
            write_batches(run.input, half)
            queries.append((run, run.start(conf)))
        for run, query in queries:
            run.finish(query)
        restart_maintenance(spark)
    return runs


@pytest.fixture(scope="module")
def stock_runs(make_spark: MakeSpark, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    spark = make_spark(CONF)
    restart_maintenance(spark)
    return run_all(spark, Setting("stock", "heap"), tmp_path_factory.mktemp("stock"), {})


@pytest.mark.parametrize("case", CASES)
def test_equal_to_stock(make_spark: MakeSpark, stock_runs: dict[str, Run], tmp_path: Path, case: str) -> None:
    spark = make_spark(CONF, mode="provider", store="heap")
    restart_maintenance(spark)
    runs = run_all(spark, Setting("provider", "heap"), tmp_path, CASES[case])
    for name, run in runs.items():
        assert run.rows == stock_runs[name].rows, name
        assert run.metrics == stock_runs[name].metrics, name
        assert_state_is_merged(run)


def test_task_fails_in_the_middle_of_a_batch(make_spark: MakeSpark, tmp_path: Path) -> None:
    """A task that has written some of its rows fails, twice; the third attempt finds the version before as it was."""
    spark = make_spark(CONF, mode="provider", store="heap", master="local[2,3]")
    restart_maintenance(spark)
    tripwire = getattr(spark.sparkContext._jvm, f"{TESTING}.Tripwire")
    source = tmp_path / "input"
    source.mkdir()
    totals: dict[int, int] = {}

    def take(result: DataFrame, _: int) -> None:
        totals.update({int(row["k"]): row["total"] for row in result.collect()})

    sums = spark.readStream.schema("key long, v long").json(str(source)).groupBy("key").agg({"v": "sum"})
    through = f"reflect('{TESTING}.Tripwire', 'pass', cast(key AS string)) AS k"
    writer = sums.selectExpr(through, "`sum(v)` AS total").writeStream.outputMode("update").foreachBatch(take)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    expected: dict[int, int] = {}
    try:
        for batch in range(4):
            rows = [{"key": (number * 7 + batch) % 150, "v": number} for number in range(400)]
            for row in rows:
                expected[row["key"]] = expected.get(row["key"], 0) + row["v"]
            tripwire.arm("77", 2 if batch >= 2 else 0)
            file = source / f"_{batch}.json"
            file.write_text("\n".join(map(json.dumps, rows)))
            file.rename(source / f"{batch}.json")
            query.processAllAvailable()
            assert tripwire.left() == 0
            assert totals == expected
    finally:
        tripwire.arm("", 0)
        query.stop()
