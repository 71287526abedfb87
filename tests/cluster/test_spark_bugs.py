"""The ways in which state was corrupted in Spark itself, by several writers of one RocksDB store.

Each test carries the number of the bug and drives Spark's own RocksDB class through the steps of it. Each "manager" is
one RocksDB object on the store's location, as each executor that has had the partition has one.
"""

from __future__ import annotations

import io
import re
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.checks import stable_view
from tests.cluster.processes import Jvm, second_jvm
from tests.cluster.stores import STORE, fill, open_store
from tests.jvm.harness import TESTING, Checkpoint, java_error

pytestmark = pytest.mark.spark

LATE = 1.1
"""Seconds after which a process that has not written to a partition looks again before it uploads a snapshot of it.

Above a second, and above a twentieth of the ``closedAfter`` of these tests.
"""


@pytest.fixture(scope="module")
def one(main_jar: Path, test_jar: Path) -> Iterator[Jvm]:
    """A process."""
    with second_jvm(main_jar, test_jar) as jvm:
        yield jvm


@pytest.fixture(scope="module")
def other(main_jar: Path, test_jar: Path) -> Iterator[Jvm]:
    """Another process."""
    with second_jvm(main_jar, test_jar) as jvm:
        yield jvm


@contextmanager
def held(jvm: Jvm, place: str, contains: str, action: Callable[[], None]) -> Iterator[Future[None]]:
    """Something that is under way: stopped before it touches a certain file, until the block ends."""
    gate = getattr(jvm.view, f"{TESTING}.Gate")
    gate.hold(place, contains)
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(action)
        try:
            assert gate.awaitHeld(place), f"nobody came to {place} {contains}"
            yield future
        finally:
            gate.release(place)
        future.result(60)


def live(checkpoint: Path) -> set[str]:
    """Names of the store's live files, those in ``SSTs`` with their directory."""
    return {path.removeprefix(f"{STORE}/") for path in stable_view(checkpoint / "state").live}


def snapshots(checkpoint: Path) -> dict[int, set[str]]:
    """The SSTs that each visible snapshot names, by its version."""
    named = {}
    for path, data in stable_view(checkpoint / "state").contents().items():
        if path.endswith(".zip"):
            metadata = zipfile.ZipFile(io.BytesIO(data)).read("metadata").decode()
            named[int(Path(path).stem)] = {f"SSTs/{name}" for name in re.findall(r"\d+-[0-9a-f-]{36}\.sst", metadata)}
    return named


def assert_whole(checkpoint: Path, jvm: Jvm, expected: dict[int, dict[str, str]]) -> None:
    """No visible snapshot names a file that is gone, and the versions can be restored by somebody new."""
    there = live(checkpoint)
    assert {version: ssts - there for version, ssts in snapshots(checkpoint).items() if ssts - there} == {}
    with opened(jvm, checkpoint) as reader:
        for version, entries in expected.items():
            reader.load(version)
            assert {key: reader.get(key) for key in entries} == entries, f"version {version}"


@contextmanager
def opened(jvm: Jvm, checkpoint: Path, **how: Any) -> Iterator[Any]:
    """A manager that is closed in the end."""
    store = open_store(jvm.view, checkpoint, **how)
    try:
        yield store
    finally:
        store.close()


def settle(jvm: Jvm, checkpoint: Path) -> None:
    """Makes a process's deletions durable: they ride in the group of whatever it commits, or half a second later."""
    merged = Checkpoint(jvm.view, checkpoint)
    merged.write("0/9/1.changelog")
    time.sleep(0.6)  # where much has died they wait for a round of cleaning, but not longer than that
    merged.write("0/9/1.changelog")


def next_millisecond() -> None:
    """Spark tells older files from newer ones by their modification time."""
    time.sleep(0.005)


