"""Two processes that write, delete and clean one checkpoint, and one of them dies or sleeps."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pyspark_statestore.format import Entry, Kind, file_name
from tests.cluster.checks import Graveyard, stable_view
from tests.cluster.processes import Jvm, second_jvm
from tests.jvm.harness import CREATED_MS, STAMP, TESTING, Checkpoint, View, until

pytestmark = [pytest.mark.spark, pytest.mark.sweep(0, files="clusters")]

KB = 1 << 10
CLOSED_AFTER = 8.0
OPTIONS = {"closedAfter": f"{CLOSED_AFTER:.0f}s", "maxSpaceAmplification": "1.2"}
NO_HURRY = {**OPTIONS, "compaction__enabled": "false", "closedAfter": "600s"}
"""Deletions ride in the next group, since no round of cleaning is near, and no file is sealed because it is idle."""


@pytest.fixture
def start(main_jar: Path, test_jar: Path) -> Iterator[Callable[[], Jvm]]:
    """Starts processes, which end with the test."""
    started: list[Jvm] = []

    def begin() -> Jvm:
        started.append(Jvm((main_jar, test_jar)))
        return started[-1]

    yield begin
    for jvm in started:
        jvm.close()


@pytest.fixture(scope="module")
def survivor(main_jar: Path, test_jar: Path) -> Iterator[Jvm]:
    """A process that lives as long as the module's tests."""
    with second_jvm(main_jar, test_jar) as jvm:
        yield jvm


def content(path: str) -> bytes:
    """Bytes that say where they belong."""
    return random.Random(path).randbytes(8 * KB)


def of_writer(view: View, writer: int) -> set[str]:
    """The files of a process."""
    return {name for name, file in view.files.items() if file.header is not None and file.header.writer == writer}


def await_gone(
    graveyard: Graveyard, checkpoint: Checkpoint, names: set[str], meanwhile: str, seconds: float = 120
) -> float:
    """Has a process clean, and write a certain path, until the files are gone; how long that took."""
    begun = time.monotonic()
    while names & stable_view(graveyard.state).files.keys():
        assert time.monotonic() - begun < seconds, f"still there: {names & graveyard.visit().files.keys()}"
        checkpoint.write(meanwhile, content(meanwhile))
        checkpoint.clean()
        graveyard.visit()
        time.sleep(0.1)
    return time.monotonic() - begun


@pytest.mark.parametrize("scheme", ["file", "objectstore"])
def test_rule_7_a_survivor_moves_and_unlinks_what_a_killed_process_left(
    start: Callable[[], Jvm], survivor: Jvm, checkpoint_dir: Path, scheme: str
) -> None:
    victim = start()
    theirs = Checkpoint(victim.view, checkpoint_dir, scheme, **NO_HURRY)
    kept: list[str] = []
    deleted: list[str] = []
    for version in range(1, 25):
        path = f"0/0/{version}.delta"
        theirs.write(path, content(path))
        (kept if version % 8 == 0 else deleted).append(path)
    for path in deleted:
        theirs.delete(path)
    theirs.write("0/0/25.delta", content("0/0/25.delta"))  # the deletions ride in its group
    kept.append("0/0/25.delta")
    victim.kill()
    graveyard = Graveyard(theirs.state)
    view = graveyard.visit()
    needed = {name for name, _ in view.live.values()}
    # On the object store a group is a file; those without garbage stay.
    left = set(view.files) if scheme == "file" else set(view.files) - needed
    assert left

    mine = Checkpoint(survivor.view, checkpoint_dir, scheme, **OPTIONS)
    kept.append("0/0/26.delta")  # the partition is here now
    seconds = await_gone(graveyard, mine, left, kept[-1])

    if scheme == "file":
        # An unsealed file may be written to until it has not changed for closedAfter.
        assert seconds > CLOSED_AFTER * 0.9
    assert graveyard.visit().contents() == {path: content(path) for path in kept}
    third = Checkpoint(start().view, checkpoint_dir, scheme, **OPTIONS)
    assert {path: third.read(path) for path in kept} == {path: content(path) for path in kept}
    assert third.names("0/0") == sorted(Path(path).name for path in kept)


