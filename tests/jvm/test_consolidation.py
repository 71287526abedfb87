"""Executors and an index-only file that Python has written: read once instead of every file, believed, and outlived."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore.checkpoint import Checkpoint as PythonCheckpoint
from tests.jvm.harness import STAMP, TESTING, Checkpoint, in_time

pytestmark = pytest.mark.spark

FILES = 12


@pytest.fixture
def opens(new_checkpoint: Callable[..., Checkpoint], jvm: Any, tmp_path: Path) -> tuple[Checkpoint, Callable[[], int]]:
    """A checkpoint of many sealed files, and how often files in it were opened since the last question."""
    checkpoint = new_checkpoint("counting", name=tmp_path.name)
    counting = getattr(jvm, f"{TESTING}.CountingFileSystem")
    counting.registerRoot(tmp_path.name, str(checkpoint.directory))
    for number in range(1, FILES):
        with checkpoint.foreign(number) as file:
            for partition in range(4):
                file.put(f"0/{partition}/{number}.changelog", b"%d-%d" % (partition, number), stamp=STAMP + number)
            if number > 2:
                file.delete(f"0/0/{number - 2}.changelog", stamp=STAMP + number - 2, writer=77)
    with checkpoint.foreign(FILES) as file:
        file.put("0/1/1.changelog", b"1-1", stamp=STAMP + 1, generation=1)
    seen = 0

    def count() -> int:
        nonlocal seen
        by_thread = json.loads(counting.snapshotJson()).get(tmp_path.name, {})
        before, seen = seen, sum(int(kinds.get("merged", {}).get("open", 0)) for kinds in by_thread.values())
        return seen - before

    return checkpoint, count


def consolidate(checkpoint: Checkpoint) -> Any:
    return PythonCheckpoint(checkpoint.directory).maintenance.consolidate_index()


def listed(checkpoint: Checkpoint) -> dict[str, bytes]:
    """What a process reads of each path that it lists."""
    stores = [f"0/{partition}" for partition in range(4) if checkpoint.exists(f"0/{partition}")]
    names = {f"{store}/{name}" for store in stores for name in checkpoint.names(store)}
    return {name: checkpoint.read(name) for name in names}


def test_cold_process_opens_one_file(opens: tuple[Checkpoint, Callable[[], int]]) -> None:
    checkpoint, count = opens
    expected = checkpoint.contents()
    checkpoint.exists("0/0")
    assert count() == FILES
    assert listed(checkpoint) == expected
    checkpoint.forget()
    consolidate(checkpoint)
    count()
    checkpoint.exists("0/0")
    assert count() == 1
    assert listed(checkpoint) == expected
    references = {file.name(): checkpoint.log.index().referenceCount(file) for file in checkpoint.log.index().files()}
    live = checkpoint.view().live
    names = checkpoint.files()
    assert references == {name: sum(holder == name for holder, _ in live.values()) for name in names}


def test_one_more_file_is_one_more_to_open(opens: tuple[Checkpoint, Callable[[], int]]) -> None:
    checkpoint, count = opens
    consolidate(checkpoint)
    with checkpoint.foreign(50) as file:
        file.put("0/0/99.changelog", b"new", stamp=STAMP + 50)
    count()
    checkpoint.exists("0/0")
    assert count() == 2
    assert listed(checkpoint) == checkpoint.contents()


def test_stamps_go_on_above_what_covered_files_know(
    opens: tuple[Checkpoint, Callable[[], int]], jvm: Any, by_hand: None
) -> None:
    """Rule 3: the highest stamp of a covered file may be of its group only, not of an entry."""
    checkpoint, _ = opens
    ahead = 4_000_000_000_000 << 16
    with checkpoint.foreign(60) as file:
        file.end_group(group_stamp=ahead)
    consolidate(checkpoint)
    checkpoint.write("0/3/99.changelog")
    assert checkpoint.view().live["0/3/99.changelog"][1].stamp > ahead


def test_running_process_takes_a_new_index_file_as_it_comes(opens: tuple[Checkpoint, Callable[[], int]]) -> None:
    checkpoint, _ = opens
    before = listed(checkpoint)
    checkpoint.write("0/3/100.changelog", b"mine")
    consolidate(checkpoint)
    checkpoint.log.refresh()
    assert listed(checkpoint) == {**before, "0/3/100.changelog": b"mine"} == checkpoint.contents()
    with checkpoint.foreign(70) as file:
        file.put("0/3/101.changelog", b"theirs", stamp=STAMP + 70)
    consolidate(checkpoint)
    checkpoint.log.refresh()
    assert listed(checkpoint) == checkpoint.contents()


def test_covered_files_are_cleaned_up_and_do_not_come_back(
    opens: tuple[Checkpoint, Callable[[], int]], by_hand: None
) -> None:
    """Rules 4 and 6: a cold process believes the index-only file, deletes, unlinks, and what is gone stays gone."""
    checkpoint, _ = opens
    consolidate(checkpoint)
    for name in checkpoint.names("0/2"):
        checkpoint.delete(f"0/2/{name}")
    for number in range(1, FILES - 1):
        for partition in (0, 1, 3):
            checkpoint.delete(f"0/{partition}/{number}.changelog")
    checkpoint.write("0/3/200.changelog", b"new")
    count = len(checkpoint.files())
    for _ in range(3):
        checkpoint.clean()
    assert len(checkpoint.files()) < count
    expected = listed(checkpoint)
    assert "0/3/200.changelog" in expected
    assert not [name for name in expected if name.startswith("0/2/")]
    assert checkpoint.contents() == expected
    checkpoint.log.seal()
    checkpoint.forget()
    assert listed(checkpoint) == expected
    consolidate(checkpoint)
    checkpoint.forget()
    assert listed(checkpoint) == expected
    table = PythonCheckpoint(checkpoint.directory).inspect.segments().to_pylist()
    assert {row["logical_path"] for row in table if row["status"] == "live"} == set(expected)


def test_compacted_by_somebody_else_under_a_process_that_believes_the_index(
    opens: tuple[Checkpoint, Callable[[], int]], by_hand: None
) -> None:
    checkpoint, _ = opens
    expected = checkpoint.contents()
    consolidate(checkpoint)
    checkpoint.exists("0/0")
    done = PythonCheckpoint(checkpoint.directory).maintenance.compact()
    assert done.removed_files_count >= FILES - 1
    assert listed(checkpoint) == expected
    checkpoint.forget()
    assert listed(checkpoint) == expected


def test_consolidation_beside_a_process_that_writes_and_cleans(
    opens: tuple[Checkpoint, Callable[[], int]], new_checkpoint: Callable[..., Checkpoint], by_hand: None
) -> None:
    checkpoint, _ = opens
    expected = checkpoint.contents()
    stop = threading.Event()
    failures: list[BaseException] = []

    def loop() -> None:
        while not stop.is_set():
            try:
                consolidate(checkpoint)
            except BaseException as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=loop) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(300, 330):
        name = f"0/3/{number}.changelog"
        checkpoint.write(name, b"%d" % number)
        expected[name] = b"%d" % number
        if number % 3 == 0:
            checkpoint.log.seal()
        if number % 4 == 0:
            gone = min(n for n in expected if n.startswith("0/2/") or n.startswith("0/1/"))
            checkpoint.delete(gone)
            del expected[gone]
            checkpoint.clean()
        assert listed(checkpoint) == expected
    stop.set()
    for thread in threads:
        in_time(thread.join)
    assert failures == []
    checkpoint.log.seal()
    checkpoint.forget()
    assert listed(checkpoint) == expected
    consolidate(checkpoint)
    checkpoint.forget()
    assert listed(checkpoint) == expected
    assert sum(name.endswith(".index.merged") for name in checkpoint.files()) == 1
