"""Spark's ``statestore`` and ``state-metadata`` readers see in a merged checkpoint what they see in a stock one."""

import re
from typing import Any

import pytest

from tests.conftest import MakeSpark
from tests.sampling import sampled
from tests.streaming.runs import (
    STATE_STORE,
    Run,
    Setting,
    assert_state_is_merged,
    plain_state_files,
    segments,
    session_conf,
    unload_stores,
)
from tests.streaming.workloads import BATCHES, WORKLOADS, write_batches

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(1, files="state of each kind")]

# Where Spark can do so, maintenance is part of each task: the snapshots are those of the same versions everywhere.
CONF = {f"{STATE_STORE}unloadOnCommit": "true", f"{STATE_STORE}minDeltasForSnapshot": "1"}
DOORS_AND_STORES = [("path", "heap"), ("path", "rocksdb"), ("provider", "heap"), ("provider", "rocksdb")]
Pairs = dict[str, list[Run]]
NAMES = ("aggregation", "outer_join", "transform_with_state")


def has_all_operators(door_and_store: tuple[str, str]) -> bool:
    """Whether transformWithState runs there, too."""
    return door_and_store == ("path", "rocksdb")


SAMPLE = [pytest.param(case.values, marks=case.marks) for case in sampled(DOORS_AND_STORES, 2, kind=has_all_operators)]


@pytest.fixture(scope="module", params=SAMPLE, ids="-".join)
def pairs(request: pytest.FixtureRequest, make_spark: MakeSpark, tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    """By workload, a run on stock and one on merged state; both in one session, over the same input."""
    door, store = request.param
    spark = make_spark(CONF, mode=door, store=store)
    unload_stores(spark)
    folder = tmp_path_factory.mktemp("readers")
    write_batches(folder / "input", range(BATCHES))
    admitted = [n for n in NAMES if not WORKLOADS[n].only_stock_class or (door, store) == ("path", "rocksdb")]
    found = {}
    for name in admitted:
        found[name] = [
            Run(spark, name, Setting(kind, store), folder / kind / name, input=folder / "input")
            for kind in ("stock", door)
        ]
    queries = [(run, run.start()) for pair in found.values() for run in pair]
    for run, query in queries:
        run.finish(query)
    for stock, merged in found.values():
        assert plain_state_files(stock.checkpoint)
        assert_state_is_merged(merged)
    return found


def read(run: Run, source: str, **options: Any) -> tuple[list[tuple[str, str]], list[str]]:
    """What a reader says of a run's checkpoint: its columns, and its rows in an order of their own."""
    with session_conf(run.spark, run.setting.conf):
        found = run.spark.read.format(source).options(**options).load(run.location)
        return found.dtypes, sorted(repr(tuple(row)) for row in found.collect())


def assert_same(pair: list[Run], *, source: str = "statestore", **options: Any) -> list[str]:
    stock, merged = (read(run, source, **options) for run in pair)
    assert merged == stock, options
    return stock[1]


def pair_of(pairs: Pairs, name: str) -> list[Run]:
    if name not in pairs:
        pytest.skip("Spark admits transformWithState with its own RocksDB provider only")
    return pairs[name]


@pytest.mark.parametrize("name", NAMES)
def test_state_metadata(pairs: Pairs, name: str) -> None:
    assert assert_same(pair_of(pairs, name), source="state-metadata")


@pytest.mark.parametrize("name", NAMES)
def test_state_of_the_last_batch(pairs: Pairs, name: str) -> None:
    pair = pair_of(pairs, name)
    states = [assert_same(pair, **part) for part in WORKLOADS[name].state_parts]
    assert any(states)


@pytest.mark.parametrize("name", NAMES)
def test_state_of_an_earlier_batch(pairs: Pairs, name: str) -> None:
    pair = pair_of(pairs, name)
    part = WORKLOADS[name].state_parts[0]
    states = [assert_same(pair, batchId=batch, **part) for batch in (0, BATCHES - 1)]
    assert states[0] != states[1]


def test_one_store_of_a_join(pairs: Pairs) -> None:
    assert assert_same(pair_of(pairs, "outer_join"), storeName="left-keyToNumValues", batchId=1)


def test_registered_timers(pairs: Pairs) -> None:
    assert assert_same(pair_of(pairs, "transform_with_state"), readRegisteredTimers="true", batchId=1)


@pytest.mark.parametrize("span", [{"changeStartBatchId": 0}, {"changeStartBatchId": 1, "changeEndBatchId": 2}], ids=str)
@pytest.mark.parametrize("name", ["aggregation", "transform_with_state"])
def test_change_feed(pairs: Pairs, name: str, span: dict[str, Any]) -> None:
    pair = pair_of(pairs, name)
    changes = assert_same(pair, readChangeFeed="true", **WORKLOADS[name].state_parts[0], **span)
    assert any("'update'" in change for change in changes)


@pytest.mark.since("4.1", "before, snapshots are of other versions in each run: maintenance is no part of tasks")
def test_from_a_snapshot(pairs: Pairs) -> None:
    stock, merged = pair = pair_of(pairs, "aggregation")
    partition = 1
    snapshot = re.compile(rf"0/{partition}/(\d+)\.(?:zip|snapshot)")
    of_stock, of_merged = (
        sorted(int(found[1]) for path in paths if (found := snapshot.fullmatch(path)))
        for paths in (plain_state_files(stock.checkpoint), segments(merged.checkpoint))
    )
    assert of_merged == of_stock != []
    version = of_stock[0]
    options: dict[str, Any] = {"snapshotStartBatchId": version - 1, "snapshotPartitionId": partition}
    assert assert_same(pair, **options, batchId=version - 1)
    assert assert_same(pair, **options, batchId=version)  # the snapshot, and a batch replayed on it
