"""What Spark's metrics system shows of merged files, beside what is on the disk, and the log line of maintenance."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pyspark_statestore.format import file_name
from tests.conftest import MakeSpark
from tests.jvm.conftest import by_hand, faulty, jvm, new_checkpoint
from tests.jvm.harness import CREATED_MS, TESTING, Checkpoint, View, file_system_conf, java_error, until
from tests.scripts import run_to_the_end
from tests.sink.sinks import TASKS, FileSink, rows_of
from tests.streaming.runs import Run, Setting, unload_stores
from tests.streaming.workloads import write_batches

__all__ = ["by_hand", "faulty", "jvm", "new_checkpoint"]

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="figures of queries")]

PLUGIN = "io.pyspark.statestore.spark.FileMergingPlugin"
MAINTENANCE = "io.pyspark.statestore.clean.MaintenanceReport"
USER_PLUGIN = f"{TESTING}.UserPlugin"
CONF = {
    "spark.plugins": USER_PLUGIN,
    "spark.metrics.conf.*.sink.jmx.class": "org.apache.spark.metrics.sink.JmxSink",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": "1h",
    **{f"spark.hadoop.{key}": value for key, value in file_system_conf("faulty").items()},
}
ONE, TWO = "0/0/1.delta", "0/0/2.delta"


@pytest.fixture
def session(make_spark: MakeSpark) -> SparkSession:
    """A session with a JMX sink and a plugin that its user had before."""
    spark = make_spark(CONF, mode="provider")
    forget_other_tests(spark)
    return spark


def forget_other_tests(spark: SparkSession) -> None:
    """Unloads stores and forgets logs that other tests left in this JVM: they are shown, and may go on cleaning."""
    unload_stores(spark)
    jvm: Any = spark.sparkContext._jvm
    logs = jvm.io.pyspark.statestore.log.MergedLogs
    for state in list(logs.all()):
        logs.forgetBelow(jvm.org.apache.hadoop.fs.Path(state))


def beans(jvm: Any, plugin: str = PLUGIN) -> dict[tuple[str, str], float]:
    """The attributes of a plugin's metrics as a JMX client sees them, by the metric's name and the attribute's."""
    found: dict[tuple[str, str], float] = {}
    for line in str(getattr(jvm, f"{TESTING}.JmxMetrics").numbers()).splitlines():
        name, _, attribute, value = line.split("\t")
        owner, _, metric = name.partition(f"plugin.{plugin}.")
        if metric:
            key = (metric.removeprefix("fileMerging."), attribute)
            assert owner.endswith(".driver."), f"{name!r} has no application"
            assert key not in found, f"{key} twice"
            found[key] = float(value)
    return found


def read(jvm: Any) -> dict[str, float]:
    """The values of gauges, and the counts of the other metrics, all of one moment.

    JMX shows one after the other, in any order, and a refresh may end between two of them.
    """

    def at_rest() -> list[dict[str, float]]:
        first, second = (
            {name: value for (name, attribute), value in beans(jvm).items() if attribute in ("Value", "Count")}
            for _ in range(2)
        )
        return [second] if str(first) == str(second) else []

    return dict(until(at_rest, "the metrics to stand still")[0])


def on_disk(*states: Path) -> dict[str, float]:
    """The gauges by what Python reads of checkpoints."""
    views = [View.of(state) for state in states]
    files = [file for state in states for file in (state / "_merged").glob("*.merged")]
    live = [entry.length for view in views for _, entry in view.live.values()]
    size = sum(file.stat().st_size for file in files)
    return {
        "logicalFileCount": len(live),
        "logicalFileSize": sum(live),
        "physicalFileCount": len(files),
        "physicalFileSize": size,
        "spaceAmplification": size / sum(live),
    }


GAUGES = ("logicalFileCount", "logicalFileSize", "physicalFileCount", "physicalFileSize", "spaceAmplification")


def gauges(values: dict[str, float]) -> dict[str, float]:
    """Those of the metrics that say what there is now."""
    return {name: values[name] for name in GAUGES}


@contextmanager
def moved(jvm: Any, *others: str, **expected: int) -> Iterator[None]:
    """Expects these counts to go up by so much, ``others`` to go up at all, and no count besides."""
    before = read(jvm)
    yield
    after = read(jvm)
    moved = {name: after[name] - value for name, value in before.items() if name not in GAUGES and after[name] != value}
    for name in others:
        assert moved.pop(name, 0) > 0, name
    assert moved == expected


