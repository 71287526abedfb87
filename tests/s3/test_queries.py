"""Queries whose checkpoint is on real S3A: through both doors, with both stores, restarted and killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pyspark_statestore.log.ended import Ended
from pyspark_statestore.log.scan import scan
from pyspark_statestore.parsing import parse_object
from tests.class_data import MINOR
from tests.cluster.application import processes
from tests.jvm.harness import await_listeners, until
from tests.s3.conftest import MakeQuery
from tests.s3.harness import CHANGELOG, CONF, PARTITIONS, SCOPE, STATE_STORE, query_process
from tests.s3.local_s3 import class_path_settings
from tests.s3.proxy import area, counts, table
from tests.sampling import sampled
from tests.streaming.runs import NO_FILE_CHECKSUMS

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(1, files="queries on S3")]

MERGED = "state/_merged/"


@pytest.mark.parametrize(
    ("mode", "store", "changelog"),
    sampled([("provider", "rocksdb", "true"), ("path", "rocksdb", "false"), ("path", "heap", "false")], 1),
)
def test_equal_to_batch(make_query: MakeQuery, mode: str, store: str, changelog: str) -> None:
    query = make_query(mode, store, **{CHANGELOG: changelog})
    query.run(3)
    steady = query.batch_requests(2)
    query.forget()
    begun = len(query.s3.proxy.requests)
    query.run(1)
    restart = query.s3.proxy.requests[begun : query.marks[3]]
    print(f"\n{mode}, {store}: a steady batch\n{table(counts(steady, query.key))}")
    print(f"a restart with a batch\n{table(counts(restart, query.key))}")

    query.check()
    assert sorted(query.given_out) == [0, 1, 2, 3]
    assert query.state(batchId=0) == query.given_out[0]
    assert query.plain_state_files() == []
    assert query.uploads() == []
    # State costs the objects that it is in, and nothing is asked of the stores' directories or read.
    of_state = counts(steady, query.key)
    assert {where for where in of_state if where.startswith("state/")} == {MERGED}
    groups = of_state[MERGED]["PUT"]
    assert 1 <= groups <= PARTITIONS
    if MINOR == "4.0":
        return  # its operators abort the store that they have read, so each batch loads it anew, on stock Spark, too
    assert of_state[MERGED]["GET"] == 0
    # Each question is one that S3A asks for a new object's own name.
    asked = {request.key.rstrip("/") for request in steady if request.kind in ("HEAD", "LIST")}
    put = {request.key for request in steady if request.kind == "PUT" and area(request.key, query.key) == MERGED}
    assert {key for key in asked if area(key, query.key) == MERGED} <= put


def test_no_question_in_a_steady_batch(make_query: MakeQuery) -> None:
    query = make_query("provider", "heap")
    query.run(3)
    # The second batch of a new query still says that a run goes on, and looks whether that is there.
    of_state = counts(query.batch_requests(2), query.key)[MERGED]
    assert of_state["PUT"] >= 1
    # A LIST for a directory of that name is S3A's own; newer ones leave it out where createFile() asks them to.
    assert of_state["HEAD"] == 0


@pytest.mark.parametrize(("mode", "store"), sampled([("provider", "rocksdb"), ("path", "heap")], 1))
def test_one_object_for_all_tasks_of_a_batch(make_query: MakeQuery, mode: str, store: str) -> None:
    """The tasks of five partitions come in three waves on two cores, and would make as many objects."""
    conf = {CHANGELOG: "true", "spark.sql.shuffle.partitions": "5", f"{STATE_STORE}minDeltasForSnapshot": "100"}
    query = make_query(mode, store, **conf, **NO_FILE_CHECKSUMS, **{SCOPE: "batch"})
    query.run(4)
    for batch in (2, 3):
        of_state = counts(query.batch_requests(batch), query.key)[MERGED]
        assert (of_state["PUT"], of_state["GET"]) == (1, 0)
    query.check()
    query.forget()
    query.run(1)
    query.check()


def test_a_query_that_ended_says_so(make_query: MakeQuery) -> None:
    """Without renames: an object appears whole. A restart takes it away before its first batch."""
    query = make_query("provider", "rocksdb")
    for _ in range(2):
        query.run(1)
        until(lambda: query.of_runs() == [".ended"], "the end to be said")
        directory = query.checkpoint()._directory
        query_id = parse_object(directory.read("metadata", 1 << 10))["id"]
        assert Ended.found(directory, scan(directory), (), query_id, ()) is not None
    waits = query.start(available_now=False)
    try:
        assert query.of_runs() == [".running"]
        assert Ended.found(directory, scan(directory), (), query_id, ()) is None
        # Of a run that ends before Spark has told of its start nothing is known.
        await_listeners(query.spark)
    finally:
        waits.stop()
    until(lambda: query.of_runs() == [".ended"], "the end to be said")
    made = [Path(each.key).suffix for each in query.s3.proxy.requests if each.kind == "PUT" and query.key in each.key]
    assert (made.count(".running"), made.count(".ended")) == (3, 3)


@pytest.mark.sweep(0, files="kills and long runs")
def test_executor_and_driver_are_killed(make_query: MakeQuery, jars: list[Path], tmp_path: Path) -> None:
    """First an executor, and the query goes on; then all of it, and the query goes on here."""
    query = make_query("provider", "rocksdb", **{CHANGELOG: "true"})
    query.feed(2)
    settings = {
        **query.s3.spark_settings(),
        **CONF,
        **class_path_settings(jars),
        CHANGELOG: "true",
        "spark.master": "local-cluster[1,2,1024]",
        "spark.executor.memory": "512m",
        "spark.executor.heartbeatInterval": "1s",
        "spark.ui.enabled": "false",
        "spark.shuffle.io.maxRetries": "1",
        "spark.shuffle.io.retryWait": "100ms",
    }
    with query_process(query, "rocksdb", settings, tmp_path) as (process, computed):
        computed(1)
        (executor,) = query_executors(process.pid)
        os.kill(executor, signal.SIGKILL)
        until(lambda: executor not in processes(), "the executor's death")
        query.feed(1)
        computed(2)
        assert executor not in query_executors(process.pid)
        query.feed(1)
        computed(3)
        os.killpg(process.pid, signal.SIGKILL)
    query.run(1)
    assert query.state() == query.expected()
    # It went on where the other process was, and did not begin again.
    assert min(query.given_out) in (3, 4)
    assert query.plain_state_files() == []
    assert query.checkpoint().maintenance.verify().is_clean
    assert query.uploads() == []


def query_executors(group: int) -> list[int]:
    """The executors in a process group."""
    found = []
    for pid, of in processes().items():
        if of == group:
            try:
                words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
            except FileNotFoundError:
                continue
            if any(word.endswith(b"CoarseGrainedExecutorBackend") for word in words):
                found.append(pid)
    return found
