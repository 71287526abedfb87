"""Queries on the heap store with maps that share their rows give out what they give out on stock Spark.

With one, two and ten versions in memory, snapshots written by maintenance meanwhile, row checksums on and off, a
restart half-way, and with the sharing switched off.
"""

import json
import os
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_statestore.session.doors import FILE_MANAGER_KEY, MERGED_FILE_MANAGER
from tests.conftest import MakeSpark
from tests.jvm.harness import TESTING, until
from tests.sampling import sampled
from tests.scripts import run_to_the_end
from tests.streaming import missing_hook, small_heap
from tests.streaming.runs import (
    STATE_STORE,
    STOCK_CLASSES,
    Run,
    Setting,
    assert_state_is_merged,
    merged_files,
    plain_state_files,
    segments,
    unload_stores,
)
from tests.streaming.small_heap import KEYS, PAD, start
from tests.streaming.workloads import BATCHES, WORKLOADS, write_batches

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.sweep(1, files="equal queries"),
    pytest.mark.since("4.2", "the heap store's maps can be replaced from Spark 4.2 on"),
]

CONF = {f"{STATE_STORE}maintenanceInterval": "300ms", f"{STATE_STORE}minDeltasForSnapshot": "1"}
NAMES = [name for name, workload in WORKLOADS.items() if not workload.only_stock_class]
IN_MEMORY = "spark.sql.streaming.maxBatchesToRetainInMemory"
OFF = f"{STATE_STORE}fileMerging.heap.copyOnWrite"
SPILL = f"{STATE_STORE}fileMerging.heap.spill"
CASES = {
    "one": ({IN_MEMORY: "1", f"{STATE_STORE}rowChecksum.enabled": "true"}, NAMES),
    "two": ({IN_MEMORY: "2"}, NAMES[::2]),
    "ten": ({IN_MEMORY: "10"}, NAMES[1::2]),
    "off": ({OFF: "false"}, ["aggregation", "session_window"]),
    "spilled": ({IN_MEMORY: "2", f"{STATE_STORE}rowChecksum.enabled": "true", SPILL: "auto"}, NAMES),
}
"""Settings, and which workloads run with them: each with one version in memory and with more."""

SPILLED_BYTES, SPILL_READS = "fileMergingHeapSpilledBytes", "fileMergingHeapSpillReads"
FETCHED = "fileMergingLookAheadFetchedBlocks"

OURS = "io.pyspark.statestore.spark.MergedHDFSBackedStateStoreProvider"
FACTORY = "createHDFSBackedStateStoreMap"
ROOT = Path(__file__).parents[2]

StockRuns = Callable[[Sequence[str]], dict[str, Run]]