def test_a_query(session: SparkSession, jvm: Any, tmp_path: Path) -> None:
    run = Run(session, "aggregation", Setting("provider", "rocksdb"), tmp_path)
    write_batches(run.input, range(3))
    before = read(jvm)
    run.run()
    logs = jvm.io.pyspark.statestore.log.MergedLogs
    logs.sealAll()

    values = read(jvm)

    state = run.checkpoint / "state"
    # Other tests' checkpoints of this application are there, too.
    others = {name: before[name] for name in GAUGES}
    expected = on_disk(state)
    for name in GAUGES[:4]:
        assert values[name] - others[name] == expected[name] > 0, name
    new = {name: values[name] - before[name] for name in values}
    assert new["commits"] >= 3 * 3  # a changelog for each partition and batch
    assert new["groupCommits"] == new["flushTime"] == new["segmentsPerGroup"] <= new["commits"] == new["commitWait"]
    assert new["writtenSegments"] >= len(View.of(state).live)
    assert new["writtenBytes"] >= expected["logicalFileSize"]
    # The driver may just be looking once more, because the run has ended.
    assert new["refreshes"] >= new["refreshTime"] > 0
    detail = beans(jvm)
    assert detail["flushTime", "Max"] > 0
    assert detail["commitWait", "Max"] >= detail["flushTime", "Min"] > 0


def test_a_file_sink(session: SparkSession, jvm: Any, tmp_path: Path) -> None:
    sink = FileSink(session, tmp_path, partition_by=("q",))
    sink.feed(rows_of(0), rows_of(1))
    before = read(jvm)
    sink.run()
    new = {name: value - before[name] for name, value in read(jvm).items() if name.startswith("sink.")}

    files = [sink.files / name for batch in range(2) for name in sink.listed(batch)]
    assert new["sink.publishedFiles"] == len(files) == 4
    assert new["sink.publishedBytes"] == sum(file.stat().st_size for file in files)
    assert new["sink.stagedFiles"] == 2 * 2 * TASKS
    assert new["sink.stagedBytes"] > new["sink.publishedBytes"]
    assert new["sink.publishTime"] == 2


def test_a_plugin_that_was_there_before(session: SparkSession, jvm: Any) -> None:
    assert session.sparkContext.getConf().get("spark.plugins") == f"{USER_PLUGIN},{PLUGIN}"
    assert beans(jvm, USER_PLUGIN)["mine", "Value"] == 42


def test_a_plugin_that_fails_fails_alone(session: SparkSession, jvm: Any) -> None:
    """Spark would end the process. Without a context nothing can go well."""
    plugin = getattr(jvm, PLUGIN)()
    nothing = jvm.java.util.HashMap()
    with log_lines(jvm, PLUGIN) as lines:
        for start in (
            lambda: plugin.driverPlugin().registerMetrics("app", None),
            lambda: plugin.executorPlugin().init(None, nothing),
        ):
            start()
    assert sum("no fileMerging metrics" in line for line in lines()) == 2
    plugin.executorPlugin().shutdown()
    assert read(jvm)["physicalFileCount"] >= 0


@pytest.fixture
def checkpoint(session: SparkSession, by_hand: None, new_checkpoint: Callable[..., Checkpoint]) -> Checkpoint:
    """A checkpoint in the session's JVM, on a file system that fails on demand."""
    made = new_checkpoint("faulty", maxFileSize="64k", closedAfter="1h")
    made.exists(ONE)
    return made


def test_commits_are_counted(checkpoint: Checkpoint, jvm: Any, faulty: Any) -> None:
    once = {
        "groupCommits": 1,
        "commits": 1,
        "writtenSegments": 1,
        "flushTime": 1,
        "commitWait": 1,
        "segmentsPerGroup": 1,
    }
    with moved(jvm, writtenBytes=1000, **once):
        checkpoint.write(ONE, bytes(1000))

    checkpoint.stage("0/0/SSTs/1.sst", bytes(100))
    with moved(jvm, writtenBytes=110, **{**once, "writtenSegments": 2}):
        checkpoint.write("0/0/1.zip", bytes(10))
    assert beans(jvm)["segmentsPerGroup", "Max"] >= 2

    faulty.addRule("hflush", str(checkpoint.merged), 1, "ioexception")
    with moved(jvm, failedGroups=1), java_error("PSS_WRITE_FAILED"):
        checkpoint.write(TWO)


