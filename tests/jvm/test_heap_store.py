"""The heap store with maps that share their rows, and stock Spark's on the same files."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest

from pyspark_statestore.format import BytesSource, read_merged_file, read_segment
from tests.jvm.harness import TESTING, Checkpoint, file_system_conf
from tests.sampling import sampled

pytestmark = pytest.mark.since("4.2", "the heap store's maps can be replaced from Spark 4.2 on")

OURS = "io.pyspark.statestore.spark.MergedHDFSBackedStateStoreProvider"
STOCK = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
MANAGER = "io.pyspark.statestore.fs.MergedCheckpointFileManager"
STREAMING = "spark.sql.streaming."

OFF = {"heap.copyOnWrite": "false"}
GATED_CODEC = f"{TESTING}.GatedCodec"
STAGES = {"rows": ("row", "state-store-maintenance"), "upload": ("before create", ".merged")}
"""Where a snapshot can be stopped: while its rows are gone through; before its lane makes its first file."""

Open = Callable[..., Any]


@pytest.fixture
def open_store(jvm: Any, tmp_path: Path) -> Iterator[Open]:
    """``open_store(ours=True, prefix=False, in_memory=2, deltas=10, checksums=False, codec="lz4", **options)``."""
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
        codec: str = "lz4",
        checkpoint: str = "checkpoint",
        door: str = "provider",
        **options: str,
    ) -> Any:
        settings = {
            f"{STREAMING}maxBatchesToRetainInMemory": str(in_memory),
            f"{STREAMING}stateStore.minDeltasForSnapshot": str(deltas),
            f"{STREAMING}stateStore.compression.codec": codec,
            f"{STREAMING}stateStore.rowChecksum.enabled": str(checksums).lower(),
            f"{STREAMING}stateStore.rowChecksum.readVerificationRatio": "1",
        }
        hadoop = file_system_conf("file", scheme)
        hadoop |= {f"{STREAMING}stateStore.fileMerging.{name}": value for name, value in options.items()}
        state = f"{scheme}:{tmp_path / checkpoint}/state"
        if not ours or door == "path":
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


def write_all(store: Any, last: int) -> None:
    """Commits all versions up to one."""
    for version in range(1, last + 1):
        write(store, version)


@contextmanager
def snapshot_held(store: Any, gate: Any, stage: str) -> Iterator[Any]:
    """Maintenance's thread, which is stopped in the middle of a snapshot, and goes on to its end afterwards."""
    place, what = STAGES[stage]
    gate.hold(place, what)
    thread = store.maintain()
    assert gate.awaitHeld(place)
    yield thread
    gate.release(place)
    thread.join()


def files(checkpoint: Path) -> dict[str, bytes]:
    """The logical files and what is in them."""
    found = {}
    for merged in sorted((checkpoint / "state" / "_merged").glob("*.merged")):
        source = BytesSource(merged.read_bytes())
        for entry in read_merged_file(source, merged.name):
            if entry.kind == 1:
                found[entry.path] = bytes(read_segment(source, entry))
    return found


NO, YES = False, True


@pytest.mark.parametrize(
    ("in_memory", "prefix", "checksums"), [(0, YES, YES), *itertools.product((1, 2, 10), (NO, YES), (NO, YES))]
)
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
    assert in_memory == 0 or both[0].mapClass() == "HeapStateStoreMap"
    mine, its = files(tmp_path / "True"), files(tmp_path / "False")
    assert mine.keys() == its.keys()
    deltas = [path for path in mine if path.endswith(".delta")]
    assert len(deltas) == 13
    assert [path for path in deltas if mine[path] != its[path]] == []
    assert any(path.endswith(".snapshot") for path in mine) == (in_memory > 0)


@pytest.fixture
def all_spilled(jvm: Any) -> Iterator[None]:
    """All the time, what can be spilled of stores that may is spilled, though there is enough memory."""
    jvm.io.pyspark.statestore.heap.SpillAll.start()
    yield
    jvm.io.pyspark.statestore.heap.SpillAll.stop()


@pytest.mark.usefixtures("all_spilled")
@pytest.mark.parametrize(
    ("in_memory", "prefix", "checksums"), [*itertools.product((0, 1, 2, 10), (NO, YES), (NO, YES))]
)
def test_same_as_stock_while_rows_are_spilled(
    tmp_path: Path, open_store: Open, prefix: bool, in_memory: int, checksums: bool
) -> None:
    more = {"in_memory": in_memory, "deltas": 3, "checksums": checksums}
    ours = open_store(True, prefix, checkpoint="ours", **more, **{"heap.spill": "auto"})
    stock = open_store(False, prefix, checkpoint="stock", **more)
    for version in range(1, 14):
        for store in (ours, stock):
            write(store, version, rows=150)
            store.memoryUsed()  # as Spark asks after each batch
            if version % 5 == 0:
                maintain(store)
        for older in {max(version - 4, 1), version}:
            assert ours.read(older) == stock.read(older)
            if prefix:
                assert ours.scan(older, 2) == stock.scan(older, 2)
    mine, its = files(tmp_path / "ours"), files(tmp_path / "stock")
    assert mine.keys() == its.keys()
    assert [path for path in mine if path.endswith(".delta") and mine[path] != its[path]] == []
    assert in_memory == 0 or ours.spilled()[2] > 0


