"""Spark's RocksDB class with its state in the checkpoint: what its snapshots have, and what is on the disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.jvm.harness import begun, java_error, result_in_time, until
from tests.jvm.test_early_uploads import Stores, early, stores, written

__all__ = ["early", "stores"]

pytestmark = [pytest.mark.spark, pytest.mark.since("4.3", "they drive the RocksDB class of Spark 4.3 step by step")]

PAGE = 4096
MB = 1 << 20
LIMIT = 16 * MB
"""The smallest that there is."""


@pytest.fixture
def parts(jvm: Any) -> Iterator[Any]:
    """Decides which parts of files go, besides those for which there is no room."""
    ssts = jvm.io.pyspark.statestore.tables.HoleySst
    yield ssts
    ssts.goAllTheTime(False)


def remote(limit: int = LIMIT, **more: str) -> dict[str, Any]:
    """How a store is opened whose state is in the checkpoint."""
    return {"options": {"restore": "remote", "local.sizeLimit": str(limit), "lookAhead.rows": "0", **more}}


def put(made: Stores, store: Any, version: int, rows: int) -> None:
    """Commits the version after this one, with its first rows anew, of 1,000 bytes each."""
    store.load(version)
    store.putMany(0, rows, 1000, version)
    store.commit()
    made.scans[version + 1] = store.scan()


def on_disk(store: Any) -> int:
    """Bytes of the store's SSTs on this disk, each once, whatever names it has."""
    files = {file.stat().st_ino: file for file in Path(store.local()).rglob("*.sst")}
    return sum(file.stat().st_blocks * 512 for file in files.values())


def cache(jvm: Any) -> Any:
    return jvm.io.pyspark.statestore.tables.LocalCache.ofProcess()


def test_no_hole_is_written_into_the_checkpoint(
    stores: Callable[..., Stores], faulty: Any, parts: Any, gate: Any
) -> None:
    """An SST is staged for a snapshot, and becomes durable with another one before that is written: two at a time.

    Spark takes a snapshot in the task where it says that the store lags behind.
    """
    made = stores("faulty")
    merged = str(made.checkpoint.merged)
    with made.opened(**remote(64 * MB, maxOpenFiles="4")) as store:
        put(made, store, 0, 20_000)
        made.wait()
        faulty.addRule("hflush", merged, 1, "hang")
        first = begun(store.upload)
        until(lambda: faulty.fired() > 0, "the first zip")
        waiting = begun(put, made, store, 1, 10)
        time.sleep(1)
        faulty.clear()
        result_in_time(first, "the first snapshot")
        result_in_time(waiting, "the second version")
        faulty.addRule("hflush", merged, 1, "hang")
        second = begun(store.upload)
        until(lambda: faulty.fired() > 0, "the second zip")
        store.load(2)
        store.putMany(0, 10, 100, 99)
        gate.hold("before createAtomic", "/3.zip")
        third = begun(store.commitWithSnapshot)
        assert gate.awaitHeld("before createAtomic")
        faulty.clear()
        result_in_time(second, "the second snapshot", 60)
        parts.goAllTheTime(True)
        time.sleep(1)
        parts.goAllTheTime(False)
        gate.release("before createAtomic")
        result_in_time(third, "the third snapshot", 60)
        made.scans[3] = store.scan()
        assert not holes_in(made)
    made.check()


def test_no_hole_of_a_closed_store_is_written_into_the_checkpoint(
    stores: Callable[..., Stores], early: Any, parts: Any, gate: Any, by_hand: None
) -> None:
    """A store is closed while its snapshot is being checked; another one of the same partition is open."""
    made = stores("gated", closedAfter="5s")
    with ExitStack() as stack, made.opened(upload="commit", options={"restore": "eager"}) as other:
        store = stack.enter_context(made.opened(**remote(maxOpenFiles="4", closedAfter="5s")))
        put(made, store, 0, 5000)
        made.wait()
        store.upload()
        other.loadToRead(1)
        put(made, store, 1, 5000)
        made.wait()
        early.reliableFor(0)
        parts.goAllTheTime(True)
        time.sleep(1)
        parts.goAllTheTime(False)
        gate.hold("before listStatus", "_merged")
        uploading = begun(store.upload)
        assert gate.awaitHeld("before listStatus")
        closing = begun(stack.close)
        result_in_time(closing, "the end of the store", 60)
        gate.release("before listStatus")
        with java_error("was closed with its store"):
            result_in_time(uploading, "the snapshot", 60)
        assert not holes_in(made)
    made.check()


