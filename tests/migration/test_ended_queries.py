"""A query that has ended in this session, by itself or by an error, is known by its path; any other one is not.

What it says in its checkpoint, for other processes, is taken away here: tests/streaming/test_run_ends.py is about that.
"""

from __future__ import annotations

import datetime
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from pyspark_statestore import Checkpoint, attach
from pyspark_statestore.log import stopped
from pyspark_statestore.session.doors import STOCK_PROVIDERS
from tests.conftest import MakeSpark
from tests.inspect.builders import merged_file, refused
from tests.jvm.harness import await_listeners, until
from tests.reshape.harness import since
from tests.sampling import sampled

pytestmark = pytest.mark.spark

Call = Callable[[Checkpoint], object]

VERBS: list[Call] = [
    lambda c: c.fork(f"{c.url}-fork", "claim", dry_run=True),
    lambda c: c.maintenance.expire(1, dry_run=False),
    lambda c: c.export(dry_run=True),
]


def start(
    spark: SparkSession, at: Path, numbers: range, *, fails_at: int = -1, available_now: bool = True
) -> StreamingQuery:
    """Writes an input file, and starts a query that counts; it fails at a number."""
    (at / "input").mkdir(parents=True, exist_ok=True)
    (at / "input" / f"{numbers.start}.json").write_text("".join(f'{{"n": {n}}}\n' for n in numbers))
    rows = spark.readStream.schema("n int").json(str(at / "input"))
    checked = F.when(F.col("n") == fails_at, F.raise_error(F.lit("no such number"))).otherwise(F.col("n"))
    writer = (
        rows.withColumn("n", checked.cast("int")).groupBy("n").count().writeStream.outputMode("update").format("noop")
    )
    writer = writer.option("checkpointLocation", str(at / "q1"))
    return (writer.trigger(availableNow=True) if available_now else writer).start()


def run(spark: SparkSession, at: Path, numbers: range) -> StreamingQuery:
    query = start(spark, at, numbers)
    assert query.awaitTermination(60)
    forget_end(at / "q1")
    return query


def forget_end(checkpoint: Path) -> None:
    """Takes away what the query says, once it has said it and taken back that it runs."""
    merged = checkpoint / "state/_merged"
    until(lambda: list(merged.glob("*.ended")) and not list(merged.glob("*.running")), "its end to be said", 60)
    for file in merged.glob("*.ended"):
        file.unlink()


def require_wait(path: Path, *queries: StreamingQuery) -> None:
    for checkpoint in (Checkpoint(path), *map(Checkpoint.of, queries)):
        for call in VERBS:
            with refused("PSS_QUERY_RUNNING", "only silence tells: wait"):
                call(checkpoint)


@pytest.mark.parametrize("is_attached", [False, True])
def test_a_query_that_was_done(make_spark: MakeSpark, tmp_path: Path, is_attached: bool) -> None:
    spark = attach(make_spark()) if is_attached else make_spark(mode="provider")
    for numbers in (range(9), range(9, 20)):
        run(spark, tmp_path, numbers)
    nothing_to_do = start(spark, tmp_path, range(9, 20), available_now=False)
    nothing_to_do.processAllAvailable()
    # Of a run that ends before Spark has told of its start nothing is known.
    await_listeners(spark)
    nothing_to_do.stop()
    forget_end(tmp_path / "q1")
    shutil.copytree(tmp_path / "q1", tmp_path / "copy")
    require_wait(tmp_path / "copy")
    for call in VERBS:
        call(Checkpoint(tmp_path / "q1"))
    assert Checkpoint(tmp_path / "q1").export().exported_files_count > 0


@pytest.mark.parametrize("store", sampled(["rocksdb", "heap"], 1))
@pytest.mark.since("4.0", "Spark's reader of state came with Spark 4.0")
def test_a_copy_without_directories_goes_back_to_stock(make_spark: MakeSpark, tmp_path: Path, store: str) -> None:
    """rclone, a sync between buckets, and git copy no empty directories; stock Spark finds partitions by them."""
    spark = make_spark(mode="provider", store=store)
    run(spark, tmp_path, range(9))
    run(spark, tmp_path, range(5, 15))
    there, before = tmp_path / "q1", (tmp_path / "q1").rename(tmp_path / "before")
    for file in before.rglob("*"):
        if file.is_file():
            to = there / file.relative_to(before)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, to)
    assert not (there / "state/0/1").exists()
    copied = Checkpoint(there, closed_after=datetime.timedelta(0))
    copied.export()
    copied.convert("stock")

    stock = make_spark({"spark.sql.streaming.stateStore.providerClass": STOCK_PROVIDERS[store]})

    def state() -> dict[int, int]:
        rows = stock.read.format("statestore").load(str(there)).selectExpr("key.n", "value.count").collect()
        return {row[0]: row[1] for row in rows}

    expected = Counter([*range(9), *range(5, 15)])
    assert state() == expected
    query = start(stock, tmp_path, range(12, 30))
    assert query.awaitTermination(60)
    assert state() == expected + Counter(range(12, 30))


