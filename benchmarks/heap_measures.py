"""Drives heap stores step by step in one JVM: stock Spark's, merged files with stock maps, and maps that share rows."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.filesystems import TEST_JAR

ROOT = Path(__file__).resolve().parent.parent
STREAMING = "spark.sql.streaming."
OURS = "io.pyspark.statestore.spark.MergedHDFSBackedStateStoreProvider"
STOCK = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


@dataclass(frozen=True)
class Side:
    """A way to hold state on the heap.

    Attributes:
        name: The name in tables.
        provider: The class of its state store provider.
        options: Settings of Hadoop.
    """

    name: str
    provider: str
    options: Mapping[str, str] = field(default_factory=dict)


SIDES = (
    Side("stock", STOCK),
    Side("copies", OURS, {f"{STREAMING}stateStore.fileMerging.heap.copyOnWrite": "false"}),
    Side("shared", OURS),
)
"""Stock Spark; merged files with Spark's own maps; merged files with maps that share rows."""


def start_jvm(memory: str, temporary: Path, options: str = "") -> Any:
    """Starts the one JVM of this process, with the shim and the test shim on its class path.

    Args:
        memory: The size of its heap, such as ``4g``.
        temporary: The directory for its temporary files.
        options: More options of the JVM.

    Returns:
        py4j's view of it.
    """
    from pyspark import SparkContext

    from pyspark_statestore import jar_path

    jars = f"{jar_path()}{os.pathsep}{TEST_JAR}"
    arguments = [
        *("--driver-class-path", jars),
        *("--driver-memory", memory),
        *("--driver-java-options", f"-Xms{memory} -Djava.io.tmpdir={temporary} {options}"),
        *("--conf", f"spark.local.dir={temporary}"),
        *("--conf", "spark.log.level=ERROR"),
        *("--conf", f"spark.sql.warehouse.dir={temporary / 'warehouse'}"),
    ]
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join(f"'{argument}'" for argument in [*arguments, "pyspark-shell"])
    SparkContext._ensure_initialized()
    return SparkContext._jvm


@contextmanager
def opened(jvm: Any, side: Side, folder: Path, in_memory: int, *, prefix: bool = False) -> Iterator[Any]:
    """Yields an empty store of one side, and closes it at the end."""
    from pyspark import SparkContext

    settings, hadoop = jvm.java.util.HashMap(), jvm.java.util.HashMap()
    settings.put(f"{STREAMING}maxBatchesToRetainInMemory", str(in_memory))
    hadoop.put("fs.merged+file.impl", "io.pyspark.statestore.fs.MergedFileSystem")
    for key, value in side.options.items():
        hadoop.put(key, value)
    state = f"file:{folder / side.name / 'state'}"
    store = jvm.io.pyspark.statestore.heap.HeapStore(side.provider, state, prefix, settings, hadoop)
    try:
        yield store
    finally:
        store.close()
        SparkContext._gateway.detach(store)


def fill(store: Any, keys: int) -> None:
    """Commits the first version, with all keys."""
    store.load(0)
    store.fill(keys)
    store.commit()