def test_rule_6_two_that_clean_do_not_unlink_under_each_other(
    start: Callable[[], Jvm], survivor: Jvm, checkpoint_dir: Path
) -> None:
    both = [Checkpoint(jvm.view, checkpoint_dir, **OPTIONS) for jvm in (survivor, start())]
    keep = {f"0/{number}/0.delta": content(f"0/{number}/0.delta") for number in range(4)}
    for number, (path, data) in enumerate(keep.items()):
        both[number % 2].write(path, data)
    graveyard = Graveyard(both[0].state)

    def work(number: int) -> int:
        """Writes, deletes what the other has written, reads what stays, cleans."""
        mine = both[number]
        gone = 0
        for round_number in range(1, 31):
            for partition in (number, 2 + number):
                path = f"0/{partition}/{round_number}.delta"
                mine.write(path, content(path))
                other = f"0/{(partition + 1) % 4}/{round_number - 2}.delta"
                if round_number > 2:
                    mine.delete(other)
                mine.delete(f"0/{partition}/{round_number - 3}.delta") if round_number > 3 else None
            if round_number % 5 == 0:
                mine.log.seal()
            gone += mine.clean()
            for path, data in keep.items():
                assert mine.read(path) == data
        return gone

    with ThreadPoolExecutor(2) as threads:
        running = [threads.submit(work, number) for number in range(2)]
        while not all(future.done() for future in running):
            graveyard.visit()
        unlinked = sum(future.result() for future in running)
    assert unlinked > 4
    for mine in both:
        mine.log.seal()
    contents = graveyard.visit().contents()
    assert {path: contents.get(path) for path in keep} == keep
    for mine in both:
        assert {path: mine.read(path) for path in keep} == keep


def test_rule_6_a_deletion_outlives_the_file_that_says_so(
    start: Callable[[], Jvm], survivor: Jvm, checkpoint_dir: Path
) -> None:
    # One file of the victim's holds what is deleted and what is not; another process deletes, and is killed.
    writer, deleter = start(), start()
    theirs = Checkpoint(writer.view, checkpoint_dir, **OPTIONS)
    paths = [f"0/0/{version}.delta" for version in range(1, 9)]
    for path in paths:
        theirs.write(path, content(path))
    theirs.log.seal()
    writer.kill()  # or it would move what lives, and with the old file the need for the deletion would go
    deletes = Checkpoint(deleter.view, checkpoint_dir, **NO_HURRY)
    for path in paths[:2]:
        assert deletes.delete(path)
    deletes.write("0/1/1.delta")  # the tombstones ride here
    deletes.delete("0/1/1.delta")
    deletes.write("0/1/2.delta")
    graveyard = Graveyard(theirs.state)
    tombstones_in = {name for name, file in graveyard.visit().files.items() if any(e.kind is Kind.DELETE for e in file)}
    assert tombstones_in
    deleter.kill()

    # A survivor that does not serve partition 0 empties the deleter's file and unlinks it, but not the writer's.
    mine = Checkpoint(survivor.view, checkpoint_dir, **OPTIONS)
    mine.write("0/1/3.delta")
    mine.delete("0/1/2.delta")
    await_gone(graveyard, mine, tombstones_in, "0/1/4.delta")
    view = graveyard.visit()
    assert {path for path in view.live if path.startswith("0/0/")} == set(paths[2:])
    third = Checkpoint(start().view, checkpoint_dir, **OPTIONS)
    assert third.names("0/0") == sorted(Path(path).name for path in paths[2:])


def test_a_cold_start_opens_an_index_only_file_instead_of_those_it_covers(survivor: Jvm, checkpoint_dir: Path) -> None:
    checkpoint = Checkpoint(survivor.view, checkpoint_dir, "counting", **OPTIONS)
    entries: dict[str, list[Entry]] = {}
    for number in range(1, 13):
        with checkpoint.foreign(number) as file:
            path = f"0/0/{number}.changelog"
            written = [file.put(path, content(path), stamp=STAMP + number)]
            if number > 6:
                written.append(file.delete(f"0/0/{number - 6}.changelog", stamp=STAMP + number - 6, writer=77))
        entries[file_name(CREATED_MS, 77, number)] = written
    with checkpoint.foreign(13, seal=False) as index:
        pass
    name = file_name(CREATED_MS, 77, 13)
    (checkpoint.merged / name).unlink()
    from pyspark_statestore.format import MergedFileWriter

    with (checkpoint.merged / name.replace(".merged", ".index.merged")).open("wb") as out:
        index = MergedFileWriter(out, writer=77, created_ms=CREATED_MS, meta={"plain": False})
        index.seal_index_only(entries)
    counting = getattr(survivor.view, f"{TESTING}.CountingFileSystem")
    counting.registerRoot(checkpoint_dir.parent.name, str(checkpoint_dir))

    names = checkpoint.names("0/0")

    by_thread = json.loads(counting.snapshotJson())[checkpoint_dir.parent.name]
    opens = sum(categories.get("merged", {}).get("open", 0) for categories in by_thread.values())
    assert names == sorted(f"{number}.changelog" for number in range(7, 13))
    assert opens == 1
    assert checkpoint.read("0/0/9.changelog") == content("0/0/9.changelog")
    # What was covered is not gone: it is cleaned as any file is, and the index-only file when it covers nothing.
    until(lambda: checkpoint.clean() >= 0 and len([*checkpoint.merged.iterdir()]) < 13, "a file to go")
    assert checkpoint.read("0/0/12.changelog") == content("0/0/12.changelog")
    assert checkpoint.names("0/0") == names
