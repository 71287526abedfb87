"""A checkpoint that stock Spark began goes on through the path door.

Its files are read where they are, everything new is merged, and the old files go as Spark retires them.
"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import MakeSpark
from tests.sampling import marked, sampled
from tests.streaming.runs import STATE_STORE, Run, Setting, plain_state_files, segments, unload_stores
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
]
# It takes longer than all others, because each of its tasks starts Python.
SLOW = (Setting("path", "rocksdb", 2, changelog=True), "transform_with_state")


def retire(run: Run, until: Callable[[int], bool]) -> int:
    """Goes on with a query that was begun, over the rest of the input and then more until there has been enough.

    Args:
        run: The query.
        until: Called after each batch with the number of the next; whether there has been enough.

    Returns:
        The number of batches of input.
    """
    write_batches(run.input, REST)
    # A query that goes on meanwhile may see a file in one of two sources, and read the other's in another batch.
    run.run()
    batch = REST.stop
    while not until(batch):
        write_batch(run.input, batch, rows=5)  # Spark retires old versions as new ones come
        run.run()
        batch += 1
    return batch


@pytest.mark.parametrize(
    ("setting", "workload"),
    [*sampled(CASES, 2, kind=lambda case: case[0].store), *marked([SLOW], lambda _: False)],
    ids=str,
)
def test_from_stock(make_spark: MakeSpark, tmp_path: Path, setting: Setting, workload: str) -> None:
    spark = make_spark(CONF, mode="path", store=setting.store)
    unload_stores(spark)
    as_stock = Setting("stock", setting.store, setting.format_version, setting.changelog, setting.checksums)
    begun = Run(spark, workload, as_stock, tmp_path / "query")
    write_batches(begun.input, BEGUN)
    begun.run()
    # Stock Spark's maintenance may write a snapshot after the query has ended; this waits for it.
    unload_stores(spark)
    old = set(plain_state_files(begun.checkpoint))
    assert old
    assert not (begun.checkpoint / "state" / "_merged").exists()

    merged = Run(spark, workload, setting, begun.folder)
    deadline = time.monotonic() + DEADLINE

    def all_old_files_are_gone(next_batch: int) -> bool:
        left = set(plain_state_files(merged.checkpoint))
        assert left <= old, "no plain file is ever added"
        return not left or time.monotonic() > deadline

    batches = retire(merged, all_old_files_are_gone)
    assert plain_state_files(merged.checkpoint) == []
    assert segments(merged.checkpoint)

    stock = Run(spark, workload, as_stock, tmp_path / "stock")
    write_batches(stock.input, BEGUN)
    stock.run()
    retire(stock, lambda next_batch: next_batch == batches)
    assert {**begun.rows, **merged.rows} == stock.rows
    assert not begun.rows.keys() & merged.rows.keys()
