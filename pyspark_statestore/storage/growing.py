"""Reads files that are longer than listings say: HDFS lists the length that a file had after its first flush.

The NameNode learns of more bytes only when a block is full or the file is closed. A reader that opens the file sees
what was flushed (HDFS-5042; docs/how-it-works.md).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

_STEP = 1 << 20
_OFFSET = re.compile(r"(?<=[?&])offset=\d+")
_LENGTH = re.compile(r"&length=\d+|(?<=\?)length=\d+&")


class SeekableFile:
    """Reads any range of a file; a file of libhdfs reaches as far as was flushed when it was opened.

    Args:
        file: The open file.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._read_at: Callable[[int, int], bytes] | None = getattr(getattr(file, "stream", None), "read_at", None)

    def read(self, offset: int, length: int) -> bytes:
        """Returns a range; fewer bytes where the file ends."""
        self._file.seek(offset)
        return bytes(self._file.read(length))

    def length_now(self, listed: int) -> int:
        """Returns how many bytes can be read by now.

        Args:
            listed: The listed size; the file has at least as many.
        """
        low, high = self._bounds(listed) if self._read_at else (listed, sys.maxsize)
        while low < high and (data := self.read(low, min(_STEP, high - low))):
            low += len(data)
        return low

    def _bounds(self, low: int) -> tuple[int, int]:
        """Two offsets near each other with the end between them, found by reading single bytes."""
        step = _STEP
        while self._has(low + step):
            low += step
            step *= 2
        high = low + step
        while high - low > _STEP:
            middle = (low + high) // 2
            low, high = (middle, high) if self._has(middle) else (low, middle)
        return low, high

    def _has(self, offset: int) -> bool:
        """Whether the file has a byte there. libhdfs refuses to seek behind the end, but not to read there."""
        assert self._read_at is not None
        return bool(self._read_at(1, offset))


class WebHdfsFile:
    """Reads a file through WebHDFS, whose NameNode refuses ranges that begin where it thinks that the file ends.

    So it is asked for a range that it knows of. The DataNode that it names for that sees what was flushed.

    Args:
        file: The open file of fsspec's.
    """

    def __init__(self, file: Any) -> None:
        self._known = max(int(file.size) - 1, 0)
        file.size = sys.maxsize
        self._file = file
        self._fs = file.fs

    def read(self, offset: int, length: int) -> bytes:
        """Returns a range; fewer bytes where the file ends."""
        url = self._data_node() if offset > self._known else None
        if url is None:
            begin = min(offset, self._known)
            return bytes(self._file._fetch_range(begin, offset + length))[offset - begin :]
        with self._fs.session.get(_with_range(url, offset, length)) as answer:
            return bytes(_checked(answer).content)

    def length_now(self, listed: int) -> int:
        """Returns how many bytes can be read by now.

        Args:
            listed: The listed size; the file has at least as many.
        """
        if url := self._data_node():
            with self._fs.session.get(_with_range(url, self._known), stream=True) as answer:
                rest = _checked(answer).headers.get("Content-Length")
            if rest is not None:
                return max(listed, self._known + int(rest))
        at = listed
        while data := self.read(at, 8 * _STEP):
            at += len(data)
        return at

    def _data_node(self) -> str | None:
        """The URL at a DataNode where any range can be read; None behind a gateway, which answers itself."""
        answer = self._fs._call("OPEN", path=self._file.path, offset=self._known, length=1, redirect=False)
        location = answer.headers.get("Location", "")
        return str(self._fs._apply_proxy(location)) if _OFFSET.search(location) else None


def _with_range(url: str, offset: int, length: int | None = None) -> str:
    """The same request for another range; without a length, for all that follows."""
    wanted = f"offset={offset}" if length is None else f"offset={offset}&length={length}"
    return _OFFSET.sub(wanted, _LENGTH.sub("", url))


def _checked(answer: Any) -> Any:
    if answer.status_code >= 400:
        raise OSError(f"{answer.status_code} {answer.text}")
    return answer
