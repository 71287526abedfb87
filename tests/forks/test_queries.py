"""Real queries: a fork of a running one goes on as it does, while both clean and compact."""

from __future__ import annotations

import datetime
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_statestore import Checkpoint, merged_path
from tests import class_data
from tests.conftest import MakeSpark
from tests.forks.harness import pins
from tests.jvm.harness import no_file_goes
from tests.streaming.runs import STATE_STORE, Run, Setting, assert_state_is_merged, session_conf, unload_stores
from tests.streaming.workloads import write_batches

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(1, files="compared with Spark")]

CONF = {f"{STATE_STORE}maintenanceInterval": "200ms", f"{STATE_STORE}minDeltasForSnapshot": "1"}
# Spark adds batches without data to run after those with data, but not after a restart; two batches are kept.
DATA_ONLY = {"spark.sql.streaming.noDataMicroBatches.enabled": "false", "spark.sql.streaming.minBatchesToRetain": "2"}
# Others are in tests/streaming/test_forks.py. A running join's two sources may see a file at different times.
CASES = [
    (Setting("path", "rocksdb", 2, changelog=True, checksums=True), "session_window"),
    (Setting("provider", "rocksdb", 1, changelog=False), "aggregation"),
]


def further(run: Run, name: str, mode: str = "no_claim", version: int | None = None) -> Run:
    """A fork, as a run of its own over the same input."""
    fork = Run(run.spark, run.workload, run.setting, run.folder.parent / name, input=run.input)
    Checkpoint(run.checkpoint).fork(fork.checkpoint, mode, version)
    return fork


def maintain(run: Run) -> None:
    """Everything that may run beside a query."""
    maintenance = Checkpoint(run.checkpoint).maintenance
    maintenance.compact(max_space_amplification=1.1)
    maintenance.consolidate_index()
    maintenance.remove_orphan_files(datetime.timedelta(hours=1), dry_run=False)


@pytest.mark.parametrize(("setting", "workload"), CASES, ids=str)
def test_two_forks_of_a_running_query(make_spark: MakeSpark, tmp_path: Path, setting: Setting, workload: str) -> None:
    spark = make_spark(CONF, mode=setting.door, store=setting.store)
    unload_stores(spark)
    source = Run(spark, workload, setting, tmp_path / "source")
    write_batches(source.input, range(3))
    query = source.start(DATA_ONLY, available_now=False)
    query.processAllAvailable()

    one = further(source, "one")
    write_batches(source.input, [3, 4])
    query.processAllAvailable()
    two = further(source, "two", version=4)
    copied = further(source, "copied", "copy", version=4)
    maintain(source)
    forks = [one, two, copied]
    running = [query, *(fork.start(DATA_ONLY, available_now=False) for fork in forks)]
    for batches in ([5], [6, 7]):
        write_batches(source.input, batches)
        for each in running:
            each.processAllAvailable()
        for run in (source, *forks):
            maintain(run)
    Checkpoint(two.checkpoint).maintenance.compact(localize=True)
    write_batches(source.input, [8])
    for each in running:
        each.processAllAvailable()
        each.stop()
    unload_stores(spark)  # and wait for maintenance: a snapshot and its checksum may go into two groups

    assert sorted(source.rows) == list(range(9)), {batch: len(rows) for batch, rows in source.rows.items()}
    for fork, first in zip(forks, (3, 4, 4), strict=True):
        assert fork.rows == {batch: rows for batch, rows in source.rows.items() if batch >= first}
        assert Checkpoint(fork.checkpoint).maintenance.verify().is_clean
        no_file_goes(partial(assert_state_is_merged, fork))
    assert Checkpoint(source.checkpoint).maintenance.verify().is_clean
    assert str(two.checkpoint) not in {pin.fork for pin in pins(source.checkpoint)}
    expected = state(spark, source)
    for run in forks:
        assert state(spark, run) == expected
    restarted = further(one, "again")
    write_batches(source.input, [9])
    for run in (source, one, restarted):
        run.run(DATA_ONLY)
    assert restarted.rows == {9: source.rows[9]} == {9: one.rows[9]}


def state(spark: SparkSession, run: Run) -> list[str]:
    """What Spark's own reader says of a run's state. That of Spark 4.0 cannot read checkpoint format 2; Python can."""
    if class_data.MINOR == "4.0" and run.setting.format_version == 2:
        return sorted(map(str, Checkpoint(run.checkpoint).state().to_pylist()))
    with session_conf(spark, run.setting.conf):
        rows = spark.read.format("statestore").load(run.location).collect()
    return sorted(str(row.asDict(recursive=True)) for row in rows)


def test_a_fork_of_transform_with_state_has_schemas_of_its_own(make_spark: MakeSpark, tmp_path: Path) -> None:
    setting = Setting("path", "rocksdb")
    spark = make_spark(CONF, mode="path")
    source = Run(spark, "transform_with_state", setting, tmp_path / "source")
    write_batches(source.input, range(2))
    source.run(DATA_ONLY)
    fork = further(source, "fork")
    [text] = [path.read_text() for path in (fork.checkpoint / "state").glob("*/_metadata/v2/*")]

    assert str(source.checkpoint) not in text
    assert merged_path(fork.checkpoint) in text.replace("\\/", "/")
    Checkpoint(fork.checkpoint).maintenance.compact(localize=True)
    write_batches(source.input, [2])
    source.run(DATA_ONLY)
    expected = source.rows[2]
    source.checkpoint.rename(tmp_path / "elsewhere")
    fork.run(DATA_ONLY)
    assert fork.rows == {2: expected}
