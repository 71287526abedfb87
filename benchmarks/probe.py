"""Says what works on the installed Spark, by trying it: ``python -m benchmarks.probe`` prints JSON. See matrix.py.

A door with a store works if an aggregation, stopped half-way and restarted, gives out what it does on stock Spark, and
no state file is outside of merged files. So does ``transformWithState``. A file sink works if its batches have the rows
that stock Spark writes, in one file for each partition value.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pyspark_statestore.session.doors import MERGED_PROVIDERS, STOCK_PROVIDERS
from tests.sink.sinks import both, rows_of
from tests.streaming.runs import PROVIDER, Run, Setting, assert_state_is_merged
from tests.streaming.workloads import write_batches

_STATE = "org.apache.spark.sql.execution.streaming.state"


def _shares_maps(spark: Any, _: Path) -> bool:
    loader = spark.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    stock = loader.loadClass(f"{_STATE}.HDFSBackedStateStoreProvider")
    return spark.sparkContext._jvm.io.pyspark.statestore.heap.MapFactoryHook.whatIsMissing(stock) is None


def _run(spark: Any, work: Path, workload: str, door: str, store: str) -> Run:
    folder = work / f"{workload}-{door}-{store}"
    run = Run(spark, workload, Setting(door, store), folder)
    classes = MERGED_PROVIDERS if door == "provider" else STOCK_PROVIDERS
    for part in (range(2), range(2, 4)):
        write_batches(run.input, part)
        run.run({PROVIDER: classes[store]})
    return run


def _is_equal(workload: str, door: str, store: str) -> Callable[[Any, Path], bool]:
    def probe(spark: Any, work: Path) -> bool:
        stock, merged = (_run(spark, work / store / door, workload, each, store) for each in ("stock", door))
        assert_state_is_merged(merged)
        return bool(merged.rows) and merged.rows == stock.rows

    return probe


def _query(spark: Any, work: Path) -> str:
    if not (work / "followed").exists():
        _run(spark, work / "followed", "aggregation", "path", "rocksdb")
    return str(work / "followed" / "aggregation-path-rocksdb" / "checkpoint")


def _table(spark: Any, work: Path) -> bool:
    return bool(spark.read.format("checkpoint_files").load(_query(spark, work)).count())


def _stream(spark: Any, work: Path) -> bool:
    stream = spark.readStream.format("checkpoint_files").option("table", "segments").option("settledAfter", "0s")
    writer = stream.load(_query(spark, work)).writeStream.format("memory").queryName("segments")
    writer = writer.option("checkpointLocation", str(work / "follower"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return bool(spark.table("segments").count())


def _limited_stream(spark: Any, work: Path) -> bool:
    stream = spark.readStream.format("checkpoint_files").option("table", "segments").option("settledAfter", "0s")
    stream = stream.option("maxSegmentsPerTrigger", "1000").load(_query(spark, work)).writeStream.format("noop")
    stream.option("checkpointLocation", str(work / "limited")).trigger(availableNow=True).start().awaitTermination()
    return True


def _file_sink(spark: Any, work: Path) -> bool:
    ours, stock = both(spark, work / "sinks", [rows_of(0), rows_of(1)], partition_by=("q",))
    return ours.read() == stock.read() and all(len(ours.listed(batch)) == 2 for batch in range(2))


DOORS_AND_STORES = [(door, store) for store in ("rocksdb", "heap") for door in ("provider", "path")]

PROBES: dict[str, Callable[[Any, Path], bool]] = {
    **{f"{door} {store}": _is_equal("aggregation", door, store) for door, store in DOORS_AND_STORES},
    "transform_with_state": _is_equal("transform_with_state", "path", "rocksdb"),
    "shares_maps": _shares_maps,
    "checkpoint_files": _table,
    "checkpoint_files_stream": _stream,
    "max_segments_per_trigger": _limited_stream,
    "file_sink": _file_sink,
}


def main() -> None:
    """Tries everything."""
    from pyspark_statestore import configure

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.log.level", "OFF")
        builder = builder.config("spark.sql.warehouse.dir", str(work / "warehouse"))
        spark = configure(builder, mode="path").getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        jvm: Any = spark.sparkContext._jvm
        found: dict[str, Any] = {
            "spark": spark.version,
            "scala": jvm.scala.util.Properties.versionNumberString(),
            "hadoop": jvm.org.apache.hadoop.util.VersionInfo.getVersion(),
        }
        for name, probe in PROBES.items():
            try:
                found[name] = probe(spark, work)
            except Exception as error:
                found[name] = False
                print(f"{name}: {str(error).splitlines()[0][:300]}", file=sys.stderr)
        spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
