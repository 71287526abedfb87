"""Google's own connector against a server of its API on this machine."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.clouds.conftest import MakeQuery
from tests.clouds.harness import CHANGELOG, CONF
from tests.clouds.servers import BUCKET, LocalGcs
from tests.s3.harness import PARTITIONS, SCOPE, query_process
from tests.s3.local_s3 import add_to_class_path, class_path_settings
from tests.sampling import marked
from tests.streaming.runs import NO_FILE_CHECKSUMS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PART = "_GCS_SYNCABLE_TEMPFILE_"
"""Begins the names of the connector's parts of an object."""


HEAP = ("path", "heap")


@pytest.mark.parametrize(("mode", "store"), marked([("provider", "rocksdb"), HEAP], lambda case: case == HEAP))
def test_equal_to_batch(make_query: MakeQuery, mode: str, store: str) -> None:
    # With a stream that could flush: a group is a file all the same.
    query = make_query(
        mode, store, **{CHANGELOG: "true", "spark.hadoop.fs.gs.outputstream.type": "FLUSHABLE_COMPOSITE"}
    )
    query.run(3)
    steady = query.gcs.requests(f"{query.key}/state/", query.marks[1], query.marks[2])
    print(f"\n{mode}, {store}: state in the last batch: {dict(steady)}")
    query.forget()
    query.run(1)

    expected = query.expected()
    assert {key: row for _, batch in sorted(query.given_out.items()) for key, row in batch.items()} == expected
    assert query.state() == query.state_in_python() == expected
    assert sorted(query.given_out) == [0, 1, 2, 3]
    assert query.plain_state_files() == []
    files = query.merged_files()
    assert [name for name in files if not name.endswith((".merged", ".running", ".ended"))] == []
    assert all(row["is_sealed"] for row in query.checkpoint().inspect.files().to_pylist())


def test_one_object_for_all_tasks_of_a_batch(make_query: MakeQuery) -> None:
    query = make_query("provider", "heap", **NO_FILE_CHECKSUMS, **{SCOPE: "batch"})
    query.run(3)
    of_state = query.gcs.requests(f"{query.key}/state/_merged/", query.marks[1], query.marks[2])
    assert of_state["upload"] == 1
    assert of_state["read"] == of_state["copy"] == 0
    assert query.state() == query.expected()


@pytest.mark.parametrize("store", marked(["rocksdb"], lambda _: False))
def test_a_query_is_killed(make_query: MakeQuery, connector: Path, tmp_path: Path, store: str) -> None:
    query = make_query("provider", store, **{CHANGELOG: "true"})
    query.feed(2)
    settings = {f"spark.hadoop.{key}": value for key, value in query.gcs.hadoop_settings().items()}
    settings |= {**CONF, **class_path_settings([connector]), CHANGELOG: "true", "spark.ui.enabled": "false"}
    with query_process(cast(Any, query), store, settings, tmp_path) as (process, computed):
        computed(1)
        query.feed(1)
        os.killpg(process.pid, signal.SIGKILL)
    query.run(1)
    assert query.state() == query.state_in_python() == query.expected()
    # It went on where the other process was, and did not begin again.
    assert min(query.given_out) in (1, 2)
    checkpoint = query.checkpoint()
    assert checkpoint.maintenance.verify().is_clean
    before = len(query.merged_files())
    assert before > PARTITIONS / 2
    checkpoint.maintenance.compact()
    assert len(query.merged_files()) < before
    query.forget()
    query.run(1)
    assert query.state() == query.state_in_python() == query.expected()


def test_a_fork_goes_its_own_way(make_query: MakeQuery) -> None:
    query = make_query("provider", "heap")
    query.run(1)
    fork = replace(query, key=f"{query.key}-fork", given_out={}, marks={})
    query.checkpoint().fork(fork.url)
    # Spark's reader counts the directories of the partitions, of which nothing is in a fork.
    assert fork.state() == query.expected()
    before = query.expected()
    query.feed(1)
    fork.run()
    assert fork.state() == fork.state_in_python() == fork.expected()
    assert query.state() == query.state_in_python() == before
    assert [fork.checkpoint().maintenance.verify().is_clean, query.checkpoint().maintenance.verify().is_clean] == [
        True,
        True,
    ]
    fork.forget()


@pytest.fixture
def streams(gcs: LocalGcs, connector: Path, jvm: Any) -> Any:
    """Opens a file for writing: ``streams(name, **settings of fs.gs)`` returns file system, path and stream."""
    add_to_class_path(jvm, [connector])
    hadoop = jvm.org.apache.hadoop

    def begin(name: str, **settings: str) -> tuple[Any, Any, Any]:
        conf = hadoop.conf.Configuration()
        of_gs = {f"fs.gs.{key.replace('__', '.')}": value for key, value in settings.items()}
        for key, value in {**gcs.hadoop_settings(), **of_gs}.items():
            conf.set(key, value)
        path = hadoop.fs.Path(f"gs://{BUCKET}/streams/{name}")
        fs = hadoop.fs.FileSystem.newInstance(path.toUri(), conf)
        return fs, path, fs.create(path, True)

    return begin


def test_hflush_of_the_connector_may_do_nothing(streams: Any, gcs: LocalGcs) -> None:
    """What GoogleLikeFileSystem is modelled on: a flush that is too early is none, and says nothing."""
    conf = {"outputstream__type": "FLUSHABLE_COMPOSITE", "outputstream__sync__min__interval__ms": "3600000"}
    fs, path, out = streams("flushed", **conf)
    out.write(bytearray(b"one"))
    out.hflush()
    assert fs.getFileStatus(path).getLen() == 3
    out.write(bytearray(b"two"))
    out.hflush()
    assert fs.getFileStatus(path).getLen() == 3
    out.close()
    assert fs.getFileStatus(path).getLen() == 6
    assert [key for key in gcs.keys("streams") if PART in key] == []


def test_close_of_the_connector_says_that_it_was_interrupted(streams: Any, jvm: Any, gcs: LocalGcs) -> None:
    _, _, out = streams("interrupted")
    out.write(bytearray(b"one"))
    with pytest.raises(Exception, match="ClosedByInterruptException"):
        getattr(jvm, "io.pyspark.statestore.testing.Interrupted").close(out)
