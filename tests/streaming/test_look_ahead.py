"""What an operator is about to read is fetched before, and nothing else about a query is different."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tests.class_data import MINOR
from tests.inputs import appear
from tests.jvm.harness import until
from tests.sampling import sampled
from tests.streaming.runs import STATE_STORE, Run, Setting, forget
from tests.streaming.test_lazy_restore import CHANGELOG, FILE_MERGING, SMALL_BLOCKS, figures, lazily
from tests.streaming.workloads import WORKLOADS, Workload

if TYPE_CHECKING:
    import pandas as pd

pytestmark = [
    pytest.mark.spark,
    pytest.mark.since("4.1", "stores are loaded lazily from Spark 4.1 on"),
    pytest.mark.sweep(1, files="early and late"),
]

BEGIN = datetime(2013, 1, 1, tzinfo=timezone.utc)
KEYS = 600
JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
OFF = {f"{FILE_MERGING}lookAhead.rows": "0"}


def write(directory: Path, batch: int, rows: int) -> None:
    """Events of old and new keys, a minute a batch. The same every time."""
    draw = random.Random(batch)
    directory.mkdir(parents=True, exist_ok=True)
    lines = []
    for row in range(rows):
        at = BEGIN + timedelta(minutes=batch, seconds=draw.randrange(60))
        event = {"key": draw.randrange(KEYS), "side": row % 2, "ts": at.isoformat(), "v": draw.randrange(100)}
        lines.append(json.dumps(event))
    appear(directory / f"{batch:04}.json", "\n".join(lines), batch)


def counts(stream: Callable[[], DataFrame]) -> DataFrame:
    return stream().groupBy("key").agg(sf.count("*").alias("events"), sf.sum("v").alias("total"))


def dedup(stream: Callable[[], DataFrame]) -> DataFrame:
    return stream().dropDuplicates(["key"]).select("key")


def dedup_within_watermark(stream: Callable[[], DataFrame]) -> DataFrame:
    return stream().dropDuplicatesWithinWatermark(["key"]).select("key")


def sessions(stream: Callable[[], DataFrame]) -> DataFrame:
    groups = stream().groupBy(sf.session_window("ts", "5 minutes"), "key")
    return groups.agg(sf.count("*").alias("events"), sf.sum("v").alias("total"))


def join(stream: Callable[[], DataFrame]) -> DataFrame:
    left = stream().where("side = 0").alias("l")
    right = stream().where("side = 1").alias("r")
    near = "l.key = r.key AND r.ts BETWEEN l.ts - INTERVAL 9 HOURS AND l.ts + INTERVAL 9 HOURS"
    return left.join(right, sf.expr(near), "left_outer").selectExpr("l.key AS key", "l.v AS l", "r.v AS r")


def groups(stream: Callable[[], DataFrame]) -> DataFrame:
    def follow(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        import pandas as pd

        total = state.get[0] if state.exists else 0
        total += sum(int(frame["v"].sum()) for frame in frames)
        state.update((total,))
        yield pd.DataFrame({"key": [key[0]], "total": [total]})

    output, state = "key long, total long", "total long"
    return stream().groupBy("key").applyInPandasWithState(follow, output, state, "update", "NoTimeout")


OPERATORS = {
    "counts": Workload(counts, "update"),
    "dedup": Workload(dedup, "append"),
    "dedup_within_watermark": Workload(dedup_within_watermark, "append"),
    "sessions": Workload(sessions, "append"),
    "join": Workload(join, "append"),
    "groups": Workload(groups, "update"),
}
# Of the first format Spark 4.3 cannot write the schema.
JOIN_FORMATS = [2, 3, *([4] if MINOR >= "4.3" else [])]  # 4.2 says that format 4 is under development
CASES = [(name, 0) for name in OPERATORS if name != "join"] + [("join", format) for format in JOIN_FORMATS]


@pytest.fixture
def session(make_spark: Callable[..., SparkSession]) -> SparkSession:
    return make_spark(CHANGELOG, mode="provider")


@pytest.fixture
def holes(session: SparkSession) -> Iterator[Any]:
    """Decides which files have holes: here all."""
    jvm: Any = session.sparkContext._jvm
    control = jvm.io.pyspark.statestore.tables.Lazily
    control.everywhere()
    yield control
    control.asEver()


@pytest.fixture(autouse=True)
def _operators(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, workload in OPERATORS.items():
        monkeypatch.setitem(WORKLOADS, name, workload)


def conf_of(format: int) -> dict[str, str]:
    if not format:
        return {}
    conf = {JOIN_FORMAT: str(format)}
    return conf | ({f"{STATE_STORE}checkpointFormatVersion": "2"} if format >= 3 else {})


@pytest.mark.parametrize(("workload", "format"), sampled(CASES, 4), ids=str)
def test_what_rows_will_ask_for_is_fetched_before(
    session: SparkSession, holes: Any, tmp_path: Path, workload: str, format: int
) -> None:
    setting = Setting("provider", "rocksdb", changelog=False)
    ahead = Run(session, workload, setting, tmp_path / "ahead", tmp_path / "input")
    off = Run(session, workload, setting, tmp_path / "off", tmp_path / "input")
    stock = Run(session, workload, Setting("stock", "rocksdb", 1, False), tmp_path / "stock", tmp_path / "input")
    runs: tuple[tuple[Run, dict[str, str]], ...] = (
        (stock, {}),
        (off, {**lazily("ondemand"), **OFF}),
        (ahead, lazily("ondemand")),
    )
    found: dict[str, dict[str, int]] = {}
    for batch, rows in enumerate((900, 60)):
        write(ahead.input, batch, rows)
        for run, conf in runs:
            forget(session, run.checkpoint)
            run.run({**SMALL_BLOCKS, **conf_of(format), **conf})
            if run is not stock:
                found[run.folder.name] = figures(session, run)
    assert ahead.rows == off.rows == stock.rows
    assert ahead.metrics == off.metrics == stock.metrics
    assert any(ahead.rows.values()) or workload == "sessions"
    assert found["off"]["lookAheadBytes"] == 0 < found["ahead"]["lookAheadBytes"]
    # What the end of a batch looks through is asked for by no row.
    assert found["ahead"]["demandedBytes"] < 0.5 * found["off"]["demandedBytes"]


@pytest.fixture
def slow_disk(session: SparkSession) -> Iterator[Any]:
    """Decides how long a read takes that counts as slow: here any."""
    jvm: Any = session.sparkContext._jvm
    control = jvm.io.pyspark.statestore.rocks.SlowDisk
    getattr(control, "from")(0.0)
    yield control
    control.asEver()


@pytest.mark.parametrize("how", ["eager", "lazy"])
@pytest.mark.parametrize(("workload", "format"), sampled(CASES, 3), ids=str)
def test_a_slow_disk_is_read_ahead(
    session: SparkSession, slow_disk: Any, tampering: Any, tmp_path: Path, workload: str, format: int, how: str
) -> None:
    """And bad hints change nothing."""
    setting = Setting("provider", "rocksdb", changelog=False)
    ahead = Run(session, workload, setting, tmp_path / "ahead", tmp_path / "input")
    stock = Run(session, workload, Setting("stock", "rocksdb", 1, False), tmp_path / "stock", tmp_path / "input")
    conf = {**SMALL_BLOCKS, **conf_of(format), "spark.sql.shuffle.partitions": "2"}
    for batch in range(4):
        write(ahead.input, batch, 900)
        if batch == 3:
            tampering.on(batch)
        for run, more in ((stock, {}), (ahead, {f"{FILE_MERGING}restore": how})):
            forget(session, run.checkpoint)
            run.run({**conf, **more})
    assert tampering.off() > 0
    assert ahead.rows == stock.rows
    assert ahead.metrics == stock.metrics
    assert sum(each["fileMergingLookAheadFetchedBlocks"] for each in ahead.more_metrics.values()) > 0


def test_nothing_is_read_ahead_in_memory(session: SparkSession, tmp_path: Path) -> None:
    """By the statistics of RocksDB: no read is slow. And the database is the one that Spark has opened."""
    run = Run(session, "counts", Setting("provider", "rocksdb", changelog=False), tmp_path)
    for batch in range(3):
        write(run.input, batch, 900)
        run.run({"spark.sql.shuffle.partitions": "2"})
        assert run.more_metrics[batch]["fileMergingLookAheadWindows"] == 0


@pytest.mark.parametrize(
    ("conf", "is_there"),
    [(lazily("lazy"), True), (lazily("ondemand"), True), ({}, True), ({**lazily(), **OFF}, False), (OFF, False)],
    ids=["lazy", "ondemand", "eager", "off", "eager and off"],
)
def test_the_plan_shows_it(session: SparkSession, tmp_path: Path, conf: dict[str, str], is_there: bool) -> None:
    run = Run(session, "counts", Setting("provider", "rocksdb", changelog=False), tmp_path)
    write(run.input, 0, 5)
    query: Any = run.start(conf)
    run.finish(query)
    plan = query._jsq.explainInternal(False)
    assert ("+- LookAhead [key#" in plan) is is_there
    assert "StateStoreRestore" in plan


def test_a_plan_has_one_copy_more_of_a_join(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each copy makes a broadcast of Hadoop's configuration. It was two where what is below has state, too."""

    def deduplicated(stream: Callable[[], DataFrame]) -> DataFrame:
        left = stream().where("side = 0").dropDuplicates(["key"]).alias("l")
        return left.join(stream().where("side = 1").alias("r"), sf.expr("l.key = r.key")).select("r.v")

    monkeypatch.setitem(WORKLOADS, "deduplicated", Workload(deduplicated, "append"))
    write(tmp_path / "input", 0, 20)

    def broadcasts(folder: str, conf: dict[str, str]) -> int:
        setting = Setting("provider", "rocksdb", changelog=False)
        run = Run(session, "deduplicated", setting, tmp_path / folder, tmp_path / "input")
        first = session.sparkContext.broadcast(None)._jbroadcast.id()
        run.run({"spark.sql.streaming.noDataMicroBatches.enabled": "false", **conf})
        return int(session.sparkContext.broadcast(None)._jbroadcast.id() - first)

    more = 2 if MINOR == "4.1" else 1  # There a copy counts twice: before, it was four.
    assert broadcasts("ahead", {}) == broadcasts("off", OFF) + more


