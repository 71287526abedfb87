"""A local file system that counts what it is asked to change or read, and fails, or is late, at one of these."""

from __future__ import annotations

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

    def meets(self, operation: str, path: str, action: Callable[[], Any]) -> Any:
        """Does it, or does not."""
        number = len(self.log)
        self.log.append((operation, Path(path).name))
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
