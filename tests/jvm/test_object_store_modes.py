"""Stores whose hflush says that it is there, and cannot be trusted: Azure's and Google's, as their clients behave.

``AzureLikeFileSystem`` and ``GoogleLikeFileSystem`` say what they are modelled on (docs/object-stores.md).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.processes import second_jvm
from tests.conftest import MakeSpark
from tests.hdfs.query_process import stream, totals
from tests.jvm.harness import (
    FILE_SYSTEMS,
    TESTING,
    Checkpoint,
    View,
    begun,
    file_system_conf,
    in_time,
    java_error,
    until,
)
from tests.s3.harness import CHANGELOG, STATE_STORE, rows, write_input
from tests.sampling import marked

pytestmark = pytest.mark.spark

AZURE, GOOGLE, FLUSHING = "azurelike", "googlelike", "googleflushing"
STORES = (AZURE, GOOGLE, FLUSHING)
"""``googleflushing`` is told to flush once a minute, and says that it can."""

READERS = {name: f"{name}reader" for name in STORES}
"""The same stores under other schemes: another merged log of the same checkpoint, in the same process."""

for _name in STORES:
    _class = "AzureLikeFileSystem" if _name == AZURE else "GoogleLikeFileSystem"
    FILE_SYSTEMS[_name] = FILE_SYSTEMS[READERS[_name]] = _class


OF_THE_STORE = {name: {f"fs.{name}.sync.min.interval": "60000"} for name in (FLUSHING, READERS[FLUSHING])}
"""Settings that make a store what its name says."""


class StoreCheckpoint(Checkpoint):
    """A checkpoint on such a store, with settings of the store itself."""

    def __init__(self, jvm: Any, directory: Path, scheme: str, settings: dict[str, str], **options: str) -> None:
        self._settings = settings
        super().__init__(jvm, directory, scheme, **options)

    def _of_the_store(self) -> dict[str, str]:
        given = {f"fs.{self.scheme}.{key}": value for key, value in self._settings.items()}
        return OF_THE_STORE.get(self.scheme, {}) | given

    def _hadoop_settings(self, options: Any) -> dict[str, str]:
        return super()._hadoop_settings(options) | self._of_the_store()


MakeStore = Callable[..., StoreCheckpoint]


@pytest.fixture
def make(jvm: Any, tmp_path: Path) -> Iterator[MakeStore]:
    """Makes a checkpoint on a store: ``make(AZURE, maxFileSize="64k")``, ``make(AZURE, {"blocks": "3"})``."""
    made: list[StoreCheckpoint] = []

    def on(scheme: str, settings: dict[str, str] | None = None, **options: str) -> StoreCheckpoint:
        made.append(StoreCheckpoint(jvm, tmp_path / "checkpoint", scheme, settings or {}, **options))
        return made[-1]

    yield on
    for checkpoint in made:
        checkpoint.forget()


def content(path: str) -> bytes:
    """Bytes that say where they belong."""
    return random.Random(path).randbytes(3000)


def write(checkpoint: Checkpoint, *versions: int, partition: int = 0) -> dict[str, bytes]:
    """Commits versions of a partition, one after the other."""
    files = {f"0/{partition}/{version}.changelog": b"" for version in versions}
    for path in files:
        files[path] = content(path)
        checkpoint.write(path, files[path])
    return files


def left_over(checkpoint: Checkpoint) -> list[str]:
    """What the store shows beside the merged files."""
    shown = [path.name for path in checkpoint.merged.iterdir() if not path.name.startswith(".upload-")]
    return [name for name in shown if not name.endswith(".merged")]


@pytest.mark.parametrize("store", STORES)
def test_what_is_acknowledged_is_durable(make: MakeStore, store: str) -> None:
    """Whoever dies then: Google's hflush does nothing where a flush was a moment ago."""
    checkpoint = make(store)
    files = write(checkpoint, 1, 2, 3)
    # Read by another program, from what is in the store alone.
    assert checkpoint.contents() == files
    checkpoint.forget()
    assert {path: checkpoint.read(path) for path in files} == files
    assert left_over(checkpoint) == []


