"""Nobody waits for somebody else's file system, and no lock of ours is held while Spark is asked."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.jvm.harness import STAMP, TESTING, Checkpoint, begun, in_time, java_error, result_in_time, until

pytestmark = pytest.mark.spark

SNAPSHOT = "0/1/5.snapshot"
MB = 1 << 20


@pytest.fixture
def lock(jvm: Any) -> Any:
    """Spark's lock on its table of stores."""
    return getattr(jvm, f"{TESTING}.SparkLock")


# ---- Spark's locks


def gone_file(checkpoint: Checkpoint) -> None:
    """A merged file that the log knows of is gone when it looks next."""
    own = checkpoint.files()
    with checkpoint.foreign(1) as file:
        file.put("0/7/1.delta", b"of another process", stamp=STAMP)
    checkpoint.log.refresh()
    [name] = set(checkpoint.files()) - set(own)
    (checkpoint.merged / name).unlink()


def make_store(checkpoint: Checkpoint, lock: Any) -> Any:
    """A task of a new run makes a store's directory; it holds Spark's lock from now on until that is done."""
    conf = checkpoint.jvm.org.apache.hadoop.conf.Configuration(checkpoint.fs.getConf())
    conf.set("sql.streaming.runId", str(uuid.uuid4()))
    manager = checkpoint.jvm.io.pyspark.statestore.fs.MergedCheckpointFileManager(checkpoint.path("0/3"), conf)
    return lock.makeStore(manager, checkpoint.path("0/3"))


def upload_held(checkpoint: Checkpoint, gate: Any, lock: Any, place: str) -> Any:
    """A snapshot of some blocks, whose lane is held up and has its lock."""
    gate.hold(place, ".merged")
    upload = lock.upload(checkpoint.fs, checkpoint.path(SNAPSHOT), 2 * MB)
    assert gate.awaitHeld(place)
    time.sleep(0.15)  # a watch asks Spark every 100 ms, so this one does at the next block
    return upload


def test_a_task_that_makes_a_store_while_a_snapshot_is_uploaded(
    new_checkpoint: Callable[..., Checkpoint], gate: Any, lock: Any
) -> None:
    """The task has Spark's lock and finds a file gone; the snapshot's lane has its own lock, and is to ask Spark."""
    checkpoint = new_checkpoint("gated")
    checkpoint.write("0/0/1.delta")
    gone_file(checkpoint)
    upload = upload_held(checkpoint, gate, lock, "before create")
    task = make_store(checkpoint, lock)
    gate.release("before create")

    in_time(task.join, 20)
    in_time(upload.join, 20)

    assert checkpoint.contents()[SNAPSHOT] == bytes(2 * MB)


def test_an_upload_goes_on_while_a_task_holds_sparks_lock(
    new_checkpoint: Callable[..., Checkpoint], gate: Any, lock: Any
) -> None:
    checkpoint = new_checkpoint("gated")
    upload = upload_held(checkpoint, gate, lock, "before create")
    holder = lock.hold()
    try:
        gate.release("before create")
        in_time(upload.join, 20)
        checkpoint.write("0/2/5.snapshot")
    finally:
        holder.release()

    assert set(checkpoint.contents()) == {SNAPSHOT, "0/2/5.snapshot"}


def test_an_upload_whose_store_is_unloaded_ends(
    new_checkpoint: Callable[..., Checkpoint], gate: Any, lock: Any
) -> None:
    """What Spark says is known to the lane that writes, though it does not ask."""
    checkpoint = new_checkpoint("gated")
    upload = upload_held(checkpoint, gate, lock, "before write")
    upload.unload()
    until(upload.whyObsolete, "the watch to know")
    gate.release("before write")

    with java_error("ObsoleteUploadException"):
        in_time(upload.join, 20)

    assert SNAPSHOT not in checkpoint.contents()


def test_a_task_finds_its_lanes_file_gone_while_the_lane_writes(
    new_checkpoint: Callable[..., Checkpoint], gate: Any
) -> None:
    """A refresh waits for no lane; the lane itself notices, and no commit is acknowledged that is nowhere."""
    checkpoint = new_checkpoint("gated")
    checkpoint.write("0/0/1.delta")
    checkpoint.write("0/0/1.snapshot")
    [deltas, _] = checkpoint.files()
    gate.hold("before hflush", ".merged")
    writing = begun(checkpoint.write, "0/1/1.snapshot")
    assert gate.awaitHeld("before hflush")
    (checkpoint.merged / deltas).unlink()

    in_time(checkpoint.log.refresh)
    assert not checkpoint.exists("0/0/1.delta")
    checkpoint.write("0/0/2.delta")
    gate.release("before hflush")
    result_in_time(writing, "the commit")

    assert set(checkpoint.contents()) == {"0/0/1.snapshot", "0/1/1.snapshot", "0/0/2.delta"}


# ---- other checkpoints


def opened(checkpoint: Checkpoint) -> Any:
    """Asks for something, which opens the log."""
    checkpoint.exists("0/0")
    return checkpoint.log


def test_a_checkpoint_that_cannot_be_read_blocks_no_other(new_checkpoint: Callable[..., Checkpoint], gate: Any) -> None:
    hung, other = (new_checkpoint("gated", name=name) for name in ("hung", "other"))
    gate.hold("before listStatus", "/hung/state")
    opening = begun(opened, hung)
    assert gate.awaitHeld("before listStatus")

    in_time(other.write, "0/0/1.delta")

    assert hung.log is None
    gate.release("before listStatus")
    assert result_in_time(opening, "the opening") is not None


