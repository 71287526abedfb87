"""A query and its cleaning go on while everything is read: that is never taken for damage."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint
from tests.inspect.builders import STAMP, Watch, merged_file, merged_paths, use_for_local_files, watched_file_system
from tests.maintenance import builders
from tests.maintenance.builders import damages, flip, index_of, make, verify, write_logs, write_version


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """What ``file:`` is asked in this test, and what happens just before."""
    watch = Watch()
    use_for_local_files(monkeypatch, watched_file_system(watch))
    return watch


def relocate(checkpoint: Path, path: Path, number: int) -> None:
    """Moves all segments of a file to a new one, as executors do."""
    data = path.read_bytes()
    with merged_file(checkpoint, number, writer=number, plain=True) as out:
        for each in index_of(path):
            segment = data[each.offset : each.offset + each.length]
            out.put(each.path, segment, stamp=each.stamp, writer=each.writer, generation=each.generation + 1)
    path.unlink()


def clean_up_to(checkpoint: Path, version: int, number: int) -> None:
    """Spark deletes all versions before one, and the log its entries; a restart needs the last two."""
    with merged_file(checkpoint, number, plain=True) as out:
        for path in merged_paths(checkpoint):
            for each in index_of(path) if path.stat().st_size else ():
                at = each.path.rpartition("/")[2]
                is_old = at.partition(".")[0] < str(version) if "SSTs" not in each.path else int(at[:6]) < version
                if each.kind == 1 and is_old:
                    out.delete(each.path, stamp=each.stamp, writer=each.writer)
    for batch in range(version - 2):
        for log in ("offsets", "commits"):
            (checkpoint / log / str(batch)).unlink(missing_ok=True)


def once(action: Callable[[], object], when: Callable[[str], bool], at: int) -> Callable[[str], None]:
    """Does something before the file system does something for the n-th time."""
    seen = [0]

    def hook(path: str) -> None:
        if when(path):
            seen[0] += 1
            if seen[0] == at:
                action()

    return hook


@pytest.mark.parametrize("at", [1, 2])
def test_file_is_moved_before_it_is_opened(tmp_path: Path, watch: Watch, at: int) -> None:
    """The first time for its index, the second time for its bytes."""
    path = merged_paths(make(tmp_path))[2]
    watch.before_open = once(lambda: relocate(tmp_path, path, 70), lambda opened: opened.endswith(path.name), at)
    found = verify(tmp_path)
    assert not path.exists()
    assert (found.damages, found.notes) == ((), ())


def test_moved_bytes_are_read_where_they_are_now(tmp_path: Path, watch: Watch) -> None:
    path = merged_paths(make(tmp_path))[2]

    def move() -> None:
        relocate(tmp_path, path, 70)
        copy = merged_paths(tmp_path)[-1]
        flip(copy, next(iter(index_of(copy))).offset)

    watch.before_open = once(move, lambda opened: opened.endswith(path.name), 2)
    [found] = verify(tmp_path).damages
    assert (found.kind, found.name) == ("corrupt_segment", merged_paths(tmp_path)[-1].name)


@pytest.mark.parametrize("at", range(1, 12))
def test_query_goes_on_and_cleans(tmp_path: Path, watch: Watch, at: int) -> None:
    """Batches come, and the versions that were there first go, at whichever point of a look."""
    make(tmp_path)

    def go_on() -> None:
        for version in range(5, 9):
            write_version(tmp_path, version, merged=True)
            write_logs(tmp_path, range(version))
        clean_up_to(tmp_path, 8, 90)
        for path in merged_paths(tmp_path)[:3]:
            path.unlink()

    watch.before_open = once(go_on, lambda opened: True, at)
    found = verify(tmp_path)
    assert not (tmp_path / "commits/2").exists()
    assert (found.damages, found.notes) == ((), ())


def test_wrong_byte_that_goes_away(tmp_path: Path, watch: Watch) -> None:
    """What one look finds and the next one does not is no damage, such as a segment that was deleted meanwhile."""
    path = merged_paths(make(tmp_path))[2]
    entry = next(iter(index_of(path)))
    flip(path, entry.offset)

    def overwrite() -> None:
        with merged_file(tmp_path, 70, plain=True) as out:
            out.put(entry.path, path.read_bytes()[entry.offset + 1 :][: entry.length], stamp=STAMP + 9000)

    watch.before_list = once(overwrite, lambda listed: listed.endswith("_merged"), 2)
    assert damages(tmp_path) == []


def test_compaction_and_commits_without_end(tmp_path: Path) -> None:
    write_logs(tmp_path, range(2))
    for version in (1, 2):
        write_version(tmp_path, version, merged=True)
    stop = threading.Event()
    failures: list[BaseException] = []

    def loop(action: Callable[[int], object], begin: int) -> threading.Thread:
        def run() -> None:
            number = begin
            try:
                while not stop.is_set():
                    action(number)
                    number += 1
            except BaseException as error:
                failures.append(error)
                stop.set()

        return threading.Thread(target=run, daemon=True)

    last = [2]
    looks = [0]

    def commit(version: int) -> None:
        # Not without bound: where there is more to look at with each look, the looks never come to an end.
        while version > 10 * (looks[0] + 1) and not stop.is_set():
            stop.wait(0.01)
        write_version_atomically(tmp_path, version)
        write_logs(tmp_path, range(version - 1, version))
        last[0] = version

    def compact(number: int) -> None:
        Checkpoint(tmp_path).maintenance.compact(target_file_size=random.choice([2000, 20_000]))

    threads = [loop(commit, 3), loop(compact, 0)]
    for thread in threads:
        thread.start()
    try:
        while not failures and (last[0] < 60 or looks[0] < 10):
            found = verify(tmp_path)
            assert found.damages == ()
            looks[0] += 1
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert verify(tmp_path).is_clean
    assert builders.verify(tmp_path).versions_count == 2 * last[0]


def write_version_atomically(checkpoint: Path, version: int) -> None:
    """In a place of its own first: object stores show a file when it is whole."""
    elsewhere = checkpoint.parent / f"{checkpoint.name}-{version}"
    write_version(elsewhere, version, merged=True)
    [path] = merged_paths(elsewhere)
    path.rename(checkpoint / "state/_merged" / path.name)
