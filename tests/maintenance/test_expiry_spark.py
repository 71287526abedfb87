"""Real queries go on from what is left, as if nothing had ever been expired, and can go back as far as was said."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore.checkpoint import Checkpoint
from tests.conftest import MakeSpark
from tests.inspect.builders import refused
from tests.sampling import sampled
from tests.streaming.runs import STATE_STORE, Run, Setting, unload_stores
from tests.streaming.test_restart_from_every_batch import copy_checkpoint, forget_batches_after
from tests.streaming.workloads import write_batches

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CONF = {f"{STATE_STORE}maintenanceInterval": "200ms", f"{STATE_STORE}minDeltasForSnapshot": "2"}
DATA_ONLY = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
BEGUN, REST = 6, 2
LAST = BEGUN - 1
RETAINED = 2
CASES = [
    (Setting("path", "rocksdb", 1, changelog=True), "aggregation"),
    (Setting("path", "rocksdb", 1, changelog=False), "outer_join"),
    (Setting("path", "rocksdb", 2, changelog=True, checksums=True), "outer_join"),
    (Setting("path", "heap"), "aggregation"),
    (Setting("stock", "rocksdb", 1, changelog=True), "aggregation"),
    (Setting("stock", "rocksdb", 1, changelog=False), "aggregation"),
    (Setting("stock", "rocksdb", 2, changelog=True, checksums=True), "aggregation"),
    (Setting("stock", "heap"), "aggregation"),
]


def seen(checkpoint: Path) -> dict[tuple[Any, ...], Any]:
    """How each version that can be restored is."""
    rows = Checkpoint(checkpoint).inspect.versions().to_pylist()
    names = ("operator_id", "partition_id", "store_name", "version", "state_store_checkpoint_id")
    how = ("base_snapshot_version", "replay_count", "restore_bytes")
    return {tuple(row[n] for n in names): tuple(row[n] for n in how) for row in rows if row["is_restorable"]}


def wait_for_snapshots(checkpoint: Path) -> None:
    """Until maintenance has written a snapshot that is not the last version's own past from the beginning."""
    deadline = time.monotonic() + 60
    while True:
        last = [how[0] for key, how in seen(checkpoint).items() if key[3] == BEGUN - RETAINED + 1]
        if last and min(last) > 1:
            return
        assert time.monotonic() < deadline, last
        time.sleep(0.2)


@pytest.mark.parametrize(
    ("setting", "workload"), sampled(CASES, 4, kind=lambda case: (case[0].door, case[0].store)), ids=str
)
def test_goes_on_as_if_nothing_had_happened(
    make_spark: MakeSpark, tmp_path: Path, setting: Setting, workload: str
) -> None:
    spark = make_spark(CONF, mode="path", store=setting.store)
    unload_stores(spark)
    whole = Run(spark, workload, setting, tmp_path / "whole")
    for batch in range(BEGUN):
        write_batches(whole.input, [batch])
    query = whole.start(DATA_ONLY, available_now=False)
    query.processAllAvailable()
    wait_for_snapshots(whole.checkpoint)
    with refused("PSS_QUERY_RUNNING"):
        Checkpoint(whole.checkpoint).maintenance.expire(RETAINED)
    query.stop()
    whole.note(query)
    assert max(whole.rows) == LAST
    unload_stores(spark)

    copies = {}
    for name in ("expired", "gone back"):
        copies[name] = Run(spark, workload, setting, tmp_path / name, input=whole.input)
        copy_checkpoint(whole.checkpoint, copies[name].checkpoint)
    before = seen(whole.checkpoint)
    for run in copies.values():
        done = Checkpoint(run.checkpoint).maintenance.expire(RETAINED, dry_run=False, force=True)
        assert done.oldest_retained_batch == BEGUN - RETAINED
        assert done.untouched_stores_count == 0
        assert done.removed_versions_count > 0
        assert done.removed_files_count >= done.removed_versions_count
        after = seen(run.checkpoint)
        assert len(before) - len(after) == done.removed_versions_count
        oldest = BEGUN - RETAINED + 1
        assert {k: how for k, how in before.items() if k[3] >= oldest}.items() <= after.items()
        assert Checkpoint(run.checkpoint).maintenance.expire(RETAINED, force=True).removed_files_count == 0
    forget_batches_after(copies["gone back"].checkpoint, BEGUN - RETAINED)

    write_batches(whole.input, range(BEGUN, BEGUN + REST))
    whole.run(DATA_ONLY)
    for name, first in (("expired", BEGUN), ("gone back", BEGUN - RETAINED + 1)):
        copies[name].run(DATA_ONLY)
        assert copies[name].rows == {b: rows for b, rows in whole.rows.items() if b >= first}, name
        assert copies[name].metrics == {b: figures for b, figures in whole.metrics.items() if b >= first}, name