@pytest.mark.parametrize("store", STORES)
def test_a_file_never_changes_once_others_can_read_it(make: MakeStore, store: str) -> None:
    checkpoint = make(store)
    seen: dict[str, bytes] = {}
    for version in range(1, 5):
        write(checkpoint, version)
        now = {name: (checkpoint.merged / name).read_bytes() for name in checkpoint.files()}
        assert {name: now[name] for name in seen} == seen
        seen = now
    assert len(seen) == 4
    assert all(checkpoint.sealed(name) for name in seen)


@pytest.mark.parametrize("store", STORES)
def test_reads_beside_a_writer_that_never_rests(make: MakeStore, jvm: Any, store: str) -> None:
    """It commits each time when a reader has opened a file of its, and before that has read the first byte."""
    writer, reader = make(store), make(READERS[store])
    files = write(writer, 1, 2)
    assert reader.read("0/0/1.changelog") == files["0/0/1.changelog"]
    files |= write(writer, 3)
    stores = getattr(jvm, f"{TESTING}.CloudLikeFileSystem")
    stores.commitWhenOpened(".merged", writer.fs, writer.location("0/1/"), 40)
    try:
        assert {path: reader.read(path) for path in files} == files
        until(lambda: reader.exists("0/1/1.changelog") and stores.commitsLeft() == 0, "the last commit")
    finally:
        stores.commitWhenOpened("no such file", writer.fs, "", 0)
    assert {path: reader.read(path) for path in files} == files


def test_empty_file_that_others_have_seen_for_too_long_gets_no_group(make: MakeStore, jvm: Any, gate: Any) -> None:
    """On Azure a file is there, empty, before it is closed: others may count it as closed, and unlink it (rule 7)."""
    options = {"closedAfter": "5s"}
    checkpoint = make(AZURE, **options)
    files = write(checkpoint, 1)
    clock = jvm.io.pyspark.statestore.files.WallClock
    gate.hold("write", ".merged")
    slow = begun(write, checkpoint, 2)
    try:
        assert gate.awaitHeld("write")
        clock.ahead(4000)
        gate.release("write")
        with java_error("others may have unlinked the empty file"):
            slow.result(30)
    finally:
        clock.right()
    files |= write(checkpoint, 2)
    assert checkpoint.contents() == files


def test_a_read_of_azure_fetches_what_it_needs(make: MakeStore, jvm: Any) -> None:
    writer = make(AZURE)
    files = write(writer, 1, 2)
    azure = getattr(jvm, f"{TESTING}.AzureLikeFileSystem")
    before = azure.opensWithReadAhead()
    reader = make(READERS[AZURE])
    assert {path: reader.read(path) for path in files} == files
    assert azure.opensWithReadAhead() == before


def test_a_file_has_no_more_blocks_than_azure_lets_it_have(make: MakeStore) -> None:
    checkpoint = make(AZURE, {"blocks": "3"})
    files = write(checkpoint, *range(1, 12))
    assert checkpoint.contents() == files
    assert checkpoint.metrics()["groups"] == len(files)


@pytest.mark.parametrize("store", STORES)
def test_sealing_does_not_wait_for_a_turn_to_flush(make: MakeStore, store: str) -> None:
    checkpoint = make(store)
    write(checkpoint, 1)
    in_time(checkpoint.log.seal, seconds=20)


