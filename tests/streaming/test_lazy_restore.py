"""A store that is opened with the ends of its SSTs gives out what it gives out when it is whole."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession

from pyspark_statestore import Checkpoint
from tests.conftest import ROOT
from tests.jvm.test_lazy_stores import whole_entries
from tests.sampling import sampled
from tests.streaming.lazy_process import COUNTS
from tests.streaming.runs import STATE_STORE, Run, Setting, forget, merged_files, session_conf
from tests.streaming.workloads import BATCHES, WORKLOADS, write_batch

if TYPE_CHECKING:
    import pandas as pd

pytestmark = [
    pytest.mark.spark,
    pytest.mark.since("4.1", "stores are loaded lazily from Spark 4.1 on"),
    pytest.mark.sweep(1, files="early and late"),
]

FILE_MERGING = f"{STATE_STORE}fileMerging."
NO_CACHE = {f"{FILE_MERGING}cache.sizeLimit": "0"}
SETTINGS = [
    Setting("provider", "rocksdb", changelog=False),
    Setting("provider", "rocksdb"),
    Setting("provider", "rocksdb", format_version=2, changelog=False, checksums=True),
    Setting("provider", "rocksdb", format_version=2, checksums=True),
]
ADMITTED = [name for name, workload in WORKLOADS.items() if not workload.only_stock_class]
CASES = [(setting, name, how) for setting in SETTINGS for name in ADMITTED for how in ("lazy", "ondemand", "remote")]
# Snapshots come soon, so that a load has SSTs and changelogs.
CHANGELOG = {f"{STATE_STORE}maintenanceInterval": "100ms", f"{STATE_STORE}minDeltasForSnapshot": "2"}
# Each row is a block of its own.
SMALL_BLOCKS = {f"{STATE_STORE}rocksdb.blockSizeKB": "1", f"{STATE_STORE}rocksdb.compression": "none"}


def lazily(how: str = "lazy") -> dict[str, str]:
    """Settings for a store that is opened with holes."""
    # Slowly, so that queries meet holes.
    return {**NO_CACHE, f"{FILE_MERGING}restore": how, f"{FILE_MERGING}restore.maxBytesPerSecond": "2k"}


@pytest.fixture
def holes(make_spark: Callable[..., SparkSession]) -> Iterator[Any]:
    """Decides which files have holes: here all."""
    session = make_spark(CHANGELOG, mode="provider")
    jvm: Any = session.sparkContext._jvm
    control = jvm.io.pyspark.statestore.tables.Lazily
    control.everywhere()
    ssts = jvm.io.pyspark.statestore.tables.HoleySst
    ssts.pages(64, 600)
    yield control
    ssts.goAllTheTime(False)
    ssts.pages(4096, 1 << 20)
    jvm.io.pyspark.statestore.tables.Early.asEver()
    control.asEver()


@pytest.fixture
def session(make_spark: Callable[..., SparkSession]) -> SparkSession:
    """A session with the provider door and little between a snapshot and the next."""
    return make_spark(CHANGELOG, mode="provider")


def figures(spark: SparkSession, run: Run) -> dict[str, int]:
    """What the log of a checkpoint has counted since it was opened."""
    jvm: Any = spark.sparkContext._jvm
    return dict(jvm.io.pyspark.statestore.log.MergedLogs.all()[f"file:{run.checkpoint}/state"].metrics().snapshot())


@pytest.mark.parametrize(("setting", "workload", "how"), sampled(CASES, 6, kind=lambda case: case[2]), ids=str)
def test_equal_to_stock_when_each_batch_is_restored(
    session: SparkSession, holes: Any, tmp_path: Path, setting: Setting, workload: str, how: str
) -> None:
    lazy = Run(session, workload, setting, tmp_path / "lazy", tmp_path / "input")
    stock_setting = Setting("stock", "rocksdb", setting.format_version, setting.changelog)
    stock = Run(session, workload, stock_setting, tmp_path / "stock", tmp_path / "input")
    left_out = demanded = hydrated = 0
    ssts = session.sparkContext._jvm.io.pyspark.statestore.tables.HoleySst
    if how == "remote":
        # Of what is uploaded as it is made, snapshots rely on some.
        ssts.goAllTheTime(True)
        early = session.sparkContext._jvm.io.pyspark.statestore.tables.Early
        getattr(early, "from")(600, 20)
        early.reliableFor(100)
    for batch in range(BATCHES + 1):
        write_batch(lazy.input, batch)
        for run, conf in ((stock, {}), (lazy, lazily(how))):
            forget(session, run.checkpoint)
            run.run({**SMALL_BLOCKS, **conf})
        counted = figures(session, lazy)
        left_out += counted["leftOutBytes"]
        demanded += counted["demandedBytes"]
        hydrated += counted["hydratedBytes"]
    assert lazy.rows == stock.rows
    assert lazy.metrics == stock.metrics
    assert left_out > 0
    # The background may be faster than a query that begins late.
    assert demanded + hydrated > 0
    assert how == "lazy" or demanded > 0
    assert how != "remote" or hydrated == 0


@pytest.fixture(autouse=True)
def _counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WORKLOADS, "counts", COUNTS)


def two_runs(session: SparkSession, folder: Path) -> tuple[Run, Run]:
    """A query on merged and on stock state, whose snapshots are those of the same versions."""
    setting = Setting("provider", "rocksdb", changelog=False)
    merged = Run(session, "counts", setting, folder / "merged", folder / "input")
    stock = Run(session, "counts", Setting("stock", "rocksdb", changelog=False), folder / "stock", merged.input)
    return merged, stock


def rows_of(run: Run, location: str, conf: dict[str, str]) -> list[str]:
    """What Spark's reader of state sees."""
    with session_conf(run.spark, {**run.setting.conf, **conf}):
        return sorted(repr(tuple(row)) for row in run.spark.read.format("statestore").load(location).collect())