def test_a_query_that_failed(make_spark: MakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A disk that takes a second to flush a file is no slow clock, which other tests have.
    monkeypatch.setattr(stopped, "_SAME_CLOCK", datetime.timedelta(minutes=1))
    spark = make_spark(mode="provider")
    run(spark, tmp_path, range(9))
    query = start(spark, tmp_path, range(9, 20), fails_at=12)
    with pytest.raises(Exception, match="no such number"):
        query.awaitTermination(60)
    assert (tmp_path / "q1/offsets/1").exists()
    assert not (tmp_path / "q1/commits/1").exists()
    forget_end(tmp_path / "q1")
    merged = tmp_path / "q1/state/_merged"
    for file in merged.glob("*.merged"):
        os.utime(file)  # as sealing them does after a while
    for call in VERBS:
        call(Checkpoint(tmp_path / "q1"))
    # Another process does the batch again: what it writes first is enough.
    with merged_file(tmp_path / "q1", 2, plain=False) as out:
        out.put("0/0/2.changelog", b"of the batch", stamp=1)
    require_wait(tmp_path / "q1", query)


def test_a_query_that_another_session_of_the_application_runs(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark = make_spark(mode="provider")
    query = run(spark, tmp_path, range(9))
    again = start(spark.newSession(), tmp_path, range(9, 20), available_now=False)
    try:
        for checkpoint in (Checkpoint(tmp_path / "q1"), Checkpoint.of(query)):
            for call in VERBS:
                with refused("PSS_QUERY_RUNNING", f"its run {again.runId} is active in this session"):
                    call(checkpoint)
    finally:
        again.stop()


DRIVER = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark_statestore import configure
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = configure(builder.config("spark.sql.shuffle.partitions", "2")).getOrCreate()
at = Path(sys.argv[1])
slow = F.udf(lambda n: time.sleep(600) or n, "int")
rows = spark.readStream.schema("n int").json(str(at / "input")).withColumn("n", slow("n")).groupBy("n").count()
writer = rows.writeStream.outputMode("update").format("noop").option("checkpointLocation", str(at / "q1"))
writer.start().awaitTermination()
"""


def test_a_killed_driver_is_never_taken_for_stopped(make_spark: MakeSpark, tmp_path: Path) -> None:
    """It is in its first batch, which is the next one after those of this session: nothing is committed."""
    spark = make_spark(mode="provider")
    query = run(spark, tmp_path, range(9))
    VERBS[0](Checkpoint(tmp_path / "q1"))
    (tmp_path / "input" / "9.json").write_text('{"n": 9}\n')
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path)], start_new_session=True)
    try:
        end = datetime.datetime.now() + datetime.timedelta(seconds=120)
        while not (tmp_path / "q1/offsets/1").exists():
            assert driver.poll() is None
            assert datetime.datetime.now() < end
        require_wait(tmp_path / "q1", query)  # it runs
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    require_wait(tmp_path / "q1", query)


@since
def test_a_repartitioning_is_taken_back_at_once(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark = make_spark(mode="provider")
    query = run(spark, tmp_path, range(9))
    before = Checkpoint(tmp_path / "q1").repartition(5, spark=spark).partitions_before
    with refused("PSS_QUERY_RUNNING", "only silence tells: wait"):
        Checkpoint(shutil.copytree(tmp_path / "q1", tmp_path / "copy")).undo_repartition()
    assert Checkpoint(tmp_path / "q1").undo_repartition().partitions == before
    assert Checkpoint.of(query).repartition(5, spark=spark).partitions == 5
    assert Checkpoint.of(query).undo_repartition().partitions == before


def test_a_query_of_stock_spark_that_failed(make_spark: MakeSpark, tmp_path: Path) -> None:
    """Spark knows which batch it has begun; only the query itself can be asked."""
    spark = make_spark()
    assert start(spark, tmp_path, range(9)).awaitTermination(60)
    query = start(spark, tmp_path, range(9, 20), fails_at=12)
    with pytest.raises(Exception, match="no such number"):
        query.awaitTermination(60)
    assert not (tmp_path / "q1/commits/1").exists()
    with refused("PSS_QUERY_RUNNING", "only silence tells: wait"):
        Checkpoint(tmp_path / "q1").convert("merged")
    assert Checkpoint.of(query).convert("merged", dry_run=True).changed_entries_count == 2
    (tmp_path / "q1/state/0/0/2.delta").write_bytes(b"of another process, which does the batch again")
    with refused("PSS_QUERY_RUNNING", "only silence tells: wait"):
        Checkpoint.of(query).convert("merged")
