"""The command line beside a streaming query that runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint
from tests.cli.conftest import Invoke, rows
from tests.cli.test_tables import ARRAYS, as_json
from tests.conftest import MakeSpark
from tests.streaming.runs import Run, Setting, merged_files
from tests.streaming.workloads import BATCHES, write_batches

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="sessions and processes of their own")]


@pytest.fixture(scope="module")
def running(make_spark: MakeSpark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The checkpoint of an aggregation that has read all its input and waits for more."""
    run = Run(make_spark(mode="provider"), "aggregation", Setting("provider", "rocksdb"), tmp_path_factory.mktemp("q"))
    write_batches(run.input, range(BATCHES))
    query = run.start(available_now=False)
    try:
        query.processAllAvailable()
        yield run.checkpoint
    finally:
        query.stop()


@pytest.mark.parametrize("table", ARRAYS)
def test_the_tables_of_a_running_query(invoke: Invoke, running: Path, table: str) -> None:
    found = rows(invoke(table, running, "--output", "json"))

    assert found
    assert found == as_json(Checkpoint(running).inspect.table(table))


def test_every_version_of_a_running_query_is_restorable(invoke: Invoke, running: Path) -> None:
    versions = rows(invoke("versions", running, "--output", "json"))

    assert {row["partition_id"] for row in versions} == {0, 1, 2}
    assert max(row["version"] for row in versions) >= BATCHES
    assert all(row["is_restorable"] for row in versions)


def test_a_file_that_the_query_writes(invoke: Invoke, running: Path) -> None:
    shown = rows(invoke("show", merged_files(running)[0], "--output", "json"))

    paths = {entry["logical_path"] for group in shown["groups"] for entry in group["entries"]}
    assert {f"0/{partition}/1.changelog" for partition in range(3)} <= paths
    assert shown["meta"]["executor_id"] == "driver"
    assert shown["torn_tail_bytes"] == 0


def test_what_costs_most_and_a_picture(invoke: Invoke, running: Path, tmp_path: Path) -> None:
    assert len(rows(invoke("top", running, "--by", "partitions", "--output", "json"))) == 3
    invoke("plot", running, "-o", tmp_path / "q.html")
    assert "<svg" in (tmp_path / "q.html").read_text()