def run_all(
    spark: SparkSession, setting: Setting, folder: Path, conf: dict[str, str], names: Sequence[str]
) -> dict[str, Run]:
    """Runs the queries side by side over the first half of the input, and then from their checkpoints over the rest."""
    runs = {name: Run(spark, name, setting, folder / name) for name in names}
    for half in (range(BATCHES // 2), range(BATCHES // 2, BATCHES)):
        queries = []
        for run in runs.values():
            write_batches(run.input, half)
            queries.append((run, run.start(conf)))
        for run, query in queries:
            run.finish(query)
        unload_stores(spark)
    return runs


def in_a_process(script: ModuleType, directory: Path, *arguments: str) -> tuple[Any, str]:
    """Runs a script in a process of its own; returns the JSON that it printed last, and its log."""
    environment = {key: value for key, value in os.environ.items() if key != "PYSPARK_SUBMIT_ARGS"}
    environment |= {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"SPARK_LOCAL_DIRS": str(directory)}
    command = [sys.executable, str(script.__file__), str(directory), *arguments]
    done = run_to_the_end(command, cwd=directory, env=environment)
    assert done.returncode == 0, done.stderr[-5000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.fixture(scope="module")
def spark(make_spark: MakeSpark) -> SparkSession:
    session = make_spark(CONF, mode="provider", store="heap", master="local[2,3]")
    unload_stores(session)
    return session


@pytest.fixture(scope="module")
def stock_runs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> StockRuns:
    """Spark's own provider, in the same session, on files of its own; it runs each query once."""
    done: dict[str, Run] = {}

    def run(names: Sequence[str]) -> dict[str, Run]:
        new = [name for name in names if name not in done]
        done.update(run_all(spark, Setting("stock", "heap"), tmp_path_factory.mktemp("stock"), {}, new))
        assert [name for name in names if merged_files(done[name].checkpoint)] == []
        return done

    return run


@contextmanager
def all_spilled(spark: SparkSession) -> Iterator[None]:
    """All the time, what can be spilled of stores that may is spilled, and is brought back before it is read."""
    jvm: Any = spark.sparkContext._jvm
    spill_all = jvm.io.pyspark.statestore.heap.SpillAll
    spill_all.start()
    try:
        yield
    finally:
        spill_all.stop()


@pytest.mark.parametrize("case", sampled([*CASES], 2))
def test_equal_to_stock(spark: SparkSession, stock_runs: StockRuns, tmp_path: Path, case: str) -> None:
    conf, names = CASES[case]
    expected = stock_runs(names)
    with all_spilled(spark) if case == "spilled" else nullcontext():
        runs = run_all(spark, Setting("provider", "heap"), tmp_path, conf, names)
    for name, run in runs.items():
        assert run.rows == expected[name].rows, name
        assert run.metrics == expected[name].metrics, name
        assert_state_is_merged(run)


def test_what_is_on_the_disk_is_in_the_progress(spark: SparkSession, tmp_path: Path) -> None:
    counts = {name: Run(spark, "aggregation", Setting("provider", "heap"), tmp_path / name) for name in ("auto", "off")}
    figures = {}
    for name, run in counts.items():
        with all_spilled(spark):
            query = run.start({SPILL: name}, available_now=False)
            for batch in range(4):
                write_batches(run.input, [batch])
                query.processAllAvailable()
            query.stop()
        batches = [each for each in query.recentProgress if each["numInputRows"]]
        metrics = [each["stateOperators"][0]["customMetrics"] for each in batches]
        figures[name] = [(each[SPILLED_BYTES], each[SPILL_READS], each[FETCHED]) for each in metrics]
    assert figures["off"] == [(0, 0, 0)] * 4
    assert all(any(of) for of in zip(*figures["auto"], strict=True)), figures["auto"]
    assert counts["auto"].rows == counts["off"].rows


def test_our_class_on_a_merged_path(spark: SparkSession, stock_runs: StockRuns, tmp_path: Path) -> None:
    """The path door with the provider that shares rows, which Spark notes in the checkpoint."""
    runs = run_all(
        spark, Setting("path", "heap"), tmp_path, {FILE_MANAGER_KEY: MERGED_FILE_MANAGER}, ["session_window"]
    )
    run = runs["session_window"]
    assert run.rows == stock_runs(["session_window"])["session_window"].rows
    assert_state_is_merged(run)
    assert OURS in (run.checkpoint / "offsets" / "0").read_text()


def test_snapshots_of_a_query_that_is_over_are_given_up(spark: SparkSession, tmp_path: Path) -> None:
    """Spark closes a store when its maintenance is done with it, and it is to be done soon."""
    jvm = spark.sparkContext._jvm
    gate = getattr(jvm, f"{TESTING}.Gate")
    state = jvm.org.apache.spark.sql.execution.streaming.state
    run = Run(spark, "dedup", Setting("provider", "heap"), tmp_path)
    gate.hold("row", "state-store-maintenance")
    try:
        query = run.start({f"{STATE_STORE}compression.codec": f"{TESTING}.GatedCodec"}, available_now=False)
        write_batches(run.input, range(2))
        query.processAllAvailable()
        assert gate.awaitHeld("row")
        query.stop()
        run_id = jvm.java.util.UUID.fromString(str(query.runId))
        stores = [state.StateStoreId(f"file:{run.checkpoint}/state", 0, part, "default") for part in range(3)]
        ids = [state.StateStoreProviderId(store, run_id) for store in stores]
        until(lambda: not any(state.StateStore.isLoaded(each) for each in ids), "Spark to forget the stores")
        # As the housekeeper does ten times a second, where it gets the time.
        jvm.io.pyspark.statestore.write.UploadWatch.askAll()
    finally:
        gate.releaseAll()
    path = jvm.org.apache.hadoop.fs.Path(f"file:{run.checkpoint}/state")
    log = jvm.io.pyspark.statestore.log.MergedLogs.open(path)
    until(lambda: log.metrics().snapshot()["cancelledUploads"], "the snapshot to be given up")
    assert log.metrics().snapshot()["failedGroups"] == 0
    assert len([path for path in segments(run.checkpoint) if path.endswith(".snapshot")]) < 3


def test_task_fails_in_the_middle_of_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    """A task that has written some of its rows fails, twice; the third attempt finds the version before as it was."""
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


def test_out_of_memory(spark: SparkSession, tmp_path: Path) -> None:
    """A process that cannot hold the state gives Spark's error; one with more memory goes on from the last commit."""
    providers = [STOCK_CLASSES["heap"], OURS]
    source = str(tmp_path / "source")
    spark.range(0, KEYS, 1, 1).selectExpr("id AS key", f"{PAD} AS size").write.parquet(source)
    for provider in providers:
        start(spark, provider, str(tmp_path), {}).awaitTermination()
    unload_stores(spark)
    # Small, so that it is the state that there is no room for.
    few = spark.range(0, KEYS, KEYS // 2, 1).selectExpr("id AS key", "1 AS size")
    few.write.mode("append").parquet(source)

    conditions, _ = in_a_process(small_heap, tmp_path, *providers)
    assert conditions[OURS] == conditions[STOCK_CLASSES["heap"]]
    assert "CANNOT_LOAD_STATE_STORE.HDFS_STORE_PROVIDER_OUT_OF_MEMORY" in conditions[OURS]

    for provider in providers:
        given_out: dict[int, list[int]] = {}
        query = start(spark, provider, str(tmp_path), given_out)
        query.awaitTermination()
        assert [progress["batchId"] for progress in query.recentProgress] == [1]
        assert given_out == {0: [2, PAD], KEYS // 2: [2, PAD]}
    unload_stores(spark)


def without_the_hook(jar: Path) -> None:
    """Spark's provider, and the classes in it, with another name for the method that makes its maps."""
    (sql,) = Path(pyspark.__file__).parent.glob("jars/spark-sql_2*.jar")
    renamed = FACTORY.replace("create", "rename")
    with zipfile.ZipFile(sql) as stock, zipfile.ZipFile(jar, "w") as target:
        for name in stock.namelist():
            if "/HDFSBackedStateStoreProvider" in name:
                target.writestr(name, stock.read(name).replace(FACTORY.encode(), renamed.encode()))


def test_a_spark_without_the_hook(main_jar: Path, tmp_path: Path) -> None:
    """Spark's own maps, right results, merged files, and one warning, however many stores there are."""
    without_the_hook(tmp_path / "other-spark.jar")
    found, log = in_a_process(missing_hook, tmp_path, str(tmp_path / "other-spark.jar"))
    assert [method for method in found["methods"] if FACTORY in method] == []
    numbers = [*range(50), *range(100, 150)]
    assert found["given_out"] == {str(key): sum(v for v in numbers if v % 7 == key) for key in range(7)}
    assert plain_state_files(tmp_path / "checkpoint") == []
    warnings = [line for line in log.splitlines() if "Copy-on-write maps do not fit" in line]
    assert len(warnings) == 1, log[-5000:]
    assert FACTORY in warnings[0]
