"""A checkpoint that stock Spark began goes on through the path door.

Its files are read where they are, everything new is merged, and the old files go as Spark retires them.
"""

import time

import pytest

from tests.streaming.runs import STATE_STORE, Run, Setting, plain_state_files, restart_maintenance, segments
from tests.streaming.workloads import write_batch, write_batches

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CONF = {
    f"{STATE_STORE}maintenanceInterval": "200ms",
    f"{STATE_STORE}minDeltasForSnapshot": "1",
    "spark.sql.streaming.minBatchesToRetain": "1",
    "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "0",
}
BEGUN, REST = range(3), range(3, 6)
DEADLINE = 90.0
CASES = [
    (Setting("path", "heap"), "aggregation"),
    (Setting("path", "rocksdb", 1, changelog=True), "outer_join"),
    (Setting("path", "rocksdb", 1, changelog=False), "session_window"),
    (Setting("path", "rocksdb", 2, changelog=True, checksums=True), "aggregation"),
    (Setting("path", "rocksdb", 2, changelog=True), "transform_with_state"),
]


def everything(run):
    return sorted(row for rows in run.rows.values() for row in rows)


@pytest.mark.parametrize(("setting", "workload"), CASES, ids=str)
def test_from_stock(make_spark, tmp_path, setting, workload):
    spark = make_spark(CONF, mode="path", store=setting.store)
    restart_maintenance(spark)
    as_stock = Setting("stock", setting.store, setting.format_version, setting.changelog, setting.checksums)
    begun = Run(spark, workload, as_stock, tmp_path / "query")
    write_batches(begun.input, BEGUN)
    begun.run()
    assert plain_state_files(begun.checkpoint)
    assert not (begun.checkpoint / "state" / "_merged").exists()

    merged = Run(spark, workload, setting, begun.folder)
    query = merged.start(available_now=False)
    try:
        # Once merged state is there, all plain files are old ones: there can never be more of them, or others.
        write_batches(merged.input, REST)
        query.processAllAvailable()
        old = set(plain_state_files(merged.checkpoint))
        assert segments(merged.checkpoint)
        batch, deadline = REST.stop, time.monotonic() + DEADLINE
        while old and time.monotonic() < deadline:
            write_batch(merged.input, batch, rows=5)  # Spark retires old versions as new ones come
            batch += 1
            query.processAllAvailable()
            left = set(plain_state_files(merged.checkpoint))
            assert left <= old
            old = left
        assert old == set()
    finally:
        query.stop()

    stock = Run(spark, workload, as_stock, tmp_path / "stock", input=merged.input)
    stock.run()
    assert everything(stock) == sorted(everything(begun) + everything(merged))
