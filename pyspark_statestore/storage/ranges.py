"""Which ranges of a file are read with one request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

GAP = 64 * 1024
"""Ranges that are nearer to each other are read together."""

MAX_READ = 8 << 20
"""Bytes of a request at most, unless a single range is longer."""


class Readable(Protocol):
    """A file that ranges are read of."""

    def read_at(self, offset: int, length: int, /) -> bytes:
        """Reads bytes; fewer where the file ends before."""
        ...


def in_parts(file: Readable, offset: int, length: int) -> Iterator[bytes]:
    """Reads a range that may be too large for the memory.

    Yields:
        Bytes, of :data:`MAX_READ` at most; fewer than the range has where the file ends before it.
    """
    for start in range(offset, offset + length, MAX_READ):
        wanted = min(MAX_READ, offset + length - start)
        data = file.read_at(start, wanted)
        yield data
        if len(data) < wanted:
            return


def requests(offset: np.ndarray, length: np.ndarray, most: int = MAX_READ) -> list[int]:
    """Puts neighbours together.

    Args:
        offset: Of each range, ascending.
        length: Of each.
        most: Bytes of a request.

    Returns:
        The number of the range that each request begins with; and how many ranges there are.
    """
    end = np.maximum.accumulate(offset + length)
    far: np.ndarray = np.append(True, offset[1:] - end[:-1] > GAP)
    begins = [0]
    at = 0
    breaks: np.ndarray = np.append(np.flatnonzero(far), len(offset))
    while at < len(offset):
        # As far as neighbours go, and not further than one request may.
        near = int(breaks[np.searchsorted(breaks, at, "right")])
        fits = at + int(np.searchsorted(end[at:near], int(offset[at]) + most, "right"))
        at = max(at + 1, min(near, fits))
        begins.append(at)
    return begins
