"""The sides of `look_ahead.py` for one query and one place of its state, in a process of its own.

Usage: `python -m benchmarks.look_ahead_process ORDER ANSWER.json`; ORDER is JSON.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

from benchmarks.sides import STOCK_PROVIDERS
from pyspark_statestore import configure

if TYPE_CHECKING:
    import pandas as pd

STORE = "spark.sql.streaming.stateStore."
PARTITIONS = 2
ROW_BYTES = 1000
SCHEMA = "key long, side int, payload string"
FILLS = 4
"""Batches that bring the state to its size."""
WARMED = 2
"""Batches after them that are not measured."""


def _counts(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").agg(sf.count("*").alias("n"), sf.max("payload").alias("payload"))


def _join(rows: DataFrame) -> DataFrame:
    left = rows.where("side = 0").selectExpr("key", "payload AS l")
    right = rows.where("side = 1").selectExpr("key AS other", "payload AS r")
    return left.join(right, sf.expr("key = other"))


def _groups(rows: DataFrame) -> DataFrame:
    def follow(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        import pandas as pd

        payload = "".join(max(frame["payload"]) for frame in frames)[:ROW_BYTES]
        count = state.get[0] + 1 if state.exists else 1
        state.update((count, payload))
        yield pd.DataFrame({"key": [key[0]], "n": [count]})

    output, kept = "key long, n long", "n long, payload string"
    return rows.groupBy("key").applyInPandasWithState(follow, output, kept, "update", "NoTimeout")


QUERIES: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "counts": (_counts, "update"),
    "join": (_join, "append"),
    "groups": (_groups, "update"),
}


@dataclass
class Side:
    """A query with its settings.

    Attributes:
        name: Of the side.
        session: A session of its own.
        work: For its input and its checkpoint.
        batches_ms: What measured batches took.
        read_ahead: Keys that were read ahead in them, and that were not in memory.
    """

    name: str
    session: SparkSession
    work: Path
    batches_ms: list[float] = field(default_factory=list)
    read_ahead: list[int] = field(default_factory=list)
    query: StreamingQuery | None = None

    def start(self, query: str) -> None:
        """Starts it; nothing is there to read yet."""
        (self.work / "input").mkdir(parents=True)
        build, mode = QUERIES[query]
        rows = self.session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{self.work}/input")
        writer = build(rows).writeStream.outputMode(mode).format("noop")
        self.query = writer.option("checkpointLocation", f"{self.work}/checkpoint").start()

    def run(self, file: Path, is_measured: bool) -> None:
        """Processes one file as a batch."""
        assert self.query is not None
        (self.work / "input" / file.name).hardlink_to(file)
        self.query.processAllAvailable()
        progress = next(each for each in reversed(self.query.recentProgress) if each["numInputRows"])
        if is_measured:
            self.batches_ms.append(progress["durationMs"]["triggerExecution"])
            figures = [dict(each["customMetrics"]) for each in progress["stateOperators"]]
            self.read_ahead.append(sum(each.get("fileMergingLookAheadFetchedBlocks", 0) for each in figures))


def write(target: Path, keys: list[int], draw: random.Random, sides: tuple[int, ...]) -> Path:
    """Writes the rows of a batch, a row for each key and side."""
    rows = [(key, side) for key in keys for side in sides]
    payloads = [draw.randbytes(ROW_BYTES // 2).hex() for _ in rows]
    columns = {
        "key": pa.array([key for key, _ in rows], pa.int64()),
        "side": pa.array([side for _, side in rows], pa.int32()),
        "payload": pa.array(payloads, pa.string()),
    }
    pq.write_table(pa.table(columns), target)
    return target


def settings(order: dict[str, Any]) -> dict[str, str]:
    """What all sides have."""
    state_mb = order["keys"] * ROW_BYTES // PARTITIONS >> 20
    cache = state_mb // 4 if order["place"] == "disk" else 4 * state_mb
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "2g",
        "spark.local.dir": f"{order['work']}/local",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.pollingDelay": "50ms",
        f"{STORE}rocksdb.changelogCheckpointing.enabled": "true",
        f"{STORE}rocksdb.compression": "none",
        f"{STORE}rocksdb.blockCacheSizeMB": str(max(1, cache)),
        f"{STORE}rocksdb.writeBufferSizeMB": "4",
    }


def main() -> int:
    """Does what the order says."""
    order = json.loads(sys.argv[1])
    work = Path(order["work"])
    builder = configure(SparkSession.builder.master("local[2]"))
    for key, value in settings(order).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    changed = {
        "stock": {f"{STORE}providerClass": STOCK_PROVIDERS["rocksdb"]},
        "row by row": {f"{STORE}fileMerging.lookAhead.rows": "0"},
        "look-ahead": {},
    }
    sides = [Side(name, spark.newSession(), work / name.replace(" ", "-")) for name in changed]
    for side in sides:
        for key, value in changed[side.name].items():
            side.session.conf.set(key, value)
        side.start(order["query"])
    draw = random.Random(36)
    keys = list(range(order["keys"]))
    both = (0, 1) if order["query"] == "join" else (0,)
    for number in range(FILLS + WARMED + order["batches"]):
        some = keys[number::FILLS] if number < FILLS else draw.sample(keys, order["updates"])
        sides_of_rows = both if number < FILLS else (0,)
        file = write(work / f"{number:03}.parquet", some, draw, sides_of_rows)
        # Each side is the first one as often as the others.
        for side in sides[number % len(sides) :] + sides[: number % len(sides)]:
            side.run(file, number >= FILLS + WARMED)
        last = {side.name: side.batches_ms[-1:] for side in sides}
        print(f"  {order['query']} {order['place']} batch {number + 1}: {last}", file=sys.stderr, flush=True)
    found = {side.name: {"batches_ms": side.batches_ms, "read_ahead": side.read_ahead} for side in sides}
    Path(sys.argv[2]).write_text(json.dumps(found))
    for side in sides:
        if side.query is not None:
            side.query.stop()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
