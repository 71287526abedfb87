"""Spark's own logs as a driver has them open, and a query that has all of them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.class_data import MINOR

_STREAMING = "org.apache.spark.sql.execution.streaming"
_MOVED = MINOR not in ("3.5", "4.0")
TAKEN = "concurrently"
"""Spark says of an entry that another driver has added that several queries use the log."""

RETAIN = 2
FEW_KEPT = {
    "spark.sql.streaming.minBatchesToRetain": str(RETAIN),
    "spark.sql.streaming.fileSource.log.cleanupDelay": "0",
    "spark.sql.streaming.fileSink.log.cleanupDelay": "0",
    # Batches come when a file does, and in between nobody looks at the checkpoint.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
"""Settings of a query that removes of its logs what it does not need soon, as one that runs for long does."""

LOGS = ("offsets", "commits", "sources", "_spark_metadata")
WARM, COUNTED = 22, 20
"""Batches before those that are counted: the logs are as long as they get then, and each has been repeated twice."""

Asked = Counter[tuple[str, str]]
"""Requests by log and kind."""


class CommitLog:
    """Spark's class for the commit log, as one driver has it.

    Args:
        spark: A session, whose file manager it gets.
        location: The log's directory.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._jvm: Any = spark._jvm
        self._package = f"{_STREAMING}.checkpointing" if _MOVED else _STREAMING
        more = () if MINOR in ("3.5", "4.0", "4.1") else (False,)
        self._log = getattr(self._jvm, f"{self._package}.CommitLog")(spark._jsparkSession, location, *more)

    def add(self, batch: int, watermark: int) -> bool:
        """Adds the entry of a batch."""
        metadata = getattr(self._jvm, f"{self._package}.CommitMetadata")
        more = (self._jvm.scala.Option.empty(),) if MINOR in ("4.0", "4.1") else ()
        return bool(self._log.add(batch, metadata(watermark, *more)))

    def watermark(self, batch: int) -> int:
        """What the entry of a batch says."""
        return int(self._log.get(batch).get().nextBatchWatermarkMs())

    def newest(self) -> int:
        """The newest batch in the log; -1 without one."""
        found = self._log.getLatestBatchId()
        return int(found.get()) if found.isDefined() else -1

    def purge(self, before: int) -> None:
        """Removes what is older than a batch."""
        self._log.purge(before)


def feed(directory: Path, batch: int) -> None:
    """Writes the file of a batch, of five rows."""
    directory.mkdir(exist_ok=True)
    file = directory.with_name(f"{directory.name}-{batch}.parquet")
    pq.write_table(pa.table({"id": pa.array(range(5 * batch, 5 * batch + 5), pa.int64())}), file)
    # Spark takes files by their modification time.
    os.utime(file, (1_400_000_000 + batch, 1_400_000_000 + batch))
    file.rename(directory / f"{batch}.parquet")


def start(spark: SparkSession, source: Path, root: str, *, available_now: bool = True) -> StreamingQuery:
    """Starts a query that copies files, each in a batch: ``<root>/checkpoint`` and ``<root>/sink`` have its logs."""
    source.mkdir(exist_ok=True)
    rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{root}/checkpoint")
    return (writer.trigger(availableNow=True) if available_now else writer).start(f"{root}/sink")


def run(spark: SparkSession, source: Path, root: str) -> None:
    """Has the query process all that is there."""
    start(spark, source, root).awaitTermination()


def steady(spark: SparkSession, source: Path, root: str, asked: Callable[[], Asked]) -> Asked:
    """What is asked in the counted batches of a query that has run for a while."""
    query = start(spark, source, root, available_now=False)
    try:
        before: Asked = Counter()
        for batch in range(WARM + COUNTED):
            if batch == WARM:
                before = asked()
            feed(source, batch)
            query.processAllAvailable()
        return asked() - before
    finally:
        query.stop()


def take_turns(sessions: Iterable[Callable[[], SparkSession]], source: Path, root: str) -> list[int]:
    """Has sessions go on with a query, one after the other, eleven files each; the rows that were fed."""
    fed = 0
    for session in sessions:
        for _ in range(11):
            feed(source, fed)
            fed += 1
        run(session(), source, root)
    return list(range(5 * fed))


def ids(spark: SparkSession, root: str) -> list[int]:
    """What readers of the sink get."""
    return sorted(row["id"] for row in spark.read.parquet(f"{root}/sink").collect())


def log_of(path: str) -> str:
    """Which log a path is in; empty for none."""
    found = re.search(rf"/({'|'.join(LOGS)})(/|$)", path)
    return found[1] if found else ""


def each(counted: Asked) -> dict[str, dict[str, int]]:
    """Counts by log, then by kind of call."""
    found: dict[str, dict[str, int]] = {}
    for (log, kind), count in sorted(counted.items()):
        found.setdefault(log, {})[kind] = count
    return found
