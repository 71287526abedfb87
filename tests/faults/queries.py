"""Small queries over files that come one a batch, on a file system that fails on demand."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from tests.jvm.harness import FILE_SYSTEMS, TESTING, View, file_system_conf, in_time

CONF = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.maintenanceInterval": "1h",
    "spark.sql.streaming.minBatchesToRetain": "100",
    **{f"spark.hadoop.{key}": value for key, value in file_system_conf(*FILE_SYSTEMS).items()},
    "spark.hadoop.fs.AbstractFileSystem.faulty.impl": f"{TESTING}.FaultyFs",
}
"""Of the session. One shuffle partition: what a failed batch leaves can then be told from what it should leave."""

MASTER = "local[2,2]"
"""A task may fail once."""

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
MERGED_MANAGER = "io.pyspark.statestore.fs.MergedCheckpointFileManager"
PROVIDERS = {
    ("path", "rocksdb"): "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    ("path", "heap"): "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    ("provider", "rocksdb"): "io.pyspark.statestore.spark.MergedRocksDBStateStoreProvider",
    ("provider", "heap"): "io.pyspark.statestore.spark.MergedHDFSBackedStateStoreProvider",
}


@dataclass
class Query:
    """One query, its input and its checkpoint.

    Attributes:
        spark: The session.
        root: A directory for both.
        door: ``path`` or ``provider``.
        store: ``rocksdb`` or ``heap``.
        scheme: The file system below.
        operator: ``sum``, whose state is committed before the first row comes out of it, or ``dedup``, whose rows come
            out while it writes.
        through: What is done with each row that comes out.
    """

    spark: Any
    root: Path
    door: str = "path"
    store: str = "rocksdb"
    scheme: str = "faulty"
    operator: str = "sum"
    through: str = f"reflect('{TESTING}.Tripwire', 'pass', cast(k AS string))"
    rows: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.source.mkdir(parents=True)

    @property
    def source(self) -> Path:
        """Where its input comes."""
        return self.root / "source"

    @property
    def checkpoint(self) -> Path:
        """Its checkpoint, on the local disk."""
        return self.root / "checkpoint"

    @property
    def location(self) -> str:
        """Its checkpointLocation."""
        return f"{'merged+' if self.door == 'path' else ''}{self.scheme}:{self.checkpoint}"

    @property
    def state(self) -> Path:
        """The checkpoint's state directory, on the local disk."""
        return self.checkpoint / "state"

    def feed(self, *batches: int) -> None:
        """One file for each: keys that are in all of them, and some of its own, 100 and its number among them."""
        for batch in batches:
            own = [100 + batch, *range(1000 + 10 * batch, 1010 + 10 * batch)]
            rows = [(key, batch * 10 + key) for key in [*range(10), *own]]
            self.rows += rows
            path = self.source / f"{batch:04d}.json"
            path.write_text("\n".join(json.dumps({"k": k, "v": v}) for k, v in rows), encoding="utf-8")
            os.utime(path, (1_700_000_000 + batch,) * 2)  # the source's order

    def set_up(self) -> None:
        """Opens the door."""
        self.spark.conf.set(PROVIDER, PROVIDERS[self.door, self.store])
        if self.door == "path":
            self.spark.conf.set(MANAGER, MERGED_MANAGER)
        else:
            self.spark.conf.unset(MANAGER)

    def start(self) -> Any:
        """Starts it on what is there."""
        self.set_up()
        stream = self.spark.readStream.schema("k long, v long").option("maxFilesPerTrigger", 1).json(str(self.source))
        if self.operator == "sum":
            result = stream.groupBy("k").agg(F.sum("v"), F.count("*"))
        else:
            result = stream.dropDuplicates(["k"])
        writer = result.selectExpr("*", f"{self.through} AS t").writeStream.format("noop").outputMode("update")
        return writer.option("checkpointLocation", self.location).trigger(availableNow=True).start()

    def run(self) -> None:
        """Runs it over all there is."""
        query = self.start()
        try:
            assert query.awaitTermination(120), "the query hangs"
        finally:
            query.stop()

    def failure(self) -> str:
        """Runs it, and returns all that is said of why it fails."""
        with pytest.raises((PySparkException, Py4JJavaError)) as caught:
            in_time(self.run, seconds=130)
        return said_by(caught.value)

    def versions(self) -> set[int]:
        """The versions that a reader of the merged files sees."""
        names = [path.rsplit("/", 1)[-1] for path in View.of(self.state).live]
        return {int(name.split(".")[0].split("_")[0]) for name in names if not name.endswith((".crc", ".sst", ".log"))}

    def assert_right(self) -> None:
        """All input is in the state, once."""
        self.set_up()
        state = self.spark.read.format("statestore").load(self.location)
        keys = {key for key, _ in self.rows}
        if self.operator == "sum":
            found = {tuple(row) for row in state.selectExpr("key.k", "value.*").collect()}
            values = {key: [v for k, v in self.rows if k == key] for key in keys}
            assert found == {(key, sum(values[key]), len(values[key])) for key in keys}
        else:
            assert sorted(row.k for row in state.selectExpr("key.k").collect()) == sorted(keys)


def said_by(error: BaseException) -> str:
    """An error's message, and those of its causes in the JVM, which PySpark leaves out."""
    said = [str(error)]
    java = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    while java is not None:
        said.append(str(java.toString()))
        java = java.getCause()
    return "\n".join(said)
