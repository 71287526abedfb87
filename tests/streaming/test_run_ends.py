"""A query that has ended says so in its checkpoint, and commands of other processes work at once; no other query does.

What is asked here is asked by processes that do not know the query otherwise: its driver is another process, or the
checkpoint is a copy.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from pyspark_statestore import Checkpoint, attach, merged_path
from tests.conftest import MakeSpark
from tests.jvm.harness import TESTING, begun, file_system_conf, result_in_time
from tests.report.pages import Page
from tests.reshape.harness import since
from tests.sampling import marked
from tests.streaming.ends import (
    PATIENCE_S,
    begin,
    copy,
    driver,
    has_committed,
    of_runs,
    put,
    require_at_once,
    require_wait,
    until,
)

pytestmark = pytest.mark.spark


def start(
    spark: SparkSession, root: Path, mode: str = "provider", *, available_now: bool = False, scheme: str = "file"
) -> StreamingQuery:
    rows = spark.readStream.schema("n int").json(str(root / "input"))
    checked = F.when(F.col("n") < 0, F.raise_error(F.lit("no such number"))).otherwise(F.col("n"))
    location = f"{scheme}:{root}/q1" if mode == "provider" else merged_path(str(root / "q1"))
    writer = rows.withColumn("n", checked.cast("int")).groupBy("n").count().writeStream.outputMode("update")
    writer = writer.format("noop").option("checkpointLocation", location)
    return (writer.trigger(availableNow=True) if available_now else writer).start()


def in_report(checkpoint: Path) -> str:
    """What the report's page says of the query."""
    return Page(Checkpoint(checkpoint).report().html).tiles["last written"][1]


@pytest.mark.parametrize(
    "how", marked(["configure", "attach", "path", "heap"], lambda how: how in ("configure", "path"))
)
def test_a_query_that_ended_says_so(make_spark: MakeSpark, tmp_path: Path, how: str) -> None:
    mode = "path" if how == "path" else "provider"
    spark = (
        attach(make_spark()) if how == "attach" else make_spark(mode=mode, store="heap" if how == "heap" else "rocksdb")
    )
    put(tmp_path, 1, 2, 3)
    start(spark, tmp_path, mode, available_now=True).awaitTermination()
    until(lambda: of_runs(tmp_path) == [".ended"], "it did not say that it has ended")
    require_at_once(copy(tmp_path))

    assert in_report(tmp_path / "q1").startswith("its query ended at ")

    query = start(spark, tmp_path, mode)
    assert of_runs(tmp_path) == [".running"], "before it has written anything"
    require_wait(copy(tmp_path))
    assert in_report(tmp_path / "q1").startswith("its query counts as running until ")
    put(tmp_path, 4)
    query.processAllAvailable()
    query.stop()
    until(lambda: of_runs(tmp_path) == [".ended"], "it did not say that it has ended")
    require_at_once(copy(tmp_path))

    put(tmp_path, -1)
    failed = start(spark, tmp_path, mode)
    with pytest.raises(Exception, match="no such number"):
        failed.awaitTermination(PATIENCE_S)
    assert not has_committed(tmp_path, 2)
    until(lambda: of_runs(tmp_path) == [".ended"], "it did not say that it has ended")
    require_at_once(copy(tmp_path))
    said = json.loads(next((tmp_path / "q1/state/_merged").glob("*.ended")).read_bytes())
    assert (said["batch"], said["planned"], said["run"]) == (1, 2, failed.runId)
    assert said["app_id"] == spark.sparkContext.applicationId


def test_a_copy_is_answered_while_its_query_runs(make_spark: MakeSpark, tmp_path: Path) -> None:
    """No end is on its way that a command on the copy would have to hear of."""
    put(tmp_path, 1)
    query = start(make_spark(mode="provider"), tmp_path)
    try:
        query.processAllAvailable()
        times = []
        for _ in range(3):
            begin = time.monotonic()
            require_wait(copy(tmp_path))
            times.append(time.monotonic() - begin)
    finally:
        query.stop()
    assert min(times) < 5, "as long as each of three commands would wait for the news of an end"


def test_a_run_that_takes_the_place_of_another(make_spark: MakeSpark, tmp_path: Path) -> None:
    """Spark stops a query that is started again; that one has ended, and its successor has not."""
    spark = make_spark(mode="provider")
    put(tmp_path, 1)
    start(spark, tmp_path, available_now=True).awaitTermination()
    first = start(spark, tmp_path)
    second = start(spark, tmp_path)
    try:
        until(lambda: not first.isActive, "it goes on")
        time.sleep(1)
        assert of_runs(tmp_path) == [".running"]
        require_wait(copy(tmp_path))
    finally:
        second.stop()
    until(lambda: of_runs(tmp_path) == [".ended"], "it did not say that it has ended")
    require_at_once(copy(tmp_path))


