"""Checkpoints made by the package's own writer, file systems that fail on purpose, and a slow reading of the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import _registry, get_filesystem_class

from pyspark_statestore import StateStoreFilesError
from pyspark_statestore.format import Entry, Kind, MergedFileWriter, file_name, read_merged_file
from pyspark_statestore.format.reader import BytesSource
from pyspark_statestore.inspect import TABLES

ALL_TABLES = pytest.mark.parametrize("table", TABLES)
"""Runs a test with the name of each table."""

CREATED_MS = 1_700_000_000_000
STAMP = CREATED_MS << 16
META: dict[str, str | bool] = {"app_id": "app-1", "executor_id": "driver", "query_run_id": "run-1", "plain": False}


@contextmanager
def merged_file(
    checkpoint: Path, number: int, *, writer: int = 7, seal: bool = True, plain: bool = False, fronts: bool = False
) -> Iterator[MergedFileWriter]:
    """A merged file of a checkpoint; it ends with a group where it is not sealed. Release 0.1 wrote no fronts."""
    folder = checkpoint / "state" / "_merged"
    folder.mkdir(parents=True, exist_ok=True)
    created = CREATED_MS + number
    with (folder / file_name(created, writer, number)).open("wb") as out:
        file = MergedFileWriter(out, writer=writer, created_ms=created, meta={**META, "plain": plain, "fronts": fronts})
        yield file
        if seal:
            file.seal()
        else:
            file.end_group()


def merged_paths(checkpoint: Path) -> list[Path]:
    """The merged files on the disk, oldest first."""
    return sorted((checkpoint / "state" / "_merged").glob("*.merged"))


def plain_file(checkpoint: Path, path: str, data: bytes = b"plain") -> Path:
    """A state file of its own, relative to ``state/``."""
    file = checkpoint / "state" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file


def simple_checkpoint(checkpoint: Path, files: int = 2) -> Path:
    """A checkpoint with so many sealed files, each with version ``n`` of two partitions."""
    (checkpoint / "offsets").mkdir(parents=True)
    for number in range(1, files + 1):
        with merged_file(checkpoint, number) as file:
            for partition in range(2):
                data = bytes([partition]) * (10 + number)
                file.put(f"0/{partition}/{number}.changelog", data, stamp=STAMP + number)
    return checkpoint


def add_index(checkpoint: Path, number: int = 100) -> Path:
    """An index-only file that speaks for all others."""
    name = file_name(CREATED_MS + number, 7, number, index_only=True)
    others = {path.name: list(read_merged_file(BytesSource(path.read_bytes()))) for path in merged_paths(checkpoint)}
    path = checkpoint / "state" / "_merged" / name
    with path.open("wb") as out:
        MergedFileWriter(out, writer=7, created_ms=CREATED_MS + number, meta=META).seal_index_only(others)
    return path


def statuses(checkpoint: Path) -> list[tuple[str, int, str, str]]:
    """Rules 3 to 5, entry by entry: (merged file, offset, logical path, status) of every segment."""
    puts: list[tuple[str, Entry]] = []
    killed: dict[str, tuple[int, int]] = {}
    for path in merged_paths(checkpoint):
        if path.name.endswith(".index.merged"):
            continue
        for entry in read_merged_file(BytesSource(path.read_bytes())):
            if entry.kind is Kind.DELETE:
                killed[entry.path] = max(entry.key, killed.get(entry.path, (-1, -1)))
            else:
                puts.append((path.name, entry))
    alive = [(name, entry) for name, entry in puts if entry.key > killed.get(entry.path, (-1, -1))]
    best: dict[str, Any] = {}
    for name, entry in alive:
        rank = (entry.key, entry.generation, name, entry.offset)
        best[entry.path] = max(rank, best.get(entry.path, rank))
    found = []
    for name, entry in puts:
        if (name, entry) not in alive:
            status = "deleted"
        elif best[entry.path] == (entry.key, entry.generation, name, entry.offset):
            status = "live"
        else:
            status = "superseded"
        found.append((name, entry.offset, entry.path, status))
    return sorted(found)


class Watch:
    """What a file system was asked, and what it does before it answers.

    Attributes:
        opens: How often each file was opened, by name.
        bytes_read: Of each file, by name.
        listings: How often each directory was listed, by name.
        before_open: Called with a file's path before it is opened.
        before_list: Called with a directory's path before it is listed.
    """

    def __init__(self) -> None:
        self.opens: Counter[str] = Counter()
        self.bytes_read: Counter[str] = Counter()
        self.listings: Counter[str] = Counter()
        self.before_open: Callable[[str], object] = lambda path: None
        self.before_list: Callable[[str], object] = lambda path: None


def watched_file_system(watch: Watch) -> type[LocalFileSystem]:
    """The local file system, watched. A class of its own each time: fsspec keeps instances by class."""

    class Watched(LocalFileSystem):
        def ls(self, path: str, detail: bool = False, **kwargs: Any) -> Any:
            watch.before_list(path)
            watch.listings[Path(path).name] += 1
            return super().ls(path, detail=detail, **kwargs)

        def _open(self, path: str, *arguments: Any, **kwargs: Any) -> Any:
            watch.before_open(path)
            watch.opens[Path(path).name] += 1
            return _WatchedFile(super()._open(path, *arguments, **kwargs), watch, Path(path).name)

    return Watched


class _WatchedFile:
    def __init__(self, file: Any, watch: Watch, name: str) -> None:
        self._file, self._watch, self._name = file, watch, name

    def seek(self, offset: int) -> int:
        return int(self._file.seek(offset))

    def read(self, length: int = -1) -> bytes:
        data: bytes = self._file.read(length)
        self._watch.bytes_read[self._name] += len(data)
        return data

    def __enter__(self) -> _WatchedFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def use_for_local_files(monkeypatch: pytest.MonkeyPatch, file_system: type[LocalFileSystem]) -> None:
    """Lets ``file:`` mean another file system for the rest of a test."""
    get_filesystem_class("file")
    monkeypatch.setitem(_registry, "file", file_system)


@contextmanager
def refused(error_class: str, *words: str) -> Iterator[None]:
    """Expects one of the package's errors, and what it says."""
    with pytest.raises(StateStoreFilesError) as caught:
        yield
    assert caught.value.getErrorClass() == error_class, caught.value
    said = str(caught.value)
    assert [word for word in words if word not in said] == [], said
    assert "<" not in said, f"a parameter is missing: {said}"
