"""What merged state asks of S3A, file by file: few requests, streams side by side, and an answer before it believes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from tests.hdfs.harness import SharedCheckpoint
from tests.jvm.harness import STAMP, begun, java_error, until
from tests.s3.harness import S3Place
from tests.s3.local_s3 import BUCKET
from tests.s3.proxy import Fault, Request, Rule

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Here = Callable[..., SharedCheckpoint]
SIDE_BY_SIDE = {"groupCommit.maxWait": "10s", "maxOpenFiles": "1"}
"""Commits of several threads are one group."""


@pytest.fixture
def here(place: S3Place) -> Iterator[Here]:
    """Makes this process's view of the checkpoint, with options."""
    made: list[SharedCheckpoint] = []

    def make(**options: str) -> SharedCheckpoint:
        made.append(SharedCheckpoint(place, **options))
        return made[-1]

    yield make
    for checkpoint in made:
        checkpoint.forget()


@pytest.fixture
def by_hand(jvm: Any) -> Iterator[None]:
    """Cleaning passes come only when the test asks for one."""
    cleaning = jvm.io.pyspark.statestore.log.Cleaning
    cleaning.byHand()
    yield
    cleaning.byItself()


def of_merged_files(place: S3Place, begin: int) -> list[Request]:
    """The requests about merged files after the first so many."""
    return [each for each in place.s3.proxy.since(begin) if f"{place.key}/state/_merged/" in each.key]


def write_together(checkpoint: SharedCheckpoint, files: dict[str, bytes]) -> tuple[list[Any], list[Future[None]]]:
    """Commits files in one group; returns the threads that do in the JVM, in order, and their outcomes."""
    jvm, threads, outcomes = checkpoint.jvm, [], []
    streams = {path: checkpoint.fs.create(checkpoint.path(path), True) for path in files}
    for path, data in files.items():
        streams[path].write(data)
        ready = threading.Event()

        def close(stream: Any, ready: threading.Event) -> None:
            threads.append(jvm.java.lang.Thread.currentThread())
            ready.set()
            stream.close()

        outcomes.append(begun(close, streams[path], ready))
        assert ready.wait(30)
        if len(outcomes) == 1:
            until(lambda: threads[0].getState().toString() == "WAITING", "the first one to wait")
    return threads, outcomes


FILES = {"0/0/2.changelog": b"of the first", "0/1/2.changelog": b"of another"}


def test_commits_of_a_wave_are_one_object(place: S3Place, here: Here) -> None:
    checkpoint = here(**SIDE_BY_SIDE)
    checkpoint.write("0/0/1.changelog")
    begin = len(place.s3.proxy.requests)
    _, outcomes = write_together(checkpoint, FILES)
    for outcome in outcomes:
        outcome.result(30)
    assert Counter(request.kind for request in of_merged_files(place, begin))["PUT"] == 1
    assert {path: checkpoint.read(path) for path in FILES} == FILES


def test_killed_task_acknowledges_nothing_that_is_not_there(place: S3Place, here: Here) -> None:
    checkpoint = here(**SIDE_BY_SIDE)
    checkpoint.write("0/0/1.changelog")
    with place.s3.proxy.fault(Fault.HOLD_AND_REFUSE, Rule({"PUT"}, key=f"{place.key}/state/_merged/")) as held:
        (first, _), outcomes = write_together(checkpoint, FILES)
        held.reached()
        first.interrupt()
        held.release()
        acknowledged = [path for path, done in zip(FILES, outcomes, strict=True) if done.exception(60) is None]
    there = place.contents()
    assert [path for path in acknowledged if path not in there] == []


def test_file_of_known_length_is_opened_without_a_question(place: S3Place, here: Here) -> None:
    writer = here()
    writer.write("0/0/1.changelog", b"one")
    place.forget()
    reader = here()
    assert reader.exists("0/0/1.changelog")
    begin = len(place.s3.proxy.requests)
    assert reader.read("0/0/1.changelog") == b"one"
    asked = [request.kind for request in of_merged_files(place, begin) if request.key.endswith(".merged")]
    assert asked == ["GET"]


def test_small_file_is_read_in_one_request(place: S3Place, here: Here) -> None:
    writer = here()
    writer.write("0/0/1.changelog", b"one")
    place.forget()
    reader = here()
    begin = len(place.s3.proxy.requests)
    assert reader.exists("0/0/1.changelog")
    ranges = [request.bytes_range for request in of_merged_files(place, begin) if request.kind == "GET"]
    assert len(ranges) == 1, ranges


def test_a_small_object_is_read_once_for_all_that_is_in_it(place: S3Place, here: Here) -> None:
    writer = here(**SIDE_BY_SIDE)
    files = {f"0/{partition}/{version}.changelog": b"%d" % partition for version in (1, 2) for partition in range(4)}
    for version in (1, 2):
        mine = {path: data for path, data in files.items() if path.endswith(f"/{version}.changelog")}
        for outcome in write_together(writer, mine)[1]:
            outcome.result(60)
    written = place.merged_files()
    place.forget()
    reader = here()
    assert reader.exists("0/0/1.changelog")
    begin = len(place.s3.proxy.requests)
    reads = [begun(reader.read, path) for path in [*files, *files]]
    assert [read.result(60) for read in reads] == [*files.values(), *files.values()]
    asked = Counter(request.kind for request in of_merged_files(place, begin) if request.key.endswith(".merged"))
    assert asked == {"GET": len(written)}


