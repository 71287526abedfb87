"""Batches that are repartitionings: a query adds their entries to the list of its own sink, and no other entry.

The repartitionings are made by hand, of queries without state, so that all of this runs on every Spark; real ones are
in ``tests/reshape/test_sinks.py``.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, raise_error, when

from pyspark_statestore import Sink, attach
from pyspark_statestore.log.repartitionings import without_output
from tests.conftest import MakeSpark
from tests.jvm.harness import until
from tests.sink.sinks import FileSink, rows_of
from tests.streaming.runs import session_conf

pytestmark = pytest.mark.spark

COUNT = 4
"""Rows of a batch."""

CONF = {"spark.sql.streaming.fileSink.log.compactInterval": "3"}


def go_on(sink: FileSink, batches: int, **options: str) -> FileSink:
    sink.feed(*(rows_of(sink.fed + number, COUNT) for number in range(batches)))
    sink.run(compacting=False, conf=CONF, **options)
    return sink


def is_whole(sink: FileSink) -> bool:
    return sink.ids() == list(range(sink.fed * COUNT)) and Sink(sink.files).verify().is_clean


def repartition(sink: FileSink, batch: int, partitions: int = 7, *, base: int = -1) -> None:
    """Enters and commits a batch as Spark's offline repartitioning does, by default of the batch before."""
    offsets, commits = sink.checkpoint / "offsets", sink.checkpoint / "commits"
    base = batch - 1 if base < 0 else base
    version, settings, *sources = (offsets / str(base)).read_text().split("\n")
    said = json.loads(settings)
    said["conf"]["spark.sql.shuffle.partitions"] = str(partitions)
    (offsets / str(batch)).write_text("\n".join([version, json.dumps(said), *sources]))
    shutil.copy(commits / str(base), commits / str(batch))


def entries(sink: FileSink) -> set[str]:
    return {path.name for path in (sink.files / "_spark_metadata").glob("[0-9]*")}


@pytest.mark.parametrize("batch", [2, 3, 4])
def test_the_query_adds_the_entries_before_its_next_batch(spark: SparkSession, tmp_path: Path, batch: int) -> None:
    """Two in a row; one of them, or the batch after them, repeats the list."""
    sink = go_on(FileSink(spark, tmp_path), batch)
    repartition(sink, batch)
    repartition(sink, batch + 1, 8)
    before = entries(sink)
    sink.run(compacting=False, conf=CONF)
    assert entries(sink) == before, "a query that has entered no batch adds nothing"
    go_on(sink, 1)
    assert is_whole(sink)
    go_on(sink, 5)
    assert is_whole(sink)


def same(rows: DataFrame) -> DataFrame:
    return rows


def fails(rows: DataFrame) -> DataFrame:
    """With the fourth batch."""
    return rows.withColumn("word", when(col("id") >= 3 * COUNT, raise_error(col("word"))).otherwise(col("word")))


@pytest.mark.parametrize("has_failed", [False, True])
@pytest.mark.parametrize("is_attached", [False, True])
def test_a_query_that_keeps_few_batches(
    make_spark: MakeSpark, tmp_path: Path, is_attached: bool, has_failed: bool
) -> None:
    """When it enters its next batch, it deletes those from which one sees that the others are repartitionings."""
    spark = attach(make_spark()) if is_attached else make_spark(mode="provider")
    sink = go_on(FileSink(spark, tmp_path, change=fails if has_failed else same), 3)
    repartition(sink, 3)
    repartition(sink, 4, 8)
    with session_conf(spark, {"spark.sql.streaming.minBatchesToRetain": "1"}):
        if has_failed:
            with pytest.raises(StreamingQueryException):
                go_on(sink, 1)
            sink.change = same
        go_on(sink, 4)
    assert is_whole(sink)
    assert not [*(sink.checkpoint / "_replaced").glob("*.repartitioning")]


def test_a_batch_that_fails_adds_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """The sink may be another query's that has come as far: its next batch would be skipped."""
    sink = go_on(FileSink(spark, tmp_path, change=fails), 3)
    repartition(sink, 3)
    with pytest.raises(StreamingQueryException):
        go_on(sink, 1)
    assert not {"3", "4"} & entries(sink)
    sink.change = same
    go_on(sink, 4)
    assert is_whole(sink)


