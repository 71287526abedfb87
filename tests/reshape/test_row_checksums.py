"""Each value goes on with a checksum that is right where it is, whatever number its column family has there.

Spark's row checksums cover the key as RocksDB has it, which begins with the number of the column family. A query gives
the numbers in the order in which it declares its state, Spark's writer in another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame

from pyspark_statestore import Checkpoint
from pyspark_statestore.migration import split
from tests.conftest import MakeSpark
from tests.reshape.harness import SNAPSHOTS, given_out, go_on, partitions, repartitioned, since, state_of
from tests.sampling import sampled
from tests.streaming.runs import STATE_STORE, Run, Setting, session_conf
from tests.streaming.workloads import WORKLOADS, Workload

if TYPE_CHECKING:
    import pandas as pd

pytestmark = [pytest.mark.spark, pytest.mark.slow, since, pytest.mark.sweep(1, files="reshape")]

VERIFIED = {f"{STATE_STORE}rowChecksum.enabled": "true", f"{STATE_STORE}rowChecksum.readVerificationRatio": "1"}
PATH = Setting("path", "rocksdb")


def processor() -> Any:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class OutOfOrder(StatefulProcessor):
        """Values and maps whose names are in no order, some with a time to live, and a timer for each key."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self.handle = handle
            self.zeta = handle.getValueState("zeta", "n long")
            self.mid = handle.getMapState("mid", "n long", "m long")
            self.alpha = handle.getValueState("alpha", "s string")
            self.kept = handle.getValueState("kept", "n long", 3_600_000)
            self.brief = handle.getMapState("brief", "n long", "m long", 3_600_000)

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
            values = [int(v) for frame in rows for v in frame["v"]]
            count = (self.zeta.get()[0] if self.zeta.exists() else 0) + len(values)
            self.zeta.update((count,))
            self.alpha.update((f"{key[0]} has {count}",))
            self.kept.update((count,))
            for v in values:
                for by_kind in (self.mid, self.brief):
                    seen = by_kind.getValue((v % 4,))[0] if by_kind.containsKey((v % 4,)) else 0
                    by_kind.updateValue((v % 4,), (seen + 1,))
            self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 3_600_000)
            yield self._line(key)

        def _line(self, key: Any) -> pd.DataFrame:
            mid, brief = (sorted(kinds.iterator()) for kinds in (self.mid, self.brief))
            line = {
                "key": key[0],
                "values": f"{self.zeta.get()} {self.alpha.get()} {self.kept.get()} {mid} {brief}",
                "timers": sum(1 for _ in self.handle.listTimers()) > 0,
            }
            return pd.DataFrame([line])

        def close(self) -> None:
            pass

    return OutOfOrder()


def out_of_order(stream: Callable[[], DataFrame]) -> DataFrame:
    output = "key long, values string, timers boolean"
    return stream().groupBy("key").transformWithStateInPandas(processor(), output, "Update", "ProcessingTime")


@pytest.fixture(autouse=True, scope="module")
def _workloads() -> Iterator[None]:
    parts = tuple({"stateVarName": name} for name in ("zeta", "mid", "alpha"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(WORKLOADS, "out_of_order", Workload(out_of_order, "update", parts, only_stock_class=True))
        yield


MORE = {
    # A query with timers in processing time would never be done: each batch asks for another one.
    "out_of_order": {"spark.sql.streaming.noDataMicroBatches.enabled": "false"},
    "outer_join": {"spark.sql.streaming.join.stateFormatVersion": "3"},
}
CASES = [
    (workload, numbers)
    for workload in ("out_of_order", "transform_with_state", "outer_join")
    for numbers in ((3, 5), (4, 2), (9, 4))
]
"""All in one store with several families. Partitions read the old ones, or a task writes all, or there is a shuffle."""


@pytest.mark.parametrize(("workload", "numbers"), sampled(CASES, 1, kind=lambda case: case[0]), ids=str)
def test_families_in_any_order(
    make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workload: str, numbers: tuple[int, int]
) -> None:
    monkeypatch.setattr(split, "SMALLEST_ROW", 0)
    before, after = numbers
    spark = make_spark(mode="path")
    with session_conf(spark, {**VERIFIED, **MORE.get(workload, {})}):
        run = go_on(Run(spark, workload, PATH, tmp_path / "ours"), [0, 1], partitions(before))
        always = Run(spark, workload, replace(PATH, door="stock"), tmp_path / "always", run.input)
        go_on(always, (), partitions(after))
        repartitioned(run, after)
        assert state_of(run) == state_of(always)
        go_on(run, [2], SNAPSHOTS)
        go_on(always, ())
        with session_conf(spark, run.setting.conf):
            Checkpoint(run.checkpoint).repartition(2 * after, spark=spark, force=True)
        assert state_of(run)
        go_on(run, [3])
        go_on(always, ())
        assert given_out(run) == given_out(always)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_no_value_gets_a_right_checksum_that_had_a_wrong_one(jvm: Any, tmp_path: Path, is_damaged: bool) -> None:
    moved = jvm.io.pyspark.statestore.reshape.MovedValue.isAsSparkWritesIt
    if is_damaged:
        with pytest.raises(Py4JJavaError, match="STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED"):
            moved(str(tmp_path), True)
    else:
        assert moved(str(tmp_path), False)
