"""Parquet's encryption: keys in the files are joined with them, and keys in files of their own are refused."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_statestore import Sink, StateStoreFilesError
from tests.conftest import MakeSpark
from tests.jvm.harness import TESTING
from tests.sink.sinks import FileSink, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="sinks")]

ENCRYPTED = {
    "spark.hadoop.parquet.crypto.factory.class": "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory",
    "spark.hadoop.parquet.encryption.kms.client.class": f"{TESTING}.PlainKms",
    "spark.hadoop.parquet.encryption.footer.key": "footer",
    "spark.hadoop.parquet.encryption.column.keys": "column:word",
}
OUTSIDE = {**ENCRYPTED, "spark.hadoop.parquet.encryption.key.material.store.internally": "false"}
AT_ONCE = datetime.timedelta(0)


def new_sink(spark: SparkSession, folder: Path) -> FileSink:
    sink = FileSink(spark, folder, "parquet", ("q",))
    sink.feed(rows_of(0), rows_of(1))
    return sink


def test_keys_in_files_of_their_own_are_refused(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark = make_spark(OUTSIDE)
    sink = new_sink(spark, tmp_path)

    with pytest.raises(StreamingQueryException, match=r"PSS_SINK_COMPACTION_FAILED.*material\.store\.internally"):
        sink.run()

    assert sink.present() == []
    sink.run(compacting=False)
    assert sink.ids() == list(range(80))
    assert list(sink.files.rglob("_KEY_MATERIAL_FOR_*"))
    present = sink.present()
    with pytest.raises(StateStoreFilesError, match=r"PSS_SINK_REWRITE_FAILED.*material\.store\.internally"):
        Sink(sink.files).compact(older_than=AT_ONCE, spark=spark)
    assert sink.present() == present


def test_keys_in_the_files_are_joined_with_them(make_spark: MakeSpark, tmp_path: Path) -> None:
    spark = make_spark(ENCRYPTED)
    sink = new_sink(spark, tmp_path)
    sink.run(maxDelay="10h")
    sink.feed(rows_of(2))
    sink.run()
    assert sink.ids() == list(range(120))
    Sink(sink.files).compact(older_than=AT_ONCE, spark=spark)
    assert sink.ids() == list(range(120))
    assert {file.read_bytes()[-4:] for file in sink.files.rglob("part-*.parquet")} <= {b"PARE", b"PAR1"}
