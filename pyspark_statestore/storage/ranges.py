"""Which ranges of a file are read with one request."""

from __future__ import annotations

import numpy as np

GAP = 64 * 1024
"""Ranges that are nearer to each other are read together."""

MAX_READ = 8 << 20
"""Bytes of a request at most, unless a single range is longer."""


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
