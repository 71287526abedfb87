"""Partitions that become a multiple begin with the files of the old ones, and give out the same as ever.

In a fork these files are the source's; in place they are the checkpoint's own.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint
from pyspark_statestore.migration import split
from pyspark_statestore.migration.repartition import Repartition
from tests.conftest import MakeSpark
from tests.copies import copy_stopped
from tests.reshape.harness import (
    SNAPSHOTS,
    at,
    everything,
    given_out,
    go_on,
    partitions,
    partitions_with_files,
    rows_said,
    since,
    state_of,
)
from tests.sampling import sampled
from tests.streaming.runs import STATE_STORE, Run, Setting, assert_state_is_merged, session_conf
from tests.streaming.workloads import BATCHES, WORKLOADS, write_batches

pytestmark = [pytest.mark.spark, pytest.mark.slow, since, pytest.mark.sweep(1, files="reshape")]

SETTINGS = [
    Setting("provider", "rocksdb", 1, changelog=True),
    Setting("path", "rocksdb", 2, changelog=True),
    Setting("provider", "rocksdb", 2, changelog=False, checksums=True),
    Setting("path", "rocksdb", 1, changelog=False),
]
CASES = [
    (setting, workload, (2, 4) if number % 2 else (1, 3))
    for number, (workload, setting) in enumerate(product(WORKLOADS, SETTINGS))
    if not WORKLOADS[workload].only_stock_class or setting.door == "path"
]
SEVERAL_VALUES = {"transform_with_state"}
"""Of these a key has several values, and the rows that Spark's reader gives are no longer what is stored."""


@pytest.fixture(autouse=True)
def small_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "SMALLEST_ROW", 0)


def begun(make_spark: MakeSpark, folder: Path, setting: Setting, workload: str, n: int, after: int) -> tuple[Run, Run]:
    """A query that has stopped, and one of stock Spark that has always had the other number of partitions.

    Of the first batch there is a snapshot, of the second perhaps a changelog.
    """
    spark = make_spark(mode="path" if setting.door == "stock" else setting.door)
    run = go_on(Run(spark, workload, setting, folder / "ours"), [0], {**partitions(n), **SNAPSHOTS})
    always = Run(spark, workload, replace(setting, door="stock"), folder / "always", run.input)
    go_on(always, (), partitions(after))
    return go_on(run, [1]), go_on(always, ())


def forked(run: Run, folder: Path, n: int) -> Run:
    """A fork with another number of partitions, as a run of its own over the same input."""
    fork = Run(run.spark, run.workload, run.setting, folder, run.input)
    with session_conf(run.spark, run.setting.conf):
        Checkpoint(run.checkpoint).fork(fork.checkpoint, partitions=n, spark=run.spark)
    return fork


def split_in_place(run: Run, n: int) -> Repartition:
    """Repartitions a checkpoint itself; with nothing but its own word that its query is stopped."""
    with session_conf(run.spark, run.setting.conf):
        return Checkpoint(run.checkpoint).repartition(n, spark=run.spark, force=True)


def tables(run: Run) -> dict[int, set[str | None]]:
    """Where the SSTs of each partition are: paths of files elsewhere; None for those of the checkpoint itself."""
    segments = at(run).inspect.segments()
    found: dict[int, set[str | None]] = {}
    columns = (segments[name].to_pylist() for name in ("logical_path", "foreign_path", "status"))
    for path, foreign, status in zip(*columns, strict=True):
        if path.endswith(".sst") and status == "live":
            found.setdefault(int(path.split("/")[1]), set()).add(foreign)
    return found


