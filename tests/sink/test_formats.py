"""What a compacting sink writes is what stock Spark writes, in few files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

from tests.class_data import MINOR
from tests.conftest import MakeSpark
from tests.sink.sinks import TASKS, FileSink, both, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="sinks")]

FORMATS = {
    "parquet": ("parquet", {}),
    "parquet-gzip": ("parquet", {"compression": "gzip"}),
    "orc": ("orc", {}),
    "json": ("json", {}),
    "json-gzip": ("json", {"compression": "gzip"}),
    "json-deflate": ("json", {"compression": "deflate"}),
    "json-other-line-ends": ("json", {"lineSep": "\r\n"}),
    "csv": ("csv", {}),
    "csv-header": ("csv", {"header": "true"}),
    "csv-header-bzip2": ("csv", {"header": "true", "compression": "bzip2"}),
}


@pytest.mark.sweep(8)
@pytest.mark.parametrize("partition_by", [(), ("p",), ("q", "p")], ids=lambda columns: "-".join(columns) or "whole")
@pytest.mark.parametrize("name", FORMATS)
def test_few_files_hold_what_stock_spark_writes(
    make_spark: MakeSpark, tmp_path: Path, name: str, partition_by: tuple[str, ...]
) -> None:
    format, options = FORMATS[name]
    batches = [rows_of(batch) for batch in range(2)]
    ours, stock = both(make_spark(), tmp_path, batches, format=format, partition_by=partition_by, options=options)

    assert ours.read() == stock.read()
    values = {(): 1, ("p",): 3, ("q", "p"): 6}[partition_by]
    for batch in range(2):
        listed = ours.listed(batch)
        assert len(listed) == values
        assert len(stock.listed(batch)) > values
        folders = Counter(str(Path(file).parent) for file in listed)
        assert folders == dict.fromkeys({str(Path(file).parent) for file in stock.listed(batch)}, 1)
        # After part-00000- and a UUID.
        endings = {Path(file).name[47:] for file in (*listed, *stock.listed(batch))}
        assert len(endings) == 1
    assert ours.present() == sorted(file for batch in range(2) for file in ours.listed(batch))


def test_text(make_spark: MakeSpark, tmp_path: Path) -> None:
    def words(rows: DataFrame) -> DataFrame:
        return rows.repartition(TASKS, "id").selectExpr("coalesce(word, '') AS value", "q")

    ours, stock = both(make_spark(), tmp_path, [rows_of(0)], format="text", partition_by=("q",), change=words)

    assert ours.read() == stock.read()
    assert len(ours.listed(0)) == 2


@pytest.mark.skipif(MINOR < "4.0", reason="XML came with Spark 4.0")
def test_xml(make_spark: MakeSpark, tmp_path: Path) -> None:
    """A file of XML has one root, so files are joined by rows."""
    options = {"rowTag": "row", "rootTag": "rows"}
    ours, stock = both(make_spark(), tmp_path, [rows_of(0)], format="xml", partition_by=("q",), options=options)

    assert ours.read() == stock.read()
    assert len(ours.listed(0)) == 2


def test_parquet_files_say_of_themselves_what_stock_sparks_say(make_spark: MakeSpark, tmp_path: Path) -> None:
    def more(rows: DataFrame) -> DataFrame:
        nested = "struct(id, word) AS s", "array(amount) AS l", "map(id, at) AS m"
        others = "cast(word AS binary) AS b", "timestamp_ntz'2024-01-01 00:00:00' AS n", "interval '3' month AS i"
        return rows.selectExpr("*", *nested, *others).repartition(TASKS)

    options = {"compression": "zstd"}
    ours, stock = both(make_spark(), tmp_path, [rows_of(0)], partition_by=("q",), options=options, change=more)

    def facts(sink: FileSink) -> set[tuple[str, str]]:
        found = set()
        for file in sink.listed(0):
            footer = pq.ParquetFile(sink.files / file)
            codec = footer.metadata.row_group(0).column(0).compression
            found.add((footer.schema_arrow.to_string(show_schema_metadata=True), codec))
        return found

    assert ours.read() == stock.read()
    assert facts(ours) == facts(stock)