@pytest.mark.parametrize("store", STORES)
def test_a_writer_is_killed_and_others_go_on(
    make: MakeStore, main_jar: Path, test_jar: Path, jvm: Any, store: str
) -> None:
    """A process is killed while it commits; one beside it has read all along, moves what lives, and joins files."""
    options = {"closedAfter": "5s", "maxSpaceAmplification": "1.2"}
    here = make(store, **options)
    files: dict[str, bytes] = {}
    with second_jvm(main_jar, test_jar) as victim:
        theirs = StoreCheckpoint(victim.view, here.directory, store, {}, compaction__enabled="false", **options)
        for version in range(1, 9):
            files |= write(theirs, version)
            assert here.read(f"0/0/{version}.changelog") == files[f"0/0/{version}.changelog"]
        # The one beside it may unlink them as soon as they are dead.
        view = here.view()
        dead = {view.live[f"0/0/{version}.changelog"][0] for version in range(1, 6)}
        for version in range(1, 6):
            assert theirs.delete(f"0/0/{version}.changelog")
            del files[f"0/0/{version}.changelog"]
        files |= write(theirs, 9)  # the deletions ride here
        in_flight = begun(theirs.write, "0/0/10.changelog", content("0/0/10.changelog"))
        victim.kill()
        in_flight.exception(30)
    assert {path: here.read(path) for path in files} == files
    files |= write(here, 10, 11)

    def cleaned() -> bool:
        here.clean()
        files.update(write(here, 12, partition=1))
        return not dead & set(here.files()) and not left_over(here)

    until(cleaned, "what is dead to go", seconds=60)
    assert here.contents() == files
    here.forget()
    assert {path: here.read(path) for path in files} == files


@pytest.mark.parametrize("store", STORES)
def test_many_threads_commit_and_share_files(make: MakeStore, jvm: Any, store: str) -> None:
    threads = 12
    checkpoint = make(store)
    run = getattr(jvm, f"{TESTING}.TimedStorm")(checkpoint.fs, checkpoint.location("")[:-1], threads, 600, 1000)
    assert list(run.failures()) == []
    acknowledged = {(thread, run.acknowledged(thread)) for thread in range(threads)}
    storm = getattr(jvm, f"{TESTING}.Storm")
    contents = checkpoint.contents()
    assert len(contents) == sum(last for _, last in acknowledged)
    for thread, last in acknowledged:
        assert last > 0
        assert contents[f"0/{thread}/{last}.changelog"] == bytes(storm.content(thread, last))
    assert checkpoint.metrics()["groups"] == len(checkpoint.files())


@pytest.mark.slow
@pytest.mark.since("4.0", "Spark has a state reader from 4.0 on")
@pytest.mark.parametrize("store", marked([AZURE, FLUSHING], lambda store: store == FLUSHING))
def test_a_query_equals_a_batch(make_spark: MakeSpark, jvm: Any, tmp_path: Path, store: str) -> None:
    """Its state is read from outside after each batch, and it is restarted as if its process had been killed."""
    hadoop = file_system_conf(store) | OF_THE_STORE.get(store, {})
    settings = {f"spark.hadoop.{key}": value for key, value in hadoop.items()}
    spark = make_spark({**settings, CHANGELOG: "true", f"{STATE_STORE}minDeltasForSnapshot": "2"}, mode="provider")
    source, location = tmp_path / "input", f"{store}:{tmp_path}/checkpoint"
    source.mkdir()
    for batch in range(4):
        write_input(source, batch)
        writer = stream(spark, str(source)).writeStream.format("noop").outputMode("update")
        writer.option("checkpointLocation", location).trigger(availableNow=True).start().awaitTermination()
        state = spark.read.format("statestore").load(location).select("key.*", "value.*").toDF("k", "n", "total")
        assert rows(state) == rows(totals(spark.read.parquet(str(source))))
        if batch == 2:
            stores = getattr(jvm.org.apache.spark.sql.execution.streaming.state, "StateStore$")
            getattr(stores, "MODULE$").stop()
            jvm.io.pyspark.statestore.log.MergedLogs.forgetBelow(jvm.org.apache.hadoop.fs.Path(location))
    view = View.of(tmp_path / "checkpoint" / "state")
    assert all(file.sealed for file in view.files.values())
    assert len(view.files) > 4
