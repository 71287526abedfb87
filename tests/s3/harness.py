"""Queries whose checkpoint is on S3, and what they leave there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_statestore import Checkpoint, merged_path
from tests.class_data import MINOR
from tests.hdfs.harness import Place
from tests.hdfs.query_process import stream, totals
from tests.s3.local_s3 import BUCKET, LocalS3
from tests.s3.proxy import Request, area

ROOT = Path(__file__).resolve().parents[2]
STATE_STORE = "spark.sql.streaming.stateStore."
PROVIDER = f"{STATE_STORE}providerClass"
CHANGELOG = f"{STATE_STORE}rocksdb.changelogCheckpointing.enabled"
SCOPE = f"{STATE_STORE}fileMerging.groupCommit.scope"
PARTITIONS = 3
CONF = {
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    f"{STATE_STORE}minDeltasForSnapshot": "2",
}
_PATIENCE = 500

Rows = dict[int, tuple[int, ...]]


def rows(frame: DataFrame) -> Rows:
    """Count and sum by key."""
    return {row["k"]: (row["n"], row["total"]) for row in frame.collect()}


def write_input(directory: Path, batch: int) -> None:
    """Writes the file of a batch; a query sees it at once or not at all."""
    directory.mkdir(exist_ok=True)
    file = directory.with_name(f"{directory.name}-{batch}.parquet")
    pq.write_table(pa.table({"id": pa.array(range(100 * batch, 100 * batch + 60), pa.int64())}), file)
    # Spark takes files by their modification time.
    os.utime(file, (1_400_000_000 + batch, 1_400_000_000 + batch))
    file.rename(directory / f"{batch}.parquet")


@dataclass
class Query:
    """A query with its input on the disk and its checkpoint on S3.

    Attributes:
        spark: The session.
        s3: Where the checkpoint is.
        mode: ``provider``, ``path``, or ``stock``.
        source: The directory of its input.
        key: The checkpoint's, in the bucket.
        bucket: Where it is.
        fed: How many batches have input.
        given_out: What each batch gave out.
        marks: How many requests there had been when a batch's state was committed.
    """

    spark: SparkSession
    s3: LocalS3
    mode: str
    source: Path
    key: str
    bucket: str = BUCKET
    fed: int = 0
    given_out: dict[int, Rows] = field(default_factory=dict)
    marks: dict[int, int] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The checkpoint's, without a scheme of ours."""
        return f"s3a://{self.bucket}/{self.key}"

    @property
    def location(self) -> str:
        """The checkpoint as Spark is told."""
        return merged_path(self.url) if self.mode == "path" else self.url

    def feed(self, batches: int = 1) -> None:
        """Writes the input of more batches."""
        for _ in range(batches):
            write_input(self.source, self.fed)
            self.fed += 1

    def beside(self, name: str) -> Query:
        """The same query over the same input with another checkpoint, for a fork of this one."""
        return replace(self, key=f"{self.key}-{name}", given_out=dict(self.given_out), marks={})

    def start(self, *, available_now: bool = True) -> StreamingQuery:
        """Starts or restarts it.

        Args:
            available_now: Whether it ends when it has read all that is there.
        """

        def take(batch: DataFrame, batch_id: int) -> None:
            self.given_out[batch_id] = rows(batch)
            self.marks[batch_id] = len(self.s3.proxy.requests)

        writer = stream(self.spark, str(self.source)).writeStream.foreachBatch(take).outputMode("update")
        writer = writer.option("checkpointLocation", self.location)
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def run(self, batches: int = 0) -> None:
        """Feeds it so many batches and lets it read all that is there."""
        self.feed(batches)
        self.start().awaitTermination()

    def expected(self) -> Rows:
        """What the same computation gives as a batch."""
        found = rows(totals(self.spark.read.parquet(str(self.source))))
        assert len(found) == 7
        return found

    def newest(self) -> Rows:
        """What the batches gave out last, by key."""
        return {key: row for _, batch in sorted(self.given_out.items()) for key, row in batch.items()}

    def state(self, **options: Any) -> Rows:
        """What Spark's state reader finds, or Python where Spark has none."""
        if MINOR == "3.5":
            batch = options.get("batchId")
            return self.state_in_python(None if batch is None else batch + 1)
        read = self.spark.read.format("statestore").options(**options).load(self.location)
        return rows(read.select("key.*", "value.*").toDF("k", "n", "total"))

    def check(self) -> None:
        """What was given out and what is in the state are what a batch computes."""
        expected = self.expected()
        assert self.newest() == expected
        assert self.state() == expected

    def batch_requests(self, batch: int) -> list[Request]:
        """The requests about it from one batch's commits of state to those of the next."""
        asked = self.s3.proxy.requests[self.marks[batch - 1] : self.marks[batch]]
        return [request for request in asked if area(request.key, self.key)]

    def state_in_python(self, version: int | None = None) -> Rows:
        """What Python finds in the state, or in a version of it, without a JVM."""
        found = self.checkpoint().state(version=version).to_pylist()
        return {key: tuple(row["value"].values()) for row in found for key in row["key"].values()}

    def checkpoint(self) -> Checkpoint:
        """The checkpoint as Python sees it, through the proxy."""
        return Checkpoint(self.url, self.s3.options())

    def keys(self, below: str = "") -> list[str]:
        """Its objects, relative to the checkpoint; without those that stand for directories."""
        found = self.s3.keys(f"{self.key}/{below}", self.bucket)
        return [key.removeprefix(f"{self.key}/") for key in found if not key.endswith("/")]

    def of_runs(self) -> list[str]:
        """The endings of what its runs say of themselves."""
        return sorted(Path(key).suffix for key in self.keys("state/_merged/") if key.endswith((".running", ".ended")))

    def uploads(self) -> list[str]:
        """What multipart uploads are left of it."""
        return [key for key in self.s3.uploads(self.bucket) if key.startswith(f"{self.key}/")]

    def merged_files(self) -> list[str]:
        """The names of its merged files."""
        return [key for key in self.keys("state/_merged") if key.endswith(".merged")]

    def plain_state_files(self) -> list[str]:
        """Files of state stores that are objects of their own."""
        words = ("/_merged/", "/_metadata/", "/_stateSchema/")
        return [key for key in self.keys("state") if not any(word in key for word in words)]

    def seal(self) -> None:
        """What a process does when it ends cleanly."""
        self.spark._jvm.io.pyspark.statestore.log.MergedLogs.sealAll()

    def forget(self) -> None:
        """What a process forgets when it is killed: all that it knows of merged files, and its stores."""
        jvm: Any = self.spark._jvm
        getattr(getattr(jvm.org.apache.spark.sql.execution.streaming.state, "StateStore$"), "MODULE$").stop()
        jvm.io.pyspark.statestore.log.MergedLogs.forgetBelow(jvm.org.apache.hadoop.fs.Path(self.url))