def holes_in(made: Stores) -> list[str]:
    """The SSTs in the checkpoint that have pages without data."""

    def has_hole(data: bytes) -> bool:
        pages = [data[at : at + PAGE] for at in range(0, len(data), PAGE)]
        return not all(any(page) for page in pages[:-1])

    return [path for path, data in made.checkpoint.contents().items() if path.endswith(".sst") and has_hole(data)]


def test_there_is_no_more_than_the_limit_when_nothing_happens(jvm: Any, stores: Callable[..., Stores]) -> None:
    """Not after everything was uploaded, nor after scans of everything."""
    made = stores()
    with made.opened(**remote()) as store:
        put(made, store, 0, 80_000)
        made.wait()
        store.upload()
        for _ in range(2):
            until(lambda: on_disk(store) <= LIMIT + MB, "room")
            assert cache(jvm).own() == 0
            assert store.scan() == made.scans[1]


@pytest.mark.parametrize(("limit", "table", "level"), [(16, 4, 16), (1024, 4, 128), (8192, 16, 256), (65536, 64, 256)])
def test_levels_are_as_large_as_there_is_room_for(
    stores: Callable[..., Stores], limit: int, table: int, level: int
) -> None:
    """In MB. A small first level is merged into the last one all the time; RocksDB's own has 256 MB."""
    made = stores()
    with made.opened(**remote(limit * MB)) as store:
        put(made, store, 0, 10)
        written = max(Path(store.local()).glob("workingDir*/OPTIONS-*"), key=lambda path: path.name)
        options = dict(line.strip().split("=", 1) for line in written.read_text().splitlines() if "=" in line)
        assert int(options["target_file_size_base"]) == table * MB
        assert int(options["max_bytes_for_level_base"]) == level * MB


def test_what_is_in_the_checkpoint_waits_for_no_upload(jvm: Any, stores: Callable[..., Stores]) -> None:
    """Files so small that all of them stays."""
    made = stores()
    with made.opened(upload="commit") as store:
        for version in range(3):
            put(made, store, version, 700)
            store.upload()
    made.forget()
    with made.opened(3, **remote()) as store:
        assert store.scan() == made.scans[3]
        assert on_disk(store) > MB
        assert cache(jvm).own() == 0
        store.load(3)
        store.putMany(0, 700, 1000, 9)
        store.flush()
        until(lambda: cache(jvm).own() == 0, "the upload of the new one")


def test_a_snapshot_has_what_a_compaction_deletes_meanwhile(stores: Callable[..., Stores], early: Any) -> None:
    """RocksDB has linked an SST for it, and deletes it before Spark asks for its name: parts of it may be missing."""
    made = stores()
    with made.opened(**remote(64 * MB)) as store:
        store.load(0)
        store.putMany(0, 5000, 1000, 1)
        store.flush()
        (path,) = made.wait()
        name = Path(path).name.split("-")[0] + ".sst"
        until(lambda: early.isPartial(store.local(), name), "parts that may go")
        early.deleted(name)
        store.commit()
        made.scans[1] = store.scan()
        before = written(made)
        store.upload()
        assert written(made) - before < MB, "it is written once more"
        assert path in made.live()
    made.check()
    assert made.unpublished() == []


def test_what_a_snapshot_might_have_linked_goes_with_another_version(stores: Callable[..., Stores], early: Any) -> None:
    """The task fails, and its next attempt loads the version anew: no snapshot of the one before comes any more."""
    made = stores()
    with made.opened(**remote(64 * MB)) as store:
        store.load(0)
        for part in range(2):
            store.putMany(part * 5000, part * 5000 + 5000, 1000, part)
            store.flush()
            made.wait(part + 1)
        names = [Path(path).name.split("-")[0] + ".sst" for path in made.unpublished()]
        until(lambda: all(early.isPartial(store.local(), name) for name in names), "parts that may go")
        for name in names:
            early.deleted(name)
        assert len(made.unpublished()) == 2
        store.rollback()
        put(made, store, 0, 5000)
        until(lambda: len(made.unpublished()) <= 1, "their deletion")
        store.upload()
    made.check()
