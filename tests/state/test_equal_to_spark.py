"""State that is read without a JVM is what Spark's ``statestore`` source reads: each operator, store and door."""

from __future__ import annotations

import pytest

from tests.conftest import MakeSpark
from tests.sampling import sampled
from tests.state.both import read_by_spark, read_here, renamed, rows_of
from tests.streaming.runs import (
    PROVIDER,
    STATE_STORE,
    STOCK_CLASSES,
    Run,
    Setting,
    assert_state_is_merged,
    unload_stores,
)
from tests.streaming.workloads import BATCHES, WORKLOADS, write_batches

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(1, files="compared with Spark")]

# Every second version has a snapshot, so that there is a changelog after it.
CONF = {f"{STATE_STORE}unloadOnCommit": "true", f"{STATE_STORE}minDeltasForSnapshot": "2"}

SETTINGS = [
    Setting("stock", "rocksdb", 1, changelog=True),
    Setting("stock", "heap"),
    Setting("path", "rocksdb", 1, changelog=False),
    Setting("path", "rocksdb", 2, changelog=True, checksums=True),
    Setting("path", "heap"),
]

WITH_ALL_SETTINGS = ("aggregation", "outer_join")
"""Of other operators only how they have keys and values is new, not how stores have them."""

_FORMAT_2 = pytest.mark.since("4.1", "Spark's reader of state knows checkpoint format 2 from 4.1 on")


def _marks(setting: Setting) -> list[pytest.MarkDecorator]:
    return [_FORMAT_2] if setting.format_version > 1 else []


CASES = [
    pytest.param(name, setting, id=f"{name}-{setting}", marks=_marks(setting))
    for name, workload in WORKLOADS.items()
    for setting in SETTINGS
    if not workload.only_stock_class and (name in WITH_ALL_SETTINGS or setting in (SETTINGS[1], SETTINGS[3]))
]

JOIN_STORES = ("left-keyToNumValues", "left-keyWithIndexToValue", "right-keyToNumValues", "right-keyWithIndexToValue")

VARIABLES = {
    "total": {"key": "key", "value": "value", "partition_id": "partition_id"},
    "latest": {"key": "key", "list_element": "value", "partition_id": "partition_id"},
    "kinds": {
        "key": "key.key",
        "user_map_key": "key.userKey",
        "user_map_value": "value",
        "partition_id": "partition_id",
    },
}
"""Columns of Spark's source for each kind of state variable, and where we have them."""


@pytest.fixture(scope="module")
def runs(make_spark: MakeSpark, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Run]:
    """A run of each workload with each setting that it works with, made when it is asked for first."""
    spark = make_spark(CONF, mode="path")
    unload_stores(spark)
    folder = tmp_path_factory.mktemp("state")
    write_batches(folder / "input", range(BATCHES))

    class Runs(dict[tuple[str, str], Run]):
        def __missing__(self, key: tuple[str, str]) -> Run:
            name, setting = key[0], next(each for each in SETTINGS if str(each) == key[1])
            run = Run(spark, name, setting, folder / key[1] / name, input=folder / "input")
            # Through the path door the session says which store it is.
            run.run({PROVIDER: STOCK_CLASSES[setting.store]})
            if setting.door == "path":
                assert_state_is_merged(run)
            return self.setdefault(key, run)

    return Runs()


@pytest.mark.sweep(4)
@pytest.mark.parametrize(("name", "setting"), CASES)
def test_each_store_of_each_operator(runs: dict[tuple[str, str], Run], name: str, setting: Setting) -> None:
    run = runs[name, str(setting)]
    stores = JOIN_STORES if name == "outer_join" else ("default",)
    found = set()
    for store in stores:
        options = {"storeName": store} if len(stores) > 1 else {}
        for version in (None, 3):
            expected = read_by_spark(run, version, **options)
            assert rows_of(read_here(run, version, store_name=store)) == rows_of(expected), (store, version)
            found.add((version, expected.num_rows > 0))
    assert found >= {(None, True), (3, True)}, "there is state to compare"


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(*case.values, marks=[*case.marks, *_marks(case.values[0])])
        for case in sampled([SETTINGS[0], SETTINGS[3]], 1)
    ],
    ids=str,
)
def test_each_state_variable(runs: dict[tuple[str, str], Run], setting: Setting) -> None:
    run = runs["transform_with_state", str(setting)]
    for variable, columns in VARIABLES.items():
        for version in (None, 2):
            expected = read_by_spark(run, version, stateVarName=variable)
            assert expected.num_rows
            found = renamed(read_here(run, version, state_variable=variable), columns)
            assert rows_of(found) == rows_of(expected), (variable, version)
    timers = {"key": "key.key", "expiration_timestamp_ms": "key.expiryTimestampMs", "partition_id": "partition_id"}
    expected = read_by_spark(run, readRegisteredTimers="true")
    assert expected.num_rows
    for family in ("$eventTimers_keyToTimestamp", "$eventTimers_timestampToKey"):
        assert rows_of(renamed(read_here(run, state_variable=family), timers)) == rows_of(expected)


@_FORMAT_2
def test_one_partition(runs: dict[tuple[str, str], Run]) -> None:
    run = runs["aggregation", str(SETTINGS[-2])]
    expected = read_by_spark(run)
    for partition in range(3):
        mine = expected.filter([each == partition for each in expected.column("partition_id").to_pylist()])
        assert rows_of(read_here(run, partition_id=partition)) == rows_of(mine)
