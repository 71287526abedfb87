"""Queries whose checkpoint is on HDFS: through both doors, with both stores, and after a kill."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from benchmarks.local_hdfs import Call, LocalHdfs
from tests.class_data import MINOR
from tests.conftest import MakeSpark
from tests.hdfs.harness import Disk, Hdfs, Place
from tests.hdfs.query_process import stream, totals

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(1, files="HDFS")]

ROOT = Path(__file__).resolve().parents[2]
STATE_STORE = "spark.sql.streaming.stateStore."
CHANGELOG = f"{STATE_STORE}rocksdb.changelogCheckpointing.enabled"
BATCHES = 4
CONF = {
    "spark.hadoop.dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "5",
    "spark.hadoop.dfs.replication": "1",
    f"{STATE_STORE}minDeltasForSnapshot": "2",
}


def write_input(spark: SparkSession, directory: Path, batch: int) -> None:
    """Writes the file of a batch; a query sees it at once or not at all."""
    staging = directory.with_name(f"{directory.name}-{batch}")
    spark.range(100 * batch, 100 * batch + 60, 1, 1).write.parquet(str(staging))
    (file,) = staging.glob("*.parquet")
    directory.mkdir(exist_ok=True)
    # Spark takes files by their modification time.
    os.utime(file, (1_400_000_000 + batch, 1_400_000_000 + batch))
    file.rename(directory / f"{batch}.parquet")
    shutil.rmtree(staging)


def rows(frame: DataFrame) -> dict[int, tuple[int, ...]]:
    return {row["k"]: (row["n"], row["total"]) for row in frame.collect()}


@dataclass
class Run:
    """A query on a place, and what it has given out."""

    spark: SparkSession
    place: Place
    mode: str
    source: Path
    hdfs: LocalHdfs | None = None
    given_out: dict[int, dict[int, tuple[int, ...]]] = field(default_factory=dict)
    asked: dict[int, Counter[Call]] = field(default_factory=dict)
    """What the NameNode had been asked when a batch's state was committed."""

    @property
    def location(self) -> str:
        return self.place.location(merged=self.mode == "path")

    def start(self) -> StreamingQuery:
        def take(batch: DataFrame, batch_id: int) -> None:
            self.given_out[batch_id] = rows(batch)
            if self.hdfs is not None:
                self.asked[batch_id] = self.hdfs.calls()

        query = stream(self.spark, str(self.source)).writeStream.foreachBatch(take).outputMode("update")
        return query.option("checkpointLocation", self.location).trigger(availableNow=True).start()

    def run(self) -> None:
        self.start().awaitTermination()

    def newest(self) -> dict[int, tuple[int, ...]]:
        return {key: row for _, batch in sorted(self.given_out.items()) for key, row in batch.items()}

    def state(self) -> dict[int, tuple[int, ...]]:
        if MINOR == "3.5":
            # Spark has no state reader, and Python needs one for HDFS that not every machine has.
            return self.newest()
        read = self.spark.read.format("statestore").load(self.location)
        return rows(read.select("key.*", "value.*").toDF("k", "n", "total"))


def asked_for_stores(run: Run, batch: int) -> list[Call]:
    """What the NameNode was asked of the state stores' directories from one batch's commits to the next's."""
    stores = f"{run.place.checkpoint}/state/0/"
    new = run.asked[batch] - run.asked[batch - 1]
    return [call for call in new if call.path.startswith(stores) and not call.path.startswith(f"{stores}_")]


def plain_state_files(place: Place) -> list[str]:
    """Files of state stores that are files of their own."""
    found, files = [], place.fs.listFiles(place.path("state"), True)
    while files.hasNext():
        path = files.next().getPath().toString()
        if not any(word in path for word in ("/_merged/", "/_metadata/", "/_stateSchema/")):
            found.append(path)
    return found