def test_a_cancelled_upload_is_counted(checkpoint: Checkpoint, jvm: Any) -> None:
    stream = checkpoint.log.create(ONE)
    stream.write(bytes(100))
    with moved(jvm, cancelledUploads=1):
        stream.cancel()
        stream.close()


def test_refreshes_are_counted(checkpoint: Checkpoint, jvm: Any) -> None:
    with moved(jvm, refreshes=1, completeRefreshes=1, refreshTime=1):
        checkpoint.log.refresh()


def test_unlinks_are_counted(checkpoint: Checkpoint, jvm: Any, faulty: Any) -> None:
    checkpoint.write(ONE, bytes(70_000))
    checkpoint.write(ONE, b"new")
    faulty.addRule("delete", str(checkpoint.merged), 1, "permission")
    with moved(jvm, "refreshes", "completeRefreshes", "refreshTime", failedDeletes=1):
        assert int(checkpoint.log.clean()) == 0

    with moved(jvm, "refreshes", "completeRefreshes", "refreshTime", unlinkedFiles=1):
        assert int(checkpoint.log.clean()) == 1


def test_relocation_is_counted(checkpoint: Checkpoint, jvm: Any) -> None:
    for version in range(1, 10):
        checkpoint.write(f"0/0/{version}.delta", bytes(8_000))
    for version in range(1, 9):
        checkpoint.delete(f"0/0/{version}.delta")
    before = read(jvm)
    checkpoint.clean()
    after = read(jvm)

    assert after["relocatedSegments"] - before["relocatedSegments"] == 1
    assert 8_000 <= after["relocatedBytes"] - before["relocatedBytes"] < 8_200
    assert after["unlinkedFiles"] - before["unlinkedFiles"] == 1
    assert checkpoint.contents() == {"0/0/9.delta": bytes(8_000)}


def test_tombstones_that_are_carried_over_are_counted(checkpoint: Checkpoint, jvm: Any) -> None:
    checkpoint.write(ONE, b"in a file that stays open")
    _, entry = checkpoint.view().live[ONE]
    with checkpoint.foreign(2, writer=6) as file:
        # Something else that is dead, or the file is left as it is.
        file.put(TWO, bytes(1000), stamp=entry.stamp - 1, writer=6)
        file.delete(TWO, stamp=entry.stamp - 1, writer=6)
        file.delete(ONE, stamp=entry.stamp, writer=entry.writer)
    before = read(jvm)

    def gone() -> bool:
        checkpoint.clean()
        return not (checkpoint.merged / file_name(CREATED_MS, 6, 2)).exists()

    until(gone, "the file with the tombstone to go")
    after = read(jvm)

    assert after["carriedOverTombstones"] - before["carriedOverTombstones"] == 1
    assert after["unlinkedFiles"] - before["unlinkedFiles"] == 1
    assert ONE not in checkpoint.view().live


def test_another_session_of_the_same_process(make_spark: MakeSpark, jvm: Any, tmp_path: Path) -> None:
    forget_other_tests(make_spark(CONF, mode="provider"))
    before = Checkpoint(jvm, tmp_path / "before")
    now = Checkpoint(jvm, tmp_path / "now")
    try:
        before.write(ONE, bytes(1000))
        assert read(jvm)["logicalFileSize"] >= 1000

        stock = make_spark(CONF)
        assert stock.sparkContext.getConf().get("spark.plugins") == USER_PLUGIN
        assert beans(jvm) == {}
        before.write(TWO)

        make_spark(CONF, mode="provider", store="heap")
        fresh = read(jvm)
        assert math.isnan(fresh.pop("spaceAmplification"))
        assert set(fresh.values()) == {0}
        now.write(ONE, bytes(10))
        assert read(jvm)["commits"] == 1
        assert gauges(read(jvm)) == on_disk(now.state)
        before.write(TWO, bytes(20))  # it is used again
        assert gauges(read(jvm)) == on_disk(now.state, before.state)
    finally:
        before.forget()
        now.forget()