def batch_times(jvm: Any, folder: Path, keys: int, updates: int, batches: int) -> dict[str, dict[str, list[float]]]:
    """Times batches, one of each side in turn.

    Returns:
        By side: milliseconds to obtain both stores (``obtain``), of whole batches, gets and scans.
    """
    found: dict[str, dict[str, list[float]]] = {}
    with (
        opened(jvm, SIDES[0], folder, 2) as stock,
        opened(jvm, SIDES[1], folder, 2) as copies,
        opened(jvm, SIDES[2], folder, 2) as shared,
    ):
        stores = dict(zip((side.name for side in SIDES), (stock, copies, shared), strict=True))
        for name, store in stores.items():
            fill(store, keys)
            found[name] = {"obtain": [], "batch": [], "gets": [], "scan": []}
        warmup = max(3, batches // 3)
        for version in range(1, batches + warmup + 1):
            for name, store in stores.items():
                obtain, batch, _ = store.batches(version, keys, updates, 1)[0]
                gets = store.gets(version, keys, 20_000, 1)[0]
                scan = store.scans(version, 1)[0]
                if version > warmup:
                    for what, took in (("obtain", obtain), ("batch", batch), ("gets", gets), ("scan", scan)):
                        found[name][what].append(took / 1e6)
    return found


PER_PREFIX, SCANS = 10, 10_000


def prefix_times(jvm: Any, folder: Path, keys: int, batches: int) -> dict[str, list[float]]:
    """Milliseconds of prefix scans, some of each side in turn; with a batch in between, as in session windows."""
    sides = (SIDES[0], SIDES[2])
    with (
        opened(jvm, sides[0], folder, 2, prefix=True) as stock,
        opened(jvm, sides[1], folder, 2, prefix=True) as shared,
    ):
        stores = dict(zip((side.name for side in sides), (stock, shared), strict=True))
        found: dict[str, list[float]] = {name: [] for name in stores}
        for store in stores.values():
            store.load(0)
            store.fillGroups(keys, PER_PREFIX)
            store.commit()
        warmup = max(3, batches // 3)
        for batch in range(1, batches + warmup + 1):
            for name, store in stores.items():
                store.load(batch)
                for key in range(batch, keys, max(1, keys // 50)):
                    store.put(key // PER_PREFIX, f"k{key}", 8, batch)
                store.commit()
                took = store.prefixScans(batch + 1, keys, PER_PREFIX, SCANS)
                if batch > warmup:
                    found[name].append(took / 1e6)
    return found


def heap(jvm: Any, folder: Path, keys: int, updates: int, versions: int) -> dict[str, int]:
    """Bytes of heap that come free when a store with some versions in memory is closed, by side."""
    found = {}
    used = jvm.io.pyspark.statestore.heap.HeapStore.usedHeap
    for side in (SIDES[0], SIDES[2]):
        with opened(jvm, side, folder, versions) as store:
            fill(store, keys)
            store.batches(1, keys, updates, versions)
            assert len(store.loaded()) == versions
            held = used()
        found[side.name] = held - used()
    return found


def aggregation(folder: Path, keys: int, updates: int, batches: int, partitions: int) -> dict[str, list[float]]:
    """Seconds of the batches of a streaming aggregation over all keys, one batch of each side in turn."""
    from pyspark.sql import SparkSession

    from pyspark_statestore import configure

    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", str(partitions))
    builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    spark = configure(builder.config("spark.driver.host", "127.0.0.1"), store="heap").getOrCreate()
    sides = (SIDES[0], SIDES[2])
    queries: dict[str, Any] = {}
    took: dict[str, list[float]] = {side.name: [] for side in sides}
    warmup = 4
    try:
        for batch in range(batches + warmup):
            rows = spark.range(keys if batch == 0 else updates)
            frame = rows.selectExpr(f"pmod(id * 104729 + {batch} * 7919, {keys}) AS key", "id AS v")
            for side in sides:
                source = str(folder / side.name / "source")
                frame.coalesce(1).write.mode("append").parquet(source)
                if batch == 0:
                    spark.conf.set(f"{STREAMING}stateStore.providerClass", side.provider)
                    events = spark.readStream.schema("key long, v long").parquet(source)
                    writer = events.groupBy("key").agg({"v": "sum"}).writeStream.outputMode("update").format("noop")
                    queries[side.name] = writer.option("checkpointLocation", str(folder / side.name / "q")).start()
                queries[side.name].processAllAvailable()
                if batch >= warmup:
                    done = [p for p in queries[side.name].recentProgress if p["batchId"] == batch]
                    took[side.name].append(done[-1]["durationMs"]["triggerExecution"] / 1000)
    finally:
        for query in queries.values():
            query.stop()
        spark.stop()
    return took


def median(values: list[float]) -> float:
    """The median."""
    return statistics.median(values)
