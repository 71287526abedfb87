"""Queries whose checkpoint is in Google's store, and what they leave there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pyspark_statestore import Checkpoint, merged_path
from tests.class_data import MINOR
from tests.clouds.servers import BUCKET, LocalGcs
from tests.hdfs.query_process import stream, totals
from tests.s3.harness import PARTITIONS, STATE_STORE, Rows, rows, write_input

CHANGELOG = f"{STATE_STORE}rocksdb.changelogCheckpointing.enabled"
CONF = {
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    f"{STATE_STORE}minDeltasForSnapshot": "2",
}


@dataclass
class CloudQuery:
    """A query with its input on the disk and its checkpoint in Google's store.

    Attributes:
        spark: The session.
        gcs: Where the checkpoint is.
        mode: ``provider`` or ``path``.
        source: The directory of its input.
        key: The checkpoint's, in the bucket.
        fed: How many batches have input.
        given_out: What each batch gave out.
        marks: Where the requests of each batch end.
    """

    spark: SparkSession
    gcs: LocalGcs
    mode: str
    source: Path
    key: str
    fed: int = 0
    given_out: dict[int, Rows] = field(default_factory=dict)
    marks: dict[int, int] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The checkpoint's, without a scheme of ours."""
        return f"gs://{BUCKET}/{self.key}"

    @property
    def location(self) -> str:
        """The checkpoint as Spark is told."""
        return merged_path(self.url) if self.mode == "path" else self.url

    def feed(self, batches: int = 1) -> None:
        """Writes the input of more batches."""
        for _ in range(batches):
            write_input(self.source, self.fed)
            self.fed += 1

    def run(self, batches: int = 0) -> None:
        """Feeds it so many batches and lets it read all that is there."""

        def take(batch: DataFrame, batch_id: int) -> None:
            self.given_out[batch_id] = rows(batch)
            self.marks[batch_id] = self.gcs.mark()

        self.feed(batches)
        writer = stream(self.spark, str(self.source)).writeStream.foreachBatch(take).outputMode("update")
        writer.option("checkpointLocation", self.location).trigger(availableNow=True).start().awaitTermination()

    def expected(self) -> Rows:
        """What the same computation gives as a batch."""
        found = rows(totals(self.spark.read.parquet(str(self.source))))
        assert len(found) == 7
        return found

    def state(self) -> Rows:
        """What Spark's state reader finds, or Python where Spark has none."""
        if MINOR == "3.5":
            return self.state_in_python()
        read = self.spark.read.format("statestore").load(self.location)
        return rows(read.select("key.*", "value.*").toDF("k", "n", "total"))

    def state_in_python(self) -> Rows:
        """What Python finds in the state, without a JVM."""
        found = self.checkpoint().state().to_pylist()
        return {key: tuple(row["value"].values()) for row in found for key in row["key"].values()}

    def checkpoint(self) -> Checkpoint:
        """The checkpoint as Python sees it."""
        return Checkpoint(self.url, self.gcs.options())

    def keys(self, below: str = "") -> list[str]:
        """Its objects, relative to the checkpoint."""
        return [key.removeprefix(f"{self.key}/") for key in self.gcs.keys(f"{self.key}/{below}")]

    def merged_files(self) -> list[str]:
        """The names of its merged files."""
        return [Path(key).name for key in self.keys("state/_merged")]

    def plain_state_files(self) -> list[str]:
        """Files of state stores that are objects of their own."""
        words = ("/_merged/", "/_metadata/", "/_stateSchema/")
        return [key for key in self.keys("state") if not any(word in key for word in words)]

    def forget(self) -> None:
        """What a process forgets when it is killed: all that it knows of merged files, and its stores."""
        jvm: Any = self.spark._jvm
        getattr(getattr(jvm.org.apache.spark.sql.execution.streaming.state, "StateStore$"), "MODULE$").stop()
        jvm.io.pyspark.statestore.log.MergedLogs.forgetBelow(jvm.org.apache.hadoop.fs.Path(self.url))
