"""Rule 1 when writes fail: nobody is told that something is durable that is not, and nobody waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from tests.jvm.harness import TESTING, Checkpoint, in_time, java_error, until

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("by_hand")]

ONE, TWO, THREE = (f"0/0/{n}.changelog" for n in (1, 2, 3))
KINDS = ["ioexception", "permission", "no_space", "torn", "fs_error", "success_but_error"]


def on_disk(checkpoint: Checkpoint) -> dict[str, bytes]:
    return {name: (checkpoint.merged / name).read_bytes() for name in checkpoint.files()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", ["create", "write", "hflush"])
def test_a_commit_that_cannot_be_written(
    new_checkpoint: Callable[..., Checkpoint], faulty: Any, operation: str, kind: str
) -> None:
    checkpoint = new_checkpoint("faulty")
    checkpoint.write(ONE, b"one")
    if operation == "create":
        checkpoint.log.seal()
    faulty.addRule(operation, str(checkpoint.merged), 1, kind)

    with java_error(
        "PSS_WRITE_FAILED", str(checkpoint.merged), f"checkpoint faulty:{checkpoint.directory}", "injected"
    ):
        checkpoint.write(TWO, b"never acknowledged")

    assert faulty.fired() == 1
    failed = on_disk(checkpoint)
    assert_only(checkpoint, {ONE: b"one"}, maybe={TWO: b"never acknowledged"})

    checkpoint.write(TWO, b"retried")
    checkpoint.write(THREE, b"three")

    # Nothing was appended to the file that failed.
    now = on_disk(checkpoint)
    assert {name: now[name] for name in failed} == failed
    assert len(now) == len(failed) + 1
    expected = {ONE: b"one", TWO: b"retried", THREE: b"three"}
    assert checkpoint.contents() == expected
    assert {path: checkpoint.read(path) for path in expected} == expected
    checkpoint.clean()
    checkpoint.forget()
    assert {path: checkpoint.read(path) for path in expected} == expected


def assert_only(checkpoint: Checkpoint, expected: dict[str, bytes], maybe: dict[str, bytes]) -> None:
    """An error may hide a success; what it cannot do is to leave something else behind."""
    found = checkpoint.contents()
    assert {path: data for path, data in found.items() if path not in maybe} == expected
    assert all(found[path] == data for path, data in maybe.items() if path in found)
    assert {path: checkpoint.read(path) for path in expected} == expected


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_that_cannot_be_closed(new_checkpoint: Callable[..., Checkpoint], faulty: Any, kind: str) -> None:
    """On faulty: with hflush closing only happens when a file is sealed, and must not undo the commits before it."""
    checkpoint = new_checkpoint("faulty", maxFileSize="64k")
    faulty.addRule("close", str(checkpoint.merged), 1, kind)

    checkpoint.write(ONE, bytes(70_000))

    assert faulty.fired() == 1
    checkpoint.write(TWO, b"two")
    assert checkpoint.contents() == {ONE: bytes(70_000), TWO: b"two"}
    assert checkpoint.read(ONE) == bytes(70_000)


@pytest.mark.parametrize("kind", ["ioexception", "fs_error", "torn"])
@pytest.mark.parametrize("operation", ["write", "hsync"])
def test_a_seal_that_fails_fails_no_commit(
    new_checkpoint: Callable[..., Checkpoint], faulty: Any, operation: str, kind: str
) -> None:
    checkpoint = new_checkpoint("faulty", maxFileSize="64k")
    checkpoint.write(ONE, b"one")
    # The large payload and the rest of its group are two writes, the seal the third.
    faulty.addRule(operation, str(checkpoint.merged), 3 if operation == "write" else 1, kind)

    checkpoint.write(TWO, bytes(70_000))

    assert faulty.fired() == 1
    checkpoint.write(THREE, b"three")
    assert checkpoint.contents() == {ONE: b"one", TWO: bytes(70_000), THREE: b"three"}


def test_a_flush_and_the_close_after_it_that_fail(new_checkpoint: Callable[..., Checkpoint], faulty: Any) -> None:
    """As on a full local disk: what could not be flushed cannot be written when the file is closed, either."""
    checkpoint = new_checkpoint("faulty")
    checkpoint.write(ONE, b"one")
    faulty.addRule("hflush", str(checkpoint.merged), 1, "fs_error")
    faulty.addRule("close", str(checkpoint.merged), 1, "fs_error")

    with java_error("PSS_WRITE_FAILED", "No space left on device"):
        checkpoint.write(TWO, b"two")

    assert faulty.fired() == 2
    checkpoint.write(TWO, b"two")
    assert checkpoint.contents() == {ONE: b"one", TWO: b"two"}


def test_an_idle_seal_that_fails_does_not_end_the_housekeeping(
    new_checkpoint: Callable[..., Checkpoint], faulty: Any
) -> None:
    failing = new_checkpoint("faulty", name="failing", closedAfter="30s")
    other = new_checkpoint("faulty", name="other", closedAfter="30s")
    faulty.addRule("hsync", "failing/state/_merged", 1, "fs_error")
    failing.write(ONE, b"one")
    until(faulty.fired, "the seal that fails")

    other.write(ONE, b"one")

    until(lambda: other.sealed(other.files()[0]), "the seal of another checkpoint")
    failing.write(TWO, b"two")
    assert failing.contents() == {ONE: b"one", TWO: b"two"}


@pytest.mark.parametrize("kind", ["torn", "fs_error", "success_but_error"])
def test_all_of_a_group_fail_together(
    new_checkpoint: Callable[..., Checkpoint], jvm: Any, faulty: Any, kind: str
) -> None:
    threads, commits = 8, 40
    checkpoint = new_checkpoint("faulty")
    storm = getattr(jvm, f"{TESTING}.Storm")
    faulty.addRule("hflush", str(checkpoint.merged), 5, 3, kind)

    said = in_time(storm.commit, checkpoint.fs, f"merged+faulty:{checkpoint.state}", threads, commits)

    failures = dict(line.split(" ", 1) for line in said)
    assert faulty.fired() == 3
    assert 3 <= len(failures) < threads * commits
    assert all("PSS_WRITE_FAILED" in message for message in failures.values())
    every = {f"0/{t}/{v}.changelog": bytes(storm.content(t, v)) for t in range(threads) for v in range(1, commits + 1)}
    acknowledged = {path: data for path, data in every.items() if path not in failures}
    assert checkpoint.metrics()["commits"] == len(acknowledged)
    assert_only(checkpoint, acknowledged, maybe={path: every[path] for path in failures})


def test_tombstones_of_a_failed_group_are_written_with_the_next(
    new_checkpoint: Callable[..., Checkpoint], faulty: Any
) -> None:
    checkpoint = new_checkpoint("faulty")
    checkpoint.write(ONE, b"one")
    checkpoint.delete(ONE)
    faulty.addRule("hflush", str(checkpoint.merged), 1, "torn")
    with java_error("PSS_WRITE_FAILED"):
        checkpoint.write(TWO, b"two")
    assert not checkpoint.exists(ONE)

    checkpoint.write(THREE, b"three")

    assert checkpoint.contents() == {THREE: b"three"}


# ---- tasks that are killed while they commit


def in_thread(action: Callable[[], Any]) -> Future[Any]:
    """Does something in a thread of its own, as a task does; to JVM threads that are interrupted no test comes back."""
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(action())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done


def commit_in_thread(checkpoint: Checkpoint, path: str, data: bytes) -> Future[Any]:
    """A commit in a thread of its own."""

    def commit() -> None:
        out = checkpoint.fs.create(checkpoint.path(path), True)
        out.write(data)
        out.close()

    return in_thread(commit)


@pytest.mark.parametrize("place", ["before create", "before write", "before hflush"])
def test_a_killed_task_takes_no_other_with_it(new_checkpoint: Callable[..., Checkpoint], gate: Any, place: str) -> None:
    checkpoint = new_checkpoint("gated")
    checkpoint.write(ONE, b"one")
    if place == "before create":
        checkpoint.log.seal()
    gate.hold(place, "_merged")
    killed = commit_in_thread(checkpoint, "0/1/1.changelog", b"killed")
    assert gate.awaitHeld(place)
    others = [commit_in_thread(checkpoint, f"0/{n}/1.changelog", b"other") for n in (2, 3)]

    gate.interrupt(place)

    for other in others:
        other.result(30)
    # Whoever wrote for it may have finished; but it ends.
    error = killed.exception(30)
    found = checkpoint.contents()
    assert found.pop("0/1/1.changelog", b"killed") == b"killed"
    assert found == {ONE: b"one", "0/2/1.changelog": b"other", "0/3/1.changelog": b"other"}
    if error is None:
        assert checkpoint.read("0/1/1.changelog") == b"killed"
    checkpoint.write("0/1/1.changelog", b"again")
    assert checkpoint.read("0/1/1.changelog") == b"again"


def test_the_others_of_a_killed_tasks_group_are_written_again(
    new_checkpoint: Callable[..., Checkpoint], gate: Any
) -> None:
    """One task writes for all that have come; its kill is not theirs."""
    checkpoint = new_checkpoint("gated", groupCommit__maxWait="30s")
    paths = [f"0/{n}/1.changelog" for n in range(3)]
    streams = [checkpoint.fs.create(checkpoint.path(path), True) for path in paths]
    for path, stream in zip(paths, streams, strict=True):
        stream.write(path.encode())
    gate.hold("before hflush", "_merged")
    commits = [in_thread(stream.close) for stream in streams]
    assert gate.awaitHeld("before hflush")

    gate.interrupt("before hflush")

    errors = [commit.exception(30) for commit in commits]
    assert sum(error is not None for error in errors) == 1
    found = checkpoint.contents()
    for path, error in zip(paths, errors, strict=True):
        assert found.get(path, path.encode() if error else b"") == path.encode()
    assert checkpoint.metrics()["commits"] == 2


def test_a_task_that_is_killed_while_it_waits(new_checkpoint: Callable[..., Checkpoint], gate: Any, jvm: Any) -> None:
    """The commit before it is stuck in its flush; who waits behind it can still be withdrawn, and leaves nothing."""
    checkpoint = new_checkpoint("gated")
    gate.hold("before hflush", "_merged")
    first = commit_in_thread(checkpoint, ONE, b"one")
    assert gate.awaitHeld("before hflush")
    threads: dict[str, Any] = {}

    def commit() -> None:
        threads["java"] = jvm.java.lang.Thread.currentThread()
        out = checkpoint.fs.create(checkpoint.path(TWO), True)
        out.write(b"withdrawn")
        out.close()

    waiting = in_thread(commit)
    until(lambda: "java" in threads and threads["java"].getState().toString() == "WAITING", "the second to wait")
    neighbour = commit_in_thread(checkpoint, "0/1/1.changelog", b"neighbour")
    threads["java"].interrupt()

    with java_error("InterruptedIOException", "nothing is visible"):
        waiting.result(30)
    gate.releaseAll()
    first.result(30)
    neighbour.result(30)
    checkpoint.write(THREE, b"three")
    assert checkpoint.contents() == {ONE: b"one", "0/1/1.changelog": b"neighbour", THREE: b"three"}
    assert checkpoint.metrics()["failedGroups"] == 0


def test_a_task_that_is_killed_when_another_has_written_all_of_it(
    new_checkpoint: Callable[..., Checkpoint], gate: Any, jvm: Any
) -> None:
    """Its bytes are in the group that is about to be flushed, but the group does not name them."""
    checkpoint = new_checkpoint("gated", groupCommit__maxWait="30s")
    checkpoint.write("0/2/1.changelog", b"opens the file")
    other = "0/1/1.changelog"
    threads: dict[str, Any] = {}
    streams = {}
    # The buffer of 64 KiB is full when the other, which is in one piece, comes to it.
    for path, size in ((ONE, 64_936), (other, 1_000)):
        streams[path] = checkpoint.fs.create(checkpoint.path(path), True)
        streams[path].write(bytes(size))
    gate.hold("before write", "_merged")

    def close(path: str) -> None:
        threads[path] = jvm.java.lang.Thread.currentThread()
        streams[path].close()

    def waits(path: str) -> bool:
        return path in threads and "WAITING" in threads[path].getState().toString()

    leader = in_thread(lambda: close(ONE))
    until(lambda: waits(ONE), "the leader to wait for the other")
    killed = in_thread(lambda: close(other))
    assert gate.awaitHeld("before write")
    until(lambda: waits(other), "the other to wait for the leader")
    threads[other].interrupt()
    until(lambda: not threads[other].isInterrupted() and waits(other), "the other to wait again")
    gate.releaseAll()

    leader.result(30)
    with java_error("InterruptedIOException", "nothing of it is visible"):
        killed.result(30)
    assert checkpoint.contents() == {"0/2/1.changelog": b"opens the file", ONE: bytes(64_936)}
    assert checkpoint.metrics()["cancelledCommits"] == 1


# ---- what is not a commit


def test_a_listing_that_fails_deletes_nothing(new_checkpoint: Callable[..., Checkpoint], faulty: Any) -> None:
    checkpoint = new_checkpoint("faulty", maxFileSize="64k")
    checkpoint.write(ONE, bytes(70_000))
    checkpoint.write(ONE, b"new")
    before = checkpoint.files()
    faulty.addRule("listStatus", str(checkpoint.merged), 1, "ioexception")

    assert int(checkpoint.log.clean()) == 0

    assert faulty.fired() == 1
    assert checkpoint.files() == before
    assert checkpoint.clean() == 1
    assert checkpoint.contents() == {ONE: b"new"}


@pytest.mark.parametrize("kind", ["permission", "success_but_error"])
def test_an_unlink_that_fails_is_tried_again(new_checkpoint: Callable[..., Checkpoint], faulty: Any, kind: str) -> None:
    checkpoint = new_checkpoint("faulty", maxFileSize="64k")
    checkpoint.write(ONE, bytes(70_000))
    checkpoint.write(ONE, b"new")
    faulty.addRule("delete", str(checkpoint.merged), 1, kind)

    assert int(checkpoint.log.clean()) == 0

    assert checkpoint.metrics()["failedDeletes"] == 1
    checkpoint.clean()
    assert len(checkpoint.files()) == 1
    assert checkpoint.read(ONE) == b"new"


def test_a_read_that_fails_once_is_tried_again(new_checkpoint: Callable[..., Checkpoint], faulty: Any) -> None:
    checkpoint = new_checkpoint("faulty")
    # A changelog's bytes would wait for the second time that Spark opens it.
    path = "0/0/1.delta"
    checkpoint.write(path, b"one")
    assert checkpoint.exists(path)
    segment = checkpoint.log.find(path)
    faulty.addRule("read", str(checkpoint.merged), 1, "ioexception")

    assert bytes(checkpoint.log.open(segment).readAllBytes()) == b"one"

    assert faulty.fired() == 1
    faulty.addRule("read", str(checkpoint.merged), 1, 9, "ioexception")
    with java_error("injected fault"):
        checkpoint.log.open(segment).readAllBytes()
    faulty.clear()
    assert checkpoint.read(path) == b"one"