def test_who_comes_while_a_checkpoint_is_opened_shares_it(new_checkpoint: Callable[..., Checkpoint], gate: Any) -> None:
    checkpoint = new_checkpoint("gated")
    gate.hold("before listStatus", "/state")
    first = begun(opened, checkpoint)
    assert gate.awaitHeld("before listStatus")
    more = [begun(checkpoint.write, f"0/{part}/1.delta") for part in range(3)]
    gate.release("before listStatus")

    log = result_in_time(first, "the first")
    for each in more:
        result_in_time(each, "a commit")

    assert log.equals(checkpoint.log)
    assert log.writerId() == checkpoint.log.writerId()
    assert {entry.writer for _, entry in checkpoint.view().live.values()} == {log.writerId()}


def test_a_checkpoint_that_could_not_be_opened_is_opened_by_the_next(
    new_checkpoint: Callable[..., Checkpoint], faulty: Any
) -> None:
    checkpoint = new_checkpoint("faulty")
    faulty.addRule("listStatus", "_merged", 1, "permission")
    with java_error("Permission denied"):
        checkpoint.exists("0/0")
    assert checkpoint.log is None

    checkpoint.write("0/0/1.delta")

    assert checkpoint.contents() == {"0/0/1.delta": b"some bytes"}


def test_a_checkpoint_that_is_deleted_while_it_is_opened(new_checkpoint: Callable[..., Checkpoint], gate: Any) -> None:
    """What was read of it does not count; whoever asked gets what is there by then."""
    checkpoint = new_checkpoint("gated")
    checkpoint.write("0/0/1.delta")
    checkpoint.log.seal()
    checkpoint.forget()
    gate.hold("after listStatus", "/state/_merged")
    asking = begun(checkpoint.exists, "0/0/1.delta")
    assert gate.awaitHeld("after listStatus")
    for path in checkpoint.merged.iterdir():
        path.unlink()
    checkpoint.forget()
    gate.release("after listStatus")

    assert result_in_time(asking, "the question") is False
    checkpoint.write("0/0/2.delta")
    assert checkpoint.contents() == {"0/0/2.delta": b"some bytes"}


def test_a_file_that_cannot_be_sealed_delays_no_other_checkpoint(
    new_checkpoint: Callable[..., Checkpoint], gate: Any
) -> None:
    hung, other = (new_checkpoint("gated", name=name, closedAfter="10s") for name in ("hung", "other"))
    gate.hold("before close", "/hung/")
    hung.write("0/0/1.delta")
    assert gate.awaitHeld("before close")

    other.write("0/0/1.delta")

    until(lambda: other.sealed(other.files()[0]), "the other checkpoint's file to be sealed")
    gate.release("before close")


# ---- threads


def test_who_waits_is_served_where_no_thread_can_be_started(
    new_checkpoint: Callable[..., Checkpoint], jvm: Any, gate: Any
) -> None:
    checkpoint = new_checkpoint("gated")
    state = jvm.org.apache.hadoop.fs.Path(f"gated:{checkpoint.state}")
    log = jvm.io.pyspark.statestore.log.ThreadlessLog(checkpoint.fs.real(), state, checkpoint.fs.getConf())
    gate.hold("before hflush", ".merged")
    paths = [f"0/{part}/1.delta" for part in range(4)]
    first = begun(log.write, paths[0], b"bytes")
    assert gate.awaitHeld("before hflush")
    others = [begun(log.write, path, b"bytes") for path in paths[1:]]
    until(lambda: log.waiting() == 3, "the others to queue")
    gate.release("before hflush")

    for each in (first, *others):
        result_in_time(each, "a commit")
    in_time(log.write, "0/0/2.delta", b"bytes")

    assert checkpoint.contents() == dict.fromkeys([*paths, "0/0/2.delta"], b"bytes")
    log.seal()


# ---- files that could not be made


@pytest.mark.parametrize("kind", ["ioexception", "permission", "fs_error", "success_but_error"])
@pytest.mark.parametrize("scheme", ["faulty", "faultystore"])
def test_a_file_that_could_not_be_created_is_not_known(
    new_checkpoint: Callable[..., Checkpoint], faulty: Any, scheme: str, kind: str
) -> None:
    """Nor does one stay that was created all the same."""
    checkpoint = new_checkpoint(scheme)
    checkpoint.exists("0/0")
    faulty.addRule("create", "_merged", 1, kind)
    with java_error("PSS_WRITE_FAILED"):
        checkpoint.write("0/0/1.delta")
    checkpoint.log.refresh()
    assert checkpoint.log.index().files().size() == 0
    assert list(checkpoint.merged.glob("*")) == []

    checkpoint.write("0/0/1.delta")

    assert checkpoint.log.index().files().size() == 1
    assert checkpoint.contents() == {"0/0/1.delta": b"some bytes"}


@pytest.mark.parametrize("operation", ["write", "hflush", "close"])
@pytest.mark.parametrize("scheme", ["faulty", "faultystore"])
def test_a_file_without_a_group_is_forgotten(
    new_checkpoint: Callable[..., Checkpoint], faulty: Any, scheme: str, operation: str
) -> None:
    """Its first group failed: where nothing of it is visible, it does not count as a file for ever."""
    if (scheme, operation) == ("faultystore", "hflush"):
        pytest.skip("an object store is not flushed")
    checkpoint = new_checkpoint(scheme, closedAfter="5s")
    checkpoint.exists("0/0")
    faulty.addRule(operation, "_merged", 1, "ioexception")
    if operation == "close" and scheme == "faulty":
        faulty.addRule("hflush", "_merged", 1, "ioexception")
    with java_error("PSS_WRITE_FAILED"):
        checkpoint.write("0/0/1.delta")

    checkpoint.log.refresh()

    assert checkpoint.log.index().files().size() == len(checkpoint.files())
