"""A small stateful query on executors in processes of their own, and what is checked of it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

from tests.cluster.checks import stable_view
from tests.inputs import appear
from tests.jvm.harness import FILE_SYSTEMS, TESTING, View, file_system_conf, until

PARTITIONS = 4
RETAINED = 3
MASTER = "local-cluster[2,1,1024]"
OPTIONS: dict[str, Any] = {
    "max_file_size": "64k",
    "max_space_amplification": "1.2",
    "closed_after": "5s",
}
"""Of merged state: in a short run there is something to relocate and to unlink."""


def settings(jars: Iterable[Path], **more: str) -> dict[str, str]:
    """Of a session whose executors are processes of their own.

    Args:
        jars: Both jars.
        **more: Others, with two underscores for each dot.
    """
    return {
        "spark.executor.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.executor.memory": "1g",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.sql.streaming.minBatchesToRetain": str(RETAINED),
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
        "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        **{f"spark.hadoop.{key}": value for key, value in file_system_conf(*FILE_SYSTEMS).items()},
        "spark.hadoop.fs.AbstractFileSystem.counting.impl": f"{TESTING}.CountingFs",
        **{key.replace("__", "."): value for key, value in more.items()},
    }


@dataclass
class Sums:
    """Sums by key over files that come one a batch.

    Attributes:
        spark: The session.
        root: For its ``input`` and its ``checkpoint``.
        scheme: The file system of the checkpoint.
        hold: Where a ``FileGate`` may stop tasks: at a key's row before its partition is committed, named by the key,
            and at its row in the result, named by the key with ``out-`` before it.
        after: Called after each batch, with its number.
        given: What it gave out, by batch.
    """

    spark: SparkSession
    root: Path
    scheme: str = "counting"
    hold: Path | None = None
    after: Callable[[int], None] = lambda batch: None
    given: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    """By partition and version: the executor that committed it."""
    _writers: dict[int, str] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        """On the local disk."""
        return self.root / "checkpoint"

    @property
    def location(self) -> str:
        """As Spark is told."""
        return f"{self.scheme}:{self.checkpoint}"

    def feed(self, batches: Iterable[int]) -> None:
        """Adds a file for each batch."""
        write_input(self.root / "input", batches)

    def start(self, *, available_now: bool = True) -> StreamingQuery:
        """Starts or restarts it."""
        writer = query(self.spark, self.root / "input", self.hold).writeStream.outputMode("update")
        writer = writer.foreachBatch(self._take).option("checkpointLocation", self.location)
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def run(self) -> None:
        """Works off what is there."""
        running = self.start()
        try:
            assert running.awaitTermination(300), "the query hangs"
        finally:
            running.stop()

    def _take(self, batch: DataFrame, number: int) -> None:
        self.given[number] = {row.k: (row.total, row.rows) for row in batch.collect()}
        self.look()
        self.after(number)

    def look(self) -> View:
        """Notes who committed what."""
        view = stable_view(self.checkpoint / "state")
        for file in view.files.values():
            if file.header is not None:
                self._writers[file.header.writer] = str(file.header.meta["executor_id"])
        for path, (_, entry) in view.live.items():
            _, partition, name = path.split("/", 2)
            if name.endswith(".changelog"):
                self.owners[int(partition), int(name.removesuffix(".changelog"))] = self._writers[entry.writer]
        return view

    def latest(self) -> dict[int, tuple[int, int]]:
        """The result so far."""
        latest: dict[int, tuple[int, int]] = {}
        for number in sorted(self.given):
            latest.update(self.given[number])
        return latest

    def assert_right(self, batches: int) -> None:
        """The result, and the state of each version that is kept, are those of a batch computation."""
        assert self.latest() == expected(batches)
        for batch in range(max(0, batches - RETAINED), batches):
            assert self.state(batch) == expected(batch + 1), f"state after batch {batch}"

    def state(self, batch: int | None = None) -> dict[int, tuple[int, int]]:
        """The state that a batch left; the last one if not given."""
        reader = self.spark.read.format("statestore")
        if batch is not None:
            reader = reader.option("batchId", batch)
        rows = reader.load(self.location).selectExpr("key.k", "value.*").collect()
        return {key: (total, count) for key, total, count in rows}


def rows_of(batch: int) -> list[tuple[int, int]]:
    """The input of a batch: keys and values."""
    return [(key, batch * 100 + key) for key in [*range(20), *range(1000 + 10 * batch, 1010 + 10 * batch)]]


def write_input(directory: Path, batches: Iterable[int]) -> None:
    """Writes the input of batches."""
    directory.mkdir(parents=True, exist_ok=True)
    for batch in batches:
        lines = "\n".join(json.dumps({"k": key, "v": value}) for key, value in rows_of(batch))
        appear(directory / f"{batch:04}.json", lines, batch)


def query(spark: SparkSession, source: Path, hold: Path | None = None) -> DataFrame:
    """The query, without its sink."""
    stream = spark.readStream.schema("k long, v long").option("maxFilesPerTrigger", 1).json(str(source))
    if hold is not None:
        # Rows are held where the state is, so they are shuffled before.
        inside = _file_gate("cast(k AS string)", hold)
        stream = stream.repartition(PARTITIONS, "k").where(f"{inside} IS NOT NULL")
    sums = stream.groupBy("k").agg(sf.sum("v").alias("total"), sf.count("*").alias("rows"))
    if hold is not None:
        out = _file_gate("concat('out-', k)", hold)
        sums = sums.where(f"{out} IS NOT NULL")
    return sums


def _file_gate(name: str, directory: Path) -> str:
    return f"reflect('{TESTING}.FileGate', 'pass', {name}, '{directory}')"


class Hold:
    """A task that is to stop at a row, of whatever process.

    Args:
        directory: The same as the query's.
        row: Its name there; with ``-<n>`` after it, for that attempt of the task only.
        deaf: Whether it takes no notice of being killed.
    """

    def __init__(self, directory: Path, row: str, *, deaf: bool = False) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._order = directory / f"hold-{row}"
        self._held = directory / f"held-{row}"
        self._order.write_text("deaf" if deaf else "")

    def wait(self, seconds: float = 120) -> int:
        """Waits until a task has come; the id of its process."""
        until(self._held.exists, f"a task at {self._held}", seconds)
        return int(self._held.read_text())

    def release(self) -> None:
        """Lets it go on, and all that come later."""
        self._order.unlink(missing_ok=True)


def held_key(batch: int) -> int:
    """A key that only this batch has."""
    return 1000 + 10 * batch


def expected(batches: int) -> dict[int, tuple[int, int]]:
    """The sums and counts after some batches."""
    sums: dict[int, tuple[int, int]] = {}
    for batch in range(batches):
        for key, value in rows_of(batch):
            total, rows = sums.get(key, (0, 0))
            sums[key] = total + value, rows + 1
    return sums


def await_gone(sums: Sums, running: StreamingQuery, batches: int, seconds: float = 150) -> None:
    """Feeds a running query until of the files that are there now those are gone in which nothing lives.

    Spark deletes old versions, and files are cleaned, while there is input. The file with the highest stamp may stay.

    Args:
        sums: The query.
        running: Its run.
        batches: How many it has had.
        seconds: To wait for it, at most.
    """
    state = sums.checkpoint / "state"
    first = set(stable_view(state).files)
    end = time.monotonic() + seconds
    while True:
        view = stable_view(state)
        stamps = {name: max((entry.stamp for entry in file), default=0) for name, file in view.files.items()}
        kept = {name for name, _ in view.live.values()} | {max(stamps, key=lambda name: (stamps[name], name))}
        left = first & view.files.keys() - kept
        if not left:
            break
        assert time.monotonic() < end, f"nobody needs {left}"
        sums.feed([batches])
        batches += 1
        running.processAllAvailable()
    sums.assert_right(batches)


def executor_counts(spark: SparkSession, executors: int = 2) -> Mapping[str, dict[str, Any]]:
    """What each executor's test file systems have counted, by executor."""
    found: dict[str, dict[str, Any]] = {}
    end = time.monotonic() + 60
    while len(found) < executors and time.monotonic() < end:
        rows = spark.range(0, 8, 1, 8).selectExpr(f"reflect('{TESTING}.ProcessCounts', 'counts') AS c").collect()
        for row in rows:
            executor, _, counts = row.c.split(" ", 2)
            found[executor] = json.loads(counts)
    return found
