"""Beside a real query, after its process was killed, and after it went on: clean, until something is damaged."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_statestore import Checkpoint
from tests.conftest import ROOT, MakeSpark
from tests.inspect.faults import state_files
from tests.jvm.harness import until
from tests.maintenance.builders import entry_of, flip, make, verify
from tests.sampling import sampled

CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "3",
    "spark.driver.memory": "600m",
    "spark.sql.streaming.minBatchesToRetain": "3",
    "spark.sql.streaming.stateStore.maintenanceInterval": "300ms",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.fileMerging.closedAfter": "10s",
}


def write_inputs(source: Path, batches: range) -> None:
    """Files of a few rows."""
    source.mkdir(exist_ok=True)
    for batch in batches:
        ids = pa.array(range(batch * 50, batch * 50 + 50), pa.int64())
        pq.write_table(pa.table({"id": ids}), source / f"_{batch}")
        (source / f"_{batch}").rename(source / f"{batch:05}.parquet")


@contextmanager
def query(store: str, source: Path, checkpoint: Path, conf: dict[str, str]) -> Iterator[list[int]]:
    """The query in a process of its own, which is killed in the end; the batches that it has computed so far."""
    environment = {key: value for key, value in os.environ.items() if key != "PYSPARK_SUBMIT_ARGS"}
    environment |= {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"SPARK_LOCAL_DIRS": str(source.parent / "local")}
    command = [sys.executable, "-m", "tests.hdfs.query_process", "provider", store, str(source), str(checkpoint)]
    process = subprocess.Popen(
        [*command, *(f"{key}={value}" for key, value in conf.items())],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env=environment,
        start_new_session=True,  # a process group of its own, with its JVM in it
    )
    assert process.stdout is not None
    computed: list[int] = []
    reader = threading.Thread(
        target=lambda out: computed.extend(int(line.split()[1]) for line in out), args=(process.stdout,), daemon=True
    )
    reader.start()
    try:
        yield computed
    finally:
        os.killpg(process.pid, 9)
        process.wait()
        reader.join()
        process.stdout.close()


def verify_until(checkpoint: Path, computed: list[int], batches: int) -> None:
    """Looks again and again until so many batches are done, and twice at least."""
    until(lambda: len(computed) >= 2, "the first batches", 120)
    looks = 0
    while len(computed) < batches or looks < 2:
        found = verify(checkpoint)
        assert [str(each) for each in found.damages] == []
        looks += 1


@pytest.mark.sweep(0, files="kills and long runs")
@pytest.mark.parametrize("store_and_format", sampled(["rocksdb-2", "heap-1"], 1))
def test_query_is_killed_and_goes_on(main_jar: Path, tmp_path: Path, store_and_format: str) -> None:
    store, _, version = store_and_format.partition("-")
    conf = {**CONF, "spark.sql.streaming.stateStore.checkpointFormatVersion": version}
    source, checkpoint = tmp_path / "input", tmp_path / "checkpoint"
    write_inputs(source, range(14))
    for batches in (7, 4):
        with query(store, source, checkpoint, conf) as computed:
            verify_until(checkpoint, computed, batches)
            write_inputs(source, range(14, 40))
        found = verify(checkpoint)
        assert [str(each) for each in found.damages] == []
        assert found.versions_count > 0
        assert found.segments_count > 0
    assert int(min(path.name for path in (checkpoint / "commits").iterdir() if path.name.isdigit())) > 0
    damage_and_find(checkpoint)


def damage_and_find(checkpoint: Path) -> None:
    """A byte of what the last committed batch needs."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    of_last = [each for each in state_files(checkpoint) if each.version == last + 1]
    assert of_last
    table = Checkpoint(checkpoint).inspect.segments().to_pylist()
    [row] = [row for row in table if (row["logical_path"], row["status"]) == (of_last[0].path, "live")]
    path = Path(row["file_path"].removeprefix("file://"))
    flip(path, row["offset"])
    assert [(each.kind, each.name, each.offset, each.logical_path) for each in verify(checkpoint).damages] == [
        ("corrupt_segment", path.name, row["offset"], of_last[0].path)
    ]


def test_reading_is_spread_over_spark(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark = make_spark()
    make(tmp_path, "mixed")
    here = verify(tmp_path)
    assert verify(tmp_path, spark=spark) == here
    path, entry = entry_of(tmp_path, "0/1/4.zip")
    flip(path, entry.offset)
    there = verify(tmp_path, spark=spark)
    assert [each.kind for each in there.damages] == ["corrupt_segment"]
    assert there.damages == verify(tmp_path).damages
