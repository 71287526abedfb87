"""A query that was stopped can be converted at once where it says so itself; anybody else is told how long to wait."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming import StreamingQuery

from pyspark_statestore import Checkpoint, StateStoreFilesError
from tests.conftest import MakeSpark
from tests.maintenance import builders
from tests.migration.builders import MERGED, STOCK, make, providers, stock_goes_on


def progress(batch: int, *, had_data: bool = True) -> dict[str, Any]:
    """Of a batch, or of a trigger before it that found no data."""
    return {"batchId": batch, "durationMs": {"triggerExecution": 7} | ({"addBatch": 5} if had_data else {})}


class Query:
    """What a StreamingQuery says of itself; it wrote all that is in the checkpoint."""

    def __init__(self, checkpoint: Path, **others: Any) -> None:
        streams = SimpleNamespace(get=lambda _: None)
        self._jsq = SimpleNamespace(
            streamingQuery=lambda: SimpleNamespace(resolvedCheckpointRoot=lambda: checkpoint),
            sparkSession=lambda: SimpleNamespace(streams=lambda: streams),
        )
        self.isActive = False
        self.id, self.runId = "4f5b", "run"
        self.lastProgress: Any = progress(builders.LAST)
        for name, value in others.items():
            setattr(self, name, value)


@pytest.fixture
def stock(tmp_path: Path) -> Path:
    """A checkpoint that stock Spark has written this moment."""
    return make(tmp_path / "stock", "plain")


def convert(query: Query) -> str:
    """Converts, and returns the id of the error or the class that the query has afterwards."""
    try:
        Checkpoint.of(query).convert("merged")
    except StateStoreFilesError as error:
        return error.getErrorClass()
    return providers(query._jsq.streamingQuery().resolvedCheckpointRoot())[-1]


def test_a_stopped_query_is_converted_at_once(stock: Path) -> None:
    assert providers(stock)[-1] == STOCK
    assert convert(Query(stock)) == MERGED


def test_a_batch_that_was_planned_when_it_was_stopped_is_its_own(stock: Path) -> None:
    (stock / "offsets" / str(builders.LAST + 1)).write_bytes((stock / "offsets" / str(builders.LAST)).read_bytes())
    assert convert(Query(stock)) == MERGED


def test_a_query_that_runs_is_never_converted(stock: Path) -> None:
    with pytest.raises(StateStoreFilesError, match="PSS_QUERY_RUNNING.*its run run is active in this session"):
        Checkpoint.of(Query(stock, isActive=True)).convert("merged")


@pytest.mark.parametrize("others", [{"lastProgress": None}, {"id": "another"}, {"lastProgress": progress(2)}])
def test_a_query_that_was_not_the_last_says_nothing(stock: Path, others: dict[str, Any]) -> None:
    assert convert(Query(stock, **others)) == "PSS_QUERY_RUNNING"


def test_a_trigger_without_data_wrote_no_batch(stock: Path) -> None:
    idle = progress(builders.LAST + 1, had_data=False)
    assert convert(Query(stock, lastProgress=idle)) == MERGED


def test_somebody_else_has_gone_on_after_a_trigger_without_data(stock: Path) -> None:
    assert convert(Query(stock, lastProgress=progress(builders.LAST, had_data=False))) == "PSS_QUERY_RUNNING"


def test_somebody_else_has_gone_on(stock: Path) -> None:
    stock_goes_on(stock)
    assert convert(Query(stock)) == "PSS_QUERY_RUNNING"


@pytest.mark.parametrize("metadata", [None, "{", "[1]", "{}"])
def test_without_its_id_nobody_knows_whose_it_is(stock: Path, metadata: str | None) -> None:
    (stock / "metadata").unlink()
    if metadata is not None:
        (stock / "metadata").write_text(metadata)
    assert convert(Query(stock)) == "PSS_QUERY_RUNNING"


def test_the_error_says_how_long_to_wait_before_it_speaks_of_force(stock: Path) -> None:
    with pytest.raises(StateStoreFilesError) as raised:
        Checkpoint(stock).convert("merged")
    found = re.search(r"wait (9m \d+s|10m), until (\d\d:\d\d:\d\d) UTC. Where .* force=True", str(raised.value))
    assert found is not None, str(raised.value)
    assert "in the last 10m" in str(raised.value)
    until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=10)
    assert found[2] <= f"{until:%H:%M:%S}" or until.hour == 0
    Checkpoint(stock, closed_after=datetime.timedelta(0)).convert("merged")


def await_batch(query: StreamingQuery, batch: int) -> None:
    """Waits until it has run; the query then waits for its next trigger."""
    while query.lastProgress is None or query.lastProgress["batchId"] < batch:
        assert not query.awaitTermination(0.05), query.exception()


@pytest.mark.spark
@pytest.mark.slow
def test_a_query_of_stock_spark_is_converted_when_it_was_stopped(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark = make_spark()
    stream = spark.readStream.format("rate").option("rowsPerSecond", 100).load().groupBy("value").count()
    writer = stream.writeStream.format("noop").outputMode("update").trigger(processingTime="2 seconds")
    query = writer.option("checkpointLocation", str(tmp_path / "q1")).start()
    try:
        await_batch(query, 2)
        with pytest.raises(StateStoreFilesError, match="is active in this session"):
            Checkpoint.of(query).convert("merged")
    finally:
        query.stop()

    with pytest.raises(StateStoreFilesError, match="PSS_QUERY_RUNNING.*wait"):
        Checkpoint(tmp_path / "q1").convert("merged")
    again = writer.start()
    try:
        await_batch(again, 3)
        with pytest.raises(StateStoreFilesError, match=f"its run {again.runId} is active in this session"):
            Checkpoint.of(query).convert("merged")
    finally:
        again.stop()
    done = Checkpoint.of(again).convert("merged")

    assert done.changed_entries_count > 2
    assert done.provider_after is not None
    assert "Merged" in done.provider_after
