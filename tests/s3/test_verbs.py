"""What the package does with a checkpoint that executors write through S3A and Python reads through s3fs."""

from __future__ import annotations

import datetime
import json

import pytest

from pyspark_statestore import maintain
from pyspark_statestore.storage import Directory, Location
from tests.class_data import MINOR
from tests.jvm.harness import until
from tests.s3.conftest import MakeQuery
from tests.s3.harness import CHANGELOG, Query
from tests.s3.local_s3 import BUCKET, LocalS3

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(1, files="queries on S3")]

HEAP = ("provider", "heap")


def data_source_options(query: Query) -> dict[str, str]:
    """What ``checkpoint_files`` needs to get there."""
    given = query.s3.options()
    return {
        "storage.key": given["key"],
        "storage.secret": given["secret"],
        "storage.client_kwargs": json.dumps(given["client_kwargs"]),
    }


def test_looked_at_and_compacted_between_batches(make_query: MakeQuery) -> None:
    query = make_query(*HEAP)
    query.run(3)
    checkpoint = query.checkpoint()

    spark = query.spark
    segments = checkpoint.inspect.segments().num_rows
    if MINOR != "3.5":
        read = spark.read.format("checkpoint_files").options(table="segments", **data_source_options(query))
        assert read.load(query.url).count() == segments
    assert segments > 0
    assert query.state_in_python() == query.expected()
    assert checkpoint.maintenance.verify().is_clean

    before = query.merged_files()
    assert len(before) >= 4
    done = checkpoint.maintenance.compact()
    assert done.rewritten_files_count >= 2
    after = query.merged_files()
    assert len(after) < len(before)
    assert [key for key in query.keys("state/_merged") if key.endswith(".relocating")] == []
    # Executors have read files that are gone now.
    query.run(1)
    checkpoint.maintenance.compact(spark=spark)
    checkpoint.maintenance.consolidate_index()
    query.forget()
    query.run(1)
    query.check()
    assert checkpoint.maintenance.verify().is_clean
    assert query.plain_state_files() == []
    assert query.uploads() == []


def test_maintained_in_the_background(make_query: MakeQuery) -> None:
    query = make_query(*HEAP)
    query.run(2)
    query.feed(1)
    running = query.start(available_now=False)
    try:
        interval = datetime.timedelta(seconds=0.2)
        with maintain(query.spark, interval, storage_options=query.s3.options()) as maintenance:
            begun = len(maintenance.runs)
            until(lambda: 2 in query.given_out and len(maintenance.runs) > begun + 1, "two runs", seconds=120)
            query.feed(1)
            running.processAllAvailable()
        assert any(run.queries for run in maintenance.runs)
        assert [run for run in maintenance.runs if run.failed] == []
    finally:
        running.stop()
    query.check()
    assert query.checkpoint().maintenance.verify().is_clean


def test_directories_are_no_files(s3: LocalS3) -> None:
    fs = s3.direct()
    for key in ("sources/0/", "sources/0/0"):
        fs.call_s3("put_object", Bucket=BUCKET, Key=f"markers/{key}", Body=b"v1" * key.endswith("/0"))
    directory = Directory(Location.of(f"s3a://{BUCKET}/markers", s3.options()))
    assert [info.name for info in directory.find("sources")] == ["0/0"]


def test_fork_goes_its_own_way(make_query: MakeQuery) -> None:
    query = make_query(*HEAP)
    query.run(2)
    fork = query.beside("fork")
    made = query.checkpoint().fork(fork.url)
    assert made.path == fork.url
    before = query.expected()
    query.feed(1)
    fork.run()
    after = query.expected()
    assert fork.newest() == fork.state_in_python() == after
    assert query.state() == before != after
    query.run(1)
    query.check()
    for each in (fork, query):
        assert each.checkpoint().maintenance.verify().is_clean
    fork.checkpoint().maintenance.compact(localize=True)
    fork.forget()
    fork.run()
    assert fork.newest() == fork.state_in_python() == fork.expected()


def test_state_reader_of_a_fork(make_query: MakeQuery) -> None:
    query = make_query(*HEAP)
    query.run(1)
    fork = query.beside("fork")
    query.checkpoint().fork(fork.url)
    assert fork.state() == query.expected()


@pytest.mark.since("4.0", "Spark's reader of state came with Spark 4.0")
def test_a_copy_without_directories(make_query: MakeQuery) -> None:
    """As a sync between buckets makes it: objects, and none of the markers by which S3A knows empty directories."""
    query = make_query("provider", "rocksdb")
    query.run(2)
    copy, fork = query.beside("copy"), query.beside("fork")
    # Both files are there for a moment, and one that is being deleted cannot be copied.
    until(lambda: query.of_runs() == [".ended"], "the query's word that it ended")
    objects = query.keys()
    for key in objects:
        query.s3.direct().copy(f"{query.bucket}/{query.key}/{key}", f"{copy.bucket}/{copy.key}/{key}")
    assert copy.state() == query.expected()
    copy.checkpoint().fork(fork.url)
    assert fork.state() == query.expected()
    fork.run(1)
    assert fork.newest() == fork.expected()


def test_stock_spark_goes_on_after_an_export(make_query: MakeQuery) -> None:
    query = make_query("provider", "rocksdb", **{CHANGELOG: "true"})
    query.run(3)
    query.seal()
    checkpoint = query.checkpoint()
    checkpoint.export(force=True)
    assert query.plain_state_files() != []
    assert query.state_in_python() == query.expected()
    query.forget()

    stock = make_query("stock", "rocksdb", **{CHANGELOG: "true"})
    stock.key, stock.source, stock.fed, stock.given_out = query.key, query.source, query.fed, query.given_out
    stock.run(1)
    assert min(set(stock.given_out) - {0, 1, 2}) == 3
    stock.check()


def test_stock_spark_goes_on_in_a_copy(make_query: MakeQuery) -> None:
    query = make_query(*HEAP)
    query.run(2)
    query.seal()
    copy = query.beside("copy")
    query.checkpoint().export(copy.url, force=True)
    stock = make_query("stock", "heap")
    stock.key, stock.source, stock.fed, stock.given_out = copy.key, copy.source, copy.fed, copy.given_out
    stock.run(1)
    stock.check()
    assert sorted(stock.given_out) == [0, 1, 2]
