"""Runs of segments: what is read of a file, with how many requests, and what is said of wrong bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format.checksum import crc32c
from pyspark_statestore.log.payload import MISMATCH, SegmentRun, check_run, read_run, read_whole
from pyspark_statestore.log.scan import ForeignFileGoneError
from pyspark_statestore.storage import Directory, Location
from pyspark_statestore.storage.directory import GAP, MAX_READ

Places = list[tuple[int, int]]


class Counted(Directory):
    """A directory that notes each request."""

    def __init__(self, path: Path) -> None:
        super().__init__(Location.of(path))
        self.requests: list[tuple[int, int]] = []

    def open(self, *arguments: Any, **more: Any) -> Any:
        opened = super().open(*arguments, **more)
        directory = self

        class Opened:
            def __enter__(self) -> Any:
                self.file = opened.__enter__()
                return self

            def __exit__(self, *error: Any) -> Any:
                return opened.__exit__(*error)

            def read_at(self, offset: int, length: int) -> bytes:
                if length:
                    directory.requests.append((offset, length))
                return bytes(self.file.read_at(offset, length))

        return Opened()


@pytest.fixture
def directory(tmp_path: Path) -> Counted:
    return Counted(tmp_path)


def run_of(data: bytes, places: Places, **more: Any) -> SegmentRun:
    """Segments at these places, as they are in the data."""
    offset, length = np.array(places, "i8").reshape(-1, 2).T
    crc = np.array([crc32c(data[a : a + n]) for a, n in places], "u4")
    columns = {"size": len(data), "row": np.arange(len(places)) + 100, "crc32c": crc, **more}
    return SegmentRun("file", offset=offset, length=length, **columns)


def read(directory: Directory, run: SegmentRun, at_once: int = MAX_READ) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for chunk in read_run(directory, run, at_once=at_once):
        assert not chunk.wrong
        for number, data in chunk.segments():
            found[number] = found.get(number, b"") + data
    return found


def test_neighbours_share_requests(directory: Counted, tmp_path: Path) -> None:
    data = os.urandom(1 << 20)
    (tmp_path / "file").write_bytes(data)
    places = [(0, 3), (0, 3), (2, 5), (500_000, 10), (500_020, 7), (700_000, 0), (700_000, 9), ((1 << 20) - 4, 4)]
    run = run_of(data, places)

    assert read(directory, run) == {n: data[offset : offset + length] for n, (offset, length) in enumerate(places)}
    assert directory.requests == [(0, 7), (500_000, 27), (700_000, 9), ((1 << 20) - 4, 4)]
    assert b"".join(read_whole(directory, run, str)) == b"".join(data[a : a + n] for a, n in places)
    assert check_run(directory, run).read_bytes == run.total
    assert read(directory, run.take(np.array([3, 4]))) == {0: data[500_000:500_010], 1: data[500_020:500_027]}


def test_starts_of_segments_are_not_compared(directory: Counted, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(range(100)))

    run = run_of(bytes(100), [(0, 3), (50, 2)], crc32c=None)

    assert read(directory, run) == {0: b"\x00\x01\x02", 1: b"23"}


def test_memory_is_bounded(directory: Counted, tmp_path: Path) -> None:
    data = os.urandom(1 << 20) * 20
    (tmp_path / "file").write_bytes(data)
    places = [(0, 2 * MAX_READ + 5), (2 * MAX_READ + 5, 100), (2 * MAX_READ + 105, GAP)]
    run = run_of(data, places)
    longest = max(len(chunk.data) for chunk in read_run(directory, run))

    assert longest == MAX_READ
    assert max(length for _, length in directory.requests) <= MAX_READ
    assert read(directory, run)[0] == data[: 2 * MAX_READ + 5]
    directory.requests = []
    assert read(directory, run, at_once=len(data))[0] == data[: 2 * MAX_READ + 5]
    assert directory.requests[0] == (0, 2 * MAX_READ + 5)


PLACES = [(10, 20), (30, 20), (50, 0), (60, 20), (500_000, 10)]


@pytest.mark.parametrize("number", [0, 1, 3, 4])
def test_a_wrong_byte_is_an_error_that_says_where(directory: Counted, tmp_path: Path, number: int) -> None:
    data = bytearray(os.urandom(500_100))
    run = run_of(bytes(data), PLACES)
    data[PLACES[number][0] + 3] ^= 1
    (tmp_path / "file").write_bytes(data)

    wrong = {each: reason for chunk in read_run(directory, run) for each, reason in chunk.wrong.items()}
    assert wrong == {number: MISMATCH}
    assert check_run(directory, run).bad == (100 + number,)
    with pytest.raises(StateStoreFilesError) as caught:
        list(read_whole(directory, run, lambda row: f"0/0/{row}.delta"))
    assert caught.value.getErrorClass() == "PSS_CORRUPT_SEGMENT"
    said = str(caught.value)
    where = [f"0/0/{100 + number}.delta", str(tmp_path / "file"), f"offset {PLACES[number][0]}", MISMATCH]
    assert [word for word in where if word not in said] == []


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_file_that_ends_too_early(directory: Counted, tmp_path: Path, is_listed: bool) -> None:
    data = os.urandom(500_100)
    (tmp_path / "file").write_bytes(data[:65])
    run = run_of(data, PLACES, **({"size": 65} if is_listed else {}))
    wrong = {each: reason for chunk in read_run(directory, run) for each, reason in chunk.wrong.items()}

    assert set(wrong) == {3, 4}
    assert wrong[3] == "the file has only 65 bytes"
    found = check_run(directory, run)
    assert (found.bad, found.unread) == ((103, 104), ())
    if is_listed:
        assert all(offset + length <= 65 for offset, length in directory.requests)


def test_a_long_segment_that_ends_too_early_is_wrong_at_its_end(directory: Counted, tmp_path: Path) -> None:
    data = os.urandom(1 << 20) * 20
    run = run_of(data, [(0, 2 * MAX_READ + 5), (len(data) - 5, 5)])
    (tmp_path / "file").write_bytes(data[: MAX_READ + 7])

    def chunks() -> Iterator[tuple[int, int, bool, bool]]:
        for chunk in read_run(directory, run):
            yield chunk.first, len(chunk.data), chunk.is_end, bool(chunk.wrong)

    assert list(chunks()) == [(0, MAX_READ, False, False), (0, 0, True, True), (1, 0, True, True)]
    assert check_run(directory, run).bad == (100, 101)


def test_a_file_that_is_gone(directory: Counted) -> None:
    run = run_of(bytes(100), [(0, 5), (5, 5)])
    found = check_run(directory, run)

    assert (found.gone, found.unread, found.error) == (True, (100, 101), None)
    with pytest.raises(FileNotFoundError):
        list(read_run(directory, run))
    elsewhere = SegmentRun("/nowhere/state/_merged/x", 100, run.row, run.offset, run.length, run.crc32c)
    with pytest.raises(ForeignFileGoneError) as caught:
        list(read_run(directory, elsewhere, lambda: "0/0/1.delta"))
    assert (caught.value.path, caught.value.logical_path) == (elsewhere.path, "0/0/1.delta")
    assert check_run(directory, elsewhere).gone
