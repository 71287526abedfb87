"""State as a table of Spark SQL: each type and name arrives there as it is, and looks there as it looks here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_statestore import Checkpoint
from tests.cli.conftest import Invoke, invoke
from tests.state.encoded import write_typed_store
from tests.state.test_every_type import strict_json
from tests.state.typed_values import CASES
from tests.streaming.runs import session_conf

__all__ = ["invoke"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.sweep(1, files="compared with Spark"),
    pytest.mark.since(
        "4.1", "a frame is made of an Arrow table from Spark 4.0 on, and one with times of day from 4.1 on"
    ),
]

AS_TEXT = {
    "boolean": "CAST({} AS STRING)",
    "string": "{}",
    "decimal": "CAST({} AS STRING)",
    "binary": "lower(hex({}))",
    "date": "CAST({} AS STRING)",
    "timestamp": "CAST({} AS STRING)",
    "timestamp_ntz": "CAST({} AS STRING)",
    "time(6)": "CAST({} AS STRING)",
    "interval day to second": "regexp_extract(CAST({} AS STRING), \"'(.*)'\", 1)",
}
"""How Spark shows a type as text; those that are not here are compared as values only."""

ONLY_ARROW = ("time(9)",)
"""Spark's own times of day have no nanoseconds when they come from Arrow."""

WITHOUT_ZONES = {"spark.sql.timestampType": "TIMESTAMP_NTZ"}
"""Else Spark makes a timestamp of each that has no zone."""


def test_each_type(spark: SparkSession, tmp_path: Path) -> None:
    with session_conf(spark, WITHOUT_ZONES):
        check_each_type(spark, tmp_path)


def check_each_type(spark: SparkSession, tmp_path: Path) -> None:
    cases = [case for case in CASES if case.type not in ONLY_ARROW]
    fields = [(f"f{number}", case.type) for number, case in enumerate(cases)]
    row = [case.raw for case in cases]
    state = Checkpoint(write_typed_store(tmp_path / "q1", [("n", "long")], [((1,), row)], fields)).state()
    frame = spark.createDataFrame(state)
    shown = {
        number: AS_TEXT[name].format(f"value.f{number}")
        for number, case in enumerate(cases)
        if case.raw is not None and (name := re.sub(r"^decimal.*", "decimal", str(case.type))) in AS_TEXT
    }
    found = frame.selectExpr("value", *(f"{text} AS f{number}" for number, text in shown.items())).toArrow()
    ours, theirs = (table.column("value").combine_chunks() for table in (state, found))
    for number, case in enumerate(cases):
        assert str(theirs.field(number)) == str(ours.field(number)), case
        if number in shown:
            [text] = found.column(f"f{number}").to_pylist()
            assert text == (case.json if case.type == "string" else case.text), case


def test_a_query_that_groups_by_two_expressions(spark: SparkSession, invoke: Invoke, tmp_path: Path) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "q"
    spark.range(6).select("id", F.lit("x").alias("s")).coalesce(1).write.json(str(source))
    stream = spark.readStream.schema("id long, s string").json(str(source))
    counts = stream.groupBy(F.expr("id % 2"), F.expr("id % 3")).count()
    query = (
        counts.writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    state = Checkpoint(checkpoint).state()
    names = [field.name for field in state.schema.field("key").type]
    assert names == ["_groupingexpression", "_groupingexpression_2"]
    expected = sorted((number % 2, number % 3) for number in range(6))
    assert sorted(tuple(row["key"].values()) for row in state.to_pylist()) == expected
    spark.createDataFrame(state).createOrReplaceTempView("state")
    found = spark.sql("SELECT key._groupingexpression AS a, key._groupingexpression_2 AS b FROM state").collect()
    assert sorted((row.a, row.b) for row in found) == expected

    key = ("--key", "_groupingexpression_2=2", "--output", "json")
    for command in (("state", checkpoint), ("diff", checkpoint, "--from", 0)):
        rows = strict_json(invoke(*command, *key).stdout)
        assert sorted(tuple(row["key"].values()) for row in rows) == [(0, 2), (1, 2)]
        assert "key._groupingexpression_2" in invoke(*command).stdout
    assert Checkpoint(checkpoint).report()._repr_html_()