def test_a_run_says_again_what_another_has_taken_away(make_spark: MakeSpark, tmp_path: Path) -> None:
    """A driver is held up when it has just said that it runs, and another one begins and ends meanwhile."""
    spark = make_spark(
        {f"spark.hadoop.{key}": value for key, value in file_system_conf("gated").items()}, mode="provider"
    )
    jvm: Any = spark.sparkContext._jvm
    gate = getattr(jvm, f"{TESTING}.Gate")
    put(tmp_path, 1)
    start(spark, tmp_path, available_now=True, scheme="gated").awaitTermination()
    until(lambda: of_runs(tmp_path) == [".ended"], "it did not say that it has ended")
    (end,) = (tmp_path / "q1/state/_merged").glob("*.ended")
    said = end.read_bytes()
    gate.hold("before delete", ".ended")
    try:
        starting = begun(partial(start, spark, tmp_path, scheme="gated"))
        assert gate.awaitHeld("before delete")
        (word,) = (tmp_path / "q1/state/_merged").glob("*.running")
        word.unlink()
        end.with_stem(word.stem).write_bytes(said)
    finally:
        gate.releaseAll()
    query = result_in_time(starting, "the start of the query", PATIENCE_S)
    try:
        assert ".running" in of_runs(tmp_path)
        require_wait(copy(tmp_path))
    finally:
        query.stop()


@since
def test_one_command_after_the_other(make_spark: MakeSpark, tmp_path: Path) -> None:
    """What a repartitioning writes is of no run, and a fork begins without one."""
    spark = make_spark(mode="provider")
    put(tmp_path, 1, 2, 3)
    start(spark, tmp_path, available_now=True).awaitTermination()
    until(lambda: of_runs(tmp_path) == [".ended"], "it did not say that it has ended")
    checkpoint = Checkpoint(copy(tmp_path))
    before = checkpoint.repartition(5, spark=spark).partitions_before
    assert checkpoint.undo_repartition().partitions == before
    assert checkpoint.repartition(7, spark=spark).partitions == 7
    assert checkpoint.convert(store="heap", spark=spark).store == "heap"
    checkpoint.fork(str(tmp_path / "fork"))
    fork = Checkpoint(tmp_path / "fork")
    assert fork.repartition(2, spark=spark).partitions == 2
    assert checkpoint.export().exported_files_count > 0
    again = tmp_path / "again"
    shutil.copytree(tmp_path / "copy", again / "q1")
    put(again, 4)
    assert of_runs(again) == [".ended"]
    start(spark, again, available_now=True).awaitTermination()
    assert of_runs(again) == [], "its merged files do not count any more"


def test_a_driver_that_is_killed_or_paused_is_not_taken_for_stopped(tmp_path: Path) -> None:
    with driver(tmp_path) as running:
        begin(running, tmp_path)
        require_wait(tmp_path / "q1")
        running.pause_jvm()
        require_wait(tmp_path / "q1")
        running.go_on()
        running.do("stop")
        until(lambda: of_runs(tmp_path) == [".ended"], "it did not say that it has ended")
        require_at_once(tmp_path / "q1")
        running.do("start")
        require_wait(tmp_path / "q1")
        running.kill_jvm()
        running.await_jvm()
    assert of_runs(tmp_path) == [".running"]
    require_wait(tmp_path / "q1")


def test_an_application_that_ends(tmp_path: Path) -> None:
    """Nobody stops the query: the script ends. A command line comes right after it."""
    with driver(tmp_path) as running:
        begin(running, tmp_path)
        running.do("exit")
        running.await_jvm()
        assert of_runs(tmp_path) == [".ended"]
        command = [sys.executable, "-m", "pyspark_statestore.cli", "export", str(tmp_path / "q1")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_no_context_is_made_while_one_is_being_started(make_spark: MakeSpark, tmp_path: Path) -> None:
    """A thread of an earlier session may be at work then; a second context would end the one that is being started."""
    spark = make_spark({"spark.app.name": tmp_path.name})
    jvm: Any = spark._jvm
    contexts = getattr(getattr(jvm, "org.apache.spark.SparkContext$"), "MODULE$")
    context = spark.sparkContext._jsc.sc()
    contexts.clearActiveContext()
    try:
        path = jvm.org.apache.hadoop.fs.Path((tmp_path / "q1" / "offsets").as_uri())
        jvm.io.pyspark.statestore.fs.MergedCheckpointFileManager(path, context.hadoopConfiguration())
        assert contexts.getActive().isEmpty()
    finally:
        contexts.setActiveContext(context)
    assert spark.range(3).count() == 3
    put(tmp_path, 1)
    start(attach(spark), tmp_path, available_now=True).awaitTermination()
    until(lambda: of_runs(tmp_path) == [".ended"], "it did not say that it has ended")