@pytest.mark.parametrize("place", ["fork", "own"])
@pytest.mark.parametrize(("setting", "workload", "numbers"), sampled(CASES, 2, kind=lambda case: case[0].door), ids=str)
def test_a_query_goes_on_with_split_partitions(
    make_spark: MakeSpark, tmp_path: Path, setting: Setting, workload: str, numbers: tuple[int, int], place: str
) -> None:
    before, after = numbers
    run, always = begun(make_spark, tmp_path, setting, workload, before, after)
    source = everything(run.checkpoint)

    if place == "fork":
        fork = forked(run, tmp_path / "fork", after)
        assert everything(run.checkpoint) == source
    else:
        fork = run
        split_in_place(run, after)
        assert source.keys() < everything(run.checkpoint).keys()

    assert state_of(fork) == state_of(always)
    where = tables(fork)
    if workload not in SEVERAL_VALUES:
        assert sorted(where) == list(range(after))
        given = [files for partition, files in where.items() if place == "fork" or partition >= before]
        assert all(files - {None} for files in given), "each has files of an old one"
    assert partitions_with_files(fork.checkpoint) == set(range(after))
    assert_state_is_merged(fork)

    go_on(fork, range(2, BATCHES))
    go_on(always, ())

    assert given_out(fork)[-2:] == given_out(always)[-2:]
    assert state_of(fork) == state_of(always)
    # Spark counts rows on from what a snapshot says.
    counts, expected = ([store[0] for store in run.metrics[max(run.metrics)]] for run in (fork, always))
    assert counts == expected
    for each in (run, fork):
        assert at(each).maintenance.verify().is_clean


PROVIDER = Setting("provider", "rocksdb")


