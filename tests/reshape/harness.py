"""Real queries that are stopped half-way, repartitioned, and started again."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pyspark_statestore import Checkpoint
from pyspark_statestore.migration.repartition import Repartition
from tests.maintenance.harness import live_files
from tests.migration.builders import NOW
from tests.streaming.runs import Run, plain_state_files, session_conf, unload_stores
from tests.streaming.workloads import WORKLOADS, write_batches

SHUFFLE = "spark.sql.shuffle.partitions"
SNAPSHOTS = {"spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false"}
"""With which each batch leaves a snapshot."""


def pretend_spark(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """As if this PySpark were installed, and no session active."""
    monkeypatch.setattr("pyspark.__version__", version)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)


since = pytest.mark.since("4.3", "the repartitioning of Spark 4.3 is used")


def partitions(n: int) -> dict[str, str]:
    """The setting with which a new query has so many state partitions."""
    return {SHUFFLE: str(n)}


def go_on(run: Run, batches: Sequence[int], conf: Mapping[str, str] | None = None) -> Run:
    """Runs a query over more input; what it gave out before stays in ``rows``."""
    write_batches(run.input, batches)
    run.run(conf)
    return run


def given_out(run: Run) -> list[list[str]]:
    """What a query gave out, batch by batch; repartitionings have numbers of batches, and give out nothing."""
    return [rows for _, rows in sorted(run.rows.items())]


def at(run: Run) -> Checkpoint:
    """The checkpoint of a query that is stopped."""
    return Checkpoint(run.checkpoint, closed_after=NOW)


def went_back(run: Run, batch: int) -> None:
    """Takes all later batches out of a stopped query's logs, and their input away, as somebody who repeats them."""
    folders = [run.checkpoint / name for name in ("offsets", "commits", "sources/0")]
    folders += run.checkpoint.glob("state/*/_metadata/v2")
    for folder in folders:
        for file in folder.glob("*"):
            number = file.name.removeprefix(".").partition(".")[0]
            if number.isdecimal() and int(number) > batch:
                file.unlink()
    for file in sorted(run.input.glob("*.json"))[batch + 1 :]:
        file.unlink()
    for later in [each for each in run.rows if each > batch]:
        del run.rows[later]
    unload_stores(run.spark)


def repartitioned(run: Run, n: int) -> Repartition:
    """By this package, in a session that says nothing of the checkpoint's format."""
    conf = {key: value for key, value in run.setting.conf.items() if not key.endswith("checkpointFormatVersion")}
    with session_conf(run.spark, conf):
        return at(run).repartition(n, spark=run.spark)


def repartitioned_by_spark(run: Run, n: int) -> None:
    """By Spark's own call, for a stock query or one of the path door."""
    with session_conf(run.spark, run.setting.conf):
        run.spark._streamingCheckpointManager.repartition(run.location, n)


def state_of(run: Run, spark: SparkSession | None = None) -> dict[str, list[str]]:
    """Every part of a query's state, with the partition in which each key is, as Spark's own reader shows it."""
    session = spark or run.spark
    found = {}
    with session_conf(session, run.setting.conf):
        for part in WORKLOADS[run.workload].state_parts:
            rows = session.read.format("statestore").options(**part).load(run.location)
            found[str(part)] = sorted(repr(tuple(row)) for row in rows.collect())
    return found


def keys_of(run: Run) -> list[str]:
    """The keys and values of a query's state, wherever they are."""
    return sorted(row.rpartition(", ")[0] for part in state_of(run).values() for row in part)


def rows_said(run: Run, version: int) -> int:
    """How many rows the snapshots of a version say that they have; where they do not, RocksDB counts them at a load."""
    found = 0
    for path, data in live_files(run.checkpoint).items():
        if path.endswith(f"/{version}.zip"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                found += json.loads(archive.read("metadata").partition(b"\n")[2])["numKeys"]
    return found


def partitions_with_files(checkpoint: Path) -> set[int]:
    """The state partitions of operator 0 that have live segments or plain files."""
    paths = [*live_files(checkpoint), *plain_state_files(checkpoint)]
    return {int(path.split("/")[1]) for path in paths}


def everything(checkpoint: Path) -> dict[str, Any]:
    """What a query goes on from: its logs, metadata, and live state files; not the kept copies, nor checksums."""
    files = {
        str(path.relative_to(checkpoint)): path.read_bytes()
        for path in checkpoint.rglob("*")
        if path.is_file()
        and not path.name.startswith(".")
        and "_merged" not in path.parts
        and "_replaced" not in path.parts
    }
    return {**files, **{f"segment {path}": data for path, data in live_files(checkpoint).items()}}
