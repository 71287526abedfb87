"""A query whose SSTs are uploaded as RocksDB makes them gives out what it gives out without, whatever happens."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pyspark_statestore import Checkpoint
from pyspark_statestore.maintenance.relocation import relocate
from pyspark_statestore.sparkfiles import files_named
from tests.conftest import ROOT
from tests.jvm.harness import View, until
from tests.maintenance.harness import merged_log_of
from tests.maintenance.test_relocation import everything
from tests.sampling import sampled
from tests.streaming.runs import STATE_STORE, Run, Setting, assert_state_is_merged, forget
from tests.streaming.test_lazy_restore import ADMITTED, CHANGELOG, FILE_MERGING, NO_CACHE, SETTINGS, figures
from tests.streaming.test_metrics import log_lines
from tests.streaming.workloads import BATCHES, write_batch

pytestmark = [
    pytest.mark.spark,
    pytest.mark.since("4.1", "SSTs are uploaded as they are made from Spark 4.1 on"),
    pytest.mark.sweep(1, files="early and late"),
]

CREATED = {**NO_CACHE, f"{FILE_MERGING}upload": "created"}
NEVER_PUBLISHED = {f"{STATE_STORE}maintenanceInterval": "1h", f"{STATE_STORE}minDeltasForSnapshot": "1"}
CASES = [(setting, name, how) for setting in SETTINGS for name in ADMITTED for how in ("eager", "lazy")]


@pytest.fixture
def session(make_spark: Callable[..., SparkSession]) -> Iterator[SparkSession]:
    """A session with the provider door, in which each SST is uploaded at once."""
    session = make_spark(CHANGELOG, mode="provider")
    jvm: Any = session.sparkContext._jvm
    control = jvm.io.pyspark.statestore.tables.Early
    getattr(control, "from")(1, 0)
    yield session
    control.asEver()


def log_of(spark: SparkSession, run: Run) -> Any:
    """The log of a checkpoint in this process."""
    jvm: Any = spark.sparkContext._jvm
    return jvm.io.pyspark.statestore.log.MergedLogs.all()[f"file:{run.checkpoint}/state"]


def unpublished(checkpoint: Path) -> set[str]:
    """The SSTs that live, and that no snapshot names, as Python reads them."""
    segments = Checkpoint(checkpoint).inspect.segments()["logical_path"].to_pylist()
    return {path for path in segments if path.endswith(".sst")} - named(checkpoint)


def named(checkpoint: Path) -> set[str]:
    """What the snapshots need."""
    contents = View.of(checkpoint / "state").contents()
    zips = {path: data for path, data in contents.items() if path.endswith(".zip")}
    return {f"{path.rpartition('/')[0]}/{name}" for path, data in zips.items() for name in files_named(data) or {}}


@pytest.mark.parametrize(("setting", "workload", "restore"), sampled(CASES, 6, kind=lambda case: case[1]), ids=str)
def test_equal_to_stock_batch_by_batch(
    session: SparkSession, tmp_path: Path, setting: Setting, workload: str, restore: str
) -> None:
    early = Run(session, workload, setting, tmp_path / "early", tmp_path / "input")
    stock_setting = Setting("stock", "rocksdb", setting.format_version, setting.changelog)
    stock = Run(session, workload, stock_setting, tmp_path / "stock", tmp_path / "input")
    for batch in range(BATCHES + 1):
        write_batch(early.input, batch, rows=200)
        if batch % 2:
            for run in (stock, early):
                forget(session, run.checkpoint)
        stock.run()
        early.run({**CREATED, f"{FILE_MERGING}restore": restore})
    assert early.rows == stock.rows
    assert early.metrics == stock.metrics
    forget(session, early.checkpoint)  # it waits for maintenance: a snapshot and its checksum may go into two groups
    assert_state_is_merged(early)
    assert Checkpoint(early.checkpoint).maintenance.verify().damages == ()


def runs_of(session: SparkSession, folder: Path) -> tuple[Run, Run]:
    """A query whose SSTs are uploaded early, and the same on stock state."""
    early = Run(session, "aggregation", Setting("provider", "rocksdb"), folder / "early", folder / "input")
    return early, Run(session, "aggregation", Setting("stock", "rocksdb"), folder / "stock", early.input)


def test_maintenance_beside_what_is_not_published(session: SparkSession, tmp_path: Path) -> None:
    """Relocation, verification, the removal of orphans, a fork, an export: none takes an SST without a zip amiss."""
    early, stock = runs_of(session, tmp_path)
    write_batch(early.input, 0, rows=200)
    stock.run()
    forget(session, early.checkpoint)
    query = early.start({**CREATED, **NEVER_PUBLISHED}, available_now=False)
    try:
        query.processAllAvailable()
        until(lambda: len(unpublished(early.checkpoint)) >= 3, "an early upload of each partition")
        checkpoint = Checkpoint(early.checkpoint)
        before = unpublished(early.checkpoint)
        assert checkpoint.maintenance.remove_orphan_files(dry_run=False).removed_files_count == 0
        assert checkpoint.maintenance.verify().damages == ()
        log_of(session, early).seal()
        assert relocate(merged_log_of(early.checkpoint), everything).added
        log_of(session, early).refresh()
        assert before <= unpublished(early.checkpoint)
        forked = Run(session, early.workload, early.setting, tmp_path / "fork", early.input)
        left = Run(session, early.workload, stock.setting, tmp_path / "left", early.input)
        checkpoint.fork(str(forked.checkpoint))
        checkpoint.export(str(left.checkpoint), force=True)
        write_batch(early.input, 1, rows=200)
        query.processAllAvailable()
    finally:
        query.stop()
        early.note(query)
    for run in (stock, forked, left):
        run.run(CREATED if run is forked else {})
    last = max(stock.rows)
    assert [run.rows[last] for run in (early, forked, left)] == [stock.rows[last]] * 3
    for batch in range(2, BATCHES):
        write_batch(early.input, batch, rows=200)
        forget(session, early.checkpoint)
        for run in (early, stock):
            run.run(CREATED if run is early else {})
    assert early.rows == stock.rows


def test_a_killed_process_leaves_orphans_that_do_no_harm(
    session: SparkSession, tmp_path: Path, main_jar: Path, test_jar: Path
) -> None:
    early, stock = runs_of(session, tmp_path)
    write_batch(early.input, 0, rows=200)
    arguments = f"--driver-class-path {main_jar}{os.pathsep}{test_jar} --driver-memory 1g pyspark-shell"
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": arguments, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.streaming.early_process", str(early.folder), str(early.input)]
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert any(line.strip() == "ran" for line in process.stdout)
            until(lambda: len(unpublished(early.checkpoint)) >= 3, "an early upload of each partition")
        finally:
            process.kill()
    orphans = unpublished(early.checkpoint)
    checkpoint = Checkpoint(early.checkpoint)
    assert checkpoint.maintenance.remove_orphan_files(dry_run=False).removed_files_count == 0
    assert checkpoint.maintenance.verify().damages == ()
    stock.run()
    for batch in range(1, BATCHES + 1):
        write_batch(early.input, batch, rows=200)
        for run in (early, stock):
            run.run(CREATED if run is early else {})
    assert early.rows == {batch: rows for batch, rows in stock.rows.items() if batch in early.rows}
    assert {batch: early.metrics[batch] for batch in early.rows} == {
        batch: stock.metrics[batch] for batch in early.rows
    }
    forget(session, early.checkpoint)
    assert orphans.isdisjoint(named(early.checkpoint))
    assert checkpoint.maintenance.verify().damages == ()


def test_the_path_door_says_that_it_cannot(make_spark: Callable[..., SparkSession], tmp_path: Path) -> None:
    spark = make_spark({f"{FILE_MERGING}upload": "created"}, mode="path")
    run = Run(spark, "aggregation", Setting("path", "rocksdb", changelog=False), tmp_path)
    with log_lines(spark.sparkContext._jvm, "io.pyspark.statestore.tables.Snapshots") as lines:
        for batch in range(2):
            write_batch(run.input, batch)
            run.run()
        said = [line for line in lines() if "upload=created has no effect" in line]
    assert len(said) == 1
    assert str(run.checkpoint) in said[0]
    assert figures(spark, run)["earlyBytes"] == 0