@pytest.mark.parametrize("lost", [1, 3])
def test_an_entry_that_was_lost_is_not_made_up(spark: SparkSession, tmp_path: Path, lost: int) -> None:
    """Nor is anything added beside it, which would let the list look whole."""
    sink = go_on(FileSink(spark, tmp_path), 5)
    repartition(sink, 5)
    (sink.files / "_spark_metadata" / str(lost)).unlink()
    if lost == 1:  # as far back as readers go
        for name in ("2.compact", ".2.compact.crc"):
            (sink.files / "_spark_metadata" / name).unlink(missing_ok=True)
    before = entries(sink)
    with pytest.raises(Exception, match=r"BATCH_METADATA_NOT_FOUND|doesn't exist"):
        go_on(sink, 3)
    assert not {"1", "3", "5", "5.compact"} & (entries(sink) - before)


def test_a_batch_that_was_skipped_for_a_repartitioning(spark: SparkSession, tmp_path: Path) -> None:
    """As Spark does with ``enforce_exactly_once_sink=False``: it is committed unwritten, and its input read again."""
    sink = Numbers(spark, tmp_path)
    sink.until(3)
    batch = max(map(int, entries(sink) - {"2.compact"}))
    for name in (f"{batch}", f".{batch}.crc", f"{batch}.compact", f".{batch}.compact.crc"):
        (sink.files / "_spark_metadata" / name).unlink(missing_ok=True)  # the batch has failed
    repartition(sink, batch + 1, base=batch - 1)
    sink.until(batch + 6)
    ids = sink.ids()
    assert ids == [*range(len(ids))]
    assert Sink(sink.files).verify().is_clean


class Numbers(FileSink):
    """Of a source that keeps nothing, so that a batch can be read again."""

    def until(self, batch: int) -> None:
        with session_conf(self.spark, CONF):
            source = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", COUNT)
            rows = source.option("numPartitions", 1).option("startTimestamp", 1000).load().selectExpr("value AS id")
            writer = rows.writeStream.format("parquet").option("checkpointLocation", self.checkpoint_location)
            query = writer.start(self.location)
        try:
            until(lambda: (self.checkpoint / "commits" / str(batch)).exists() or not query.isActive, "a batch")
        finally:
            query.stop()


def test_java_and_python_know_the_same_batches(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    chance = random.Random(34)
    counts = set()
    for _ in range(300):
        log = [_entry(chance) for _ in range(chance.randrange(6))]
        java = jvm.java.util.ArrayList(log)
        said = without_output({batch: entry.encode() for batch, entry in enumerate(log)})
        assert jvm.io.pyspark.statestore.sink.LogsOfBatches.withoutOutput(java) == str(said), log
        counts.add(len(said))
    assert counts >= {0, 1, 2, 3}


def _entry(chance: random.Random) -> str:
    conf: dict[str, object] = {"spark.sql.x": chance.choice("aab")}
    if chance.random() < 0.9:
        conf["spark.sql.shuffle.partitions"] = chance.choice(["1", "2", "20", "ü", None])
    if chance.random() < 0.3:
        conf["spark.sql.streaming.stateStore.providerClass"] = chance.choice("pq")
    items = list(conf.items())
    chance.shuffle(items)
    said: dict[str, object] = {"batchTimestampMs": chance.choice([1, 1, 2]), "conf": dict(items)}
    if chance.random() < 0.1:
        said["conf"] = chance.choice([None, [], {}, "x"])
    settings = json.dumps(said, ensure_ascii=False)
    if chance.random() < 0.1:
        settings = chance.choice(["", " ", "[]", settings[:-1], settings + "x", "null"])
    lines = [chance.choice(["v1"] * 5 + ["v2"]), settings, chance.choice(['{"o":1}', '{"o":1}', '{"o":1}\n-'])]
    return "\n".join(lines[: chance.choice([3] * 9 + [1, 2])])
