"""What is on the disk before the files go that it replaces, seen in the order in which the system is called."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore import Checkpoint
from pyspark_statestore.storage import Directory, Location
from pyspark_statestore.storage.changes import create, publish
from tests.inspect.builders import STAMP, merged_file, merged_paths
from tests.maintenance.harness import live_files

Calls = list[tuple[str, str]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What is synced, renamed and unlinked: the call and the path, for a rename the new one."""
    seen: Calls = []

    def watch(name: str, path_of: Callable[..., Any]) -> None:
        real = getattr(os, name)

        def call(*arguments: Any, **more: Any) -> Any:
            path = os.fspath(path_of(*arguments))
            result = real(*arguments, **more)
            seen.append((name, path))
            return result

        monkeypatch.setattr(os, name, call)

    watch("fsync", lambda descriptor: os.readlink(f"/proc/self/fd/{descriptor}"))
    watch("remove", lambda path: path)
    watch("unlink", lambda path: path)
    watch("rename", lambda source, target: target)
    return seen


def test_copies_and_their_names_are_on_the_disk_before_the_originals_go(tmp_path: Path, calls: Calls) -> None:
    for number in (1, 2):
        with merged_file(tmp_path, number) as file:
            file.put(f"0/0/{number}.delta", os.urandom(500), stamp=STAMP + number)
    before, originals = live_files(tmp_path), merged_paths(tmp_path)
    calls.clear()

    done = Checkpoint(tmp_path).maintenance.compact()

    assert (done.added_files_count, done.removed_files_count) == (1, 2)
    assert live_files(tmp_path) == before
    (copy,) = merged_paths(tmp_path)
    gone = min(calls.index((name, str(path))) for path in originals for name, _ in calls if (name, str(path)) in calls)
    named = calls.index(("rename", str(copy)))
    assert any(name == "fsync" and f".{copy.name}." in path for name, path in calls[:named])
    assert ("fsync", str(copy.parent)) in calls[named:gone]


def test_a_file_that_replaces_another_is_on_the_disk_by_its_name(tmp_path: Path, calls: Calls) -> None:
    target = tmp_path / "offsets" / "7"
    with publish(Directory(Location.of(tmp_path)), "offsets/7") as out:
        out.write(b"new")
    renamed = calls.index(("rename", str(target)))
    assert any(name == "fsync" and Path(path).parent == target.parent for name, path in calls[:renamed])
    assert ("fsync", str(target.parent)) in calls[renamed:]


def test_new_directories_are_on_the_disk_too(tmp_path: Path, calls: Calls) -> None:
    with create(Directory(Location.of(tmp_path)), "state/_merged/x") as out:
        out.write(b"new")
    synced = {path for name, path in calls if name == "fsync"}
    assert synced == {str(tmp_path / below) for below in ("", "state", "state/_merged", "state/_merged/x")}


def test_what_the_disk_does_not_take_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for number in (1, 2):
        with merged_file(tmp_path, number) as file:
            file.put(f"0/0/{number}.delta", os.urandom(500), stamp=STAMP + number)
    before = live_files(tmp_path)
    with pytest.raises(Exception, match="PSS_WRITE_FAILED.*No space left"):
        Checkpoint(tmp_path).maintenance.compact()
    assert live_files(tmp_path) == before
    assert len(merged_paths(tmp_path)) == 2
