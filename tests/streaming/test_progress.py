"""The progress of a query says what its batches have done to merged files: by operator, with Spark's own metrics."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pyspark_statestore import Checkpoint
from tests import class_data
from tests.conftest import MakeSpark
from tests.streaming.runs import STATE_STORE, Run, Setting, merged_files
from tests.streaming.workloads import write_batches

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NAMES = {
    "fileMergingCreatedFiles",
    "fileMergingWrittenSegments",
    "fileMergingWrittenBytes",
    "fileMergingCommitWaitMs",
    "fileMergingFetchedBytes",
    "fileMergingCachedBytes",
    "fileMergingLookAheadWindows",
    "fileMergingLookAheadKeys",
    "fileMergingLookAheadPresentKeys",
    "fileMergingLookAheadFetchedBlocks",
}
HEAP_NAMES = NAMES | {"fileMergingHeapSpilledBytes", "fileMergingHeapSpillReads"}
"""Of heap stores whose maps are ours."""

# What maintenance writes after the last batch would be in no progress.
CONF = {f"{STATE_STORE}maintenanceInterval": "10m"}


@pytest.fixture(scope="module")
def spark(make_spark: MakeSpark) -> SparkSession:
    return make_spark(CONF, mode="provider")


def run_and_sum(run: Run, conf: dict[str, str] | None = None) -> list[Counter[str]]:
    """Runs a query over what is there; returns the sums of our metrics over its operators, batch by batch."""
    query = run.start(conf)
    run.finish(query)
    found = []
    for progress in query.recentProgress:
        if progress["batchId"] in run.rows:
            sums: Counter[str] = Counter()
            for operator in progress["stateOperators"]:
                ours = {name for name in operator["customMetrics"] if name.startswith("fileMerging")}
                has_our_maps = run.setting.store == "heap" and class_data.MINOR not in ("3.5", "4.0", "4.1")
                assert ours == (HEAP_NAMES if has_our_maps else NAMES)
                sums.update({name: operator["customMetrics"][name] for name in NAMES})
            found.append(sums)
    return found


def provider_of(setting: Setting) -> dict[str, str]:
    """The class that the session of this file has for RocksDB, or the one for the heap."""
    classes = {"rocksdb": "MergedRocksDBStateStoreProvider", "heap": "MergedHDFSBackedStateStoreProvider"}
    return {f"{STATE_STORE}providerClass": f"io.pyspark.statestore.spark.{classes[setting.store]}"}


@pytest.mark.parametrize(
    ("setting", "workload"),
    [
        (Setting("provider", "rocksdb"), "outer_join"),
        (Setting("provider", "rocksdb", changelog=False), "aggregation"),
        (Setting("provider", "heap"), "aggregation"),
        (Setting("provider", "heap"), "dedup"),
    ],
    ids=str,
)
def test_batches_say_what_they_wrote(spark: SparkSession, tmp_path: Path, setting: Setting, workload: str) -> None:
    run = Run(spark, workload, setting, tmp_path)
    write_batches(run.input, range(2))
    batches = run_and_sum(run, provider_of(setting))
    assert len(batches) >= 2
    assert all(batch["fileMergingWrittenSegments"] > 0 for batch in batches)
    total = sum(batches, Counter[str]())

    everything = Checkpoint(run.checkpoint).inspect.segments().to_pylist()
    # Of a join's four stores Spark takes the metrics of two.
    segments = [segment for segment in everything if "keyToNumValues" not in segment["logical_path"]]
    assert total["fileMergingWrittenSegments"] == len(segments)
    assert total["fileMergingWrittenBytes"] == sum(segment["length"] for segment in segments)
    counted = log_of(spark, run)
    stores = len({segment["logical_path"].rpartition("/")[0] for segment in segments})
    waited_ms = counted()["waitNanos"] / 1e6
    if segments == everything:
        assert total["fileMergingCreatedFiles"] == len(merged_files(run.checkpoint))
        assert waited_ms - stores <= total["fileMergingCommitWaitMs"] <= waited_ms
    if class_data.MINOR != "4.0":  # its operators abort the store that they read, which loads it anew in each batch
        assert total["fileMergingFetchedBytes"] == total["fileMergingCachedBytes"] == 0

    before = counted()
    write_batches(run.input, range(2, 3))
    again, *rest = run_and_sum(run, provider_of(setting))
    loaded = counted() - before
    said = sum((again, *rest), Counter[str]())
    assert said["fileMergingFetchedBytes"] == loaded["fetchedBytes"]
    assert said["fileMergingCachedBytes"] == loaded["cachedBytes"]
    assert (loaded["cachedBytes"] > 0) == (setting.store == "rocksdb" and not setting.changelog)
    if class_data.MINOR != "4.0":
        assert sum(batch["fileMergingCachedBytes"] for batch in rest) == 0, "only the first batch loads"


def log_of(spark: SparkSession, run: Run) -> Any:
    """What the log of a checkpoint has counted, each time it is called."""
    (log,) = [log for log in logs(spark) if str(run.checkpoint) in str(log.checkpoint())]
    return lambda: Counter({name: int(value) for name, value in log.metrics().snapshot().items()})


def logs(spark: SparkSession) -> list[Any]:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return list(jvm.io.pyspark.statestore.log.MergedLogs.all().values())


def test_the_path_door_has_the_metrics_of_sparks_own_store(make_spark: MakeSpark, tmp_path: Path) -> None:
    run = Run(make_spark(CONF, mode="path"), "aggregation", Setting("path", "rocksdb"), tmp_path)
    write_batches(run.input, range(1))
    query = run.start()
    run.finish(query)
    (operator,) = query.recentProgress[0]["stateOperators"]
    assert not NAMES & set(operator["customMetrics"])
    assert "rocksdbCommitFlushLatency" in operator["customMetrics"]


def test_a_store_with_more_metrics_passes_everything_on(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    assert list(jvm.io.pyspark.statestore.spark.PassedOn.notPassedOn()) == []