@pytest.mark.parametrize("why", ["small rows", "small rows in a fork", "nobody waits", "plain files"])
def test_what_is_written_anew(make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """Rows that are as short as what deletes them; state whose files cannot be kept, or are no merged ones."""
    setting = replace(PROVIDER, door="stock") if why == "plain files" else PROVIDER
    run, always = begun(make_spark, tmp_path, setting, "aggregation", 2, 4)
    if why.startswith("small rows"):
        monkeypatch.setattr(split, "SMALLEST_ROW", 1 << 20)
    if why == "nobody waits":
        at(run).repartition(4, spark=run.spark)
    elif "fork" in why:
        run = forked(run, tmp_path / "fork", 4)
    else:
        split_in_place(run, 4)
    assert [where for partition, where in tables(run).items() if partition >= 2] in ([{None}, {None}], [])
    assert state_of(run) == state_of(always)


@pytest.mark.parametrize("place", ["fork", "own"])
def test_back_from_a_split(make_spark: MakeSpark, tmp_path: Path, place: str) -> None:
    run, always = begun(make_spark, tmp_path, PROVIDER, "aggregation", 2, 4)
    fork = forked(run, tmp_path / "fork", 2) if place == "fork" else run
    before, state = everything(fork.checkpoint), state_of(fork)
    for n in (6, 4):
        done = split_in_place(fork, n)
        assert sorted(tables(fork)) == list(range(n))
        assert all(files - {None} for partition, files in tables(fork).items() if partition >= 2)
        assert done.written_bytes_count > 0
        assert done.batch is not None
        assert rows_said(fork, done.batch + 1) == at(fork).state().num_rows

        back = at(fork).undo_repartition()

        assert (back.batch, back.partitions_before, back.partitions) == (done.batch, n, 2)
        assert back.removed_bytes_count == done.written_bytes_count
        assert everything(fork.checkpoint) == before
        assert state_of(fork) == state
    split_in_place(fork, 4)
    go_on(fork, [2])
    go_on(always, ())
    assert given_out(fork)[-1] == given_out(always)[-1]
    assert state_of(fork) == state_of(always)


def test_the_way_back_leaves_what_an_earlier_split_gave(make_spark: MakeSpark, tmp_path: Path) -> None:
    """A query may go back to the batch that had those partitions."""
    run, _ = begun(make_spark, tmp_path, PROVIDER, "aggregation", 2, 4)
    split_in_place(run, 4)
    split_in_place(run, 2)
    before = everything(run.checkpoint)
    assert {2, 3} < set(tables(run))
    for n in (6, 4):
        split_in_place(run, n)
        assert any(files - {None} for partition, files in tables(run).items() if partition >= 2)
        at(run).undo_repartition(force=True)
        assert everything(run.checkpoint) == before
    versions = at(run).inspect.versions()
    assert all(versions["is_restorable"].to_pylist())
    assert at(run).maintenance.verify().is_clean


def test_both_go_on_while_both_clean(make_spark: MakeSpark, tmp_path: Path) -> None:
    """The source deletes versions and compacts; the fork brings home what it reads there; then the source may go."""
    run, always = begun(make_spark, tmp_path, Setting("provider", "rocksdb", changelog=False), "aggregation", 2, 4)
    fork = forked(run, tmp_path / "fork", 4)
    go_on(run, [2, 3])
    at(run).maintenance.expire(1, dry_run=False)
    at(run).maintenance.compact()
    at(run).maintenance.remove_orphan_files(dry_run=False)
    go_on(fork, ())
    go_on(always, ())
    assert state_of(fork) == state_of(always)
    further = forked(fork, tmp_path / "further", 8)
    assert sorted(tables(further)) == list(range(8))

    for each in (fork, further):
        Checkpoint(each.checkpoint).maintenance.compact(localize=True)
    shutil.rmtree(run.checkpoint)

    assert {where for files in tables(fork).values() for where in files} == {None}
    write_batches(run.input, [4])
    for each in (fork, further, always):
        each.run()
        assert at(each).maintenance.verify().is_clean
    assert state_of(fork) == state_of(always)
    assert sum(map(len, state_of(further).values())) == sum(map(len, state_of(always).values()))


@pytest.mark.parametrize("workload", ["aggregation", "outer_join"])
def test_rows_with_checksums(make_spark: MakeSpark, tmp_path: Path, workload: str) -> None:
    """Written anew and split: each value goes on with the checksum that Spark has put before it."""
    spark = make_spark(mode="provider")
    verified = {f"{STATE_STORE}rowChecksum.enabled": "true", f"{STATE_STORE}rowChecksum.readVerificationRatio": "1"}
    with session_conf(spark, verified):
        run, always = begun(make_spark, tmp_path, PROVIDER, workload, 2, 6)
        at(run).repartition(3, spark=spark)
        go_on(run, [2], SNAPSHOTS)
        split_in_place(run, 6)
        assert any(files - {None} for partition, files in tables(run).items() if partition >= 3)
        go_on(run, [3])
        go_on(always, ())
        assert state_of(run) == state_of(always)


def own_pins(checkpoint: Path) -> list[str]:
    return sorted(path.name for path in (checkpoint / "state" / "_merged").glob("*.own"))


def test_the_query_cleans_and_moves_after_a_split_in_place(make_spark: MakeSpark, tmp_path: Path) -> None:
    """Versions are deleted and the checkpoint is compacted, copied and forked; in the end nothing is held any more."""
    run, always = begun(make_spark, tmp_path, Setting("provider", "rocksdb", changelog=False), "aggregation", 2, 4)
    split_in_place(run, 4)
    assert len(own_pins(run.checkpoint)) == 1
    go_on(run, [2, 3])
    at(run).maintenance.expire(1, dry_run=False)
    Checkpoint(run.checkpoint).maintenance.compact()
    at(run).maintenance.remove_orphan_files(dry_run=False)
    copy = Run(run.spark, run.workload, run.setting, tmp_path / "copy", run.input)
    copy_stopped(run.checkpoint, copy.checkpoint)
    further = forked(run, tmp_path / "further", 8)
    assert sorted(tables(further)) == list(range(8))
    assert {where for files in tables(copy).values() for where in files if where is not None} <= {
        f"file://{path}" for path in (copy.checkpoint / "state" / "_merged").iterdir()
    }

    for each in (run, copy, further):
        Checkpoint(each.checkpoint).maintenance.compact(localize=True)
        assert {where for files in tables(each).values() for where in files} == {None}
    moved = Run(run.spark, run.workload, run.setting, tmp_path / "moved", run.input)
    shutil.move(run.checkpoint, moved.checkpoint)
    write_batches(run.input, [4])
    for each in (moved, copy, further, always):
        each.run()
        assert at(each).maintenance.verify().is_clean
    assert state_of(moved) == state_of(copy) == state_of(always)
    assert sum(map(len, state_of(further).values())) == sum(map(len, state_of(always).values()))