@contextmanager
def with_holes(session: SparkSession, holes: Any, runs: tuple[Run, Run]) -> Iterator[None]:
    """Runs batches. The last one in what is like a new process, whose stores stay as they were loaded meanwhile."""
    merged, stock = runs
    for batch in range(2):
        write_batch(merged.input, batch, rows=600)
        for run in runs:
            run.run({**SMALL_BLOCKS, **NO_CACHE})
    # A few rows, that concern few of those in the state.
    write_batch(merged.input, 2, rows=5)
    stock.run(SMALL_BLOCKS)
    forget(session, merged.checkpoint)
    holes.pause(True)
    query = merged.start({**SMALL_BLOCKS, **lazily()}, available_now=False)
    try:
        query.processAllAvailable()
        assert holes.partialFiles() > 0
        yield
        assert holes.partialFiles() > 0
    finally:
        query.stop()
        merged.note(query)
    assert merged.rows == stock.rows


@pytest.mark.slow
def test_a_state_reader_beside_a_store_with_holes(session: SparkSession, holes: Any, tmp_path: Path) -> None:
    """Spark's reader has whole files, whatever its session says."""
    merged, stock = runs = two_runs(session, tmp_path)
    with with_holes(session, holes, runs):
        expected = rows_of(stock, stock.location, {})
        before = figures(session, merged)
        for how in ("eager", "lazy", "ondemand"):
            assert rows_of(merged, merged.location, lazily(how)) == expected
        after = figures(session, merged)
        assert after["fetchedBytes"] > before["fetchedBytes"]
        assert after["leftOutBytes"] == before["leftOutBytes"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["lazy", "ondemand"])
def test_a_version_expires_while_it_is_read(session: SparkSession, holes: Any, tmp_path: Path, how: str) -> None:
    """A reader has all of a version when it begins, so that nothing has to be there that the query deletes."""
    merged, _ = two_runs(session, tmp_path)
    write_batch(merged.input, 0, rows=600)
    merged.run({**SMALL_BLOCKS, **NO_CACHE, "spark.sql.shuffle.partitions": "1"})
    expected = rows_of(merged, merged.location, lazily("eager"))
    forget(session, merged.checkpoint)
    holes.pause(True)

    def slowly(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for number, frame in enumerate(frames):
            if number == 0:
                for path in files:
                    os.truncate(path, 0)
            yield frame[["row"]]

    files = [str(path) for path in merged_files(merged.checkpoint)]
    conf = {**lazily(how), "spark.sql.execution.arrow.maxRecordsPerBatch": "1"}
    with session_conf(session, {**merged.setting.conf, **conf}):
        state = session.read.format("statestore").load(merged.location)
        # Each row is larger than what fits between Spark and Python, so that rows are read one by one.
        wide = state.selectExpr("to_json(struct(*)) AS row", "repeat('x', 1000000) AS x")
        read = [row.row for row in wide.mapInPandas(slowly, "row string").collect()]
    assert len(read) == len(expected) > 100


@pytest.mark.slow
def test_leaving_with_export_beside_a_store_with_holes(session: SparkSession, holes: Any, tmp_path: Path) -> None:
    merged, stock = runs = two_runs(session, tmp_path)
    left = Run(session, "counts", stock.setting, tmp_path / "left", merged.input)
    with with_holes(session, holes, runs):
        Checkpoint(merged.checkpoint).export(str(left.checkpoint), force=True)
    write_batch(merged.input, 3, rows=600)
    for run in (merged, stock, left):
        run.run({**SMALL_BLOCKS, **(lazily() if run is merged else {})})
    assert any(left.rows.values())
    assert left.rows == {batch: rows for batch, rows in stock.rows.items() if batch in left.rows}
    assert merged.rows == stock.rows


@pytest.mark.sweep(0, files="kills and long runs")
@pytest.mark.slow
def test_a_process_that_is_killed_leaves_nothing_that_is_taken_for_whole(
    session: SparkSession, holes: Any, tmp_path: Path, main_jar: Path, test_jar: Path
) -> None:
    merged, stock = two_runs(session, tmp_path)
    cache = tmp_path / "cache"
    for batch in range(3):
        write_batch(merged.input, batch, rows=600)
        for run in (merged, stock):
            run.run(SMALL_BLOCKS | NO_CACHE)
    forget(session, merged.checkpoint)
    write_batch(merged.input, 3, rows=5)
    arguments = f"--driver-class-path {main_jar}{os.pathsep}{test_jar} --driver-memory 1g pyspark-shell"
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": arguments, "PYTHONPATH": str(ROOT)}
    folders = [str(folder) for folder in (merged.folder, merged.input, cache)]
    command = [sys.executable, "-m", "tests.streaming.lazy_process", *folders]
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left_open = next((int(line) for line in process.stdout if line.strip().isdigit()), 0)
        process.kill()
    assert left_open > 0
    whole_entries(cache)
    stock.run(SMALL_BLOCKS)
    write_batch(merged.input, 4, rows=600)
    for run in (merged, stock):
        forget(session, run.checkpoint)
        kept = {f"{FILE_MERGING}cache.dir": str(cache), f"{FILE_MERGING}restore": "lazy"}
        run.run({**SMALL_BLOCKS, **(kept if run is merged else {})})
    last = max(batch for batch, rows in stock.rows.items() if rows)
    assert merged.rows[last] == stock.rows[last]
    assert merged.metrics[last] == stock.metrics[last]
