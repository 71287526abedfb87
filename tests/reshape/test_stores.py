"""After its state was written anew for another store, a query gives out what it would have given out anyway."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint
from tests.conftest import MakeSpark
from tests.inspect.builders import refused
from tests.maintenance.harness import live_files
from tests.reshape.harness import at, everything, given_out, go_on, partitions, since, state_of
from tests.sampling import sampled
from tests.streaming.runs import Run, Setting, plain_state_files, session_conf
from tests.streaming.workloads import BATCHES, WORKLOADS

pytestmark = [pytest.mark.spark, pytest.mark.slow, since, pytest.mark.sweep(1, files="reshape")]

OTHER = {"rocksdb": "heap", "heap": "rocksdb"}
ENDS = {"rocksdb": (".zip", ".sst", ".changelog", ".log"), "heap": (".delta", ".snapshot")}
NAMES = [name for name, workload in WORKLOADS.items() if not workload.only_stock_class]
CASES = [
    (Setting(door, store, changelog=changelog, checksums=checksums), name)
    for door in ("provider", "path", "stock")
    for store, changelog, checksums in (("heap", True, False), ("rocksdb", True, True), ("rocksdb", False, False))
    for name in NAMES
]
SAMPLE = sampled(CASES, 1, kind=lambda case: case[0].door + case[0].store)


def files(run: Run) -> list[str]:
    """The state files that there are."""
    paths = [*live_files(run.checkpoint), *plain_state_files(run.checkpoint)]
    return [path.removesuffix(".crc") for path in paths]


@pytest.mark.parametrize(("setting", "workload"), SAMPLE, ids=str)
def test_a_query_goes_on_with_another_store(
    make_spark: MakeSpark, tmp_path: Path, setting: Setting, workload: str
) -> None:
    mode = "provider" if setting.door == "stock" else setting.door
    spark = make_spark(mode=mode, store=setting.store)
    ours = go_on(Run(spark, workload, setting, tmp_path / "ours"), range(2), partitions(3))
    always = go_on(
        Run(spark, workload, replace(setting, door="stock"), tmp_path / "always", ours.input), (), partitions(3)
    )
    state = state_of(ours)
    to = OTHER[setting.store]

    with session_conf(spark, setting.conf):
        done = at(ours).convert(store=to, spark=spark)
        assert at(ours).convert(store=to, spark=spark).version is None, "it has that store already"

    assert (done.store_before, done.store, done.version) == (setting.store, to, max(ours.rows) + 1)
    assert done.written_bytes_count > 0
    assert done.stores_count == 3 * (4 if "join" in workload else 1)
    assert state_of(ours) == state == state_of(always)
    removed = at(ours).maintenance.remove_old_partitions(dry_run=False)
    assert removed.removed_partitions_count == 0
    assert removed.removed_files_count > 0
    assert not [path for path in files(ours) if path.endswith(ENDS[setting.store])]
    assert at(ours).maintenance.verify().is_clean

    # The session's own class does not count: a restart takes it from the offset log.
    go_on(ours, range(2, BATCHES))
    go_on(always, ())

    assert given_out(ours) == given_out(always)
    assert state_of(ours) == state_of(always)
    assert {path.rpartition(".")[2] for path in files(ours)} <= {end[1:] for end in ENDS[to]}
    if setting.door != "stock":
        assert not plain_state_files(ours.checkpoint)


PROVIDER = Setting("provider", "heap")
ONLY_DATA = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}


def started(make_spark: MakeSpark, folder: Path, setting: Setting = PROVIDER) -> Run:
    run = Run(make_spark(mode=setting.door, store=setting.store), "aggregation", setting, folder)
    return go_on(run, range(2), {**ONLY_DATA, **partitions(3)})


def test_there_and_back(make_spark: MakeSpark, tmp_path: Path) -> None:
    run = started(make_spark, tmp_path / "query")
    before, state = everything(run.checkpoint), state_of(run)
    dry = at(run).convert(store="rocksdb", dry_run=True)
    assert (dry.version, dry.stores_count, dry.kept_copy) == (2, 3, None)
    assert everything(run.checkpoint) == before

    assert at(run).convert(store="rocksdb", spark=run.spark).provider.endswith("MergedRocksDBStateStoreProvider")
    assert at(run).repartition(2, spark=run.spark).partitions == 2
    back = at(run).convert(store="heap", spark=run.spark)
    assert (back.store_before, back.version) == ("rocksdb", 3)
    assert back.provider.endswith("MergedHDFSBackedStateStoreProvider")

    assert sum(map(len, state_of(run).values())) == sum(map(len, state.values()))
    at(run).maintenance.remove_old_partitions(dry_run=False)
    go_on(run, [2], ONLY_DATA)
    stock = Run(run.spark, run.workload, Setting("stock", "heap"), tmp_path / "stock", run.input)
    go_on(stock, (), {**ONLY_DATA, **partitions(3)})
    assert given_out(run) == given_out(stock)


def test_what_dies_before_the_log_names_the_store_changes_nothing(
    make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query goes on as before; converted later, it does not find what was left then."""

    def fails(*_: object) -> None:
        raise KeyError

    run = started(make_spark, tmp_path / "query")
    with monkeypatch.context() as patch:
        patch.setattr("pyspark_statestore.migration.offset_log.OffsetChanges.carry_out", fails)
        with pytest.raises(KeyError):
            at(run).convert(store="rocksdb", spark=run.spark)
    assert [path for path in files(run) if path.endswith(".zip")]
    go_on(run, [2], ONLY_DATA)
    assert at(run).convert(store="rocksdb", spark=run.spark).version == 3
    go_on(run, [3], ONLY_DATA)
    stock = Run(run.spark, run.workload, Setting("stock", "heap"), tmp_path / "stock", run.input)
    go_on(stock, (), {**ONLY_DATA, **partitions(3)})
    assert given_out(run) == given_out(stock)


