"""The heap store with maps that share their rows, and stock Spark's on the same files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore.format import BytesSource, read_merged_file, read_segment
from tests.jvm.lab import file_system_conf

OURS = "io.pyspark.statestore.spark.MergedHDFSBackedStateStoreProvider"
STOCK = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
MANAGER = "io.pyspark.statestore.fs.MergedCheckpointFileManager"
STREAMING = "spark.sql.streaming."

OFF = {"heap.copyOnWrite": "false"}

Open = Callable[..., Any]


@pytest.fixture
def open_store(jvm: Any, tmp_path: Path) -> Iterator[Open]:
    """``open_store(ours=True, prefix=False, scheme="file", in_memory=2, deltas=10, checksums=False, **options)``."""
    opened: list[Any] = []

    def java_map(entries: dict[str, str]) -> Any:
        made = jvm.java.util.HashMap()
        for key, value in entries.items():
            made.put(key, value)
        return made

    def make(
        ours: bool = True,
        prefix: bool = False,
        scheme: str = "file",
        in_memory: int = 2,
        deltas: int = 10,
        checksums: bool = False,
        checkpoint: str = "checkpoint",
        **options: str,
    ) -> Any:
        settings = {
            f"{STREAMING}maxBatchesToRetainInMemory": str(in_memory),
            f"{STREAMING}stateStore.minDeltasForSnapshot": str(deltas),
            f"{STREAMING}stateStore.rowChecksum.enabled": str(checksums).lower(),
            f"{STREAMING}stateStore.rowChecksum.readVerificationRatio": "1",
        }
        hadoop = file_system_conf("file", scheme)
        hadoop |= {f"{STREAMING}stateStore.fileMerging.{name}": value for name, value in options.items()}
        state = f"{scheme}:{tmp_path / checkpoint}/state"
        if not ours:
            hadoop[f"{STREAMING}checkpointFileManagerClass"] = MANAGER
            state = f"merged+{state}"
        store = jvm.io.pyspark.statestore.heap.HeapStore(
            OURS if ours else STOCK, state, prefix, java_map(settings), java_map(hadoop)
        )
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()


def write(store: Any, version: int, *, rows: int = 30) -> None:
    """Commits a version: some rows come, some change, some go."""
    store.load(version - 1)
    for number in range(rows):
        store.put(number % 4, f"name{(version * 7 + number) % 90}", number % 30, version * 1000 + number)
    for number in range(rows // 3):
        store.remove(number % 4, f"name{(version * 5 + number * 3) % 90}")
    assert store.commit() == version


def maintain(store: Any) -> None:
    store.maintain().join()


def files(checkpoint: Path) -> dict[str, bytes]:
    """The logical files and what is in them."""
    found = {}
    for merged in sorted((checkpoint / "state" / "_merged").glob("*.merged")):
        source = BytesSource(merged.read_bytes())
        for entry in read_merged_file(source, merged.name):
            if entry.kind == 1:
                found[entry.path] = bytes(read_segment(source, entry))
    return found


@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize("prefix", [False, True])
@pytest.mark.parametrize("in_memory", [1, 2, 10])
def test_same_as_stock(tmp_path: Path, open_store: Open, prefix: bool, in_memory: int, checksums: bool) -> None:
    """Rows, prefix scans, versions in memory and the bytes of deltas, with snapshots in between."""
    both = [
        open_store(ours, prefix, in_memory=in_memory, deltas=3, checksums=checksums, checkpoint=str(ours))
        for ours in (True, False)
    ]
    for version in range(1, 14):
        for store in both:
            write(store, version)
            if version % 5 == 0:
                maintain(store)
        ours, stock = both
        for older in {max(version - 4, 1), version - 1 or 1, version}:
            assert ours.read(older) == stock.read(older)
            if prefix:
                assert ours.scan(older, 2) == stock.scan(older, 2)
        assert list(ours.loaded()) == list(stock.loaded())
    assert both[0].mapClass() == "HeapStateStoreMap"
    mine, its = files(tmp_path / "True"), files(tmp_path / "False")
    assert mine.keys() == its.keys()
    deltas = [path for path in mine if path.endswith(".delta")]
    assert len(deltas) == 13
    assert [path for path in deltas if mine[path] != its[path]] == []
    assert [path for path in mine if path.endswith(".snapshot")]


@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize("begins_with_ours", [False, True])
def test_one_goes_on_with_the_others_files(open_store: Open, begins_with_ours: bool, checksums: bool) -> None:
    """Deltas alone, and a snapshot with deltas after it, written by one and read by the other, turn by turn."""
    reference = open_store(False, True, checkpoint="reference", in_memory=20, checksums=checksums)
    ours = begins_with_ours
    for turn in range(4):
        store = open_store(ours, True, deltas=2, checksums=checksums)
        for version in range(turn * 5 + 1, turn * 5 + 6):
            write(store, version)
            write(reference, version)
            if version == turn * 5 + 3 and turn > 1:
                maintain(store)
        other = open_store(not ours, True, checksums=checksums)
        for version in range(max(1, turn * 5 - 1), turn * 5 + 6):
            assert other.read(version) == reference.read(version)
            assert other.scan(version, 1) == reference.scan(version, 1)
        ours = not ours


def test_failure_in_the_middle_of_a_batch(open_store: Open) -> None:
    """The version before is as it was, in memory and for a new process; the next attempt gets it right."""
    store = open_store(in_memory=2)
    for version in (1, 2, 3):
        write(store, version)
    before = store.read(3)
    store.load(3)
    store.put(1, "half", 10, 1)
    for number in range(90):
        store.remove(number % 4, f"name{number}")
    assert store.writing() != before
    store.abort()
    assert store.read(3) == before
    assert list(store.loaded()) == [3, 2]
    assert open_store().read(3) == before
    write(store, 4)
    assert store.read(3) == before
    assert open_store().read(4) == store.read(4)


def test_batches_go_on_while_a_snapshot_is_written(open_store: Open, gate: Any, tmp_path: Path) -> None:
    """Nothing on a task's path waits for it, and it has the version's rows, whatever was written meanwhile."""
    store = open_store(scheme="gated", deltas=1, in_memory=1)
    for version in (1, 2, 3):
        write(store, version)
    expected = store.read(3)
    gate.hold("before create", ".merged")  # the lane for snapshots has no file yet
    thread = store.maintain()
    assert gate.awaitHeld("before create")
    for version in range(4, 12):
        write(store, version)
    assert thread.isAlive()
    gate.release("before create")
    thread.join()
    assert "0/0/3.snapshot" in files(tmp_path / "checkpoint")
    assert open_store(False, scheme="gated").read(3) == expected


def test_obsolete_snapshots_are_given_up(open_store: Open) -> None:
    """A version that is committed anew, or a store that is closed, ends the snapshot that is being written."""
    store = open_store(in_memory=5)
    for version in (1, 2, 3):
        write(store, version)
    store.beginSnapshot(3)
    write(store, 4)
    assert store.endSnapshot() is None
    store.beginSnapshot(3)
    write(store, 3, rows=12)
    assert "given up" in store.endSnapshot()
    store.beginSnapshot(3)
    store.close()
    assert "given up" in store.endSnapshot()


def test_memory_counts_what_is_shared_once(open_store: Open) -> None:
    one, ten, off = (open_store(in_memory=n, checkpoint=str(n), **o) for n, o in ((1, {}), (10, {}), (9, OFF)))
    for store in (one, ten, off):
        store.load(0)
        store.fill(2000)
        store.commit()
        for version in range(2, 12):
            store.load(version - 1)
            store.put(0, f"k{version}", 8, version)
            store.commit()
    assert len(ten.loaded()) == 10
    assert one.memoryUsed() < ten.memoryUsed() < 1.2 * one.memoryUsed()
    assert ten.memoryUsed() < 0.35 * off.memoryUsed()


def test_can_be_switched_off(open_store: Open) -> None:
    store = open_store(**OFF)
    write(store, 1)
    assert store.mapClass() == "NoPrefixHDFSBackedStateStoreMap"
    again = open_store()
    assert again.read(1) == store.read(1)
    assert again.mapClass() == "HeapStateStoreMap"


def test_missing_hook_is_found(jvm: Any) -> None:
    """What start-up looks for in Spark, and finds there; and what it says where that is missing."""
    find = jvm.java.lang.Class.forName
    missing = jvm.io.pyspark.statestore.heap.MapFactoryHook.whatIsMissing
    provider, ours = find(STOCK), find("io.pyspark.statestore.heap.HeapStateStoreMap")
    wanted = find("org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreMap")
    assert missing(provider, wanted, ours) is None
    assert "createHDFSBackedStateStoreMap" in missing(find("java.lang.Object"), wanted, ours)
    assert "createHDFSBackedStateStoreMap" in missing(provider, find("java.lang.Runnable"), ours)
    assert "no need of a map to have" in missing(provider, wanted, find("java.util.HashMap"))