@pytest.mark.parametrize(
    ("mode", "store", "changelog"),
    [("provider", "rocksdb", "true"), ("path", "rocksdb", "false"), ("provider", "heap", "false")],
)
def test_equal_to_batch_and_to_disk(
    make_spark: MakeSpark,
    hdfs: LocalHdfs,
    on_hdfs: Hdfs,
    tmp_path: Path,
    jvm: Any,
    mode: str,
    store: str,
    changelog: str,
) -> None:
    spark = make_spark(CONF, mode=mode, store=store)
    spark.conf.set(CHANGELOG, changelog)
    source = tmp_path / "input"
    runs = {
        "hdfs": Run(spark, on_hdfs, mode, source, hdfs),
        "file": Run(spark, Disk(jvm, tmp_path), mode, source),
    }
    for half in (range(BATCHES // 2), range(BATCHES // 2, BATCHES)):
        for batch in half:
            write_input(spark, source, batch)
        queries = [run.start() for run in runs.values()]
        for query in queries:
            query.awaitTermination()
    batch_result = rows(totals(spark.read.parquet(str(source))))
    assert len(batch_result) == 7
    on, off = runs["hdfs"], runs["file"]
    assert on.given_out == off.given_out
    assert sorted(on.given_out) == list(range(BATCHES))
    assert on.newest() == batch_result
    assert on.state() == off.state() == batch_result
    for run in runs.values():
        assert plain_state_files(run.place) == []
        assert 1 <= len(run.place.merged_files()) <= 4
    # After the first batch of each of its two runs no request is for a store.
    assert [asked_for_stores(on, batch) for batch in (1, 3)] == [[], []]
    # Both have the same logical files that a batch commits. A snapshot beside changelogs or deltas is not of these:
    # Spark's maintenance writes it when its thread comes to it. Nor are names that RocksDB makes up for its files.
    by_maintenance = {("rocksdb", "true"): ".zip", ("heap", "false"): ".snapshot"}.get((store, changelog), ".sst")
    names = [
        {path for path in run.place.view().live if not path.endswith((".sst", by_maintenance))} for run in runs.values()
    ]
    assert names[0] == names[1] != set()


@pytest.mark.parametrize("data_node", ["as it was", "restarted"])
def test_query_killed_and_restarted(
    make_spark: MakeSpark, hdfs: LocalHdfs, on_hdfs: Hdfs, tmp_path: Path, data_node: str
) -> None:
    mode = "provider"
    spark = make_spark(CONF, mode=mode)
    spark.conf.set(CHANGELOG, "true")
    source = tmp_path / "input"
    for batch in range(3):
        write_input(spark, source, batch)
    run = Run(spark, on_hdfs, mode, source)
    settings = {**CONF, CHANGELOG: "true", "spark.sql.shuffle.partitions": "3", "spark.ui.enabled": "false"}
    kill_after(2, tmp_path, mode, source, run.location, settings)
    # Nothing has been done about the dead writer's files: leases are its own, lengths are those of the first flush.
    (name, listed), *_ = on_hdfs.merged_files().items()
    assert len((on_hdfs.state() / "_merged" / name).read_bytes()) > listed
    for batch in range(3, 5):
        write_input(spark, source, batch)
    if data_node == "restarted":
        # HDFS does not know any more how long these files are.
        hdfs.restart_data_node()
    with hdfs.lease_soft_limit(1):
        run.run()
    batch_result = rows(totals(spark.read.parquet(str(source))))
    assert run.state() == batch_result
    # It went on where the other process was, and did not begin again.
    assert 2 <= min(run.given_out) <= 3
    assert run.newest() == {key: row for key, row in batch_result.items() if key in run.newest()}


def kill_after(
    batch: int, directory: Path, mode: str, source: Path, location: str, settings: Mapping[str, str]
) -> None:
    """Runs query_process.py, and kills its JVM and itself once it has computed a batch."""
    environment = {key: value for key, value in os.environ.items() if key != "PYSPARK_SUBMIT_ARGS"}
    environment |= {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"SPARK_LOCAL_DIRS": str(directory)}
    command = [sys.executable, "-m", "tests.hdfs.query_process", mode, "rocksdb", str(source), location]
    process = subprocess.Popen(
        command + [f"{key}={value}" for key, value in settings.items()],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env=environment,
        start_new_session=True,  # a process group of its own, with its JVM in it
    )
    watchdog = threading.Timer(500, os.killpg, (process.pid, 9))
    watchdog.start()
    assert process.stdout is not None
    try:
        seen = []
        for line in process.stdout:
            seen.append(line.strip())
            if seen[-1] == f"computed {batch}":
                break
    finally:
        watchdog.cancel()
        os.killpg(process.pid, 9)
        process.wait()
        process.stdout.close()
    assert seen[-1:] == [f"computed {batch}"]
