"""Every workload gives out, batch by batch, what it gives out on stock Spark, stopped half-way and restarted.

Which settings are combined, for RocksDB: door (2) x checkpoint format (2) x changelog (2) x checksums (2), of whose 16
combinations the 8 with an even number of second values: all values of any three of the four dimensions meet. For
transformWithState, which takes one door only, those of the 8 that have this door: all values of any two meet. For the
heap store, which knows one checkpoint format and no changelogs, door x checksums in full, and both values of changelog
with each.
The workloads of a setting run at the same time in one session, so this also shows that queries do not touch each other.
"""

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import MakeSpark
from tests.sampling import EXHAUSTIVE, chosen, marked
from tests.streaming.runs import STATE_STORE, Run, Setting, assert_state_is_merged, unload_stores
from tests.streaming.workloads import BATCHES, WORKLOADS, write_batches

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(1, files="equal queries")]

CONF = {
    # Snapshots are written by maintenance, in the middle of these short queries.
    f"{STATE_STORE}maintenanceInterval": "300ms",
    f"{STATE_STORE}minDeltasForSnapshot": "1",
}
ROCKSDB = [
    Setting(door, "rocksdb", format_version, changelog, checksums)
    for door, format_version in product(("provider", "path"), (1, 2))
    for changelog, checksums in product((True, False), (True, False))
    if ((door == "path") + (format_version == 2) + changelog + checksums) % 2 == 0
]
HEAP = [
    Setting(door, "heap", 1, changelog=checksums == (door == "path"), checksums=checksums)
    for door, checksums in product(("provider", "path"), (True, False))
]
SETTINGS = ROCKSDB + HEAP  # those that share a session are neighbours


def names_for(setting: Setting) -> list[str]:
    admitted = setting.door != "provider" and setting.store == "rocksdb"
    return [name for name, workload in WORKLOADS.items() if admitted or not workload.only_stock_class]


def run_all(spark: SparkSession, setting: Setting, names: Sequence[str], folder: Path) -> dict[str, Run]:
    """Runs queries side by side over the first half of the input, and then from their checkpoints over the rest."""
    runs = {name: Run(spark, name, setting, folder / name) for name in names}
    for half in (range(BATCHES // 2), range(BATCHES // 2, BATCHES)):
        queries = {}
        for name, run in runs.items():
            write_batches(run.input, half)
            queries[name] = run.start()
        for name, run in runs.items():
            run.finish(queries[name])
    return runs


CASES = [(setting, name) for setting in SETTINGS for name in names_for(setting)]
# The heap store has no changelogs, whatever the setting says.
SAMPLE = chosen(SETTINGS, 3, kind=lambda s: (s.store, s.store == "rocksdb" and s.changelog))


def in_sample(case: tuple[Setting, str]) -> bool:
    """Three settings; RocksDB's two share the workloads. The heap store has half of them (and test_heap_store.py)."""
    setting, name = case
    if setting not in SAMPLE or (setting.store == "heap" and [*WORKLOADS].index(name) % 2):
        return False
    others = [other for other in SAMPLE if other.store == setting.store and name in names_for(other)]
    return others[[*WORKLOADS].index(name) % len(others)] == setting


STOCK = {store: Setting("stock", store) for store in ("rocksdb", "heap")}
IN_SAMPLE = {case for case in CASES if in_sample(case)}
IN_SAMPLE |= {(STOCK[setting.store], name) for setting, name in IN_SAMPLE}

RunOf = Callable[[Setting, str], Run]


@pytest.fixture(scope="module")
def run_of(make_spark: MakeSpark, tmp_path_factory: pytest.TempPathFactory) -> RunOf:
    """Runs all workloads of a setting at once that are in the sample, or all where one is asked for that is not."""
    done: dict[tuple[Setting, str], Run] = {}

    def run(setting: Setting, name: str) -> Run:
        if (setting, name) not in done:
            everything = EXHAUSTIVE or (setting, name) not in IN_SAMPLE
            names = [each for each in names_for(setting) if everything or (setting, each) in IN_SAMPLE]
            is_stock = setting.door == "stock"
            spark = make_spark(CONF) if is_stock else make_spark(CONF, mode=setting.door, store=setting.store)
            unload_stores(spark)
            runs = run_all(spark, setting, names, tmp_path_factory.mktemp(str(setting)))
            done.update({(setting, each): run for each, run in runs.items()})
        return done[setting, name]

    return run


# First, in one session of stock Spark.
@pytest.mark.sweep(0, files="kills and long runs")
@pytest.mark.parametrize("store", [*STOCK])
def test_reference_is_worth_comparing_with(run_of: RunOf, store: str) -> None:
    """The queries give something out before and after the restart, forget state, and meet late rows."""
    for name in names_for(STOCK[store]):
        if not EXHAUSTIVE and (STOCK[store], name) not in IN_SAMPLE:
            continue
        run = run_of(STOCK[store], name)
        by_batch = [len(rows) for _, rows in sorted(run.rows.items())]
        assert len(by_batch) > BATCHES, name
        assert min(sum(by_batch[:3]), sum(by_batch[3:])) > 0, name
        figures = [sum(column) for column in zip(*(m for batch in run.metrics.values() for m in batch), strict=True)]
        assert figures[0] > 0, name
        assert figures[2] > 0 or name == "transform_with_state", name
        assert figures[3] > 0, name


@pytest.mark.parametrize(("setting", "workload"), marked(CASES, in_sample), ids=str)
def test_equal_to_stock(run_of: RunOf, setting: Setting, workload: str) -> None:
    stock, merged = run_of(STOCK[setting.store], workload), run_of(setting, workload)
    assert merged.rows == stock.rows
    assert merged.metrics == stock.metrics
    paths = assert_state_is_merged(merged)
    assert {path.split("/")[1] for path in paths} == {"0", "1", "2"}


def test_settings_cover_what_they_say() -> None:
    assert {name for setting, name in IN_SAMPLE if setting.store == "rocksdb"} >= {
        name for _, name in CASES if name != "transform_with_state"
    }
    assert len([case for case in IN_SAMPLE if case[0].store == "heap" and case[0].door != "stock"]) == 3

    def values(one: Setting) -> tuple[object, ...]:
        return (one.door, one.format_version, one.changelog, one.checksums)

    for left, middle, right in ((0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)):
        assert len({(values(s)[left], values(s)[middle], values(s)[right]) for s in ROCKSDB}) == 8
    path_only = [values(s) for s in ROCKSDB if s.door == "path"]
    for left, right in ((1, 2), (1, 3), (2, 3)):
        assert len({(v[left], v[right]) for v in path_only}) == 4
    assert {(s.door, s.checksums) for s in HEAP} == set(product(("provider", "path"), (True, False)))
    assert {(s.door, s.changelog) for s in HEAP} == set(product(("provider", "path"), (True, False)))