def test_SPARK_42353_files_of_a_snapshot_under_way_are_no_orphans(one: Jvm, other: Jvm, checkpoint_dir: Path) -> None:
    """Maintenance deletes SSTs that no snapshot names and that are older than all that one names.

    Those of an upload that takes long are such files until its zip is there. Here they become visible with it; where
    staging is left out, the zip that comes late names a file that was deleted.
    """
    with opened(one, checkpoint_dir) as slow, opened(one, checkpoint_dir) as quick:
        fill(slow, 1, x="1")
        with held(one, "before createAtomic", "/1.zip", slow.upload):
            next_millisecond()
            for version in range(1, 6):
                fill(quick, version, x=str(version))
                quick.upload()
            mine = set().union(*snapshots(checkpoint_dir).values())
            assert {path for path in live(checkpoint_dir) if path.startswith("SSTs/")} == mine
            quick.cleanUp()
            settle(one, checkpoint_dir)
            assert set(snapshots(checkpoint_dir)) == {4, 5}
        assert set(snapshots(checkpoint_dir)) == {1, 4, 5}
        assert_whole(checkpoint_dir, other, {1: {"x": "1"}, 4: {"x": "4"}, 5: {"x": "5"}})


def test_pull_request_52209_two_managers_that_clean_at_the_same_time(
    one: Jvm, other: Jvm, checkpoint_dir: Path
) -> None:
    """One manager has listed the snapshots, another deletes the old ones, then the first lists the SSTs.

    The old files, by whose age it tells orphans, are gone by then, so that any file which is older than the rest looks
    like one: also those of an upload under way, of a version that is kept.
    """
    with (
        opened(one, checkpoint_dir) as first,
        opened(one, checkpoint_dir) as second,
        opened(one, checkpoint_dir, compact=False) as slow,
    ):
        fill(first, 1, x="1")
        first.upload()
        # Spark looks for orphans only where there are more files than it knows of, so there are several to upload here.
        for version in range(1, 5):
            fill(slow, version, x=str(version))
        with held(one, "before createAtomic", "/4.zip", slow.upload):
            next_millisecond()
            for version in (2, 3, 4):
                fill(first, version, x=str(version))
            first.upload()
            fill(first, 5, x="5")
            first.upload()
            replaced = snapshots(checkpoint_dir)[4]
            with held(one, "before list", "/SSTs", first.cleanUp):
                second.cleanUp()
                settle(one, checkpoint_dir)
                assert set(snapshots(checkpoint_dir)) == {4, 5}
        assert snapshots(checkpoint_dir)[4] != replaced
        assert_whole(checkpoint_dir, other, {4: {"x": "4"}, 5: {"x": "5"}})
        # A manager remembers which files its own snapshot of a version named, also where another has replaced it.
        first.cleanUp()
        second.cleanUp()
        settle(one, checkpoint_dir)
        assert_whole(checkpoint_dir, other, {4: {"x": "4"}, 5: {"x": "5"}})


def late_snapshot(one: Jvm, checkpoint: Path) -> Any:
    """A manager that has not yet uploaded its snapshot of version 3, which shares files with the earlier ones."""
    late = open_store(one.view, checkpoint, compact=False, options={"closedAfter": "5s"})
    for version in (1, 2):
        fill(late, version, **{"x": str(version), f"k{version}": "here"})
        late.upload()
    fill(late, 3, x="3")
    return late


def test_SPARK_55892_a_late_snapshot_of_files_that_another_executor_has_deleted(
    one: Jvm, other: Jvm, checkpoint_dir: Path
) -> None:
    """Spark 4.3's own remedy, checkStaleReusedFilesInSnapshot, is off in these tests."""
    late = late_snapshot(one, checkpoint_dir)
    with opened(other, checkpoint_dir) as quick:
        for version in (4, 5, 6):
            fill(quick, version, x=str(version))
            quick.upload()
        quick.cleanUp()
        settle(other, checkpoint_dir)
        assert set(snapshots(checkpoint_dir)) == {5, 6}
        before = live(checkpoint_dir)
        time.sleep(LATE)

        with java_error("PSS_STALE_SNAPSHOT"):
            late.upload()

        assert live(checkpoint_dir) == before
        assert_whole(checkpoint_dir, other, {5: {"x": "5"}, 6: {"x": "6", "k1": "here", "k2": "here"}})
        # The partition comes back: what was refused does no harm to what is written from here on.
        fill(late, 7, x="7")
        late.upload()
        late.cleanUp()
        assert_whole(checkpoint_dir, other, {6: {"x": "6"}, 7: {"x": "7", "k1": "here", "k2": "here"}})
    late.close()


