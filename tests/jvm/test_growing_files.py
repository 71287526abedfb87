"""Files that others append to while they are read: longer than listed, longer than an int, changed since the open."""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore.format import MergedFileWriter, file_name
from tests.jvm.harness import CREATED_MS, FILE_SYSTEMS, STAMP, TESTING, Checkpoint, java_error

pytestmark = pytest.mark.spark

FILE_SYSTEMS.setdefault("growing", "GrowingFileSystem")
BEYOND_AN_INT = (1 << 31) + 12_345


@pytest.fixture
def growing(jvm: Any) -> Any:
    """The file system's script."""
    return getattr(jvm, f"{TESTING}.GrowingFileSystem")


def path_of(number: int) -> str:
    return f"0/0/{number}.changelog"


def groups(count: int) -> list[bytes]:
    """The bytes of an open file as they come: a header and a group, then one group at a time."""
    out = io.BytesIO()
    file = MergedFileWriter(out, writer=77, created_ms=CREATED_MS, meta={"plain": False})
    ends = [0]
    for number in range(1, count + 1):
        file.put(path_of(number), b"delta %d" % number, stamp=STAMP + number)
        file.end_group()
        ends.append(out.tell())
    return [out.getvalue()[begin:end] for begin, end in pairwise(ends)]


def make(checkpoint: Checkpoint, number: int, data: bytes) -> Path:
    checkpoint.merged.mkdir(parents=True, exist_ok=True)
    path = checkpoint.merged / file_name(CREATED_MS, 77, number)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("beyond", [0, BEYOND_AN_INT, 2 * BEYOND_AN_INT])
def test_open_file_of_more_than_two_gigabytes(
    new_checkpoint: Callable[..., Checkpoint], growing: Any, beyond: int
) -> None:
    """What the last flush brought is found, however far behind the listed length it ends."""
    checkpoint = new_checkpoint("growing")
    path = make(checkpoint, 2 + beyond, b"")
    with path.open("wb") as out:
        file = MergedFileWriter(out, writer=77, created_ms=CREATED_MS, meta={"plain": False})
        file.put(path_of(1), b"delta 1", stamp=STAMP + 1)
        file.end_group()
        growing.listWithLength(path.name, file.position)
        # Garbage, which takes no space on the disk: as where a payload was withdrawn.
        file.position = out.seek(beyond, io.SEEK_CUR)
        file.put(path_of(2), b"delta 2", stamp=STAMP + 2)
        file.end_group()
    assert checkpoint.exists(path_of(2))
    assert [checkpoint.read(path_of(number)) for number in (1, 2)] == [b"delta 1", b"delta 2"]
    assert int(checkpoint.log.clean()) == 0


@pytest.mark.parametrize("times", [1, 2, 4])
def test_flush_between_open_and_read(new_checkpoint: Callable[..., Checkpoint], growing: Any, times: int) -> None:
    """ABFS reads with the eTag of the open, so a refresh opens a file anew that another process has flushed since."""
    checkpoint = new_checkpoint("growing")
    first, *more = groups(1 + times)
    path = make(checkpoint, 100 + times, first)
    for group in more:
        growing.growWhenOpened(path.name, group)
    assert [checkpoint.exists(path_of(number)) for number in range(1, times + 3)] == [True] * (times + 1) + [False]
    assert checkpoint.read(path_of(1)) == b"delta 1"


def test_flush_between_open_and_read_of_a_segment(new_checkpoint: Callable[..., Checkpoint], growing: Any) -> None:
    checkpoint = new_checkpoint("growing")
    first, *more = groups(4)
    path = make(checkpoint, 200, first)
    assert checkpoint.exists(path_of(1))
    for group in more:
        growing.growWhenOpened(path.name, group)
    assert checkpoint.read(path_of(1)) == b"delta 1"
    assert checkpoint.exists(path_of(4))


def test_file_that_never_stops_growing(new_checkpoint: Callable[..., Checkpoint], growing: Any) -> None:
    """There is an end to trying; the error is the file system's."""
    checkpoint = new_checkpoint("growing")
    first, *more = groups(40)
    path = make(checkpoint, 300, first)
    for group in more:
        growing.growWhenOpened(path.name, group)
    with java_error("412 ConditionNotMet", path.name):
        checkpoint.exists(path_of(1))
