"""The queries of docs/keep-it-small.md that say what fills a checkpoint, on one of a real query."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyspark.sql import Row, SparkSession

from pyspark_statestore import Checkpoint
from tests.conftest import MakeSpark
from tests.streaming.runs import Run, Setting
from tests.streaming.workloads import write_batches

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="queries of pages")]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "keep-it-small.md").read_text(encoding="utf-8")
QUESTIONS = PAGE.partition("\n## What fills it?\n")[2].partition("\n## ")[0]
VIEWS, *QUERIES = re.findall(r"^```sql\n(.+?)^```", QUESTIONS, re.MULTILINE | re.DOTALL)
BATCHES = 4


@pytest.fixture(scope="module")
def spark(make_spark: MakeSpark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with the page's views of a join's checkpoint, in which one closed file is mostly dead."""
    spark = make_spark({"spark.sql.streaming.stateStore.maintenanceInterval": "1h"}, mode="provider")
    run = Run(spark, "outer_join", Setting("provider", "rocksdb"), tmp_path_factory.mktemp("docs"))
    write_batches(run.input, range(BATCHES))
    run.run()
    package = spark.sparkContext._jvm.io.pyspark.statestore.log
    package.Cleaning.byHand()
    log = dict(package.MergedLogs.all())[f"file:{run.checkpoint}/state"]
    for path in Checkpoint(run.checkpoint).inspect.segments()["logical_path"].to_pylist()[:-3]:
        log.delete(path)
    log.seal()
    for view in VIEWS.replace("{checkpoint}", str(run.checkpoint)).split(";\n"):
        spark.sql(view)
    yield spark
    package.Cleaning.byItself()
    for name in ("files", "segments", "versions"):
        spark.catalog.dropTempView(name)


@pytest.fixture(scope="module")
def truth(spark: SparkSession) -> Any:
    """What Python reads of the same checkpoint."""
    path = spark.sql("SELECT first(file_path) FROM files").first()[0]
    return Checkpoint(path.partition("/state/")[0]).inspect


def asked(spark: SparkSession, number: int) -> list[Row]:
    """The rows of one of the page's queries."""
    rows: list[Row] = spark.sql(QUERIES[number]).collect()
    return rows


def test_how_much_is_dead(spark: SparkSession, truth: Any) -> None:
    (row,) = asked(spark, 0)
    summary = truth.summary().to_pylist()[0]

    assert row.files == summary["file_count"]
    assert row.space_amplification == round(summary["space_amplification"], 2)
    assert row.still_open == 0


def test_which_partitions(spark: SparkSession, truth: Any) -> None:
    rows = asked(spark, 1)

    live = truth.segments().filter(pc.field("status") == "live")
    counts = live.group_by(["partition_id", "store_name"]).aggregate([([], "count_all")]).to_pylist()
    assert {(r.partition_id, r.store_name): r.live_files for r in rows} == {
        (c["partition_id"], c["store_name"]): c["count_all"] for c in counts
    }


def test_which_kind(spark: SparkSession, truth: Any) -> None:
    rows = asked(spark, 2)

    assert {"changelog"} <= {row.type for row in rows}
    assert {row.status for row in rows} == {"live", "deleted"}
    assert sum(row.logical_files for row in rows) == truth.segments().num_rows


def test_how_far_back(spark: SparkSession, truth: Any) -> None:
    (row,) = asked(spark, 3)

    versions = truth.versions()
    assert row.not_restorable == pc.sum(pc.invert(versions["is_restorable"])).as_py()
    assert row.changelogs_to_replay_at_most == pc.max(versions["replay_count"]).as_py()


def test_what_keeps_files_alive(spark: SparkSession, truth: Any) -> None:
    rows = asked(spark, 4)

    expected = truth.files().filter((pc.field("is_closed")) & (pc.field("space_amplification") > 2))
    assert {row.file_path for row in rows} == set(expected["file_path"].to_pylist())
    assert rows


def test_every_question_is_tested() -> None:
    assert len(QUERIES) == 5
