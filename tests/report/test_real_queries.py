"""Pages about what real queries have written: figure by figure what the tables and the command line say."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from pyspark_statestore import Checkpoint, Sink, rendering
from pyspark_statestore.inspect import costs_of_segments
from tests.class_data import MINOR
from tests.cli.conftest import Invoke, rows
from tests.conftest import MakeSpark
from tests.jvm.harness import until
from tests.report.pages import Page, loads
from tests.report.test_checkpoint import DEADEST, PARTITIONS, assert_figures_are_the_summary
from tests.report.test_sink import FIGURES
from tests.sink.test_old_sinks import listed, old_sink
from tests.streaming.runs import Run, Setting
from tests.streaming.workloads import write_batches

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="sessions and processes of their own")]

BATCHES = 2
DATA_ONLY = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
"""Spark runs batches without data after those with data, but not after a restart."""
CASES = [
    (Setting("provider", "rocksdb"), "dedup", "dedupe"),
    (Setting("provider", "heap"), "aggregation", "stateStoreSave"),
    (Setting("path", "rocksdb"), "aggregation", "stateStoreSave"),
    (Setting("stock", "rocksdb"), "aggregation", "stateStoreSave"),
]


@pytest.mark.parametrize(("setting", "workload", "operator"), CASES, ids=str)
def test_the_page_of_a_real_query(
    make_spark: MakeSpark, invoke: Invoke, tmp_path: Path, setting: Setting, workload: str, operator: str
) -> None:
    door = "path" if setting.door == "stock" else setting.door
    run = Run(make_spark(mode=door, store=setting.store), workload, setting, tmp_path)
    write_batches(run.input, range(BATCHES))
    query = run.start(available_now=False)
    try:
        query.processAllAvailable()
        running = Page(invoke("report", run.location, "-o", "-").stdout)
    finally:
        query.stop()
    assert running.tiles["last written"][1] == "its query counts as running until 10m after that"
    checkpoint = Checkpoint(run.checkpoint)
    report = checkpoint.report()
    page = Page(report.html)
    inspect = checkpoint.inspect
    [summary] = inspect.summary().to_pylist()

    assert loads(report.html) == []
    assert_figures_are_the_summary(page, run.checkpoint)
    named = "" if MINOR == "3.5" else f" ({operator})"  # Spark notes what an operator is from 4.0 on
    assert f"Operator 0{named}: 3 partitions" in page.text
    assert ("heap store" if setting.store == "heap" else "RocksDB") in page.text
    assert page.tiles["last commit"][0] == f"batch {max(run.rows)}"
    assert page.tiles["state versions"][0] == f"{summary['min_version']} to {summary['max_version']}"
    costs = costs_of_segments(inspect.segments(), inspect.plain_files(), "partitions").to_pylist()
    assert page.column(PARTITIONS, "partition") == [str(row["partition_id"]) for row in costs]
    for heading, name in (("bytes", "total_bytes"), ("live", "live_bytes"), ("dead", "dead_bytes")):
        assert page.column(PARTITIONS, heading) == [rendering.size(row[name]) for row in costs]
    types = rows(invoke("top", run.checkpoint, "--by", "types", "--output", "json"))
    assert page.column("Bytes by type of file", "type") == [row["type"] for row in types]
    if setting.door == "stock":
        plain = inspect.plain_files()
        assert page.tiles["plain files"][0] == f"{plain.num_rows:,}"
        assert sum(int(count) for count in page.column("Files by size", "files")) == plain.num_rows
        assert report.advice[0].rule == "convert"
        assert DEADEST not in page.tables
    else:
        files = inspect.files()
        assert page.tiles["merged files"][0] == f"{files.num_rows:,}"
        names = {path.rpartition("/")[2] for path in files["file_path"].to_pylist()}
        assert set(page.column(DEADEST, "file")) == names
        assert page.tiles["live segments"][0] == f"{summary['live_segment_count']:,}"
        assert "convert" not in {advice.rule for advice in report.advice}


def test_what_the_advice_says_can_be_done(make_spark: MakeSpark, tmp_path: Path) -> None:
    """The page of stock state says to convert it, and afterwards says so no more."""
    run = Run(make_spark(mode="provider"), "aggregation", Setting("stock", "rocksdb"), tmp_path)
    write_batches(run.input, range(2))
    query = run.start()
    run.finish(query)
    checkpoint = Checkpoint.of(query)
    assert [advice.rule for advice in checkpoint.report().advice] == ["convert"]

    checkpoint.convert("merged")
    assert [advice.rule for advice in checkpoint.report().advice] == ["converted"]
    again = Run(run.spark, "aggregation", Setting("provider", "rocksdb"), tmp_path)
    write_batches(again.input, range(2, 4))
    again.run()

    assert [advice.rule for advice in checkpoint.report().advice] == ["plain-left"]


@pytest.mark.parametrize("format_version", [1, pytest.param(2, marks=pytest.mark.since("4.1", "checkpoint format 2"))])
def test_a_query_that_cannot_start_goes_on_from_a_fork(
    make_spark: MakeSpark, invoke: Invoke, tmp_path: Path, format_version: int
) -> None:
    """The page names a version; the query that starts with its fork has all that the first one would have had."""
    setting = Setting("provider", "rocksdb", format_version, changelog=True)
    run = Run(make_spark(mode="provider", closed_after="10s"), "aggregation", setting, tmp_path / "q")
    checkpoint = Checkpoint(run.checkpoint)
    for batch in range(4):
        write_batches(run.input, [batch])
        run.run(DATA_ONLY)
        # The next batch has a file of its own then.
        until(lambda: all(checkpoint.inspect.files()["is_sealed"].to_pylist()), "all files are sealed")
    [summary] = checkpoint.inspect.summary().to_pylist()
    newest = summary["committed_version"]
    assert summary["restorable_version"] == newest == max(run.rows) + 1
    assert "restart" not in {each.rule for each in checkpoint.report().advice}
    segments = checkpoint.inspect.segments(operator_id=0, partition_id=0).to_pylist()
    [lost] = {row["file_path"] for row in segments if row["version"] == newest and row["type"] == "changelog"}
    Path(lost.removeprefix("file://")).unlink()

    advice = checkpoint.report().advice[0]
    [summary] = checkpoint.inspect.summary().to_pylist()
    version = summary["restorable_version"]
    assert (advice.rule, advice.level) == ("restart", "act")
    assert version is not None
    assert version < newest
    write_batches(run.input, [4])
    with pytest.raises(StreamingQueryException):
        run.run(DATA_ONLY)
    fork = Run(run.spark, "aggregation", setting, tmp_path / "f", input=run.input)
    program, verb, source, _, *rest = shlex.split(advice.commands[0])
    assert (program, verb, source) == ("pyspark-statestore", "fork", checkpoint.url)
    invoke(verb, source, fork.checkpoint, *rest)
    fork.run(DATA_ONLY)
    assert min(fork.rows) == version
    before = {batch: rows for batch, rows in run.rows.items() if batch >= version}
    assert {batch: fork.rows[batch] for batch in before} == before
    assert len(fork.rows) > len(before), "and it goes on"


def test_the_page_of_a_real_sink(make_spark: MakeSpark, invoke: Invoke, tmp_path: Path) -> None:
    sink = old_sink(make_spark(), tmp_path / "sink")
    page = Page(invoke("sink", "report", sink.files, "-o", "-").stdout)
    sizes = Sink(sink.files).files()["file_size_in_bytes"].to_pylist()

    assert page.figures(FIGURES)["listed_files"] == str(len(listed(sink))) == "40"
    assert page.figures(FIGURES)["listed_bytes"] == rendering.exact(sum(sizes), rendering.size)
    assert sorted(page.column("Partition values", "partition value")) == ["q=0", "q=1"]
    assert page.figures(FIGURES)["damages"] == "0"
    assert [advice.rule for advice in Sink(sink.files).report().advice] == ["sink-join"]