@pytest.fixture
def tampering(session: SparkSession) -> Iterator[Any]:
    """Makes bad hints."""
    jvm: Any = session.sparkContext._jvm
    control = jvm.io.pyspark.statestore.rocks.Tampering
    yield control
    control.off()


@pytest.mark.parametrize(("workload", "format"), sampled(CASES, 2), ids=str)
def test_a_bad_hint_changes_nothing(
    session: SparkSession, holes: Any, tampering: Any, tmp_path: Path, workload: str, format: int
) -> None:
    """Other keys, fewer, errors."""
    setting = Setting("provider", "rocksdb", changelog=False)
    ahead = Run(session, workload, setting, tmp_path / "ahead", tmp_path / "input")
    stock = Run(session, workload, Setting("stock", "rocksdb", 1, False), tmp_path / "stock", tmp_path / "input")
    small = {f"{FILE_MERGING}lookAhead.rows": "7"}
    for batch, rows in enumerate((600, 60, 60, 60)):
        write(ahead.input, batch, rows)
        tampering.on(batch)
        for run, conf in ((stock, {}), (ahead, {**lazily("ondemand"), **small})):
            forget(session, run.checkpoint)
            run.run({**SMALL_BLOCKS, **conf_of(format), **conf})
        assert tampering.off() > 0 or batch == 0
    assert ahead.rows == stock.rows
    assert ahead.metrics == stock.metrics


