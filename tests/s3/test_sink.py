"""File sinks on real S3A: what is joined is put to its final place once, and nothing is there that no list names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from pyspark_statestore import Sink
from tests.conftest import MakeSpark
from tests.s3.local_s3 import BUCKET, IMPATIENT, LocalS3, add_to_class_path
from tests.s3.proxy import Fault, Rule
from tests.sink.made import name as made_name
from tests.sink.sinks import FileSink, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MakeSink = Callable[..., FileSink]


@pytest.fixture
def make_sink(make_spark: MakeSpark, s3: LocalS3, jars: list[Path], jvm: Any, tmp_path: Path) -> MakeSink:
    """Makes a sink with two partition values, and files of two tasks in each."""
    add_to_class_path(jvm, jars)

    def make(format: str, bucket: str = BUCKET) -> FileSink:
        spark = make_spark(s3.spark_settings())
        url = f"s3a://{bucket}/{tmp_path.name}"
        return FileSink(spark, tmp_path, format, ("q",), change=lambda rows: rows.repartition(2, "id"), url=url)

    return make


def published(s3: LocalS3, sink: FileSink) -> list[str]:
    """The objects of the sink that are not its list."""
    bucket, _, key = sink.location.removeprefix("s3a://").partition("/")
    names = [name.removeprefix(f"{key}/") for name in s3.keys(f"{key}/", bucket)]
    return [name for name in names if name.rpartition("/")[0] != "_spark_metadata" and not name.endswith("/")]


def test_what_is_joined_is_written_once(make_sink: MakeSink, s3: LocalS3) -> None:
    sink = make_sink("parquet")
    sink.feed(rows_of(0), rows_of(1))
    begun = len(s3.proxy.requests)
    sink.run()
    requests = s3.proxy.requests[begun:]

    assert sink.ids() == list(range(80))
    assert len(published(s3, sink)) == 4
    puts = Counter(
        request.key.count("/_staging/") for request in requests if request.kind == "PUT" and "part-" in request.key
    )
    assert puts == {1: 8, 0: 4}
    copied = [request.key for request in requests if request.kind == "COPY" and "part-" in request.key]
    assert copied == []


def test_what_is_large_enough_is_copied_and_not_written_again(make_sink: MakeSink, s3: LocalS3) -> None:
    sink = make_sink("json")
    sink.feed(rows_of(0))
    begun = len(s3.proxy.requests)
    sink.run(targetFileSize="1k")
    requests = s3.proxy.requests[begun:]

    assert sink.ids() == list(range(40))
    kinds = Counter(request.kind for request in requests if "part-" in request.key and "/_staging/" not in request.key)
    assert (kinds["COPY"], kinds["PUT"]) == (4, 0)
    assert len(published(s3, sink)) == 4


def test_what_came_in_vain_is_deleted(make_sink: MakeSink, s3: LocalS3, tmp_path: Path) -> None:
    """A task has written to its final place when the one beside it fails."""
    sink = make_sink("json", IMPATIENT)
    sink.feed(rows_of(0))
    rule = Rule(kinds={"PUT"}, key=f"{tmp_path.name}/q=1/part-", times=None)

    with (
        s3.proxy.fault(Fault.SLOW_DOWN, rule) as injected,
        pytest.raises(StreamingQueryException, match="PSS_SINK_COMPACTION_FAILED"),
    ):
        sink.run()

    assert injected.hits
    assert published(s3, sink) == []
    sink.run()
    assert sink.ids() == list(range(40))
    assert len(published(s3, sink)) == 2


def test_rows_wait_in_objects_that_are_written_once(make_sink: MakeSink, s3: LocalS3) -> None:
    sink = make_sink("parquet")
    made = Sink(sink.location, s3.options())
    sink.feed(rows_of(0), rows_of(1))
    begun = len(s3.proxy.requests)
    sink.run(maxDelay="10h")
    copied = [request.key for request in s3.proxy.requests[begun:] if request.kind == "COPY" and "part-" in request.key]
    assert copied == []
    assert made.waiting().num_rows == 4
    assert made.verify().is_clean

    sink.feed(rows_of(2))
    sink.run()

    assert sink.ids() == list(range(120))
    assert [name for name in published(s3, sink) if "part-" in name] == sorted(
        name.removeprefix(f"{made.url}/") for name in made.files()["file_path"].to_pylist()
    )


def test_small_files_of_stock_spark_are_joined(make_sink: MakeSink, s3: LocalS3) -> None:
    sink = make_sink("parquet")
    sink.feed(rows_of(0), rows_of(1))
    sink.run(compacting=False)
    made = Sink(sink.location, s3.options())
    assert made.files().num_rows == 8

    done = made.compact(older_than=timedelta(0), spark=sink.spark)

    assert (done.rewritten_data_files_count, done.added_data_files_count) == (8, 4)
    assert sink.ids() == list(range(80))
    assert made.remove_orphan_files(timedelta(0), dry_run=False, force=True).removed_files_count >= 8
    assert len(published(s3, sink)) == 4
    assert made.verify().is_clean
    assert sink.ids() == list(range(80))


def test_a_sink_is_a_whole_bucket(make_sink: MakeSink, s3: LocalS3, tmp_path: Path) -> None:
    """Its path is empty. What lies in it and is another's stays."""
    bucket = f"whole-{abs(hash(tmp_path)):x}"
    s3.direct().call_s3("create_bucket", Bucket=bucket)
    sink = make_sink("json")
    sink.url = f"s3a://{bucket}/"
    made = Sink(sink.location, s3.options())
    others = ["checkpoint/offsets/0", "checkpoint/commits/0", "t=1/_delta_log/0.json"]
    others += [f"t=1/{made_name(1)}", f"table/{made_name(2)}"]
    left = f"q=1/{made_name(3, '.c000.snappy.parquet')}"
    for key in (*others, left):
        s3.direct().pipe(f"{bucket}/{key}", b"x")

    sink.feed(rows_of(0), rows_of(1))
    sink.run(maxDelay="10h")
    assert made.files().num_rows == 0
    assert made.waiting().num_rows == 4
    assert made.verify().is_clean
    sink.feed(rows_of(2))
    sink.run()

    assert sink.ids() == list(range(120))
    assert made.waiting().num_rows == 0
    assert set(made.files()["directory"].to_pylist()) == {"q=0", "q=1"}
    removed = made.remove_orphan_files(timedelta(0), dry_run=False, force=True).files["file_path"].to_pylist()
    assert [path for path in removed if "/_" not in path] == [f"s3a://{bucket}/{left}"]
    assert set(others) <= set(s3.keys("", bucket))
    assert made.verify().is_clean
    assert sink.ids() == list(range(120))