def test_reads_do_not_count_as_state(open_store: Open) -> None:
    """Spark makes a version for each of them, which goes with the next collection of garbage, and that may be late."""
    store = open_store(**{"heap.spill": "auto"})
    store.load(0)
    store.fill(20_000)
    store.commit()
    used = store.memoryUsed()
    for _ in range(30):
        store.read(1)
    for version in range(1, 30):
        store.load(version)
        store.put(0, "k1", 8, version)
        store.commit()
        store.memoryUsed()
    assert used <= store.heapBytes() < 1.5 * used


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


@pytest.mark.parametrize("stage", list(STAGES))
def test_batches_go_on_while_a_snapshot_is_written(open_store: Open, gate: Any, tmp_path: Path, stage: str) -> None:
    """Nothing on a task's path waits for it, and it has the version's rows, whatever was written meanwhile."""
    store = open_store(scheme="gated", deltas=1, in_memory=1, codec=GATED_CODEC)
    write_all(store, 3)
    expected = store.read(3)
    with snapshot_held(store, gate, stage) as thread:
        for version in range(4, 12):
            write(store, version)
        assert thread.isAlive()
    assert "0/0/3.snapshot" in files(tmp_path / "checkpoint")
    assert open_store(False, scheme="gated", codec=GATED_CODEC).read(3) == expected


def test_no_task_waits_to_share_a_group_with_a_snapshot(
    open_store: Open, gate: Any, new_checkpoint: Callable[..., Checkpoint]
) -> None:
    """Where groups wait for who has a stream open, as on object stores, a snapshot's does not count."""
    store = open_store(scheme="gated", deltas=1, codec=GATED_CODEC, **{"groupCommit.maxWait": "10s"})
    write_all(store, 3)
    with snapshot_held(store, gate, "rows"):
        new_checkpoint("gated", groupCommit__maxWait="10s").write("0/1/1.delta")
    assert store.logMetrics()["waitNanos"] < 5 * 10**9


def again(store: Any) -> None:
    """Version 3 is committed anew, while it is the newest."""
    write(store, 3, rows=12)


def again_when_forgotten(store: Any) -> None:
    """Version 3 is committed anew, after later ones have taken its place in memory."""
    write(store, 4)
    assert list(store.loaded()) == [4]
    write(store, 3, rows=12)


def earlier(store: Any) -> None:
    """The query begins again at a version before."""
    write(store, 2, rows=12)


def forced(store: Any) -> None:
    """Spark wants a snapshot of a later version at once."""
    store.loadForcingSnapshot(3)
    store.put(1, "forced", 10, 1)
    store.commit()


def closed(store: Any) -> None:
    """The store is closed."""
    store.close()


def closed_when_forgotten(store: Any) -> None:
    """The store is closed when the version has left memory."""
    write(store, 4)
    store.close()


EVENTS = [again, again_when_forgotten, earlier, closed, closed_when_forgotten]


@pytest.mark.parametrize(("happens", "stage"), [(forced, "rows"), *itertools.product(EVENTS, STAGES)])
def test_obsolete_snapshots_are_given_up(
    open_store: Open, gate: Any, tmp_path: Path, happens: Callable[[Any], None], stage: str
) -> None:
    """While its rows are gone through and while it is uploaded; nothing of it is visible, and it is counted."""
    store = open_store(scheme="gated", deltas=1, in_memory=1, codec=GATED_CODEC)
    write_all(store, 3)
    with snapshot_held(store, gate, stage):
        happens(store)
    found = files(tmp_path / "checkpoint")
    assert "0/0/3.snapshot" not in found
    assert ("0/0/4.snapshot" in found) == (happens is forced)
    metrics = store.logMetrics()
    assert metrics["cancelledUploads"] == 1
    assert metrics["cancelledCommits"] == (1 if stage == "upload" else 0)
    assert metrics["failedGroups"] == 0


def test_a_snapshot_that_was_given_up_comes_with_the_next_round(open_store: Open, gate: Any, tmp_path: Path) -> None:
    store = open_store(scheme="gated", deltas=1, codec=GATED_CODEC)
    write_all(store, 3)
    with snapshot_held(store, gate, "rows"):
        again(store)
    expected = store.read(3)
    maintain(store)
    assert "0/0/3.snapshot" in files(tmp_path / "checkpoint")
    assert open_store(False, scheme="gated", codec=GATED_CODEC).read(3) == expected


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


def test_memory_is_what_the_heap_holds(open_store: Open, jvm: Any) -> None:
    """Other threads of this JVM allocate and let go, too, so one measurement may be wrong."""

    def measured(number: int) -> tuple[int, int]:
        store = open_store(in_memory=2, checkpoint=str(number))
        store.load(0)
        store.fill(150_000)
        store.commit()
        store.load(1)
        store.put(0, "k7", 8, 1)
        store.commit()
        said, used = store.memoryUsed(), jvm.io.pyspark.statestore.heap.HeapStore.usedHeap()
        store.close()
        return said, used - jvm.io.pyspark.statestore.heap.HeapStore.usedHeap()

    found = []
    for number in range(5):
        said, freed = measured(number)
        found.append((said, freed))
        if 0.8 * freed < said < 1.2 * freed:
            return
    raise AssertionError(found)


