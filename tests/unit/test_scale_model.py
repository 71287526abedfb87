"""The arithmetic of the scale model, at sizes that can be counted on paper."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.scale import (
    MergedCosts,
    Shape,
    StockCosts,
    alone_batch,
    alone_restart,
    file_bytes,
    files_with_live_segments,
    pages,
    rotations,
    served_batch,
    served_restart,
    stock_batch,
    stock_restart,
)
from benchmarks.scale_model import worst

ONE = Shape(
    partitions=10,
    executors=1,
    batch_seconds=10,
    maintenance_seconds=60,
    commit_bytes=1000,
    deltas_per_snapshot=10,
    ssts_per_snapshot=1,
    ssts_per_load=2,
    changelogs_per_load=3,
)
STOCK = StockCosts(snapshot_status=2, snapshot_lists=1, load_status=1, load_lists=1, opens_per_changelog=2)
MERGED = MergedCosts(max_file_bytes=100_000, relocated=0.0, lists_per_load=1, driver_calls=0, open_files=2)


def test_stock_pays_for_every_partition() -> None:
    # A changelog 4; a tenth of a snapshot: zip 4, SST 3, 2 looks, a list; a changelog deleted, a tenth of zip and SST.
    assert stock_batch(ONE, STOCK) == pytest.approx(10 * (4 + 1.0 + 1 + 0.2))
    assert stock_batch(dataclasses.replace(ONE, partitions=1000), STOCK) == pytest.approx(100 * stock_batch(ONE, STOCK))


def test_stock_restart_is_loads_and_commits() -> None:
    # list, status, zip, 2 SSTs, 3 changelogs twice; then a commit.
    assert stock_restart(ONE, STOCK) == 10 * (2 + 1 + 2 + 6 + 4)


def test_a_load_without_a_snapshot_opens_no_zip() -> None:
    shape = dataclasses.replace(ONE, ssts_per_load=0)
    assert stock_restart(shape, STOCK) == 10 * (2 + 6 + 4)


@pytest.mark.parametrize(("partitions", "expected"), [(10, 2 << 20), (1000, 5_750_000), (10**6, 128 << 20)])
def test_files_are_small_beside_what_lives(partitions: int, expected: float) -> None:
    # A store keeps 3 changelogs and 2 SSTs of 10 batches each: 23 kB.
    assert file_bytes(dataclasses.replace(ONE, partitions=partitions)) == expected


def test_merged_commits_cost_only_their_share_of_a_file() -> None:
    batch = alone_batch(ONE, MERGED)
    # 10 kB of 100 kB: a tenth of create, addBlock, complete and delete; one listing in six batches; nobody else.
    assert rotations(ONE, MERGED) == pytest.approx(0.1)
    assert dataclasses.asdict(batch) == pytest.approx(
        {"rotation": 0.4, "listing": 1 / 6, "new_indexes": 0, "tails": 0, "relocation": 0, "moves": 0}
    )


def test_where_files_are_sealed_between_batches_every_batch_has_its_own_files() -> None:
    slow = dataclasses.replace(ONE, batch_seconds=61, executors=5)
    # And a lane for snapshots, which come every ten batches.
    assert rotations(slow, MERGED) == 5.5
    assert rotations(slow, dataclasses.replace(MERGED, open_files=1)) == 5


def test_tails_are_read_one_a_second_at_most() -> None:
    # 99 others with two files each: 198 s of patience is every fourth round of 60 s.
    many = dataclasses.replace(ONE, partitions=1000, executors=100)
    rounds = 100 * 10 / 60
    assert alone_batch(many, MERGED).tails == pytest.approx(rounds / 4 * 198)
    assert alone_batch(many, MERGED).tails <= many.executors * many.batch_seconds


def test_everyone_reads_everyones_new_files() -> None:
    ten = dataclasses.replace(ONE, partitions=100, executors=10)
    assert alone_batch(ten, MERGED).new_indexes == pytest.approx(1.0 * 9 * MERGED.relist_opens)


def test_a_restart_reads_every_files_index_once_for_each_executor() -> None:
    # live: 3 changelogs and 2 SSTs of 10 batches, 23 kB each, 230 kB: two full files beside the two open ones.
    assert files_with_live_segments(ONE, MERGED) == 2 + 2
    found = alone_restart(ONE, MERGED)
    assert (found.lists, found.indexes, found.data, found.first_files) == (1, 4, 4, 2)


def test_unsealed_files_are_read_again_with_each_listing() -> None:
    found = alone_restart(ONE, dataclasses.replace(MERGED, lists_per_load=3))
    assert (found.lists, found.indexes) == (3, 2 + 2 * 3)


def test_an_index_only_file_stands_for_all_indexes() -> None:
    hundred = dataclasses.replace(ONE, partitions=1000, executors=100)
    killed, consolidated = alone_restart(hundred, MERGED), alone_restart(hundred, MERGED, index_only=True)
    assert killed.indexes == 100 * (200 + 230)
    assert consolidated.indexes == 100
    assert (killed.lists, killed.data) == (consolidated.lists, consolidated.data)


def test_an_executor_reads_no_more_files_than_its_partitions_can_lie_in() -> None:
    many = dataclasses.replace(ONE, partitions=100, executors=50)
    assert alone_restart(many, MERGED).data == 50 * 2 * MERGED.open_files


def test_no_more_executors_than_partitions() -> None:
    assert Shape().scaled(100, 1000).executors == 100


def test_with_a_service_only_the_driver_lists() -> None:
    ten = dataclasses.replace(ONE, partitions=100, executors=10)
    # A listing in six batches, and an index-only file at most; 1 file begun in a batch.
    assert dataclasses.asdict(served_batch(ten, MERGED)) == pytest.approx(
        {"rotation": 4 + 4 / 6, "listing": 1 / 6, "new_indexes": 0, "tails": 0, "relocation": 0, "moves": 0}
    )
    more = dataclasses.replace(ten, executors=50)
    assert served_batch(more, MERGED).listing == served_batch(ten, MERGED).listing


def test_with_a_service_moved_partitions_cost_only_their_data() -> None:
    ten = dataclasses.replace(ONE, partitions=100, executors=10, loading_executors=4, moved_partitions=7)
    assert served_batch(ten, MERGED).moves == 14
    assert served_batch(dataclasses.replace(ten, moved_partitions=90), MERGED).moves == 4 * 18


def test_with_a_service_each_index_is_read_once_at_a_restart() -> None:
    hundred = dataclasses.replace(ONE, partitions=1000, executors=100)
    found = served_restart(hundred, MERGED)
    # 430 files, so the listing is made twice. Index-only files stand for those that are sealed.
    # A sixth of a pass lists once, and reads the files that were open.
    assert pages(hundred, MERGED) == 2
    assert (found.lists, found.indexes) == pytest.approx((2 + 1 / 6, 200 + 20 + 200 / 6))
    assert served_restart(hundred, MERGED, index_only=True).indexes == 1
    assert found.data == alone_restart(hundred, MERGED).data


def test_with_a_service_no_shape_costs_more_than_stock() -> None:
    for seconds in (1, 10, 120):
        for name, shape, ratio in worst(Shape(batch_seconds=seconds), MergedCosts()):
            assert ratio < 1, (name, shape)
