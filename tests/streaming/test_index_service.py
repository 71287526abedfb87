"""The index service in a driver of many queries, some of whose file systems do not answer."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.conftest import MakeSpark
from tests.jvm.harness import TESTING, file_system_conf, until

pytestmark = pytest.mark.spark

ASKED = 40
"""More questions than a pool of a sensible size has threads."""
OTHERS = 150
CLOSED_AFTER = "spark.sql.streaming.stateStore.fileMerging.closedAfter"


def test_a_dead_file_system_stops_no_other_checkpoint(make_spark: MakeSpark, tmp_path: Path) -> None:
    settings = {f"spark.hadoop.{key}": value for key, value in file_system_conf("gated", "file").items()}
    jvm: Any = make_spark(settings, mode="provider").sparkContext._jvm
    doors, gate = jvm.io.pyspark.statestore.log.ServiceDoors, getattr(jvm, f"{TESTING}.Gate")
    run = str(uuid.uuid4())
    gate.hold("before listStatus", "dead")
    try:
        waiting = [doors.open(f"gated:{tmp_path}/dead/state", run) for _ in range(ASKED)]
        assert gate.awaitHeld("before listStatus")
        assert doors.outcome(doors.open(f"file:{tmp_path}/other/state", run), 10_000) == "Opened"
        assert doors.outcome(waiting[-1], 100) == "none"
    finally:
        gate.releaseAll()
    assert {doors.outcome(answer, 30_000) for answer in waiting} == {"Opened"}


@pytest.fixture
def session(make_spark: MakeSpark) -> SparkSession:
    """Of a driver whose tasks run elsewhere."""
    return make_spark(mode="provider", master="local-cluster[1,1,1024]")


@pytest.fixture
def driver(session: SparkSession) -> Any:
    """Its JVM."""
    return session.sparkContext._jvm


@pytest.fixture
def manager(session: SparkSession, driver: Any) -> Callable[..., Any]:
    """Makes a file manager as a query does that has an option."""

    def make(location: str, closed_after: str) -> Any:
        conf = session._jsparkSession.sessionState().newHadoopConf()
        conf.set(CLOSED_AFTER, closed_after)
        path = getattr(driver, "org.apache.hadoop.fs.Path")(location)
        return driver.io.pyspark.statestore.fs.MergedCheckpointFileManager(path, conf)

    return make


def closed_after(driver: Any, checkpoint: str) -> int:
    """What the log has of a checkpoint that an executor asks for, in milliseconds."""
    doors = driver.io.pyspark.statestore.log.ServiceDoors
    assert doors.outcome(doors.open(f"{checkpoint}/state", str(uuid.uuid4())), 30_000) == "Opened"
    state = getattr(driver, "org.apache.hadoop.fs.Path")(f"{checkpoint}/state")
    return int(driver.io.pyspark.statestore.log.MergedLogs.open(state).options().closedAfterMs())


def test_a_query_keeps_its_options_however_many_others_there_are(
    driver: Any, manager: Callable[..., Any], tmp_path: Path
) -> None:
    endpoint = driver.io.pyspark.statestore.fs.IndexEndpoint
    checkpoint = f"file:{tmp_path}/checkpoint"
    manager(checkpoint, "777s").createCheckpointDirectory()
    logs = [manager(f"{checkpoint}/{log}", "777s") for log in ("offsets", "commits")]
    others = [manager(f"file:{tmp_path}/{n}/{log}", "888s") for n in range(OTHERS) for log in ("offsets", "commits")]
    assert closed_after(driver, checkpoint) == 777_000
    assert closed_after(driver, f"file:{tmp_path}/0") == 888_000

    reader = manager(f"{checkpoint}/commits", "999s")
    assert closed_after(driver, checkpoint) == 777_000, "of somebody who only reads the log"

    manager(checkpoint, "666s").createCheckpointDirectory()
    logs += [manager(f"{checkpoint}/{log}", "666s") for log in ("offsets", "commits")]
    assert closed_after(driver, checkpoint) == 666_000, "of the run before"

    assert endpoint.remembered() > OTHERS
    del others, reader, logs

    def forgotten() -> bool:
        gc.collect()
        driver.java.lang.System.gc()
        # What is gone is noticed when another query begins.
        manager(f"file:{tmp_path}/{uuid.uuid4()}/commits", "888s")
        return int(endpoint.remembered()) < OTHERS / 10

    until(forgotten, "queries that have ended to be forgotten")