def test_SPARK_55892_a_snapshot_whose_shared_file_is_gone(one: Jvm, other: Jvm, checkpoint_dir: Path) -> None:
    """The same where no newer snapshot tells: the view of who uploads is as old as its last look."""
    late = late_snapshot(one, checkpoint_dir)
    shared = sorted(snapshots(checkpoint_dir)[1])[0]
    assert Checkpoint(other.view, checkpoint_dir).delete(f"{STORE}/{shared}")
    settle(other, checkpoint_dir)
    before = live(checkpoint_dir)
    assert shared not in before
    time.sleep(LATE)

    with java_error("PSS_STALE_SNAPSHOT", shared.removeprefix("SSTs/")):
        late.upload()

    assert live(checkpoint_dir) == before
    late.close()


def test_SPARK_55892_a_snapshot_that_is_not_late(one: Jvm, other: Jvm, checkpoint_dir: Path) -> None:
    """What others have done elsewhere, or before, refuses nothing."""
    late = late_snapshot(one, checkpoint_dir)
    settle(other, checkpoint_dir)
    late.upload()
    assert set(snapshots(checkpoint_dir)) == {1, 2, 3}
    assert_whole(checkpoint_dir, other, {3: {"x": "3", "k1": "here", "k2": "here"}})
    late.close()


def test_SPARK_46796_another_executor_has_written_the_version_anew(one: Jvm, other: Jvm, checkpoint_dir: Path) -> None:
    """RocksDB gives the same local names to different SSTs on two executors that commit the same version.

    Spark tells them apart by the unique names that the version's zip maps them to, so it has to be the zip that was
    written last: without a refresh at each load an executor would go on with its own.
    """
    with opened(one, checkpoint_dir, compact=False) as first, opened(other, checkpoint_dir, compact=False) as second:
        fill(first, 1, x="1", k="here")
        first.upload()
        fill(first, 2, x="of the first")
        first.upload()
        own = snapshots(checkpoint_dir)[2]
        fill(second, 2, x="of the other")
        second.upload()
        theirs = snapshots(checkpoint_dir)[2]
        assert own != theirs
        local = [{sst.removeprefix("SSTs/").split("-")[0] for sst in ssts} for ssts in (own, theirs)]
        assert local[0] & local[1], "no local name in common: nothing is shown"

        first.load(1)
        first.load(2)
        assert first.get("x") == "of the other"

        fill(first, 3, y="3")
        first.upload()
        first.cleanUp()
        second.cleanUp()
        settle(one, checkpoint_dir)
        settle(other, checkpoint_dir)
        assert_whole(checkpoint_dir, other, {2: {"x": "of the other"}, 3: {"x": "of the other", "y": "3", "k": "here"}})


def test_SPARK_47036_a_version_is_committed_again_after_its_upload_failed(
    one: Jvm, other: Jvm, checkpoint_dir: Path
) -> None:
    """The second attempt makes SSTs of the same local names; what was staged for the first one must not stand for them.

    Files wait for their zip under their whole unique names, each as it was when it was handed over.
    """
    with opened(one, checkpoint_dir, compact=False) as store:
        fill(store, 1, x="1", k="here")
        store.upload()
        before = live(checkpoint_dir)
        fill(store, 2, x="first attempt " * 20)
        gate = getattr(one.view, f"{TESTING}.Gate")
        with java_error("interrupted"), held(one, "before createAtomic", "/2.zip", store.upload):
            gate.interrupt("before createAtomic")
        assert live(checkpoint_dir) == before | {"2.changelog"}

        store.rollback()
        fill(store, 2, x="second attempt")
        store.upload()
        assert_whole(checkpoint_dir, other, {2: {"x": "second attempt", "k": "here"}})

        fill(store, 3, y="3")
        store.upload()
        fill(store, 4, y="4")
        store.upload()
        store.cleanUp()
        settle(one, checkpoint_dir)
        assert_whole(checkpoint_dir, other, {3: {"x": "second attempt", "y": "3"}, 4: {"k": "here", "y": "4"}})