def test_what_is_left_of_a_small_object_that_was_cut_off_is_read(place: S3Place, here: Here) -> None:
    writer = here(**SIDE_BY_SIDE)
    for outcome in write_together(writer, FILES)[1]:
        outcome.result(60)
    live = place.view().live
    place.forget()
    reader = here()
    assert all(reader.exists(path) for path in FILES)
    ((name, first), (_, second)) = sorted(live.values(), key=lambda found: found[1].offset)
    objects = place.s3.direct()
    key = f"{BUCKET}/{place.key}/state/_merged/{name}"
    objects.pipe(key, objects.cat(key)[: second.offset])
    assert reader.read(first.path) == FILES[first.path]
    with java_error("PSS_CORRUPT_SEGMENT", second.path, "cut off"):
        reader.read(second.path)


def test_a_read_asks_for_what_it_needs(place: S3Place, here: Here) -> None:
    checkpoint = here(**SIDE_BY_SIDE)
    checkpoint.write("0/2/1.changelog")
    small, large = b"small" * 10, bytes(4 << 20)
    _, outcomes = write_together(checkpoint, {"0/0/1.changelog": small, "0/1/1.zip": large})
    for outcome in outcomes:
        outcome.result(60)
    assert len(place.merged_files()) == 2
    place.forget()
    reader = here()
    assert reader.exists("0/0/1.changelog")
    begin = len(place.s3.proxy.requests)
    assert reader.read("0/0/1.changelog") == small
    (asked,) = [request.bytes_range for request in of_merged_files(place, begin) if request.kind == "GET"]
    first, last = asked.removeprefix("bytes=").split("-")
    assert int(last) - int(first) < 1 << 20


def test_reads_of_a_file_go_side_by_side(place: S3Place, here: Here) -> None:
    checkpoint = here(**SIDE_BY_SIDE)
    checkpoint.write("0/2/1.changelog")
    files = {"0/0/1.zip": b"a" * (1 << 20), "0/1/1.zip": b"b" * (1 << 20)}
    _, outcomes = write_together(checkpoint, files)
    for outcome in outcomes:
        outcome.result(60)
    assert len(place.merged_files()) == 2
    place.forget()
    reader = here()
    assert all(reader.exists(path) for path in files)
    rule = Rule({"GET"}, key=f"{place.key}/state/_merged/", times=None)
    with place.s3.proxy.fault(Fault.HOLD, rule) as held:
        reads = [begun(reader.read, path) for path in files]
        try:
            until(lambda: len(held.hits) == 2, "two reads under way", seconds=10)
        finally:
            held.release()
            found = [read.result(60) for read in reads]
    assert found == list(files.values())


def sparse(place: S3Place, checkpoint: SharedCheckpoint) -> dict[str, bytes]:
    """Puts a file there in which little lives, of a partition that this process serves; returns what lives."""
    checkpoint.write("0/0/7.changelog", b"served")
    live = {"0/0/2.zip": b"lives" * 100, "0/0/3.zip": b"lives, too"}
    with checkpoint.foreign(1, writer=5) as file:
        file.put("0/0/1.zip", bytes(50_000), stamp=STAMP)
        for number, (path, data) in enumerate(live.items(), 1):
            file.put(path, data, stamp=STAMP + number)
        file.delete("0/0/1.zip", stamp=STAMP, writer=5)
    (made,) = checkpoint.merged.glob("*.merged")
    place.s3.direct().put_file(str(made), f"{BUCKET}/{place.key}/state/_merged/{made.name}")
    return {**live, "0/0/7.changelog": b"served"}


@pytest.mark.usefixtures("by_hand")
def test_interrupted_relocation_loses_nothing(place: S3Place, here: Here) -> None:
    checkpoint = here()
    live = sparse(place, checkpoint)
    threads: list[Any] = []

    def clean() -> None:
        threads.append(checkpoint.jvm.java.lang.Thread.currentThread())
        checkpoint.clean()

    with place.s3.proxy.fault(Fault.HOLD_AND_REFUSE, Rule({"PUT"}, key=".merged")) as held:
        done = begun(clean)
        held.reached()
        threads[0].interrupt()
        held.release()
        done.result(60)
    assert place.contents() == live
    # The next pass, which nobody interrupts, does not trust the copies that are not there.
    begun(checkpoint.clean).result(60)
    assert place.contents() == live


ONE = "0/0/1.changelog"
DEAD = 10


@pytest.mark.usefixtures("by_hand")
def test_dead_files_go_with_one_request(place: S3Place, here: Here) -> None:
    """Deleting an object alone, S3A of Hadoop 3.3 asks what it is and whether its directory is empty now."""
    checkpoint = here()
    for number in range(DEAD):
        checkpoint.write(ONE, b"%d" % number)
    checkpoint.write(ONE, b"new")
    dead = sorted(place.merged_files())[:-1]

    # What S3A does not tell how much of it was done is tried again.
    with place.s3.proxy.fault(Fault.HOLD_AND_REFUSE, Rule({"BULK_DELETE"})) as held:
        done = begun(checkpoint.clean)
        held.reached()
        held.release()
        assert done.result(60) == 0
    assert len(set(dead) & set(place.merged_files())) == DEAD

    begun_at = len(place.s3.proxy.requests)
    checkpoint.clean()
    asked = Counter(request.kind for request in of_merged_files(place, begun_at))
    assert (asked["BULK_DELETE"], asked["DELETE"], asked["HEAD"]) == (1, 0, 0), asked
    assert not set(dead) & set(place.merged_files())
    assert place.contents() == {ONE: b"new"}
