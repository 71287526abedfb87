"""What lives in a checkpoint, read slowly; and a local file system that breaks when a test wants it to."""

from __future__ import annotations

import datetime
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from pyspark_statestore.format import Entry, Kind, read_merged_file
from pyspark_statestore.format.reader import BytesSource
from pyspark_statestore.log.merged_log import MergedLog
from pyspark_statestore.storage import Directory, Location
from tests.inspect.places import merged_paths

CLOSED_AFTER = datetime.timedelta(minutes=10)


def live_files(checkpoint: Path) -> dict[str, bytes]:
    """The bytes of each logical file that is read: the rules 3 to 5, entry by entry."""
    killed: dict[str, tuple[int, int]] = {}
    best: dict[str, tuple[Any, bytes]] = {}
    facts: list[tuple[str, Entry, bytes]] = []
    for path in merged_paths(checkpoint):
        if not path.name.endswith(".index.merged"):
            data = path.read_bytes()
            for entry in read_merged_file(BytesSource(data)):
                facts.append((path.name, entry, data[entry.offset : entry.offset + entry.length]))
    for _, entry, _ in facts:
        if entry.kind is Kind.DELETE:
            killed[entry.path] = max(entry.key, killed.get(entry.path, (-1, -1)))
    for name, entry, data in facts:
        if entry.kind is Kind.PUT and entry.key > killed.get(entry.path, (-1, -1)):
            rank = (entry.key, entry.generation, name, entry.offset)
            if entry.path not in best or rank > best[entry.path][0]:
                best[entry.path] = (rank, data)
    return {path: data for path, (_, data) in sorted(best.items())}


def dead_files(checkpoint: Path) -> list[str]:
    """Names of merged files without a live segment."""
    from pyspark_statestore import Checkpoint

    table = Checkpoint(checkpoint).inspect.files().to_pylist()
    return [Path(row["file_path"]).name for row in table if not row["live_segment_count"]]


def merged_log_of(checkpoint: Path, later: datetime.timedelta = datetime.timedelta(0), **rest: Any) -> MergedLog:
    """Somebody who works there.

    Args:
        checkpoint: Its directory.
        later: What the clock is ahead.
        rest: As for :class:`MergedLog`.
    """

    def clock() -> datetime.datetime:
        return datetime.datetime.now(datetime.UTC) + later

    return MergedLog(Directory(Location.of(checkpoint)), rest.pop("closed_after", CLOSED_AFTER), clock=clock, **rest)


def grow_old(checkpoint: Path, but: str = "") -> None:
    """Nothing in the directory has changed for two days, except for one file."""
    now = datetime.datetime.now().timestamp()
    for path in (checkpoint / "state" / "_merged").iterdir():
        at = now if path.name == but else now - 2 * 86_400
        os.utime(path, (at, at))


class DiedError(BaseException):
    """The process is dead: nothing catches this, and nothing reaches the disk any more."""


class Breakage:
    """What a file system does at its n-th operation.

    Attributes:
        at: Which operation, from 0; None for none.
        deadly: Whether all later ones fail, too, and nothing may catch it.
        torn: Whether half of a write still reaches the disk.
        instead: What happens before that operation instead of a failure.
        operations: What was done, in order.
    """

    def __init__(self) -> None:
        self.at: int | None = None
        self.deadly = False
        self.torn = False
        self.instead: Callable[[], object] | None = None
        self.operations: list[str] = []
        self.dead = False
        self._lock = threading.RLock()
        self._paused = False

    def happens(self, what: str) -> bool:
        """Called before each operation; whether it is to be done by half."""
        if self._paused:  # not only once it has the lock: others may work in several threads, too
            return False
        with self._lock:
            if self.dead:
                raise DiedError(what)
            self.operations.append(what)
            if len(self.operations) - 1 != self.at:
                return False
            if self.instead is not None:
                self._paused = True
                try:
                    self.instead()
                finally:
                    self._paused = False
                return False
            self.dead = self.deadly
            if self.torn and what.startswith("write "):
                return True
            raise self.failure(what)

    def failure(self, what: str) -> BaseException:
        """What is raised."""
        return DiedError(what) if self.deadly else OSError(5, f"broken on purpose: {what}")

    def mended(self) -> None:
        """All works again."""
        self.__init__()  # type: ignore[misc]


def breaking_file_system(breakage: Breakage) -> type[LocalFileSystem]:
    """The local file system. A class of its own each time: fsspec keeps instances by class."""

    class Breaking(LocalFileSystem):
        def ls(self, path: str, detail: bool = False, **kwargs: Any) -> Any:
            breakage.happens(f"list {Path(path).name}")
            return super().ls(path, detail=detail, **kwargs)

        def makedirs(self, path: str, exist_ok: bool = False) -> None:
            breakage.happens(f"mkdirs {Path(path).name}")
            super().makedirs(path, exist_ok=exist_ok)

        def rm_file(self, path: str) -> None:
            breakage.happens(f"delete {Path(path).name}")
            super().rm_file(path)

        def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
            breakage.happens(f"{'create' if 'w' in mode else 'open'} {Path(path).name}")
            return _BreakingFile(open(path, mode, buffering=0), breakage, Path(path).name)

    return Breaking


class _BreakingFile:
    """Nothing waits in a buffer: what a dead process has written is there."""

    def __init__(self, file: Any, breakage: Breakage, name: str) -> None:
        self._file, self._breakage, self._name = file, breakage, name

    def seek(self, offset: int) -> int:
        return int(self._file.seek(offset))

    def read(self, length: int = -1) -> bytes:
        self._breakage.happens(f"read {self._name}")
        return bytes(self._file.read(length))

    def write(self, data: bytes) -> int:
        if self._breakage.happens(f"write {self._name}"):
            self._file.write(data[: len(data) // 2])
            raise self._breakage.failure(f"write {self._name}")
        return int(self._file.write(data))

    def close(self) -> None:
        if not self._file.closed:
            self._file.close()
            self._breakage.happens(f"close {self._name}")

    def __enter__(self) -> _BreakingFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
