"""From stock Spark to merged state and back: what the query gives out is what an undisturbed one would have."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryException

from pyspark_statestore import Checkpoint
from pyspark_statestore.migration.export import UNFINISHED
from pyspark_statestore.session.doors import MERGED_PROVIDERS
from tests.conftest import _BASE_SETTINGS, ROOT, MakeSpark
from tests.copies import copy_stopped
from tests.inspect.builders import refused
from tests.migration.builders import NOW
from tests.sampling import sample, sampled
from tests.scripts import run_to_the_end
from tests.streaming.runs import Run, Setting, merged_files, plain_state_files, segments
from tests.streaming.workloads import write_batches

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(0, files="in and out")]

IN_PLACE = [
    (Setting("provider", "heap"), "aggregation"),
    (Setting("provider", "rocksdb", 1, changelog=False), "outer_join"),
    (Setting("provider", "rocksdb", 2, changelog=True, checksums=True), "session_window"),
    (Setting("path", "rocksdb", 2, changelog=False), "transform_with_state"),
]
TO_NEW_DIRECTORY = [
    (Setting("provider", "rocksdb", 1, changelog=True), "dedup"),
    (Setting("path", "heap"), "dedup_within_watermark"),
    (Setting("path", "rocksdb", 1, changelog=True), "groups_with_state"),
]
BY_STOCK, BY_MERGED, BY_STOCK_AGAIN = range(1), range(1, 3), range(3, 4)


@pytest.fixture(scope="module")
def session(make_spark: MakeSpark) -> SparkSession:
    """Of all queries that have the jar; each says itself which class it wants."""
    return make_spark(mode="path")


def to_merged(run: Run, setting: Setting) -> Run:
    """Converts a query that stock Spark began, and lets it go on."""
    if setting.door == "provider":
        done = Checkpoint(run.checkpoint, closed_after=NOW).convert("merged")
        assert done.provider_after == MERGED_PROVIDERS[setting.store]
        merged = Run(run.spark, run.workload, run.setting, run.folder)
    else:
        merged = Run(run.spark, run.workload, setting, run.folder)
    before = plain_state_files(run.checkpoint)
    write_batches(run.input, BY_MERGED)
    merged.run()
    assert segments(run.checkpoint)
    assert set(plain_state_files(run.checkpoint)) <= set(before), "nothing plain is written any more"
    return merged


def stock_without_jar(cases: list[tuple[str, Run]]) -> dict[str, dict[int, list[str]]]:
    """Goes on with queries in a process that has no jar."""
    environment = {key: value for key, value in os.environ.items() if key != "PYSPARK_SUBMIT_ARGS"}
    environment |= {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    said = [
        {
            "name": name,
            "workload": run.workload,
            "setting": asdict(run.setting),
            "folder": str(run.folder),
            "input": str(run.input),
        }
        for name, run in cases
    ]
    command = [sys.executable, "-m", "tests.migration.stock_process", json.dumps(said), json.dumps(_BASE_SETTINGS)]
    done = run_to_the_end(command, cwd=ROOT, env=environment, timeout=500)
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: {int(batch): rows for batch, rows in by_batch.items()} for name, by_batch in found.items()}


def undisturbed(spark: SparkSession, workload: str, setting: Setting, folder: Path) -> dict[int, list[str]]:
    """The same input, in the same parts, on stock Spark from the first to the last."""
    run = Run(spark, workload, setting, folder)
    for part in (BY_STOCK, BY_MERGED, BY_STOCK_AGAIN):
        write_batches(run.input, part)
        run.run()
    return run.rows


def as_a_job(case: tuple[Setting, str]) -> bool:
    """Whether a case is exported by a Spark job: half of them are."""
    return case[0].format_version == 2 or case[0].store == "heap"


@pytest.mark.sweep(0, files="kills and long runs")
@pytest.mark.parametrize("in_place", sampled([True, False], 1), ids=["in-place", "new-directory"])
def test_stock_merged_stock(session: SparkSession, tmp_path: Path, in_place: bool) -> None:
    expected, rows, cases = {}, {}, []
    for setting, workload in sample(IN_PLACE if in_place else TO_NEW_DIRECTORY, 1):
        name = f"{setting}-{workload}"
        stock = replace(setting, door="stock")
        begun = Run(session, workload, stock, tmp_path / name)
        write_batches(begun.input, BY_STOCK)
        begun.run()
        merged = to_merged(begun, setting)
        again = Run(session, workload, stock, begun.folder if in_place else tmp_path / f"{name}-again", begun.input)
        live = Checkpoint(begun.checkpoint).inspect.summary().to_pylist()[0]["live_segment_count"]
        job = session if as_a_job((setting, workload)) else None
        target = None if in_place else again.checkpoint
        done = Checkpoint(begun.checkpoint, closed_after=NOW).export(target, spark=job)
        assert done.exported_files_count == live
        write_batches(begun.input, BY_STOCK_AGAIN)
        cases.append((name, again))
        rows[name] = {**begun.rows, **merged.rows}
        expected[name] = undisturbed(session, workload, stock, tmp_path / f"{name}-stock")
    last = stock_without_jar(cases)
    for name in expected:
        assert not last[name].keys() & rows[name].keys()
        assert {**rows[name], **last[name]} == expected[name], name
    for name, run in cases:
        assert not merged_files(run.checkpoint) or in_place, name


def test_spark_does_not_begin_anew_where_an_export_is_not_finished(session: SparkSession, tmp_path: Path) -> None:
    run = Run(session, "aggregation", Setting("stock", "rocksdb"), tmp_path / "query")
    write_batches(run.input, BY_STOCK)
    run.checkpoint.mkdir()
    (run.checkpoint / "metadata").write_bytes(UNFINISHED)
    with pytest.raises(Py4JJavaError, match="Unrecognized token"):
        run.run()
    assert run.rows == {}
    assert [file.name for file in run.checkpoint.iterdir()] == ["metadata"]


@pytest.mark.parametrize("setting", sampled([Setting("provider", "rocksdb"), Setting("path", "heap")], 1), ids=str)
def test_back_and_forth_and_never_with_old_state(session: SparkSession, tmp_path: Path, setting: Setting) -> None:
    """What stock Spark has written since the export is never hidden by what was merged before."""
    stock = replace(setting, door="stock")
    begun = Run(session, "aggregation", stock, tmp_path / "query")
    write_batches(begun.input, BY_STOCK)
    begun.run()
    merged = to_merged(begun, setting)
    checkpoint = Checkpoint(begun.checkpoint, closed_after=NOW)
    as_merged = copy_stopped(begun.checkpoint, tmp_path / "copy" / "checkpoint")
    checkpoint.export()

    # Nobody reads the merged files now, through whichever door.
    write_batches(begun.input, BY_STOCK_AGAIN)
    through_path = Run(session, "aggregation", replace(setting, door="path"), begun.folder)
    with pytest.raises(StreamingQueryException, match="PSS_EXPORTED"):
        through_path.run()
    assert through_path.rows == {}

    # As long as stock Spark has not gone on there is a way back, and the plain copies are gone.
    checkpoint.convert("merged", door=setting.door)
    assert set(plain_state_files(begun.checkpoint)) == set(plain_state_files(as_merged))
    checkpoint.export()

    again = Run(session, "aggregation", stock, begun.folder)
    again.run()
    assert again.rows
    with refused("PSS_STALE_MERGED", "drop-merged"):
        checkpoint.convert("merged", door=setting.door)
    write_batches(begun.input, range(4, 5))
    with pytest.raises(StreamingQueryException, match="PSS_EXPORTED"):
        through_path.run()

    checkpoint.drop_merged(dry_run=False)
    checkpoint.convert("merged", door=setting.door)
    last = Run(session, "aggregation", setting if setting.door == "path" else stock, begun.folder)
    last.run()
    assert segments(begun.checkpoint)

    reference = Run(session, "aggregation", stock, tmp_path / "stock")
    for part in (BY_STOCK, BY_MERGED, BY_STOCK_AGAIN, range(4, 5)):
        write_batches(reference.input, part)
        reference.run()
    # A batch that could not begin its work was entered in the offset log, and is done with what was there then.
    assert {**begun.rows, **merged.rows, **again.rows, **last.rows} == reference.rows
