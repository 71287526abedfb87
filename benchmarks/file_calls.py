"""Counts the calls of the package to a local disk, where fsspec passes them on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class FileCalls:
    """The number of calls, by file or directory.

    Attributes:
        opens: Opens for reading.
        reads: Reads.
        bytes_read: The bytes that were read.
        creates: Opens for writing.
        deletes: Deletions.
        listings: Listings of a directory.
    """

    opens: Counter[str] = field(default_factory=Counter)
    reads: Counter[str] = field(default_factory=Counter)
    bytes_read: Counter[str] = field(default_factory=Counter)
    creates: Counter[str] = field(default_factory=Counter)
    deletes: Counter[str] = field(default_factory=Counter)
    listings: Counter[str] = field(default_factory=Counter)

    def totals(self) -> dict[str, int]:
        """Returns the sums by kind of call."""
        return {name: counter.total() for name, counter in vars(self).items()}


@contextmanager
def counted() -> Iterator[FileCalls]:
    """Counts the calls to ``file:`` in the block, by checkpoints that are made in it."""
    from fsspec.implementations.local import LocalFileSystem
    from fsspec.registry import get_filesystem_class, register_implementation

    found = FileCalls()

    class File:
        def __init__(self, file: Any, name: str) -> None:
            self._file, self._name = file, name

        def read(self, length: int = -1) -> bytes:
            data: bytes = self._file.read(length)
            found.reads[self._name] += 1
            found.bytes_read[self._name] += len(data)
            return data

        def readinto(self, buffer: Any) -> int:
            length = int(self._file.readinto(buffer))
            found.reads[self._name] += 1
            found.bytes_read[self._name] += length
            return length

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def __enter__(self) -> File:
            return self

        def __exit__(self, *error: object) -> None:
            self._file.close()

    class Counting(LocalFileSystem):
        def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
            found.listings[path] += 1
            return super().ls(path, detail=detail, **options)

        def _open(self, path: str, mode: str = "rb", *arguments: Any, **options: Any) -> Any:
            (found.opens if "r" in mode else found.creates)[path] += 1
            file = super()._open(path, mode, *arguments, **options)
            return File(file, path) if "r" in mode else file

        def rm_file(self, path: str) -> None:
            found.deletes[path] += 1
            super().rm_file(path)

    before = get_filesystem_class("file")
    register_implementation("file", Counting, clobber=True)
    try:
        yield found
    finally:
        register_implementation("file", before, clobber=True)