def test_what_is_refused(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark = make_spark(mode="path", store="rocksdb")
    run = Run(spark, "aggregation", Setting("path", "rocksdb", 2), tmp_path / "ids")
    go_on(run, range(2), {**ONLY_DATA, **partitions(3)})
    before = everything(run.checkpoint)
    with refused("PSS_CANNOT_CONVERT_STORE", "checkpoint format 2"):
        at(run).convert(store="heap", spark=spark)
    for words in ({"store": "disk"}, {"to": "merged", "store": "heap"}, {}):
        with refused("PSS_INVALID_OPTION"):
            at(run).convert(**words)  # type: ignore[call-overload]
    assert everything(run.checkpoint) == before
    young = started(make_spark, tmp_path / "young")
    # This session knows nothing of it, and nothing in it says that the query has ended.
    copy = shutil.copytree(young.checkpoint, tmp_path / "copy", ignore=shutil.ignore_patterns("*.running", "*.ended"))
    with refused("PSS_QUERY_RUNNING"):
        Checkpoint(copy).convert(store="rocksdb", dry_run=True)
    assert Checkpoint(young.checkpoint).convert(store="rocksdb", dry_run=True).store_before == "heap"


def test_variables_have_no_place_in_a_heap_store(make_spark: MakeSpark, tmp_path: Path) -> None:
    (name,) = [name for name, workload in WORKLOADS.items() if workload.only_stock_class][:1]
    spark = make_spark(mode="path", store="rocksdb")
    run = go_on(Run(spark, name, Setting("path", "rocksdb"), tmp_path / "query"), range(2), partitions(2))
    before = everything(run.checkpoint)
    with refused("PSS_CANNOT_CONVERT_STORE", "transformWithState"):
        at(run).convert(store="heap", spark=spark)
    assert everything(run.checkpoint) == before
