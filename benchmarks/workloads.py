"""The streaming queries that are measured, and their input: seeded, and the same for both sides."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from benchmarks.scenario import Scenario

SCHEMA = "key long, side int, ts timestamp, amount long"
VALUE = "value binary"
START = datetime(2013, 1, 1, tzinfo=timezone.utc)
BATCH_SECONDS = 60

# The options with which the `statestore` reader reads each part of a workload's state.
STATE_PARTS: dict[str, list[dict[str, str]]] = {
    "aggregation": [{}],
    "windowed_aggregation": [{}],
    "dedup": [{}],
    "stream_join": [{"joinSide": "left"}, {"joinSide": "right"}],
    "open_join": [{"joinSide": "left"}, {"joinSide": "right"}],
    "session_window": [{}],
    "groups_in_python": [{}],
    "transform_with_state": [{"stateVarName": "total"}, {"stateVarName": "latest"}, {"stateVarName": "buckets"}],
}
OUTPUT_MODES = dict.fromkeys(
    ("aggregation", "windowed_aggregation", "groups_in_python", "transform_with_state"), "update"
)


def write_input(scenario: Scenario, directory: Path) -> list[Path]:
    """Writes one Parquet file for each batch.

    Args:
        scenario: The number and size of the files, and the seed.
        directory: Where to write them.

    Returns:
        The files in their order.
    """
    random = np.random.default_rng(scenario.seed)
    directory.mkdir(parents=True)
    files = []
    for batch in range(scenario.batches):
        files.append(directory / f"{batch:05}.parquet")
        keys = random.integers(0, scenario.keys, scenario.rows_per_batch)
        write_batch(files[-1], random, batch, keys, scenario.value_bytes)
    return files


def write_batch(file: Path, random: np.random.Generator, batch: int, keys: Any, value_bytes: int | None = 0) -> None:
    """Writes the input of a batch.

    Args:
        file: Where to write it.
        random: Of everything but the keys.
        batch: Its number, which decides the time of its rows.
        keys: An array with each row's key.
        value_bytes: Random bytes in each row; None for a column of nulls, 0 for no such column.
    """
    rows = len(keys)
    begin = int(START.timestamp() * 1e6) + batch * BATCH_SECONDS * 1_000_000
    columns = {
        "key": pa.array(keys, pa.int64()),
        "side": pa.array(random.integers(0, 2, rows), pa.int32()),
        "ts": pa.array(begin + random.integers(0, BATCH_SECONDS * 1_000_000, rows), pa.timestamp("us", tz="UTC")),
        "amount": pa.array(random.integers(0, 1_000, rows), pa.int64()),
    }
    if value_bytes:
        values = pa.py_buffer(random.bytes(rows * value_bytes))
        columns["value"] = pa.Array.from_buffers(pa.binary(value_bytes), rows, [None, values]).cast(pa.binary())
    elif value_bytes is None:
        columns["value"] = pa.nulls(rows, pa.binary())
    # Readers hold a row group's column in memory.
    group = 20_000 if value_bytes else None
    pq.write_table(pa.table(columns), file, use_dictionary=not value_bytes, row_group_size=group)


def streaming_result(spark: SparkSession, scenario: Scenario, input_directory: Path) -> DataFrame:
    """Returns the query's result as a streaming DataFrame.

    Args:
        spark: The side's session.
        scenario: Which query, and whether its rows have values.
        input_directory: Where its input files appear.

    Returns:
        A streaming DataFrame.
    """
    schema = f"{SCHEMA}, {VALUE}" if scenario.value_bytes else SCHEMA
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    events = reader.parquet(f"file:{input_directory}")
    return BUILDERS[scenario.workload](events)


def _aggregation(events: DataFrame) -> DataFrame:
    largest = [sf.max("value").alias("largest")] if "value" in events.columns else []
    return events.groupBy("key").agg(
        sf.count("*").alias("events"), sf.sum("amount").alias("amount"), sf.max("ts").alias("latest"), *largest
    )


def _windowed_aggregation(events: DataFrame) -> DataFrame:
    # Rows come and go: after the watermark's ten minutes and the windows' five, the state does not grow any more.
    windows = events.withWatermark("ts", "10 minutes").groupBy(sf.window("ts", "5 minutes"), "key")
    return windows.agg(sf.count("*").alias("events"), sf.sum("amount").alias("amount"))


def _dedup(events: DataFrame) -> DataFrame:
    # It is not defined which of two equal keys comes first in a batch, so only the key is written.
    return events.withWatermark("ts", "5 minutes").dropDuplicatesWithinWatermark(["key"]).select("key")


def _stream_join(events: DataFrame) -> DataFrame:
    left = events.where("side = 0").withWatermark("ts", "2 minutes").alias("l")
    right = events.where("side = 1").withWatermark("ts", "2 minutes").alias("r")
    near = "l.key = r.key AND r.ts BETWEEN l.ts - INTERVAL 3 MINUTES AND l.ts + INTERVAL 3 MINUTES"
    return left.join(right, sf.expr(near)).selectExpr(
        "l.key AS key", "l.ts AS left_ts", "r.ts AS right_ts", "l.amount + r.amount AS amount"
    )


def _open_join(events: DataFrame) -> DataFrame:
    # Nothing is ever dropped. Spark keeps no column of which nothing is asked.
    values = "xxhash64(l.value, r.value)" if "value" in events.columns else "0L"
    both = events.where("side = 0").alias("l").join(events.where("side = 1").alias("r"), sf.expr("l.key = r.key"))
    return both.selectExpr(
        "l.key AS key", "l.ts AS left_ts", "r.ts AS right_ts", "l.amount + r.amount AS amount", f"{values} AS values"
    )


def _session_window(events: DataFrame) -> DataFrame:
    sessions = events.withWatermark("ts", "2 minutes").groupBy(sf.session_window("ts", "90 seconds"), "key")
    return sessions.agg(sf.count("*").alias("events"), sf.sum("amount").alias("amount"))


def _groups_in_python(events: DataFrame) -> DataFrame:
    has_values = "value" in events.columns

    def follow(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
        import pandas as pd

        before: Any = state.get if state.exists else (0, 0, *[b""] * has_values)
        count, amount, *largest = before
        for frame in frames:
            count, amount = count + len(frame), amount + int(frame["amount"].sum())
            if has_values:
                largest = [bytes(max(value for value in (*largest, *frame["value"]) if value is not None))]
        state.update((count, amount, *largest))
        checksum = crc32(b"".join(largest))
        yield pd.DataFrame({"key": [key[0]], "events": [count], "amount": [amount], "checksum": [checksum]})

    kept = "events long, amount long" + (", largest binary" if has_values else "")
    output = "key long, events long, amount long, checksum long"
    return events.groupBy("key").applyInPandasWithState(follow, output, kept, "update", "NoTimeout")


def _transform_with_state(events: DataFrame) -> DataFrame:
    processor = _keyed_processor()
    return events.groupBy("key").transformWithStateInPandas(
        statefulProcessor=processor,
        outputStructType="key long, events long, amount long",
        outputMode="Update",
        timeMode="None",
    )


def _keyed_processor() -> Any:
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

    class Totals(StatefulProcessor):
        """Per key: totals (value state), its last amounts (list state), amounts by range (map state)."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self.total = handle.getValueState("total", "events long, amount long")
            self.latest = handle.getListState("latest", "amount long")
            self.buckets = handle.getMapState("buckets", "bucket long", "events long")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            amounts = sorted(int(amount) for frame in rows for amount in frame["amount"])
            events, amount = self.total.get() if self.total.exists() else (0, 0)
            events, amount = events + len(amounts), amount + sum(amounts)
            self.total.update((events, amount))
            self.latest.put([(value,) for value in amounts[-3:]])
            bucket = (amounts[-1] // 250,)
            seen = self.buckets.getValue(bucket)[0] if self.buckets.containsKey(bucket) else 0
            self.buckets.updateValue(bucket, (seen + 1,))
            yield pd.DataFrame({"key": [key[0]], "events": [events], "amount": [amount]})

        def close(self) -> None:
            pass

    return Totals()


BUILDERS = {
    "aggregation": _aggregation,
    "windowed_aggregation": _windowed_aggregation,
    "dedup": _dedup,
    "stream_join": _stream_join,
    "open_join": _open_join,
    "session_window": _session_window,
    "groups_in_python": _groups_in_python,
    "transform_with_state": _transform_with_state,
}


def fingerprint(columns: list[str]) -> list[Any]:
    """Returns aggregates that tell two sets of rows apart in any order: the count, and the sum of their hashes."""
    hashes = sf.xxhash64(*[sf.col(f"`{column}`") for column in columns]).cast("decimal(20,0)")
    return [sf.count("*").alias("rows"), sf.sum(hashes).cast("string").alias("hash")]


def state_fingerprint(spark: SparkSession, workload: str, checkpoint: str) -> list[list[Any]]:
    """Returns what the `statestore` reader finds in a checkpoint, as counts and hashes.

    Args:
        spark: The side's session, which knows how to read its checkpoint.
        workload: The query's name.
        checkpoint: The checkpoint's location.

    Returns:
        For each part of the state: number of rows, hash. Nothing in Spark 3.5, which has no such reader.
    """
    if spark.version.startswith("3."):
        return []
    found = []
    for options in STATE_PARTS[workload]:
        state = spark.read.format("statestore").options(**options).load(checkpoint)
        found.append(list(state.agg(*fingerprint(state.columns)).first() or ()))
    return found
