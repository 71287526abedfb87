"""``transformWithState``: time to live and processing-time timers through the path door; the provider door's refusal.

Value, list and map state with event-time timers are among the workloads of test_equal_to_stock.py.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame

from pyspark_statestore import attach
from tests.conftest import MakeSpark
from tests.sampling import sampled
from tests.streaming.runs import Run, Setting, assert_state_is_merged, unload_stores
from tests.streaming.workloads import BATCHES, WORKLOADS, Workload, write_batches

if TYPE_CHECKING:
    import pandas as pd

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(1, files="state of each kind")]

OUTPUT = """
    key long, reason string, value long, list long, map long, value_short boolean, list_short long, map_short long
"""


def expiring_processor() -> Any:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    forever, at_once = 3_600_000, 1  # milliseconds: one outlives the test, the other not a batch

    class Expiring(StatefulProcessor):
        """Each kind of state twice, with a long and a short time to live, and a timer for the next batch."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self.handle = handle
            self.value = handle.getValueState("value", "n long", forever)
            self.list = handle.getListState("list", "n long", forever)
            self.map = handle.getMapState("map", "n long", "m long", forever)
            self.value_short = handle.getValueState("value_short", "n long", at_once)
            self.list_short = handle.getListState("list_short", "n long", at_once)
            self.map_short = handle.getMapState("map_short", "n long", "m long", at_once)

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
            count = sum(len(frame) for frame in rows)
            yield self._line(key, "data")
            before = self.value.get()[0] if self.value.exists() else 0
            for value, many, by_key in (
                (self.value, self.list, self.map),
                (self.value_short, self.list_short, self.map_short),
            ):
                value.update((before + count,))
                many.appendValue((count,))
                by_key.updateValue((before,), (count,))
            self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1)

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
            yield self._line(key, "timer")

        def _line(self, key: Any, reason: str) -> pd.DataFrame:
            line = {
                "key": key[0],
                "reason": reason,
                "value": self.value.get()[0] if self.value.exists() else -1,
                "list": sum(n for (n,) in self.list.get()),
                "map": sum(m for (m,) in self.map.values()),
                "value_short": bool(self.value_short.exists()),
                "list_short": sum(n for (n,) in self.list_short.get()),
                "map_short": sum(m for (m,) in self.map_short.values()),
            }
            return pd.DataFrame([line])

        def close(self) -> None:
            pass

    return Expiring()


def build_expiring(stream: Callable[[], DataFrame]) -> DataFrame:
    return stream().groupBy("key").transformWithStateInPandas(expiring_processor(), OUTPUT, "Update", "ProcessingTime")


@pytest.fixture(autouse=True, scope="module")
def expiring() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(WORKLOADS, "expiring", Workload(build_expiring, "update", only_stock_class=True))
        yield


@pytest.mark.parametrize(
    "setting",
    sampled(
        [Setting("path", "rocksdb", 1, changelog=False), Setting("path", "rocksdb", 2, changelog=True, checksums=True)],
        1,
    ),
    ids=str,
)
def test_time_to_live_and_processing_time_timers(make_spark: MakeSpark, tmp_path: Path, setting: Setting) -> None:
    spark = make_spark(mode="path")
    unload_stores(spark)
    runs = [Run(spark, "expiring", s, tmp_path / s.door) for s in (Setting("stock", "rocksdb"), setting)]
    stock, merged = runs
    for half in (range(BATCHES // 2), range(BATCHES // 2, BATCHES)):
        for run in runs:
            write_batches(run.input, half)
            # A query with processing-time timers would never be done: each batch asks for another one.
            run.run({"spark.sql.streaming.noDataMicroBatches.enabled": "false"})
    assert len(merged.rows) == BATCHES
    assert merged.rows == stock.rows
    assert_state_is_merged(merged)
    lines = [ast.literal_eval(row) for rows in merged.rows.values() for row in rows]
    assert {line[1] for line in lines} == {"data", "timer"}
    assert max(line[2] for line in lines) > 20, "what lives long outlives batches and the restart"
    # A timer comes after its batch's data, so it may see what was written a moment before.
    of_data = {line[5:] for line in lines if line[1] == "data"}
    assert of_data == {(False, 0, 0)}, "what lives for a millisecond is gone in the next batch"


def refused(run: Run) -> str:
    """Runs what the provider door cannot, and returns what the user is told."""
    write_batches(run.input, range(1))
    # Where Spark is asked while the query is planned, its error has another type.
    with pytest.raises(PySparkException, match="PSS_NEEDS_PATH_DOOR") as caught:
        run.run()
    return str(caught.value)


@pytest.mark.parametrize("store", ["rocksdb", "heap"])
def test_refusal_of_the_provider_door_names_the_path_door(make_spark: MakeSpark, tmp_path: Path, store: str) -> None:
    spark = make_spark(mode="provider", store=store)
    message = refused(Run(spark, "transform_with_state", Setting("provider", store), tmp_path))
    assert 'mode="path"' in message
    assert "merged_path(" in message


def test_refusal_in_a_session_that_was_attached(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark = attach(make_spark({"spark.app.name": "attached"}))
    try:
        message = refused(Run(spark, "transform_with_state", Setting("provider", "rocksdb"), tmp_path))
        assert 'mode="path"' in message
    finally:
        spark.stop()


def test_what_the_refusal_advises_works(make_spark: MakeSpark, tmp_path: Path) -> None:
    """On the same checkpoint location, as somebody would do who reads the message."""
    spark = make_spark(mode="provider")
    refused(Run(spark, "transform_with_state", Setting("provider", "rocksdb"), tmp_path))
    spark = make_spark(mode="path")
    run = Run(spark, "transform_with_state", Setting("path", "rocksdb"), tmp_path)
    run.run()
    assert any(run.rows.values())
    assert_state_is_merged(run)


def test_other_queries_of_the_provider_door_are_not_refused(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark = make_spark(mode="provider")
    run = Run(spark, "aggregation", Setting("provider", "rocksdb"), tmp_path)
    write_batches(run.input, range(1))
    run.run()
    assert any(run.rows.values())


def test_stock_class_in_a_session_with_the_provider_door_is_not_refused(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark = make_spark(mode="provider")
    run = Run(spark, "transform_with_state", Setting("stock", "rocksdb"), tmp_path)
    write_batches(run.input, range(1))
    run.run()
    assert any(run.rows.values())


def test_path_door_with_the_heap_store_is_refused_by_spark(make_spark: MakeSpark, tmp_path: Path) -> None:
    """Here the path door would not help, so Spark speaks for itself."""
    spark = make_spark(mode="path", store="heap")
    run = Run(spark, "transform_with_state", Setting("path", "heap"), tmp_path)
    write_batches(run.input, range(1))
    said = "STORE_BACKEND_NOT_SUPPORTED_FOR_TWS|STATE_STORE_MULTIPLE_COLUMN_FAMILIES"  # the latter before Spark 4.2
    with pytest.raises(StreamingQueryException, match=said) as caught:
        run.run()
    assert "PSS_NEEDS_PATH_DOOR" not in str(caught.value)
