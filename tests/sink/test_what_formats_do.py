"""A compacting sink writes what stock Spark writes. Where a format would not give it back, files stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from tests.class_data import MINOR
from tests.conftest import MakeSpark
from tests.sink.sinks import TASKS, FileSink, both, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="sinks")]


def select(*expressions: str) -> Callable[[DataFrame], DataFrame]:
    return lambda rows: rows.selectExpr("id", *expressions).repartition(TASKS, "id")


CASES: Mapping[str, tuple[str, str, Callable[[DataFrame], DataFrame], Mapping[str, str], bool]] = {
    # Name: since which Spark, the format, the query, options, whether files are joined.
    "orc-names": ("3.5", "orc", select("word AS `a b`", "word AS `a,b`", "q AS `x:y`", "q AS `ü`"), {}, True),
    "orc-collated": ("4.0", "orc", select("word COLLATE UTF8_LCASE AS word"), {}, False),
    "parquet-names": ("3.5", "parquet", select("word AS `a.b`", "q AS `ü`", 'q AS `"q"`'), {}, True),
    "parquet-collated": ("4.0", "parquet", select("word COLLATE UTF8_LCASE AS word"), {}, True),
    "parquet-nested": (
        "3.5",
        "parquet",
        select("array(struct(q, word)) AS l", "map(id, word) AS m", "CAST(array() AS array<int>) AS e"),
        {},
        True,
    ),
    "xml-empty": (
        "4.0",
        "xml",
        select("CAST(array() AS array<string>) AS a", "map('k', word) AS m", "CAST(map() AS map<string,string>) AS n"),
        {"rowTag": "row"},
        True,
    ),
    "xml-texts": ("4.0", "xml", select("'0023' AS a", "' b ' AS b", "'<x>&amp;' AS c"), {"rowTag": "row"}, True),
    "xml-attributes": (
        "4.0",
        "xml",
        select("word AS _a", "q AS b"),
        {"rootTag": "rs", "rowTag": "r", "indent": ""},
        True,
    ),
    "json-pretty": ("3.5", "json", select("word"), {"pretty": "true"}, False),
    "csv-names": ("3.5", "csv", select("word AS `a\nb`", "q AS `c,d`", 'q AS `"e"`'), {"header": "true"}, True),
    "csv-open-quotes": (
        "3.5",
        "csv",
        lambda rows: rows.selectExpr("'b' AS `size in \"`", "'b' AS `x`").repartition(TASKS),
        {"header": "true", "escapeQuotes": "false"},
        True,
    ),
    "csv-line-ends": ("3.5", "csv", select("word AS `a\nb`"), {"header": "true", "lineSep": "|"}, False),
    "csv-quotes-of-two-bytes": ("3.5", "csv", select("word AS `a\nb`"), {"header": "true", "quote": "§"}, True),
    "csv-escaped-escapes": (
        "3.5",
        "csv",
        select('word AS `a\\"\nb`', "concat(word, '\\\\\"') AS c"),
        {"header": "true", "charToEscapeQuoteEscaping": "!"},
        True,
    ),
    "csv-quotes": (
        "3.5",
        "csv",
        select("word", "concat(word, '\n', word) AS two"),
        {"header": "true", "quote": "'"},
        True,
    ),
}


LINES_AROUND = {"csv": 1, "csv-names": 2, "csv-quotes-of-two-bytes": 2, "csv-escaped-escapes": 2, "xml": 3}
"""Of each file, besides its rows: by case, or by format."""


def content(sink: FileSink) -> list[str]:
    """The lines of all listed files, or the rows where the format has none."""
    if sink.format in ("orc", "parquet"):
        return sorted(sink.read())
    files = [sink.files / name for name in sink.listed(0)]
    return sorted(line for file in files for line in file.read_text().splitlines())


@pytest.mark.parametrize("name", CASES)
def test_a_batch_holds_what_stock_spark_writes(make_spark: MakeSpark, tmp_path: Path, name: str) -> None:
    since, format, change, options, joins = CASES[name]
    if since > MINOR:
        pytest.skip(f"came with Spark {since}")
    ours, stock = both(make_spark(), tmp_path, [rows_of(0)], format=format, options=options, change=change)

    if format not in ("orc", "parquet"):
        assert set(content(ours)) == set(content(stock))
        around = LINES_AROUND.get(name, LINES_AROUND.get(format, 0))
        fewer = len(stock.listed(0)) - len(ours.listed(0))
        assert len(content(stock)) - len(content(ours)) == fewer * around
    elif name != "orc-collated":  # which Spark itself does not read
        assert content(ours) == content(stock)
    assert len(ours.listed(0)) == (1 if joins else TASKS)