@pytest.fixture
def run_java(jvm: Any, main_jar: Path, test_jar: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``run_java(options, class, *arguments)`` runs a class of the tests in a JVM of its own."""

    # The options that all JVMs of the tests have choose a collector, too.
    plain = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}

    def run(options: list[str], name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        jars = [str(main_jar), str(test_jar), f"{Path(pyspark.__file__).parent}/jars/*"]
        packages = ("java.nio", "sun.nio.ch", "java.lang", "java.util")
        opens = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in packages]
        java = f"{jvm.java.lang.System.getProperty('java.home')}/bin/java"
        command = [java, *options, *opens, "-cp", os.pathsep.join(jars), f"io.pyspark.statestore.heap.{name}"]
        return subprocess.run(
            [*command, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300, env=plain
        )

    return run


def test_out_of_memory(run_java: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    """In the middle of a batch and while loading: Spark's errors, the version before as it was, and it goes on."""
    done = run_java(["-Xmx96m", "-Xmn32m", "-XX:+UseSerialGC"], "SmallHeap", tmp_path, STOCK, OURS)
    assert done.returncode == 0, done.stderr[-5000:]
    lines = [line.split(" ", 1) for line in done.stdout.splitlines() if "=" in line]
    said = {side: [line for whose, line in lines if whose == side] for side in ("stock", "ours")}
    assert said["ours"] == said["stock"]
    out_of_memory = "java.lang.OutOfMemoryError"
    condition = "CANNOT_LOAD_STATE_STORE.HDFS_STORE_PROVIDER_OUT_OF_MEMORY"
    assert said["ours"] == [
        f"put={out_of_memory}",
        "previous version=true",
        f"load=org.apache.spark.SparkException {condition} by {out_of_memory}",
        "loaded in the end=true",
    ]


ROWS = 300_000


@pytest.mark.parametrize("collector", sampled(["G1", "Serial"], 1))
def test_more_rows_than_the_heap_has_room_for(
    run_java: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, collector: str
) -> None:
    """Ten batches, all rows, and a load of all of them; without spilling the process dies."""
    (tmp_path / "disk").mkdir()
    options = ["-Xmx64m", f"-XX:+Use{collector}GC", f"-Djava.io.tmpdir={tmp_path / 'disk'}"]
    work = [OURS, ROWS, 80]
    done = run_java(options, "SpillingHeap", tmp_path / "auto", *work, "heap.spill=auto")
    assert done.returncode == 0, done.stderr[-5000:]
    said = dict(line.split("=") for line in done.stdout.splitlines() if re.match("[a-z ]+=", line))
    assert said["rows"] == said["rows of a restart"] == str(ROWS)
    assert int(said["spilled"]) > 20_000_000
    assert int(said["reads"]) > 1_000
    assert int(said["files"]) < 3 * int(said["spilled"]) + (100 << 20)
    assert list((tmp_path / "disk").glob("heap-spill-*")) == []
    if collector == "Serial":  # which soon gives up
        dies = run_java(options, "SpillingHeap", tmp_path / "off", *work)
        assert dies.returncode != 0
        assert "OutOfMemoryError" in dies.stderr


def test_an_attempt_that_has_ended_does_not_stay(run_java: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """Whoever watches memory looks at it all the time, while the collector marks what is reachable."""
    collector = [
        "-XX:+UseG1GC",
        "-XX:InitiatingHeapOccupancyPercent=5",
        "-XX:-G1UseAdaptiveIHOP",
        "-XX:ConcGCThreads=1",
    ]
    done = run_java(["-Xmx1200m", "-Xmn150m", *collector], "EndedAttempt")
    assert done.returncode == 0, done.stderr[-5000:]
    said = dict(line.split("=") for line in done.stdout.splitlines() if re.match("[a-z ]+=", line))
    assert int(said["it had"]) > 10_000_000
    assert said["it is gone"] == "true"
    assert said["bytes"] == "0"


def test_memory_runs_out_while_versions_are_said(jvm: Any) -> None:
    """The attempt that is being written still counts, so what it has can be spilled."""
    before, after = jvm.io.pyspark.statestore.heap.EndedAttempt.outOfMemory()
    assert before == after > 1_000_000


def test_on_a_merged_location(open_store: Open) -> None:
    """A query on the path door that is started with our provider has its versions share rows; its files are Spark's."""
    store = open_store(door="path", deltas=1)
    write_all(store, 3)
    maintain(store)
    write(store, 4)
    assert store.mapClass() == "HeapStateStoreMap"
    stock = open_store(ours=False)
    for version in (3, 4):
        assert stock.read(version) == store.read(version)


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
    assert "a map interface without" in missing(provider, wanted, find("java.util.HashMap"))
