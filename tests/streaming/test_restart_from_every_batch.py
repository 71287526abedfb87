"""A query goes on from any batch that it has committed, or does its first again, on a copy of its checkpoint.

The copy is taken while the process that wrote the merged files still has them open, as a backup would: their groups are
readable as they are. Each of the two stores is met with each door and with a query of one and of four stores.
"""

import json
import shutil
import uuid
from pathlib import Path

import pytest

from tests.conftest import MakeSpark
from tests.sampling import sampled
from tests.streaming.runs import STATE_STORE, Run, Setting, assert_state_is_merged, unload_stores
from tests.streaming.workloads import BATCHES, write_batches

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CONF = {f"{STATE_STORE}maintenanceInterval": "300ms", f"{STATE_STORE}minDeltasForSnapshot": "1"}
# Spark adds batches without data to run after those with data, but not after a restart.
DATA_ONLY = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
CASES = [
    (Setting("path", "heap"), "aggregation"),
    (Setting("path", "rocksdb", 2, changelog=True, checksums=True), "outer_join"),
    (Setting("provider", "heap"), "outer_join"),
    (Setting("provider", "rocksdb", 1, changelog=False), "aggregation"),
]


def copy_checkpoint(source: Path, target: Path) -> None:
    """Copies a checkpoint for a query of its own: Spark would stop one that runs under the same id."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.running", "*.ended"))
    (target / ".metadata.crc").unlink()
    (target / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))


def forget_batches_after(checkpoint: Path, batch: int) -> None:
    """Makes a checkpoint that of a query that has committed no batch after this one.

    The first batch stays planned: where nothing is, Spark refuses a checkpoint with state in it.
    """
    for log in (checkpoint / "offsets", checkpoint / "commits", *(checkpoint / "sources").iterdir()):
        last = batch if log.name == "commits" else max(batch, 0)
        for file in log.iterdir():
            number = file.name.removeprefix(".").split(".")[0]
            if number.isdigit() and int(number) > last:
                file.unlink()


@pytest.mark.parametrize(("setting", "workload"), sampled(CASES, 2, kind=lambda case: case[0].store), ids=str)
def test_restart_from_every_batch(make_spark: MakeSpark, tmp_path: Path, setting: Setting, workload: str) -> None:
    spark = make_spark(CONF, mode=setting.door, store=setting.store)
    unload_stores(spark)
    whole = Run(spark, workload, setting, tmp_path / "whole")
    write_batches(whole.input, range(BATCHES))
    whole.run(DATA_ONLY)
    last = BATCHES - 1
    assert max(whole.rows) == last

    copies = {}
    for batch in range(-1, last + 1):
        copy = Run(spark, workload, setting, tmp_path / f"from-{batch}", input=whole.input)
        copy_checkpoint(whole.checkpoint, copy.checkpoint)
        forget_batches_after(copy.checkpoint, batch)
        copies[batch] = copy
    write_batches(whole.input, [BATCHES])
    whole.run(DATA_ONLY)
    assert all(whole.rows.values())
    queries = {batch: copy.start(DATA_ONLY) for batch, copy in copies.items()}
    for batch, copy in copies.items():
        copy.finish(queries[batch])
        assert copy.rows == {b: rows for b, rows in whole.rows.items() if b > batch}, batch
        assert copy.metrics == {b: figures for b, figures in whole.metrics.items() if b > batch}, batch
        assert_state_is_merged(copy)