@pytest.mark.slow
def test_a_query_is_stopped_while_nobody_answers_what_was_asked_ahead(
    session: SparkSession, holes: Any, tampering: Any, tmp_path: Path
) -> None:
    setting = Setting("provider", "rocksdb", changelog=False)
    ahead = Run(session, "counts", setting, tmp_path / "ahead", tmp_path / "input")
    stock = Run(session, "counts", Setting("stock", "rocksdb", 1, False), tmp_path / "stock", tmp_path / "input")
    write(ahead.input, 0, 600)
    for run in (stock, ahead):
        run.run(SMALL_BLOCKS)
    forget(session, ahead.checkpoint)
    write(ahead.input, 1, 60)
    tampering.hang()
    query = ahead.start({**SMALL_BLOCKS, **lazily("ondemand")}, available_now=False)
    until(lambda: tampering.times() > 0, "something was asked ahead")
    query.stop()
    # Whoever is not answered goes on without.
    jvm: Any = session.sparkContext._jvm
    patience = jvm.io.pyspark.statestore.ahead.Patience
    patience.millis(50)
    try:
        ahead.run({**SMALL_BLOCKS, **lazily("ondemand")})
    finally:
        patience.asEver()
    stock.run(SMALL_BLOCKS)
    assert ahead.rows == stock.rows
