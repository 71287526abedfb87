"""State that is larger than what the local disk may have of it: the checkpoint holds it (restore=remote)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

from pyspark_statestore import Checkpoint
from tests.copies import copy_stopped
from tests.jvm.harness import gauge, until
from tests.streaming.runs import PROVIDER, STATE_STORE, STOCK_CLASSES, session_conf, unload_stores
from tests.streaming.test_lazy_restore import FILE_MERGING, NO_CACHE

pytestmark = [
    pytest.mark.spark,
    pytest.mark.since("4.1", "stores are loaded lazily from Spark 4.1 on"),
    pytest.mark.sweep(0, files="state larger than the disk"),
]

LIMIT = 16 << 20
KEYS, BATCHES = 24_000, 5
"""Of a kilobyte each."""

CONF = {
    "spark.sql.shuffle.partitions": "1",
    f"{STATE_STORE}maintenanceInterval": "100ms",
    f"{STATE_STORE}minDeltasForSnapshot": "2",
    f"{STATE_STORE}rocksdb.changelogCheckpointing.enabled": "true",
    f"{STATE_STORE}rocksdb.compression": "none",
    f"{STATE_STORE}rocksdb.writeBufferSizeMB": "2",
}
REMOTE = {**NO_CACHE, f"{FILE_MERGING}restore": "remote", f"{FILE_MERGING}local.sizeLimit": "16m"}


class Query:
    """Counts keys, with a kilobyte for each."""

    def __init__(self, spark: SparkSession, folder: Path, conf: dict[str, str]) -> None:
        self.spark, self.folder, self.conf = spark, folder, {**CONF, **conf}
        self.found: dict[int, Any] = {}

    def run(self) -> None:
        """Works on all input there is, one file after the other."""
        running = self.start()
        assert running.awaitTermination(300)

    def start(self) -> StreamingQuery:
        """Begins with that."""

        def keep(frame: DataFrame, batch: int) -> None:
            hashes = sf.sum(sf.xxhash64("key", "times", "value").cast("decimal(20,0)")).cast("string")
            self.found[batch] = tuple(frame.agg(sf.count("*"), hashes).first() or ())

        with session_conf(self.spark, self.conf):
            rows = self.spark.readStream.schema("key long, value string").option("maxFilesPerTrigger", 1)
            counts = rows.parquet(str(self.folder.parent / "input")).groupBy("key")
            counted = counts.agg(sf.count("*").alias("times"), sf.max("value").alias("value"))
            writer = counted.writeStream.outputMode("update").foreachBatch(keep).trigger(availableNow=True)
            return writer.option("checkpointLocation", str(self.folder)).start()

    def state(self) -> list[Any]:
        """The state that Spark's reader finds."""
        rows = self.spark.read.format("statestore").load(str(self.folder))
        return [*rows.select("key.key", "value.*").orderBy("key").collect()]


def write_input(spark: SparkSession, folder: Path, batches: Iterable[int] = range(BATCHES + 1)) -> None:
    """A batch of all keys, and some of a few."""
    for batch in batches:
        some = spark.range(KEYS, numPartitions=1).where(f"{batch} = 0 OR xxhash64(id, {batch}) % 40 = 0")
        rows = some.select(sf.col("id").alias("key"), sf.expr(f"repeat(sha2(string(id + {batch}), 256), 16) AS value"))
        rows.write.parquet(str(folder / f"written-{batch}"))
        (part,) = (folder / f"written-{batch}").glob("*.parquet")
        (folder / "input").mkdir(exist_ok=True)
        os.utime(part, (1_400_000_000 + batch, 1_400_000_000 + batch))
        part.rename(folder / "input" / f"{batch}.parquet")


def on_disk(jvm: Any) -> int:
    """Bytes that SSTs take on the local disk, each counted once."""
    found = {}
    for file in Path(jvm.java.lang.System.getProperty("java.io.tmpdir")).rglob("*.sst"):
        try:
            status = file.stat()
        except FileNotFoundError:
            continue
        found[status.st_ino] = status.st_blocks * 512
    return sum(found.values())


def test_the_disk_has_no_more_of_the_state_than_it_may(make_spark: Callable[..., SparkSession], tmp_path: Path) -> None:
    spark = make_spark(CONF, mode="provider")
    jvm: Any = spark.sparkContext._jvm
    write_input(spark, tmp_path)
    stock = Query(spark, tmp_path / "stock", {PROVIDER: STOCK_CLASSES["rocksdb"]})
    stock.run()
    unload_stores(spark)
    before = on_disk(jvm)
    cache = jvm.io.pyspark.statestore.tables.LocalCache.ofProcess()
    given_back, shown = cache.givenBack(), gauge(jvm, "givenBackBytes")
    remote = Query(spark, tmp_path / "remote", REMOTE)
    remote.run()
    assert remote.found == stock.found
    assert cache.givenBack() > given_back
    assert gauge(jvm, "givenBackBytes") > shown
    # What was written last is in the checkpoint soon.
    until(lambda: cache.used() <= LIMIT, "room for what was written last", 60)
    assert cache.used() <= LIMIT
    assert on_disk(jvm) - before <= LIMIT + (1 << 20)
    make_spark({**CONF, "spark.app.name": "another one of this process"}, mode="provider")
    assert gauge(jvm, "givenBackBytes") == 0


