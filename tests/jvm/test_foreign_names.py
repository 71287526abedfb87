"""Files that others leave beside merged files count as nothing, for executors and for Python alike."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint as PythonCheckpoint
from pyspark_statestore import StateStoreFilesError
from pyspark_statestore.log.scan import our_files
from pyspark_statestore.storage import Directory, Location
from tests.jvm.harness import Checkpoint
from tests.jvm.vectors import read_names

pytestmark = pytest.mark.spark

LEFT = {
    "what a Mac leaves": "._{}",
    "a file manager's copy": "Copy of {}",
    "a second download": "{} (1)",
    "a checksum of Hadoop's": ".{}.crc",
    "an upload that was broken off": "{}._COPYING_",
    "a backup": "old-{}",
}
"""Patterns of names that others give files."""

ENDINGS = (
    ".merged",
    ".index.merged",
    ".relocating",
    ".fork",
    ".own",
    ".origin",
    ".exporting",
    ".exported",
    ".dropping",
    ".running",
    ".ended",
)


def leave(checkpoint: Checkpoint, pattern: str) -> set[str]:
    """Leaves files of such names with each of our endings; the brackets of a second download stand before it."""
    stem = "1700000000000-000000000000004d-9"
    names = {pattern.format(stem + ending) for ending in ENDINGS} | {pattern.format(stem) + each for each in ENDINGS}
    for name in names:
        (checkpoint.merged / name).write_bytes(b"not one of ours")
    return names


@pytest.mark.parametrize("pattern", LEFT.values(), ids=LEFT)
def test_they_stop_nothing(new_checkpoint: Callable[..., Checkpoint], pattern: str) -> None:
    checkpoint = new_checkpoint()
    for version in range(1, 4):
        checkpoint.write(f"0/0/{version}.changelog", b"%d" % version)
    checkpoint.forget()

    left = leave(checkpoint, pattern)

    assert {version: checkpoint.read(f"0/0/{version}.changelog") for version in (1, 2, 3)} == {
        1: b"1",
        2: b"2",
        3: b"3",
    }
    checkpoint.write("0/0/4.changelog", b"4")
    assert checkpoint.read("0/0/4.changelog") == b"4"
    checkpoint.forget()
    python = PythonCheckpoint(str(checkpoint.directory))
    assert python.is_merged
    assert python.maintenance.verify().damages == ()
    live = python.inspect.segments()["logical_path"].to_pylist()
    assert sorted(live) == [f"0/0/{version}.changelog" for version in (1, 2, 3, 4)]
    assert left <= {path.name for path in checkpoint.merged.iterdir()}


@pytest.mark.parametrize("pattern", LEFT.values(), ids=LEFT)
def test_they_keep_no_file_from_being_unlinked(new_checkpoint: Callable[..., Checkpoint], pattern: str) -> None:
    """A pin that cannot be understood pins every file: a copy of one must not."""
    checkpoint = new_checkpoint()
    with checkpoint.foreign(1) as file:
        file.put("0/0/1.changelog", b"dead", stamp=1 << 16)
    with checkpoint.foreign(2) as file:
        file.delete("0/0/1.changelog", stamp=1 << 16, writer=77)
        file.put("0/0/2.changelog", b"alive", stamp=2 << 16)
    leave(checkpoint, pattern)
    checkpoint.write("0/0/3.changelog")

    assert checkpoint.clean() == 1
    assert checkpoint.read("0/0/2.changelog") == b"alive"


def test_dropping_merged_files_leaves_them(new_checkpoint: Callable[..., Checkpoint]) -> None:
    checkpoint = new_checkpoint()
    checkpoint.write("0/0/1.changelog")
    checkpoint.forget()
    left = {name for pattern in LEFT.values() for name in leave(checkpoint, pattern)}

    with pytest.raises(StateStoreFilesError, match="PSS_DROP_REFUSED"):  # no pin and no marker of theirs counts
        PythonCheckpoint(str(checkpoint.directory)).drop_merged(dry_run=False)
    PythonCheckpoint(str(checkpoint.directory)).drop_merged(dry_run=False, force=True)

    assert {path.name for path in checkpoint.merged.iterdir()} == left
    shutil.rmtree(checkpoint.merged)


def test_python_lists_what_java_would_read(tmp_path: Path) -> None:
    (tmp_path / "state/_merged").mkdir(parents=True)
    names = {name: ending for name, ending in read_names().items() if name and not {"/", "\0"} & set(name)}
    for name in names:
        (tmp_path / "state/_merged" / name).touch()

    found = {info.name for info in our_files(Directory(Location.of(str(tmp_path))))}

    assert found == {name for name, ending in names.items() if ending}
