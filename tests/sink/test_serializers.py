"""Sinks work with the serializer that a session has."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from pyspark_statestore import Sink
from tests.conftest import MakeSpark
from tests.sink.handmade import MadeSink, Reader
from tests.sink.sinks import FileSink, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="sinks")]

KRYO = {"spark.serializer": "org.apache.spark.serializer.KryoSerializer"}
REGISTERED = KRYO | {"spark.kryo.registrationRequired": "true"}
AT_ONCE = datetime.timedelta(0)


@pytest.mark.parametrize("format", ["parquet", "json"])
@pytest.mark.parametrize("conf", [KRYO, REGISTERED], ids=["kryo", "registered"])
def test_compaction(make_spark: MakeSpark, tmp_path: Path, conf: dict[str, str], format: str) -> None:
    spark, sink, read = make_spark(conf), MadeSink(tmp_path), Reader(format)
    ending = f".{format}"
    sink.add([("q=1", ending, read.bytes([{"id": number}], ["id"], ending)) for number in range(10)])
    before = sink.rows(read)

    done = Sink(tmp_path).compact(older_than=AT_ONCE, spark=spark)

    assert (done.rewritten_data_files_count, done.added_data_files_count) == (10, 1)
    assert sink.rows(read) == before


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_batches_and_rows_that_wait(make_spark: MakeSpark, tmp_path: Path, format: str) -> None:
    """Stock Spark's own sink needs more classes than Spark registers, so none has to be registered here."""
    sink = FileSink(make_spark(KRYO), tmp_path, format=format, partition_by=("q",))
    sink.feed(rows_of(0))
    sink.run()
    assert len(sink.listed(0)) == 2
    sink.feed(rows_of(1), rows_of(2))
    sink.run(maxDelay="1h")
    assert Sink(sink.files).waiting().num_rows == 4
    Sink(sink.files).publish(idle_for=AT_ONCE, force=True, spark=sink.spark)
    assert sink.ids() == list(range(120))