def test_a_snapshot_comes_also_where_it_cannot_rely_on_what_was_uploaded(
    make_spark: Callable[..., SparkSession], tmp_path: Path
) -> None:
    """As after a night without a batch: what was uploaded, and has gone from the disk since, is fetched and written."""
    spark = make_spark(CONF, mode="provider")
    jvm: Any = spark.sparkContext._jvm
    tables = jvm.io.pyspark.statestore.tables
    write_input(spark, tmp_path)
    stock = Query(spark, tmp_path / "stock", {PROVIDER: STOCK_CLASSES["rocksdb"]})
    stock.run()
    tables.Early.reliableFor(0)
    getattr(tables.Early, "from")(64 << 10, 20)
    tables.HoleySst.goAllTheTime(True)
    try:
        remote = Query(
            spark, tmp_path / "remote", {**REMOTE, f"{STATE_STORE}rocksdb.changelogCheckpointing.enabled": "false"}
        )
        remote.run()
    finally:
        tables.HoleySst.goAllTheTime(False)
        tables.Early.asEver()
    assert remote.found == stock.found
    unload_stores(spark)
    checkpoint = Checkpoint(str(remote.folder))
    assert checkpoint.maintenance.verify().is_clean
    paths = checkpoint.inspect.segments().column("logical_path").to_pylist()
    assert [path for path in paths if path.endswith(f"/{BATCHES + 1}.zip")]
    assert stock.state() == remote.state()


def forked(checkpoint: Path, spark: SparkSession) -> Path:
    Checkpoint(checkpoint).fork(str(checkpoint.with_name("the-fork")))
    return checkpoint.with_name("the-fork")


def claimed(checkpoint: Path, spark: SparkSession) -> Path:
    Checkpoint(checkpoint).fork(str(checkpoint.with_name("that-claims")), "claim")
    return checkpoint.with_name("that-claims")


def compacted(checkpoint: Path, spark: SparkSession) -> Path:
    done = Checkpoint(checkpoint).maintenance
    done.expire(1, dry_run=False)
    done.compact()
    return checkpoint


def split(checkpoint: Path, spark: SparkSession) -> Path:
    assert Checkpoint(checkpoint).repartition(4, spark=spark).partitions == 4
    return checkpoint


def repartitioned(checkpoint: Path, spark: SparkSession) -> Path:
    assert Checkpoint(checkpoint).repartition(3, spark=spark).partitions == 3
    return checkpoint


def exported(checkpoint: Path, spark: SparkSession) -> Path:
    Checkpoint(checkpoint).export(str(checkpoint.with_name("the-export")))
    return checkpoint.with_name("the-export")


def with_heap(checkpoint: Path, spark: SparkSession) -> Path:
    assert Checkpoint(checkpoint).convert(store="heap", spark=spark).store == "heap"
    return checkpoint


def kept(checkpoint: Path, spark: SparkSession) -> Path:
    return checkpoint


def test_all_that_is_done_to_checkpoints(make_spark: Callable[..., SparkSession], tmp_path: Path) -> None:
    """A query whose disk had a part of its state only goes on after each verb as stock Spark's undisturbed one does."""
    spark = make_spark(CONF, mode="provider")
    jvm: Any = spark.sparkContext._jvm
    cache = jvm.io.pyspark.statestore.tables.LocalCache.ofProcess()
    two = {"spark.sql.shuffle.partitions": "2"}
    write_input(spark, tmp_path)
    stock = Query(spark, tmp_path / "stock", {PROVIDER: STOCK_CLASSES["rocksdb"], **two})
    stock.run()
    remote = Query(spark, tmp_path / "remote", {**REMOTE, **two})
    given_back = cache.givenBack()
    remote.run()
    assert cache.givenBack() > given_back
    assert remote.state() == stock.state(), "while the stores are open, with holes"
    until(lambda: list(remote.folder.glob("state/_merged/*.ended")), "the query's word that it has ended")
    unload_stores(spark)
    before = dict(stock.found)
    write_input(spark, tmp_path, range(BATCHES + 1, BATCHES + 3))
    stock.run()
    after = {batch: found for batch, found in stock.found.items() if batch not in before}
    assert len(after) == 2
    for verb in (kept, forked, claimed, compacted, split, repartitioned, exported, with_heap):
        unload_stores(spark)
        folder = tmp_path / verb.__name__
        copy_stopped(remote.folder, folder)
        there = verb(folder, spark)
        restores = REMOTE if verb is not exported else {PROVIDER: STOCK_CLASSES["rocksdb"]}
        again = Query(spark, there, {**restores, **two})
        again.run()
        # A repartitioning uses up a batch number.
        assert [again.found[batch] for batch in sorted(again.found)] == [*after.values()], verb.__name__
        assert again.state() == stock.state(), verb.__name__
        if verb is not exported:
            unload_stores(spark)
            assert Checkpoint(there).maintenance.verify().is_clean, verb.__name__
