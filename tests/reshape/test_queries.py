"""After a repartitioning each query gives out what it would have given out with that number from the beginning.

And its state is, key by key and partition by partition, what Spark's own repartitioning makes of stock Spark's, as far
as Spark has one.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from tests.conftest import MakeSpark
from tests.reshape.harness import (
    at,
    given_out,
    go_on,
    partitions,
    partitions_with_files,
    repartitioned,
    repartitioned_by_spark,
    since,
    state_of,
)
from tests.sampling import sampled
from tests.streaming.runs import Run, Setting, assert_state_is_merged
from tests.streaming.workloads import BATCHES, WORKLOADS

pytestmark = [pytest.mark.spark, pytest.mark.slow, since, pytest.mark.sweep(1, files="reshape")]

NUMBERS = [(3, 5), (4, 2), (2, 6), (9, 4)]
"""Before and after: neither is a multiple, a fraction, a multiple, and too many old ones for each new one to read."""

SETTINGS = [
    Setting("provider", "rocksdb", 1, changelog=True),
    Setting("path", "rocksdb", 2, changelog=True),
    Setting("provider", "rocksdb", 2, changelog=False, checksums=True),
    Setting("path", "rocksdb", 1, changelog=False),
    Setting("provider", "heap", checksums=True),
    Setting("path", "heap"),
]

CASES = [
    (setting, workload, NUMBERS[number % len(NUMBERS)])
    for number, (workload, setting) in enumerate(product(WORKLOADS, SETTINGS))
    if not WORKLOADS[workload].only_stock_class or (setting.door, setting.store) == ("path", "rocksdb")
]


@pytest.mark.parametrize(
    ("setting", "workload", "numbers"), sampled(CASES, 2, kind=lambda case: case[0].door + case[0].store), ids=str
)
def test_a_query_goes_on_as_if_it_had_always_had_that_number(
    make_spark: MakeSpark, tmp_path: Path, setting: Setting, workload: str, numbers: tuple[int, int]
) -> None:
    before, after = numbers
    spark = make_spark(mode=setting.door, store=setting.store)
    stock = replace(setting, door="stock")
    ours = go_on(Run(spark, workload, setting, tmp_path / "ours"), range(2), partitions(before))
    always = go_on(Run(spark, workload, stock, tmp_path / "always", ours.input), (), partitions(after))

    done = repartitioned(ours, after)

    assert (done.partitions_before, done.partitions, done.batch) == (before, after, max(ours.rows) + 1)
    assert done.written_bytes_count > 0
    assert_state_is_merged(ours)
    assert state_of(ours) == state_of(always)
    if setting.store == "rocksdb":  # Spark repartitions no other
        sparks = go_on(Run(spark, workload, stock, tmp_path / "sparks", ours.input), (), partitions(before))
        repartitioned_by_spark(sparks, after)
        assert state_of(ours) == state_of(sparks)
    removed = at(ours).maintenance.remove_old_partitions(dry_run=False)
    assert (removed.removed_partitions_count > 0) == (after < before)
    assert partitions_with_files(ours.checkpoint) == set(range(after))

    go_on(ours, range(2, BATCHES))
    go_on(always, ())

    assert given_out(ours) == given_out(always)
    assert state_of(ours) == state_of(always)
    # Spark counts rows on from what a snapshot says.
    counts, expected = ([store[0] for store in run.metrics[max(run.metrics)]] for run in (ours, always))
    assert counts == expected
    assert partitions_with_files(ours.checkpoint) == set(range(after))
    assert at(ours).maintenance.verify().is_clean
