"""The process that cleans for all keeps the files few that a cold process opens, and loses nothing on the way."""

from __future__ import annotations

import math
import shutil
import threading
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore.checkpoint import Checkpoint as PythonCheckpoint
from pyspark_statestore.format import BytesSource, Kind, file_name, read_merged_file
from tests.jvm.harness import CREATED_MS, STAMP, Checkpoint, calls, in_time, refer, until
from tests.sampling import EXHAUSTIVE, sample

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("by_hand"), pytest.mark.sweep(1, files="few reads")]

AT_ONCE = {"groupCommit__maxWait": "0ms"}
MOST = 20
MIB = 1 << 20


@pytest.fixture
def growth(jvm: Any) -> Any:
    """Histories without a disk."""
    return jvm.io.pyspark.statestore.clean.Growth


@pytest.fixture
def consolidates(jvm: Any) -> Callable[[Checkpoint], None]:
    """Has a checkpoint's log write index-only files."""

    def switch(checkpoint: Checkpoint) -> None:
        checkpoint.exists("0/0")
        jvm.io.pyspark.statestore.log.Cleaning.consolidates(checkpoint.log)

    return switch


def indexes(checkpoint: Checkpoint) -> list[Path]:
    return sorted(checkpoint.merged.glob("*.index.merged"))


def add_files(checkpoint: Checkpoint, numbers: range, *, writer: int = 77, partitions: int = 2) -> None:
    """Sealed files of one group each, as on an object store; each deletes a part of the one before."""
    for number in numbers:
        with checkpoint.foreign(number, writer=writer) as file:
            for partition in range(partitions):
                data = b"%d of %d" % (number, partition)
                file.put(f"0/{partition}/{number}.changelog", data, stamp=STAMP + number)
            if number > numbers[0]:
                file.delete(f"0/0/{number - 1}.changelog", stamp=STAMP + number - 1, writer=writer)


def listed(checkpoint: Checkpoint, partitions: int = 2) -> dict[str, bytes]:
    """What a process reads of each path that it lists."""
    stores = [f"0/{partition}" for partition in range(partitions) if checkpoint.exists(f"0/{partition}")]
    names = [f"{store}/{name}" for store in stores for name in checkpoint.names(store)]
    return {name: checkpoint.read(name) for name in names}


def cold_opens(jvm: Any, checkpoint: Checkpoint) -> int:
    """How many files a process opens that knows nothing."""
    checkpoint.forget()
    before = calls(jvm, checkpoint).get("open", 0)
    checkpoint.exists("0/0")
    return calls(jvm, checkpoint)["open"] - before


def assert_sound(checkpoint: Checkpoint) -> None:
    (checkpoint.directory / "offsets").mkdir(exist_ok=True)
    found = PythonCheckpoint(checkpoint.directory).maintenance.verify()
    assert (found.damages, found.notes) == ((), ())


def as_python_reads(checkpoint: Checkpoint) -> dict[str, bytes]:
    """What lives, found with the help of index-only files."""
    found = {}
    for row in PythonCheckpoint(checkpoint.directory).inspect.segments().to_pylist():
        if row["status"] == "live":
            data = Path(row["file_path"].removeprefix("file://")).read_bytes()
            found[row["logical_path"]] = data[row["offset"] : row["offset"] + row["length"]]
    return found


# What is decided, without a disk.


@pytest.mark.sweep(2)
@pytest.mark.parametrize("others", [0, 8, 300])
@pytest.mark.parametrize(("per_pass", "size"), [(1, 200), (1, 16_000), (10, 200), (1000, 200)])
def test_hundred_thousand_files_are_few_to_open(growth: Any, others: int, per_pass: int, size: int) -> None:
    opens, written, _ = growth.consolidated(100_000, per_pass, size, others)
    assert opens + min(others, 8) <= (MOST if size < 1000 else MOST + 3)  # 20 million segments fill a few more files
    assert written <= 2.5 * math.log(100_000 / per_pass, 4) + 4


def test_a_longer_history_is_written_little_more_often(growth: Any) -> None:
    short, long = (growth.consolidated(files, 1, 2000, 0)[1] for files in (2_000, 64_000))
    assert long - short <= 2.5 * math.log(32, 4) + 1


