"""A query that was stopped can be converted at once where it says so itself; anybody else is told how long to wait."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming import StreamingQuery

import pyspark_statestore
from pyspark_statestore import Checkpoint, StateStoreFilesError
from pyspark_statestore.log import stopped
from pyspark_statestore.log.merged_log import Clocks, MergedLog
from pyspark_statestore.session.queries import EndedRun
from tests.conftest import MakeSpark
from tests.inspect.builders import refused
from tests.maintenance import builders
from tests.migration.builders import MERGED, STOCK, make, providers, stock_goes_on, write_offsets
from tests.reshape.builders import repartition_by_hand
from tests.reshape.harness import pretend_spark


def progress(batch: int, *, had_data: bool = True) -> dict[str, Any]:
    """Of a batch, or of a trigger before it that found no data."""
    return {"batchId": batch, "durationMs": {"triggerExecution": 7} | ({"addBatch": 5} if had_data else {})}


class Query:
    """What a StreamingQuery says of itself; it wrote all that is in the checkpoint."""

    def __init__(self, checkpoint: Path, **others: Any) -> None:
        shared = SimpleNamespace(activeStreamingQueries=dict)
        self.planned = builders.LAST, builders.LAST
        metadata = SimpleNamespace(batchTimestampMs=lambda: self.planned[1])
        execution = SimpleNamespace(currentBatchId=lambda: self.planned[0], offsetSeqMetadata=lambda: metadata)
        self._jsq = SimpleNamespace(
            streamingQuery=lambda: SimpleNamespace(
                resolvedCheckpointRoot=lambda: checkpoint, lastExecution=lambda: execution
            ),
            sparkSession=lambda: SimpleNamespace(sharedState=lambda: shared),
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


BEGUN = builders.LAST + 1


def test_a_batch_that_was_planned_when_it_was_stopped_is_its_own(stock: Path) -> None:
    write_offsets(stock, STOCK, [BEGUN])
    assert convert(Query(stock, planned=(BEGUN, BEGUN))) == MERGED


@pytest.mark.parametrize("planned", [(builders.LAST, builders.LAST), (BEGUN, 777)])
def test_a_batch_that_another_process_has_begun_is_not_its_own(stock: Path, planned: tuple[int, int]) -> None:
    write_offsets(stock, STOCK, [BEGUN])
    assert convert(Query(stock, planned=planned)) == "PSS_QUERY_RUNNING"


@pytest.mark.parametrize("merged", [False, True])
def test_its_own_batch_that_another_process_does_again(stock: Path, merged: bool) -> None:
    write_offsets(stock, STOCK, [BEGUN])
    builders.write_version(stock, BEGUN + 1, merged=merged)
    assert convert(Query(stock, planned=(BEGUN, BEGUN))) == "PSS_QUERY_RUNNING"


def test_its_last_batch_that_another_process_has_committed(stock: Path) -> None:
    write_offsets(stock, STOCK, [BEGUN])
    (stock / "commits" / str(BEGUN)).write_text("v1\n{}")
    assert convert(Query(stock, planned=(BEGUN, BEGUN))) == "PSS_QUERY_RUNNING"


VERBS: dict[str, tuple[str, Callable[[Checkpoint], object]]] = {
    "convert": ("plain", lambda c: c.convert("merged")),
    "convert store": ("merged", lambda c: c.convert(store="heap", dry_run=True)),
    "export": ("merged", lambda c: c.export()),
    "export to": ("merged", lambda c: c.export(f"{c.url}-stock")),
    "expire": ("merged", lambda c: c.maintenance.expire(1, dry_run=False)),
    "claim": ("merged", lambda c: c.fork(f"{c.url}-fork", "claim")),
    "predicted claim": ("merged", lambda c: c.fork(f"{c.url}-fork", "claim", dry_run=True)),
    "repartition": ("merged", lambda c: c.repartition(5, dry_run=True)),
    "undo_repartition": ("repartitioned", lambda c: c.undo_repartition()),
}
"""All that need a stopped query: what is there before, and the call."""


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_believes_a_query_that_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    pretend_spark(monkeypatch, "4.3.0")  # which some verbs need
    kind, call = VERBS[verb]
    checkpoint = make(tmp_path / "q1", "plain" if kind == "plain" else "merged")
    if kind == "repartitioned":
        repartition_by_hand(checkpoint)
    with refused("PSS_QUERY_RUNNING", "is active in this session"):
        call(Checkpoint.of(Query(checkpoint, isActive=True)))
    with refused("PSS_QUERY_RUNNING", "only silence tells: wait"):
        call(Checkpoint(checkpoint))
    with refused("PSS_QUERY_RUNNING", "only silence tells: wait"):
        call(Checkpoint.of(Query(checkpoint, lastProgress=progress(builders.LAST - 1))))
    call(Checkpoint.of(Query(checkpoint)))


@pytest.mark.parametrize(("minutes_before", "expected"), [(2, "PSS_QUERY_RUNNING"), (6, MERGED)])
def test_a_file_system_whose_clock_is_slow(
    stock: Path, monkeypatch: pytest.MonkeyPatch, minutes_before: int, expected: str
) -> None:
    """By that clock, which is five minutes slow, a file of two minutes before the end was written after it."""
    write_offsets(stock, STOCK, [BEGUN])
    end = datetime.datetime.now(datetime.timezone.utc)
    changed = (end - datetime.timedelta(minutes=minutes_before)).timestamp()
    for file in stock.rglob("*"):
        os.utime(file, (changed, changed))

    def clocks(log: MergedLog) -> Clocks:
        return Clocks(log.clock(), log.clock() - datetime.timedelta(minutes=5))

    monkeypatch.setattr(stopped, "ask_file_system", clocks)
    monkeypatch.setattr(stopped, "ended_run", lambda *_: EndedRun(builders.LAST, end, "app"))
    assert convert(Query(stock)) == expected


def test_the_verbs_are_all_that_use_the_rule() -> None:
    """Another one that asks for a stopped query belongs into the table above."""
    root = Path(pyspark_statestore.__file__).parent
    rule = re.compile(r"require_(?:query_)?stopped\(")
    users = {path.name for path in root.rglob("*.py") if rule.search(path.read_text())}
    verbs = {"conversion.py", "store_conversion.py", "export.py", "expiry.py", "fork.py"}
    assert users == verbs | {"repartition.py", "repartition_undo.py", "checks.py", "stopped.py"}


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
    found = re.search(r"wait (9m \d+s|10m), until (\d\d:\d\d:\d\d) UTC. .* force=True", str(raised.value))
    assert found is not None, str(raised.value)
    assert "in the last 10m" in str(raised.value)
    until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=10)
    assert found[2] <= f"{until:%H:%M:%S}" or until.hour == 0
    Checkpoint(stock, closed_after=datetime.timedelta(0)).convert("merged")


def await_batch(query: StreamingQuery, batch: int) -> None:
    """Waits until it has run; the query then waits for its next trigger."""
    while query.lastProgress is None or query.lastProgress["batchId"] < batch:
        assert not query.awaitTermination(0.05), query.exception()


def last_of(checkpoint: Path, log: str) -> int:
    """The last batch that a log of Spark's has."""
    return max(int(file.name) for file in (checkpoint / log).iterdir() if file.name.isdecimal())


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
    # It may have been stopped in a batch. Then only silence would tell.
    while (batch := last_of(tmp_path / "q1", "offsets")) > last_of(tmp_path / "q1", "commits"):
        again = writer.start()
        try:
            await_batch(again, batch)
        finally:
            again.stop()
    done = Checkpoint.of(again).convert("merged")

    assert done.changed_entries_count > 2
    assert done.provider_after is not None
    assert "Merged" in done.provider_after
