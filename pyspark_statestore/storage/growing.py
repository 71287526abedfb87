"""Files that are longer than listings say: HDFS shows the length that a file had when its first flush was over.

The NameNode only learns of more when a block is full or the file is closed; who opens the file sees what was flushed
(HDFS-5042; docs/how-it-works.md).
"""

from __future__ import annotations

import sys
from typing import Any

_STEP = 8 << 20


class SeekableFile:
    """Reads a file at any place; those of libhdfs reach as far as was flushed when they were opened.

    Args:
        file: That is open.
    """

    def __init__(self, file: Any) -> None:
        self._file = file

    def read(self, offset: int, length: int) -> bytes:
        """Returns a range, less where the file ends."""
        self._file.seek(offset)
        return bytes(self._file.read(length))


class WebHdfsFile:
    """Reads a file through WebHDFS, whose NameNode refuses ranges that begin where it thinks that the file ends.

    Args:
        file: fsspec's, that is open.
    """

    def __init__(self, file: Any) -> None:
        self._listed = int(file.size)
        file.size = sys.maxsize
        self._file = file

    def read(self, offset: int, length: int) -> bytes:
        """Returns a range, less where the file ends."""
        begin = min(offset, max(self._listed - 1, 0))
        data = bytes(self._file._fetch_range(begin, offset + length))
        return data[offset - begin :]


def length_now(file: SeekableFile | WebHdfsFile, listed: int) -> int:
    """How many bytes can be read by now.

    Args:
        file: That may be longer than was listed.
        listed: As long it is at least.
    """
    at = listed
    while data := file.read(at, _STEP):
        at += len(data)
    return at