class S3Place(Place):
    """A directory on S3, named as the test's directory on the disk is."""

    def __init__(self, jvm: Any, local: Path, s3: LocalS3) -> None:
        self.s3 = s3
        super().__init__(jvm, local, f"s3a://{BUCKET}", f"/{local.name}")

    @property
    def key(self) -> str:
        """The checkpoint's."""
        return self.checkpoint.strip("/")

    def settings(self, options: Mapping[str, str]) -> dict[str, str]:
        """Hadoop settings of a process that works here, with options of merged state."""
        return {**super().settings(options), **self.s3.hadoop_settings()}


@contextmanager
def query_process(
    query: Query, store: str, settings: Mapping[str, str], directory: Path
) -> Iterator[tuple[subprocess.Popen[str], Callable[[int], None]]]:
    """Runs a query in a process of its own, in whose group its JVMs are; all are dead at the end.

    Yields:
        The process, and a function that waits until it has computed a batch.
    """
    environment = {key: value for key, value in os.environ.items() if key != "PYSPARK_SUBMIT_ARGS"}
    environment |= {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"SPARK_LOCAL_DIRS": str(directory), "SPARK_WORKER_DIR": str(directory)}
    command = [sys.executable, "-m", "tests.hdfs.query_process", query.mode, store, str(query.source), query.location]
    errors = (directory / "stderr").open("w")
    process = subprocess.Popen(
        command + [f"{key}={value}" for key, value in settings.items()],
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        cwd=ROOT,
        env=environment,
        start_new_session=True,
    )
    watchdog = threading.Timer(_PATIENCE, os.killpg, (process.pid, signal.SIGKILL))
    watchdog.start()
    assert process.stdout is not None
    lines = process.stdout

    def computed(batch: int) -> None:
        for line in lines:
            if line.strip() == f"computed {batch}":
                return
        raise AssertionError(f"no batch {batch}: {(directory / 'stderr').read_text()[-3000:]}")

    try:
        yield process, computed
    finally:
        watchdog.cancel()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        errors.close()
