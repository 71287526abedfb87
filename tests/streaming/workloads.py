"""The streaming queries that the tests run, and their input: small, seeded, with late rows and duplicates."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tests.inputs import appear

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "key long, side int, ts timestamp, v long"
BATCHES = 4
_ROWS = 40
_BEGIN = datetime(2013, 1, 1, tzinfo=timezone.utc)


def write_batch(directory: Path, batch: int, *, rows: int = _ROWS) -> Path:
    """Writes the input of one batch, a minute of events; the same every time.

    Args:
        directory: Where the query reads.
        batch: Its number. Spark takes files by their modification time, which therefore follows the number.
        rows: How many.
    """
    generator = random.Random(batch)
    directory.mkdir(parents=True, exist_ok=True)
    lines = []
    for row in range(rows):
        at = _BEGIN + timedelta(minutes=batch, seconds=generator.randrange(60))
        if row % 13 == 12:
            at -= timedelta(minutes=10)  # late, from the second batch on
        event = {"key": generator.randrange(8), "side": row % 2, "ts": at.isoformat(), "v": generator.randrange(100)}
        lines.append(json.dumps(event))
        if row % 10 == 0:
            lines.append(json.dumps({**event, "v": 0}))
    file = directory / f"{batch:04}.json"
    appear(file, "\n".join(lines), batch)
    return file


def write_batches(directory: Path, batches: Sequence[int]) -> None:
    """Writes the input of several batches."""
    for batch in batches:
        write_batch(directory, batch)


@dataclass(frozen=True)
class Workload:
    """A stateful query.

    Attributes:
        build: Makes its result out of a stream of events (a function that gives a new stream each time).
        output_mode: Of the query.
        state_parts: Options of the ``statestore`` reader, each naming a part of the query's state.
        only_stock_class: Whether Spark admits it with its own RocksDB provider only.
    """

    build: Callable[[Callable[[], DataFrame]], DataFrame]
    output_mode: str
    state_parts: tuple[dict[str, str], ...] = ({},)
    only_stock_class: bool = False


def events(spark: SparkSession, directory: Path) -> DataFrame:
    """The stream of events, one file in a batch."""
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.json(str(directory)).withWatermark("ts", "1 minute")


def _aggregation(stream: Callable[[], DataFrame]) -> DataFrame:
    groups = stream().groupBy(sf.window("ts", "30 seconds"), "key")
    return groups.agg(sf.count("*").alias("events"), sf.sum("v").alias("total"))


def _dedup(stream: Callable[[], DataFrame]) -> DataFrame:
    return stream().dropDuplicates(["key", "ts"]).select("key", "ts")


def _dedup_within_watermark(stream: Callable[[], DataFrame]) -> DataFrame:
    # Which of a batch's equal keys comes first is not defined, so only the key is given out. The time in the state is
    # that of the first one, so both parts of the key are needed to have it defined.
    return stream().dropDuplicatesWithinWatermark(["key", "ts"]).select("key", "ts")


def _outer_join(stream: Callable[[], DataFrame]) -> DataFrame:
    left = stream().where("side = 0").alias("l")
    right = stream().where("side = 1 AND v % 3 = 0").alias("r")
    near = "l.key = r.key AND r.ts BETWEEN l.ts - INTERVAL 20 SECONDS AND l.ts + INTERVAL 20 SECONDS"
    columns = ("l.key AS key", "l.ts AS left_ts", "l.v AS left_v", "r.ts AS right_ts", "r.v AS right_v")
    return left.join(right, sf.expr(near), "left_outer").selectExpr(*columns)


def _session_window(stream: Callable[[], DataFrame]) -> DataFrame:
    sessions = stream().groupBy(sf.session_window("ts", "5 seconds"), "key")
    return sessions.agg(sf.count("*").alias("events"), sf.sum("v").alias("total"))


def _groups_with_state(stream: Callable[[], DataFrame]) -> DataFrame:
    def follow(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        import pandas as pd

        count, total = state.get if state.exists else (0, 0)
        if state.hasTimedOut:
            state.remove()
            reason = "timeout"
        else:
            newest = 0
            for frame in frames:
                count, total = count + len(frame), total + int(frame["v"].sum())
                newest = max(newest, int(frame["ts"].max().timestamp() * 1000))
            state.update((count, total))
            state.setTimeoutTimestamp(max(newest, state.getCurrentWatermarkMs() + 1))
            reason = "data"
        yield pd.DataFrame({"key": [key[0]], "events": [count], "total": [total], "reason": [reason]})

    output, state = "key long, events long, total long, reason string", "events long, total long"
    # Keys that change with time, so that some time out.
    slow = stream().withColumn("key", sf.expr("key + 10 * minute(ts)"))
    return slow.groupBy("key").applyInPandasWithState(follow, output, state, "update", "EventTimeTimeout")


def _transform_with_state(stream: Callable[[], DataFrame]) -> DataFrame:
    output = "key long, events long, latest string, kinds string, reason string"
    return stream().groupBy("key").transformWithStateInPandas(_processor(), output, "Update", "EventTime")


def _processor() -> Any:
    # Defined in a function, so that Python workers get the class itself and need not import this module.
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Everything(StatefulProcessor):
        """One state of each kind, and a timer that clears them."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self.handle = handle
            self.total = handle.getValueState("total", "events long")
            self.latest = handle.getListState("latest", "v long")
            self.kinds = handle.getMapState("kinds", "kind long", "times long")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
            values: list[int] = []
            newest = 0
            for frame in rows:
                values.extend(int(v) for v in frame["v"])
                newest = max(newest, int(frame["ts"].max().timestamp() * 1000))
            count = (self.total.get()[0] if self.total.exists() else 0) + len(values)
            self.total.update((count,))
            self.latest.put([(v,) for v in sorted(values)[-3:]])
            for v in values:
                kind = (v % 4,)
                seen = self.kinds.getValue(kind)[0] if self.kinds.containsKey(kind) else 0
                self.kinds.updateValue(kind, (seen + 1,))
            if key[0] % 2:
                self.handle.registerTimer(newest + 20_000)
            yield self._line(key, count, "data")

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
            yield self._line(key, self.total.get()[0] if self.total.exists() else 0, "timer")
            self.total.clear()
            self.latest.clear()
            self.kinds.clear()

        def _line(self, key: Any, count: int, reason: str) -> pd.DataFrame:
            latest = " ".join(str(v) for (v,) in self.latest.get())
            kinds = " ".join(f"{kind}:{times}" for (kind,), (times,) in sorted(self.kinds.iterator()))
            line = {"key": key[0], "events": count, "latest": latest, "kinds": kinds, "reason": reason}
            return pd.DataFrame([line])

        def close(self) -> None:
            pass

    return Everything()


WORKLOADS = {
    "aggregation": Workload(_aggregation, "update"),
    "dedup": Workload(_dedup, "append"),
    "dedup_within_watermark": Workload(_dedup_within_watermark, "append"),
    "outer_join": Workload(_outer_join, "append", ({"joinSide": "left"}, {"joinSide": "right"})),
    "session_window": Workload(_session_window, "append"),
    "groups_with_state": Workload(_groups_with_state, "update"),
    "transform_with_state": Workload(
        _transform_with_state,
        "update",
        ({"stateVarName": "total"}, {"stateVarName": "latest"}, {"stateVarName": "kinds"}),
        only_stock_class=True,
    ),
}
