"""Queries that went back to an earlier batch: what the batches after it left is nobody's, whatever its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.merged_log import MergedLog
from pyspark_statestore.maintenance import old_partitions
from pyspark_statestore.migration import split
from pyspark_statestore.migration.spark_side import SparkSide
from tests.conftest import MakeSpark
from tests.maintenance.harness import live_files
from tests.reshape.harness import (
    SNAPSHOTS,
    at,
    given_out,
    go_on,
    keys_of,
    partitions,
    since,
    state_of,
    went_back,
)
from tests.reshape.test_splits import forked, split_in_place
from tests.streaming.runs import Run, Setting, plain_state_files, session_conf, unload_stores

pytestmark = [pytest.mark.spark, pytest.mark.slow, since, pytest.mark.sweep(1, files="reshape")]

ONLY_DATA = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
DOORS = [
    Setting("provider", "rocksdb", changelog=False),
    Setting("path", "rocksdb", changelog=True),
    Setting("stock", "rocksdb", changelog=True),
    Setting("provider", "heap"),
]


def two_timelines(make_spark: MakeSpark, folder: Path, setting: Setting, went_to: int) -> tuple[Run, Run]:
    """A query that was repartitioned twice, went back before that, and took other input; and what it should be.

    The files of its first timeline have the versions of batches ``went_to`` + 1 to 5.
    """
    spark = make_spark(mode="provider" if setting.door == "stock" else setting.door, store=setting.store)
    run = go_on(Run(spark, "aggregation", setting, folder / "ours"), [0, 1], {**ONLY_DATA, **partitions(2)})
    for batch, number in ((2, 4), (3, 3), (4, 4)):
        if batch > went_to + 1 or setting.store == "rocksdb":
            with session_conf(spark, setting.conf):
                at(run).repartition(number, spark=spark)
        go_on(run, [batch], ONLY_DATA)
    went_back(run, went_to)
    go_on(run, [7], {**ONLY_DATA, **SNAPSHOTS})
    always = Run(spark, "aggregation", Setting("stock", setting.store), folder / "always", run.input)
    go_on(always, (), {**ONLY_DATA, **partitions(4)})
    assert keys_of(run) == keys_of(always)
    return run, always


@pytest.mark.sweep(4)
@pytest.mark.parametrize("place", ["own", "fork"])
@pytest.mark.parametrize("rows", ["large", "small"])
@pytest.mark.parametrize("setting", DOORS, ids=str)
def test_what_a_later_batch_left_is_not_taken_for_new_state(
    make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: Setting, rows: str, place: str
) -> None:
    """Names of Spark's first checkpoint format say which version it is, and not of which timeline."""
    monkeypatch.setattr(split, "SMALLEST_ROW", 0 if rows == "large" else 1 << 40)
    run, always = two_timelines(make_spark, tmp_path, setting, 1)
    later = [path for path in (*live_files(run.checkpoint), *plain_state_files(run.checkpoint)) if "/6." in path]
    assert later, "a version of the first timeline is left"
    if place == "fork":
        run = forked(run, tmp_path / "fork", 4)
    else:
        split_in_place(run, 4)
    assert state_of(run) == state_of(always)
    for batch in (8, 9, 10):
        go_on(run, [batch], ONLY_DATA)
        go_on(always, (), ONLY_DATA)
        unload_stores(run.spark)
        assert state_of(run) == state_of(always)
        assert given_out(run)[-1] == given_out(always)[-1]
    assert at(run).maintenance.verify().is_clean


@pytest.mark.sweep(3)
@pytest.mark.parametrize("step", ["check", "enter", "write"])
@pytest.mark.parametrize("setting", [DOORS[0], DOORS[2]], ids=str)
def test_back_from_a_repartitioning_that_did_not_get_far(
    make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: Setting, step: str
) -> None:
    """What the first timeline left has later versions, which do not say that the query has gone on."""
    monkeypatch.setattr(split, "SMALLEST_ROW", 0)
    run, always = two_timelines(make_spark, tmp_path, setting, 1)
    original = getattr(SparkSide, step)

    def ends(*arguments: object) -> object:
        original(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SparkSide, step, ends)
        with pytest.raises(KeyboardInterrupt):
            split_in_place(run, 8)
    if step == "check":
        with pytest.raises(StateStoreFilesError, match="PSS_CANNOT_UNDO_REPARTITION"):
            at(run).undo_repartition(force=True)
    else:
        at(run).undo_repartition(force=True)
    assert keys_of(run) == keys_of(always)
    go_on(run, [8], ONLY_DATA)
    go_on(always, (), ONLY_DATA)
    unload_stores(run.spark)
    assert keys_of(run) == keys_of(always)
    assert given_out(run)[-1] == given_out(always)[-1]
    assert at(run).maintenance.verify().is_clean


@pytest.mark.parametrize("setting", [DOORS[0], DOORS[2]], ids=str)
def test_old_partitions_are_listed_before_a_repartitioning_and_removed_after_it(
    make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: Setting
) -> None:
    """What was listed has the names of what is new: Spark's own files, and segments that are split off."""
    monkeypatch.setattr(split, "SMALLEST_ROW", 0)
    run, always = two_timelines(make_spark, tmp_path, setting, 1)
    found = old_partitions._Old.found
    listed: list[int] = []

    def slowly(log: MergedLog) -> old_partitions._Old:
        old = found(log)
        listed.append(len(old.rows) + len(old.plain))
        if len(listed) == 1:
            split_in_place(run, 4)
        return old

    monkeypatch.setattr(old_partitions._Old, "found", slowly)
    at(run).maintenance.remove_old_partitions(dry_run=False)
    assert listed[0] > 0
    unload_stores(run.spark)
    assert state_of(run) == state_of(always)
    go_on(run, [8], ONLY_DATA)
    go_on(always, (), ONLY_DATA)
    assert state_of(run) == state_of(always)


@pytest.mark.parametrize("step", ["write", "commit"])
def test_old_partitions_are_removed_in_the_middle_of_a_repartitioning(
    make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Second paths have been given then, and the new partitions are none of the last committed batch."""
    monkeypatch.setattr(split, "SMALLEST_ROW", 0)
    run, always = two_timelines(make_spark, tmp_path, DOORS[0], 1)
    original = getattr(SparkSide, step)

    def after_a_removal(*arguments: object) -> object:
        at(run).maintenance.remove_old_partitions(dry_run=False)
        return original(*arguments)

    monkeypatch.setattr(SparkSide, step, after_a_removal)
    split_in_place(run, 4)
    unload_stores(run.spark)
    assert state_of(run) == state_of(always)
    assert at(run).maintenance.verify().is_clean
