"""Spark's RocksDB class with its state in the checkpoint: what its snapshots have, and what is on the disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jvm.harness import begun, result_in_time, until
from tests.jvm.test_early_uploads import Stores, early, stores

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
        for path, data in made.checkpoint.contents().items():
            pages = [data[at : at + PAGE] for at in range(0, len(data), PAGE)]
            assert not path.endswith(".sst") or all(any(page) for page in pages[:-1]), path
    made.check()


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
