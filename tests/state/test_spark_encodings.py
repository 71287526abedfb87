"""What is not Spark's default: lists that RocksDB merges, times to live, row checksums, joins in one store, Avro."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame

from pyspark_statestore import Checkpoint
from tests.conftest import MakeSpark
from tests.sampling import sampled
from tests.state.both import read_by_spark, read_here, renamed, rows_of
from tests.streaming.runs import PROVIDER, STATE_STORE, STOCK_CLASSES, Run, Setting, unload_stores
from tests.streaming.workloads import BATCHES, WORKLOADS, Workload, write_batches

if TYPE_CHECKING:
    import pandas as pd

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(1, files="compared with Spark")]

CONF = {f"{STATE_STORE}unloadOnCommit": "true", f"{STATE_STORE}minDeltasForSnapshot": "2"}
NO_EMPTY_BATCHES = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
CHECKSUMS = {f"{STATE_STORE}rowChecksum.enabled": "true"}
FOREVER = 3_600_000  # milliseconds


def appending_processor() -> Any:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Appending(StatefulProcessor):
        """Lists that grow, and each kind of state with a time to live."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self.many = handle.getListState("many", "n long, s string")
            self.value = handle.getValueState("value", "n long", FOREVER)
            self.list = handle.getListState("list", "n long", FOREVER)
            self.map = handle.getMapState("map", "n long", "m string", FOREVER)

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
            count = sum(len(frame) for frame in rows)
            for i in range(3):
                self.many.appendValue((count + i, "s" * i))
            self.value.update((count,))
            self.list.appendValue((count,))
            self.map.updateValue((count % 3,), (str(count),))
            yield pd.DataFrame([{"key": key[0], "count": count}])

        def close(self) -> None:
            pass

    return Appending()


def appending(stream: Callable[[], DataFrame]) -> DataFrame:
    return (
        stream()
        .groupBy("key")
        .transformWithStateInPandas(appending_processor(), "key long, count long", "Update", "ProcessingTime")
    )


@pytest.fixture(autouse=True, scope="module")
def workloads() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(WORKLOADS, "appending", Workload(appending, "update", only_stock_class=True))
        yield


MakeRun = Callable[[str, Setting, Mapping[str, str]], Run]


@pytest.fixture
def make_run(make_spark: MakeSpark, tmp_path: Path) -> MakeRun:
    spark = make_spark(CONF, mode="path")
    unload_stores(spark)

    def make(name: str, setting: Setting, conf: Mapping[str, str]) -> Run:
        run = Run(spark, name, setting, tmp_path)
        write_batches(run.input, range(BATCHES))
        run.run({PROVIDER: STOCK_CLASSES[setting.store], **conf})
        return run

    return make


PARTITION = {"partition_id": "partition_id"}
VARIABLES = {
    "many": {**PARTITION, "key": "key", "list_element": "value"},
    "value": {**PARTITION, "key": "key", "value": "value"},
    "list": {**PARTITION, "key": "key", "list_element": "value"},
    "map": {**PARTITION, "key": "key.key", "user_map_key": "key.userKey", "user_map_value": "value"},
}


@pytest.mark.parametrize(
    ("setting", "conf"),
    [
        pytest.param(Setting("path", "rocksdb", 1, changelog=False), {}, id="merged in tables"),
        pytest.param(
            Setting("stock", "rocksdb", 1, changelog=False),
            {f"{STATE_STORE}rocksdb.mergeOperatorVersion": "1"},
            id="with a delimiter",
        ),
        pytest.param(
            Setting("stock", "rocksdb", 2, changelog=True),
            CHECKSUMS,
            id="with checksums",
            marks=pytest.mark.since("4.1", "Spark's reader of state knows checkpoint format 2 from 4.1 on"),
        ),
    ],
)
def test_lists_and_times_to_live(make_run: MakeRun, setting: Setting, conf: Mapping[str, str]) -> None:
    run = make_run("appending", setting, {**NO_EMPTY_BATCHES, **conf})
    for variable, columns in VARIABLES.items():
        expected = read_by_spark(run, stateVarName=variable)
        assert expected.num_rows
        found = renamed(read_here(run, state_variable=variable), columns)
        assert rows_of(found) == rows_of(expected), variable
    changes = Checkpoint(run.location).state_changes(3, state_variable="many").to_pylist()
    assert changes
    for change in changes:
        before, after = change["value_before"] or [], change["value_after"]
        assert len(after) == len(before) + 3
        assert after[: len(before)] == before


@pytest.mark.parametrize("store", sampled(["rocksdb", "heap"], 1))
def test_row_checksums(make_run: MakeRun, store: str) -> None:
    run = make_run("aggregation", Setting("stock", store), CHECKSUMS)
    for version in (None, 3):
        assert rows_of(read_here(run, version)) == rows_of(read_by_spark(run, version))


@pytest.mark.parametrize(
    "format_version",
    [
        pytest.param(3, marks=pytest.mark.since("4.1", "version 3 of a join's state came with Spark 4.1")),
        pytest.param(4, marks=pytest.mark.since("4.3", "version 4 of a join's state is not ready in Spark 4.2")),
    ],
)
def test_a_join_in_one_store(make_run: MakeRun, format_version: int) -> None:
    conf = {"spark.sql.streaming.join.stateFormatVersion": str(format_version)}
    run = make_run("outer_join", Setting("path", "rocksdb"), conf)
    stores = {3: ["left-keyToNumValues", "right-keyWithIndexToValue"], 4: ["left-keyWithTsToValues", "right-tsWithKey"]}
    for store in stores[format_version]:
        expected = read_by_spark(run, storeName=store)
        assert expected.num_rows
        assert rows_of(read_here(run, store_name=store)) == rows_of(expected), store
        assert rows_of(read_here(run, state_variable=store)) == rows_of(expected)


def test_avro_is_given_as_bytes(make_run: MakeRun) -> None:
    conf = {**NO_EMPTY_BATCHES, f"{STATE_STORE}encodingFormat": "avro"}
    run = make_run("appending", Setting("stock", "rocksdb"), conf)
    found = Checkpoint(run.location).state(state_variable="value")
    for name in ("key", "value"):
        assert b"not encoded as UnsafeRows" in found.schema.field(name).metadata[b"pyspark_statestore.undecoded"]
        assert all(isinstance(each, bytes) for each in found.column(name).to_pylist())
    assert found.num_rows == read_by_spark(run, stateVarName="value").num_rows
