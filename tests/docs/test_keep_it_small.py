"""Everything by which docs/keep-it-small.md helps works, on the checkpoint of a real query.

tests/docs/test_queries.py asks what the page asks before.
"""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_statestore import Checkpoint, maintain
from pyspark_statestore.cli.main import cli
from tests.conftest import MakeSpark
from tests.copies import copy_stopped
from tests.inspect.builders import merged_paths
from tests.streaming.runs import Run, Setting
from tests.streaming.workloads import write_batch

pytestmark = [pytest.mark.spark, pytest.mark.sweep(0, files="what a reader runs first")]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "keep-it-small.md").read_text(encoding="utf-8")
HELP = PAGE.partition("\n## What helps?\n")[2]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", HELP, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def spark(make_spark: MakeSpark, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """A session with the page's pools."""
    pools = tmp_path_factory.mktemp("pools") / "fairscheduler.xml"
    [text] = [text for name, text in BLOCKS if name == "xml"]
    pools.write_text(f'<?xml version="1.0"?>\n{text}')
    settings = {"spark.scheduler.mode": "FAIR", "spark.scheduler.allocation.file": f"file:{pools}"}
    return make_spark(settings, mode="provider")


@pytest.fixture(scope="module")
def query(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamingQuery]:
    """A query that has come to its end, with a sealed file for each of its batches."""
    cleaning = spark.sparkContext._jvm.io.pyspark.statestore.log.Cleaning
    cleaning.byHand()
    run = Run(spark, "aggregation", Setting("provider", "rocksdb"), tmp_path_factory.mktemp("docs"))
    for batch in range(3):
        write_batch(run.input, batch)
        query = run.start()
        query.awaitTermination()
        logs = dict(spark.sparkContext._jvm.io.pyspark.statestore.log.MergedLogs.all())
        logs[f"file:{run.checkpoint}/state"].seal()
    yield query
    cleaning.byItself()


@pytest.fixture
def checkpoint(query: StreamingQuery, tmp_path: Path) -> Path:
    """A copy of its checkpoint, which the examples change."""
    original = Checkpoint.of(query).url.removeprefix("file://")
    return copy_stopped(original, tmp_path / "checkpoints" / "q1")


def blocks(language: str, checkpoint: Path) -> list[str]:
    """What the page has in a language."""
    return [text.replace("s3a://bucket/checkpoints/q1", str(checkpoint)) for name, text in BLOCKS if name == language]


@pytest.mark.since("4.0", "Python data sources came with Spark 4.0")
def test_sql(spark: SparkSession, checkpoint: Path) -> None:
    [block] = blocks("sql", checkpoint)
    assert len(merged_paths(checkpoint)) >= 3
    try:
        for statement in filter(str.strip, block.split(";")):
            spark.sql(statement)
        (row,) = spark.sql("SELECT count(*) AS files, count_if(generation = 0) AS old FROM q1").collect()
    finally:
        spark.catalog.dropTempView("q1")

    assert row.old == 0
    assert 1 <= row.files <= 8


def test_python(spark: SparkSession, query: StreamingQuery, checkpoint: Path) -> None:
    examples = blocks("python", checkpoint)
    before = len(merged_paths(checkpoint))
    names = {"spark": spark, "query": query}
    for example in examples:
        exec(example, names)

    assert len(examples) == 4
    assert len(merged_paths(checkpoint)) < before
    assert Checkpoint(checkpoint).maintenance.verify().is_clean


def test_pools(spark: SparkSession) -> None:
    pool = spark.sparkContext._jsc.sc().getPoolForName
    own = inspect.signature(maintain).parameters["pool"].default

    assert pool(own).get().weight() < pool("default").get().weight() == 10


def test_command_line(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkpoint.parents[1])
    [block] = blocks("console", checkpoint)
    lines = [line.removeprefix("$ pyspark-statestore ") for line in block.splitlines()]
    before = len(merged_paths(checkpoint))
    for line in lines:
        done = CliRunner().invoke(cli, shlex.split(line))
        assert done.exit_code == 0, done.output

    assert len(merged_paths(checkpoint)) < before
    assert len(lines) == 5


def test_every_block_is_tried() -> None:
    assert sorted(name for name, _ in BLOCKS) == ["console", "python", "python", "python", "python", "sql", "xml"]