def test_waits_until_it_saves_something(growth: Any) -> None:
    assert growth.taken(0, 20, 4000, []) is None
    assert list(growth.taken(0, 21, 4000, [])) == []
    assert growth.taken(8, 12, 4000, []) is None
    assert list(growth.taken(8, 13, 4000, [])) == []
    assert list(growth.taken(300, 13, 4000, [])) == [], "files that are open anyway do not make it write all the time"
    assert growth.taken(300, 2, 400, [10 * MIB, 10 * MIB] * 11) is None


def test_takes_in_what_is_of_its_size(growth: Any) -> None:
    sizes = [5_000, 60_000, 900_000, 100 * MIB]
    taken = growth.taken(0, 30, 6_000, [size for size in sizes for _ in range(2)])
    assert list(taken) == [5_000, 60_000]


def test_writes_again_what_speaks_mostly_of_what_is_gone(growth: Any) -> None:
    assert growth.taken(0, 0, 0, [MIB, MIB // 2]) is None
    assert list(growth.taken(0, 0, 0, [MIB, MIB // 2 - 1])) == [MIB]
    assert growth.taken(0, 0, 0, [40_000, 100]) is None, "reading it costs one call, as any other would"


# What is written.


def test_a_cold_process_opens_few_of_hundreds_of_files(
    counted: Callable[..., Checkpoint], consolidates: Callable[[Checkpoint], None], jvm: Any
) -> None:
    """On an object store, where each group is a file, with deletions, and files that go."""
    checkpoint = counted("objectstore", compaction__enabled="false", **AT_ONCE)
    consolidates(checkpoint)
    expected = {}
    most = 0
    for version in range(400):
        name = f"0/{version % 2}/{version}.changelog"
        checkpoint.write(name, b"%d" % version)
        expected[name] = b"%d" % version
        if version % 3 == 0 and version > 100:
            gone = f"0/{(version - 100) % 2}/{version - 100}.changelog"
            checkpoint.delete(gone)
            del expected[gone]
        if version % 25 == 24:
            checkpoint.clean()
            most = max(most, len(indexes(checkpoint)))
    checkpoint.log.seal()
    checkpoint.clean()
    assert len(checkpoint.files()) > 250

    assert cold_opens(jvm, checkpoint) <= MOST
    assert most < 10
    assert listed(checkpoint) == expected == checkpoint.contents() == as_python_reads(checkpoint)
    assert_sound(checkpoint)


@pytest.mark.parametrize("scheme", ["counting", "objectstore"])
def test_one_file_is_opened_instead_of_all(
    counted: Callable[..., Checkpoint], consolidates: Callable[[Checkpoint], None], jvm: Any, scheme: str
) -> None:
    checkpoint = counted(scheme)
    add_files(checkpoint, range(1, 41))
    expected = checkpoint.contents()
    assert cold_opens(jvm, checkpoint) == 40
    consolidates(checkpoint)
    assert checkpoint.clean() == 0
    [index] = indexes(checkpoint)
    assert cold_opens(jvm, checkpoint) == 1
    assert listed(checkpoint) == expected == as_python_reads(checkpoint)
    assert_sound(checkpoint)

    consolidates(checkpoint)
    add_files(checkpoint, range(50, 69))
    checkpoint.clean()
    assert indexes(checkpoint) == [index], "a few more files are no reason"
    add_files(checkpoint, range(70, 72))
    assert checkpoint.clean() == 1
    assert len(indexes(checkpoint)) == 1
    assert index not in indexes(checkpoint)
    assert cold_opens(jvm, checkpoint) == 1
    assert_sound(checkpoint)


def test_nothing_is_written_unless_it_is_switched_on(checkpoint: Checkpoint) -> None:
    add_files(checkpoint, range(1, 41))
    checkpoint.clean()
    assert indexes(checkpoint) == []


def test_says_the_same_as_pythons(checkpoint: Checkpoint, consolidates: Callable[[Checkpoint], None]) -> None:
    add_files(checkpoint, range(1, 30))
    for version in range(3):
        checkpoint.write(f"0/0/{version + 500}.changelog", b"of this process")
        checkpoint.write(f"0/1/{version + 500}.changelog", b"")
        checkpoint.delete(f"0/0/{version + 500}.changelog")
    checkpoint.log.seal()
    copy = Path(shutil.copytree(checkpoint.directory, checkpoint.directory.parent / "copy"))
    consolidates(checkpoint)
    checkpoint.clean()
    PythonCheckpoint(copy).maintenance.consolidate_index()

    [javas], [pythons] = indexes(checkpoint), sorted((copy / "state" / "_merged").glob("*.index.merged"))
    assert block(javas) == block(pythons)
    before = javas.read_bytes()
    assert PythonCheckpoint(checkpoint.directory).maintenance.consolidate_index().index_file is None
    assert javas.read_bytes() == before


def block(path: Path) -> bytes:
    data = path.read_bytes()
    [group] = read_merged_file(BytesSource(data), path.name).groups
    assert group.trailer.sealed
    assert group.trailer.index_only
    return data[group.trailer.index_offset :][: group.trailer.index_length]


def test_tombstones_hold(
    counted: Callable[..., Checkpoint], consolidates: Callable[[Checkpoint], None], jvm: Any
) -> None:
    """Rule 4: what was deleted stays deleted for one who reads the index-only file alone, and so do stamps (rule 3)."""
    checkpoint = counted()
    ahead = 4_000_000_000_000 << 16
    add_files(checkpoint, range(1, 31))
    with checkpoint.foreign(40) as file:
        file.delete("0/1/7.changelog", stamp=ahead, writer=5)
        file.end_group(group_stamp=ahead + 7)
    expected = checkpoint.contents()
    assert "0/1/7.changelog" not in expected
    consolidates(checkpoint)
    checkpoint.clean()
    said = list(read_merged_file(BytesSource(indexes(checkpoint)[0].read_bytes())))
    assert ("0/1/7.changelog", ahead) in {(e.path, e.stamp) for e in said if e.kind is Kind.DELETE}
    assert cold_opens(jvm, checkpoint) <= 3
    assert listed(checkpoint) == expected
    checkpoint.write("0/1/7.changelog", b"anew")
    assert checkpoint.view().live["0/1/7.changelog"][1].stamp > ahead + 7
    checkpoint.forget()
    assert checkpoint.read("0/1/7.changelog") == b"anew"


def test_files_that_may_change_are_not_repeated(
    checkpoint: Checkpoint,
    new_checkpoint: Callable[..., Checkpoint],
    consolidates: Callable[[Checkpoint], None],
) -> None:
    source = new_checkpoint(name="source")
    add_files(source, range(101, 103))  # other paths: of equal ones only one lives
    add_files(checkpoint, range(1, 31))
    with checkpoint.foreign(40, writer=8, seal=False) as file:
        file.put("0/5/1.changelog", b"open", stamp=STAMP + 40)
    renamed = checkpoint.merged / file_name(CREATED_MS, 9, 1)
    shutil.copy(checkpoint.merged / checkpoint.files()[0], renamed)
    reference = refer(source, checkpoint, number=50)
    checkpoint.write("0/5/2.changelog", b"mine, and open")
    consolidates(checkpoint)
    checkpoint.clean()
    [index] = indexes(checkpoint)
    names = set(read_merged_file(BytesSource(index.read_bytes())).groups[0].index.names)
    left_out = set(checkpoint.files()) - names - {index.name}
    assert len(names) == 30
    assert {renamed.name, reference, file_name(CREATED_MS, 8, 40)} < left_out
    assert len(left_out) == 4


def test_an_older_one_that_a_fork_has_pinned_stays(
    checkpoint: Checkpoint, consolidates: Callable[[Checkpoint], None]
) -> None:
    consolidates(checkpoint)
    add_files(checkpoint, range(1, 31))
    checkpoint.clean()
    [old] = indexes(checkpoint)
    pin = checkpoint.merged / file_name(CREATED_MS, 98, 1).replace(".merged", ".fork")
    pin.write_text(f'{{"fork": "/f", "mode": "no_claim", "files": ["{old.name}"], "created_ms": 1}}')
    add_files(checkpoint, range(40, 61))
    checkpoint.clean()
    assert len(indexes(checkpoint)) == 2
    for number in range(70, 74):
        add_files(checkpoint, range(number, number + 1))
        checkpoint.clean()
    assert len(indexes(checkpoint)) == 2, "what cannot be replaced is no reason to write another"
    pin.unlink()
    add_files(checkpoint, range(80, 101))
    checkpoint.clean()
    assert len(indexes(checkpoint)) == 1


def test_a_claimed_checkpoint_is_left_alone(checkpoint: Checkpoint, consolidates: Callable[[Checkpoint], None]) -> None:
    consolidates(checkpoint)
    add_files(checkpoint, range(1, 31))
    pin = checkpoint.merged / file_name(CREATED_MS, 98, 1).replace(".merged", ".fork")
    pin.write_text('{"fork": "/f", "mode": "claim", "files": [], "created_ms": 1}')
    checkpoint.clean()
    assert indexes(checkpoint) == []


def test_covered_files_go_and_so_does_what_speaks_of_them(
    checkpoint: Checkpoint, consolidates: Callable[[Checkpoint], None]
) -> None:
    consolidates(checkpoint)
    add_files(checkpoint, range(1, 61))
    checkpoint.clean()
    assert len(indexes(checkpoint)) == 1
    for name in listed(checkpoint):
        checkpoint.delete(name)
    checkpoint.write("0/1/1.changelog", b"new")
    for _ in range(4):
        checkpoint.clean()
    checkpoint.log.seal()
    checkpoint.clean()
    assert indexes(checkpoint) == []
    assert listed(checkpoint) == checkpoint.contents() == {"0/1/1.changelog": b"new"}


# What goes wrong.


def script(checkpoint: Checkpoint, consolidates: Callable[[Checkpoint], None]) -> None:
    """One index-only file; then it is to be replaced."""
    add_files(checkpoint, range(1, 31))
    consolidates(checkpoint)
    checkpoint.clean()
    add_files(checkpoint, range(40, 61))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("kind", ["ioexception", "torn", "fs_error", "success_but_error"])
@pytest.mark.parametrize("scheme", ["faulty", "faultystore"])
def test_any_call_may_fail(
    new_checkpoint: Callable[..., Checkpoint],
    consolidates: Callable[[Checkpoint], None],
    faulty: Any,
    scheme: str,
    kind: str,
) -> None:
    """And the process may be killed right after it."""
    places = [("create", 2), ("write", 2), ("close", 2), ("delete", 2), ("listStatus", 4)]
    places += [("hsync", 2)] if scheme == "faulty" else []
    fired = 0
    calls = [(operation, n) for operation, most in places for n in range(1, most + 1)]
    for operation, nth in sample(calls, len(places), kind=itemgetter(0)):
        checkpoint = new_checkpoint(scheme, name=f"{operation}-{nth}")
        script(checkpoint, consolidates)
        expected = checkpoint.contents()
        faulty.clear()
        contains = "_merged" if operation == "listStatus" else ".index.merged"
        faulty.addRule(operation, contains, nth, kind)
        checkpoint.log.clean()
        fired += faulty.fired()
        faulty.clear()
        where = f"{operation} {nth}"
        assert listed(checkpoint) == expected == as_python_reads(checkpoint), where
        checkpoint.forget()
        assert listed(checkpoint) == expected, where
        consolidates(checkpoint)
        checkpoint.clean()
        whole = [path for path in indexes(checkpoint) if read_merged_file(BytesSource(path.read_bytes())).sealed]
        assert len(whole) == 1, where
        assert listed(checkpoint) == expected == as_python_reads(checkpoint), where
        checkpoint.forget()
        assert PythonCheckpoint(checkpoint.directory).maintenance.verify().damages == (), where
    assert fired >= len(places) // (1 if EXHAUSTIVE else 2)


@pytest.mark.sweep
def test_a_kill_leaves_a_part_that_nobody_minds(
    new_checkpoint: Callable[..., Checkpoint], consolidates: Callable[[Checkpoint], None], tmp_path: Path
) -> None:
    """The older one still stands. Cleaning takes the part away once nobody can be writing it."""
    checkpoint = new_checkpoint(name="first")
    script(checkpoint, consolidates)
    expected = checkpoint.contents()
    before = set(indexes(checkpoint))
    kept = {path.name: path.read_bytes() for path in before}
    checkpoint.clean()
    [new] = set(indexes(checkpoint)) - before
    data = new.read_bytes()
    checkpoint.forget()
    for name, old in kept.items():
        (checkpoint.merged / name).write_bytes(old)
    cuts = [0, 1, 30, len(data) // 2, len(data) - 64, len(data) - 1, *sample(range(0, len(data), 97), 8)]
    for cut in dict.fromkeys(cuts):
        killed = new_checkpoint(name=f"cut at {cut}", closedAfter="5s")
        shutil.copytree(checkpoint.directory, killed.directory)
        (killed.merged / new.name).write_bytes(data[:cut])
        assert listed(killed) == expected == as_python_reads(killed), cut
        assert PythonCheckpoint(killed.directory).maintenance.verify().damages == (), cut


def test_a_part_that_a_kill_has_left_goes(
    new_checkpoint: Callable[..., Checkpoint], consolidates: Callable[[Checkpoint], None]
) -> None:
    checkpoint = new_checkpoint(closedAfter="5s")
    script(checkpoint, consolidates)
    checkpoint.clean()
    [index] = indexes(checkpoint)
    part = checkpoint.merged / file_name(CREATED_MS, 66, 1, index_only=True)
    part.write_bytes(index.read_bytes()[:300])

    def gone() -> bool:
        checkpoint.clean()
        return not part.exists()

    assert in_time(lambda: next(done for done in iter(gone, None) if done))
    assert indexes(checkpoint) == [index]


def test_two_processes_at_the_same_time(
    new_checkpoint: Callable[..., Checkpoint], consolidates: Callable[[Checkpoint], None]
) -> None:
    """And Python beside them: whatever they remove, what they read stays, and one index-only file is left."""
    options = {"compaction__enabled": "false", **AT_ONCE}
    both = [new_checkpoint(scheme, name="shared", **options) for scheme in ("counting", "objectstore")]
    add_files(both[0], range(1, 31))
    for each in both:
        consolidates(each)
    stop = threading.Event()
    failures: list[BaseException] = []

    def loop(clean: Callable[[], Any]) -> None:
        while not stop.is_set():
            try:
                clean()
            except BaseException as error:
                failures.append(error)
                return

    outside = PythonCheckpoint(both[0].directory).maintenance.consolidate_index
    threads = [threading.Thread(target=loop, args=[clean]) for clean in (both[0].clean, both[1].clean, outside)]
    for thread in threads:
        thread.start()
    expected = both[0].contents()
    for version in range(60):
        name = f"0/{version % 2}/{1000 + version}.changelog"
        both[version % 2].write(name, b"%d" % version)
        expected[name] = b"%d" % version
        if version % 10 == 0:
            both[0].log.seal()
    stop.set()
    for thread in threads:
        in_time(thread.join)
    assert failures == []
    for each in both:
        each.log.seal()
        each.forget()
        assert listed(each) == expected
    consolidates(both[0])
    both[0].clean()
    assert listed(both[0]) == expected == as_python_reads(both[0])
    assert len(indexes(both[0])) <= 4
    assert_sound(both[0])


# Small files, joined by count.


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("processes", "passes", "size"), [(1, 3000, 2_000), (1, 2000, 2_000_000), (30, 100, 2_000)])
def test_small_files_stop_growing_in_number(growth: Any, processes: int, passes: int, size: int) -> None:
    small, moved, moves = growth.joined(processes, passes, size, 128 * MIB)
    assert small <= 200 + 24 * processes
    assert moved <= 4
    assert moves <= 8


def test_files_of_one_group_are_joined(new_checkpoint: Callable[..., Checkpoint], jvm: Any) -> None:
    """Only where there are too many, and what was deleted stays deleted (rule 4)."""
    checkpoint = new_checkpoint("objectstore", maxSpaceAmplification="1000", **AT_ONCE)
    expected = {}
    for version in range(260):
        name = f"0/{version % 2}/{version}.changelog"
        checkpoint.write(name, b"%d" % version)
        expected[name] = b"%d" % version
        if version == 190:
            jvm.io.pyspark.statestore.log.Cleaning.joinsSmallFiles(checkpoint.log)
            checkpoint.clean()
            assert checkpoint.metrics()["relocatedSegments"] == 0
    for version in range(0, 20):
        name = f"0/{version % 2}/{version}.changelog"
        checkpoint.delete(name)
        del expected[name]
    checkpoint.log.seal()
    until(lambda: checkpoint.clean() < 2 and len(checkpoint.files()) < 40, "the files to be joined")
    assert checkpoint.metrics()["relocatedSegments"] <= 2 * 260
    assert listed(checkpoint) == expected == checkpoint.contents()
    checkpoint.forget()
    assert listed(checkpoint) == expected
    assert_sound(checkpoint)
