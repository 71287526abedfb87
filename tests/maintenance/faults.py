"""Local file systems that fail on purpose: at one operation, or from one on, as where the process dies there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem


class Trouble:
    """What happens to the operations on ``file:``.

    Attributes:
        log: What was asked, in order: operation and file name.
        at: Number of the operation that fails, from 0; none where it is None.
        done: Whether that one is done all the same.
        before: Called with each operation and path before it.
    """

    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []
        self.at: int | None = None
        self.done = False
        self.before: Callable[[str, str], object] = lambda operation, path: None
        self._lock = threading.Lock()

    def meets(self, operation: str, path: str, action: Callable[[], Any]) -> Any:
        """Does it, or does not."""
        name = Path(path).name
        with self._lock:
            number = len(self.log)
            self.log.append((operation, name))
        self.before(operation, path)
        if number != self.at:
            return action()
        if self.done:
            action()
        raise OSError(f"{operation} of {path} fails on purpose")


@contextmanager
def troubled_files() -> Iterator[Trouble]:
    """Makes ``file:`` such a file system, for checkpoints that are made in the block."""
    from fsspec.registry import _registry, get_filesystem_class

    trouble = Trouble()

    class Troubled(LocalFileSystem):
        def ls(self, path: str, detail: bool = False, **kwargs: Any) -> Any:
            return trouble.meets("list", path, lambda: super(Troubled, self).ls(path, detail=detail, **kwargs))

        def rm_file(self, path: str) -> None:
            trouble.meets("delete", path, lambda: super(Troubled, self).rm_file(path))

        def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
            file = trouble.meets("open", path, lambda: super(Troubled, self)._open(path, mode, **kwargs))
            return _Written(file, path, trouble) if "w" in mode else file

    original = get_filesystem_class("file")
    _registry["file"] = Troubled
    try:
        yield trouble
    finally:
        _registry["file"] = original


class _Written:
    def __init__(self, file: Any, path: str, trouble: Trouble) -> None:
        self._file, self._path, self._trouble = file, path, trouble

    def write(self, data: bytes) -> int:
        written: int = self._trouble.meets("write", self._path, lambda: self._file.write(data))
        return written

    def close(self) -> None:
        try:
            self._trouble.meets("close", self._path, self._file.close)
        finally:
            self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class DiedError(BaseException):
    """The process is dead: nothing catches this, and nothing reaches the disk any more."""


class Breakage:
    """What a file system does at its n-th operation.

    Attributes:
        at: Which operation, from 0, or what tells it by all that was done so far; None for none.
        deadly: Whether all later ones fail, too, and nothing may catch it.
        torn: Whether half of a write still reaches the disk.
        instead: What happens before that operation instead of a failure.
        refuses: Tells which operations always fail.
        operations: What was done, in order.
    """

    def __init__(self) -> None:
        self.at: int | Callable[[list[str]], bool] | None = None
        self.deadly = False
        self.torn = False
        self.instead: Callable[[], object] | None = None
        self.refuses: Callable[[str], bool] = lambda what: False
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
            if self.refuses(what):
                raise self.failure(what)
            if not (self.at(self.operations) if callable(self.at) else len(self.operations) - 1 == self.at):
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

        def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
            breakage.happens(f"remove {Path(path).name}")
            super().rm(path, recursive=recursive, maxdepth=maxdepth)

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
