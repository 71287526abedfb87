"""Queries and other processes that act between two steps of a reshape: nothing that they have committed is deleted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore import StateStoreFilesError
from pyspark_statestore.migration import repartition_undo, store_conversion
from pyspark_statestore.migration.spark_side import SparkSide
from tests.conftest import MakeSpark
from tests.reshape.harness import at, go_on, keys_of, partitions, since
from tests.sampling import sampled
from tests.streaming.runs import Run, Setting, unload_stores

pytestmark = [pytest.mark.spark, pytest.mark.slow, since, pytest.mark.sweep(1, files="reshape")]

ONLY_DATA = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
SETTINGS = [Setting("provider", "rocksdb", 2), Setting("stock", "rocksdb"), Setting("provider", "heap")]


@pytest.fixture(params=sampled(SETTINGS, 1), ids=str)
def two(make_spark: MakeSpark, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Run, Run]:
    """A query that is stopped after two batches, and one over the same input that is left alone."""
    setting = request.param
    spark = make_spark(mode="provider" if setting.door == "stock" else setting.door, store=setting.store)
    run = go_on(Run(spark, "aggregation", setting, tmp_path / "ours"), [0, 1], {**ONLY_DATA, **partitions(2)})
    return run, Run(spark, "aggregation", Setting("stock", setting.store), tmp_path / "always", run.input)


def first(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, act: Callable[[], object]) -> None:
    """Acts once, before a step."""
    original = getattr(owner, name)

    def step(*arguments: Any, **others: Any) -> Any:
        monkeypatch.setattr(owner, name, original)
        act()
        return original(*arguments, **others)

    monkeypatch.setattr(owner, name, step)


def assert_goes_on(run: Run, always: Run, batch: int) -> None:
    """It has the state that a query has which nobody has touched, now and after another batch."""
    for batches in ((), (batch,)):
        go_on(run, batches, ONLY_DATA)
        go_on(always, (), {**ONLY_DATA, **partitions(2)})
        unload_stores(run.spark)
        assert keys_of(run) == keys_of(always)


@pytest.mark.parametrize("step", ["enter", "write"])
def test_a_query_goes_on_beside_a_repartitioning(
    two: tuple[Run, Run], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    run, always = two

    def act() -> None:
        if step == "write":  # the same call, as a scheduler repeats it, ends first
            at(run).repartition(4, spark=run.spark, force=True)
        go_on(run, [2], ONLY_DATA)

    first(monkeypatch, SparkSide, "enter", act) if step == "enter" else after(monkeypatch, SparkSide, "enter", act)
    with pytest.raises(StateStoreFilesError, match="PSS_REPARTITION_FAILED.*gone on meanwhile"):
        at(run).repartition(4, spark=run.spark, force=True)
    if step == "enter":
        assert at(run).repartition(4, spark=run.spark, force=True).batch == 3
    assert_goes_on(run, always, 3)
    assert at(run).maintenance.verify().is_clean or run.setting.door == "stock"


def after(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, act: Callable[[], object]) -> None:
    """Acts once, after a step."""
    original = getattr(owner, name)

    def step(*arguments: Any, **others: Any) -> Any:
        monkeypatch.setattr(owner, name, original)
        found = original(*arguments, **others)
        act()
        return found

    monkeypatch.setattr(owner, name, step)


def test_a_query_goes_on_beside_a_conversion(two: tuple[Run, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    run, always = two
    other = "heap" if run.setting.store == "rocksdb" else "rocksdb"
    if run.setting.format_version == 2:
        pytest.skip("the heap store knows the first checkpoint format only")
    first(monkeypatch, store_conversion, "clear", lambda: go_on(run, [2], ONLY_DATA))
    with pytest.raises(StateStoreFilesError, match="PSS_CANNOT_CONVERT_STORE.*gone on meanwhile"):
        at(run).convert(store=other, spark=run.spark, force=True)
    assert_goes_on(run, always, 3)


def test_a_query_goes_on_beside_a_repartitioning_that_is_taken_back(
    two: tuple[Run, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, always = two
    at(run).repartition(4, spark=run.spark)

    def act() -> None:
        at(run).undo_repartition(force=True)
        go_on(run, [2], ONLY_DATA)

    after(monkeypatch, repartition_undo, "keep", act)
    with pytest.raises(StateStoreFilesError, match="PSS_CANNOT_UNDO_REPARTITION.*meanwhile"):
        at(run).undo_repartition(force=True)
    assert_goes_on(run, always, 3)