def test_a_round_of_maintenance_says_what_it_did(checkpoint: Checkpoint, jvm: Any, faulty: Any) -> None:
    with log_lines(jvm) as lines:
        checkpoint.clean()
        assert lines() == []
        checkpoint.write(ONE, bytes(70_000))
        checkpoint.write(ONE, b"new")
        faulty.addRule("delete", str(checkpoint.merged), 1, "permission")
        checkpoint.clean()
        checkpoint.clean()
        checkpoint.clean()
        failed, unlinked = lines()
    assert re.fullmatch(r"\[\w+=[^\[\]]+\]( \[\w+=[^\[\]]+\])*", unlinked)
    pairs = [dict(re.findall(r"\[(\w+)=([^\]]*)\]", line)) for line in (failed, unlinked)]
    assert [(p["unlinkedFiles"], p["failedDeletes"]) for p in pairs] == [("0", "1"), ("1", "0")]
    expected = on_disk(checkpoint.state)
    assert pairs[1]["checkpoint"].endswith(str(checkpoint.directory))
    assert pairs[1] == {
        "checkpoint": pairs[1]["checkpoint"],
        "unlinkedFiles": "1",
        "failedDeletes": "0",
        "relocatedSegments": "0",
        "relocatedBytes": "0",
        "carriedOverTombstones": "0",
        "files": str(expected["physicalFileCount"]),
        "physicalBytes": str(expected["physicalFileSize"]),
        "liveSegments": str(expected["logicalFileCount"]),
        "liveBytes": str(expected["logicalFileSize"]),
        "spaceAmplification": f"{expected['spaceAmplification']:.2f}",
        "tookMs": pairs[1]["tookMs"],
        "stopped": "false",
    }


@contextmanager
def log_lines(jvm: Any, name: str = MAINTENANCE, least: str = "INFO") -> Iterator[Callable[[], list[str]]]:
    """What a logger says at a level and above."""
    log4j = jvm.org.apache.logging.log4j
    logger = log4j.LogManager.getLogger(name)
    writer = jvm.java.io.StringWriter()
    layout = log4j.core.layout.PatternLayout.newBuilder().withPattern("%m%n").build()
    appender = log4j.core.appender.WriterAppender.createAppender(layout, None, writer, "lines", False, False)
    appender.start()
    logger.addAppender(appender)
    level = logger.getLevel()
    # Also for the loggers below.
    log4j.core.config.Configurator.setLevel(name, getattr(log4j.Level, least))
    try:
        yield lambda: str(writer.toString()).splitlines()
    finally:
        log4j.core.config.Configurator.setLevel(name, level)
        logger.removeAppender(appender)
        appender.stop()


@pytest.mark.slow
@pytest.mark.each_spark
def test_executors(main_jar: Path, test_jar: Path, tmp_path: Path) -> None:
    """In processes of their own, by what a CSV sink writes."""
    script = Path(__file__).with_name("metrics_session.py")
    environment = {key: value for key, value in os.environ.items() if key != "PYSPARK_SUBMIT_ARGS"}
    environment |= {"PYTHONPATH": str(script.parents[2]), "PYSPARK_PYTHON": sys.executable}
    environment |= {"SPARK_WORKER_DIR": str(tmp_path / "work"), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, str(script), str(tmp_path), str(test_jar)]
    done = run_to_the_end(command, cwd=tmp_path, env=environment, timeout=400)
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])

    assert set(found["shown"]) == {"0", "1", "driver"}
    for process, values in found["shown"].items():
        assert values["mine"] == 42, process
        if process == "driver":
            assert {name: values[name] for name in GAUGES} == pytest.approx(found["on_disk"])
            assert values["refreshes"] > 0
        else:
            # They know their own partitions only, and ask the driver.
            assert values["physicalFileCount"] == values["refreshes"] == 0
            assert values["flushTime"] == values["groupCommits"] > 0
            assert values["indexQuestions"] > 0
    # Every changelog was committed by one of them.
    assert sum(found["shown"][executor]["commits"] for executor in ("0", "1")) == found["written"]
    # They tell the driver, whose page has the whole.
    page = {name: float(exact) for name, (_, exact) in found["tab"].items()}
    assert page["Commits"] == found["written"]
    assert page["Groups"] == sum(found["shown"][executor]["groupCommits"] for executor in ("0", "1"))
    assert page["Merged files"] == found["on_disk"]["physicalFileCount"]
    assert page["Mean flush"] > 0
    assert re.fullmatch(r"[1-9]\d* questions, the last \d+ s ago", found["tab"]["Index service"][0])
