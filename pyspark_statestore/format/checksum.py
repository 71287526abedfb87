"""CRC-32C, the checksum of everything in the format; also that of many segments together, without their bytes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import google_crc32c
import numpy as np

_WORD = np.uint32


def crc32c(data: bytes, before: int = 0) -> int:
    """Returns the CRC-32C (Castagnoli) of some bytes.

    Args:
        data: The bytes.
        before: The checksum of the bytes before them.
    """
    return int(google_crc32c.extend(before, data))


def joined_crc32c(crc: np.ndarray[Any, Any], length: np.ndarray[Any, Any], first: np.ndarray[Any, Any]) -> Any:
    """Returns the CRC-32C of each run of segments that follow each other.

    Args:
        crc: The checksum of each segment.
        length: The length of each in bytes.
        first: The number of the segment with which each run begins, in ascending order; the first of them is 0.
    """
    if not len(crc):
        return np.empty(0, _WORD)
    ends: np.ndarray[Any, Any] = np.cumsum(length)
    last: np.ndarray[Any, Any] = np.append(first[1:], len(crc)) - 1
    behind = np.repeat(ends[last], np.diff(np.append(first, len(crc)))) - ends
    moved: np.ndarray[Any, Any] = crc.astype(_WORD)
    place = 0
    while bool((behind >> 8 * place).any()):
        digit = (behind >> 8 * place) & 0xFF
        rows = np.flatnonzero(digit)
        moved[rows] = _moved_on(moved[rows], digit[rows], _tables(place))
        place += 1
    return np.bitwise_xor.reduceat(moved, first)


def _moved_on(crc: np.ndarray[Any, Any], digit: np.ndarray[Any, Any], tables: np.ndarray[Any, Any]) -> Any:
    base = digit << 10
    moved = tables[base + (crc & 0xFF)]
    for number in range(1, 4):
        moved ^= tables[base + (number << 8) + ((crc >> 8 * number) & 0xFF)]
    return moved


@lru_cache(maxsize=8)
def _tables(place: int) -> np.ndarray[Any, Any]:
    """What each byte of a checksum becomes, for each digit at one place of a number in base 256: 1 MiB."""
    step = _power(place)
    matrices: np.ndarray[Any, Any] = (1 << np.arange(32, dtype=_WORD))[None, :]
    while len(matrices) < 256:
        matrices = np.concatenate([matrices, _times(step, matrices.ravel()).reshape(-1, 32)])
        step = _times(step, step)
    tables: np.ndarray[Any, Any] = np.zeros((256, 4, 256), _WORD)
    for number in range(4):
        for bit in range(8):
            known = tables[:, number, : 1 << bit]
            tables[:, number, 1 << bit : 2 << bit] = known ^ matrices[:, 8 * number + bit, None]
    return tables.ravel()


@lru_cache(maxsize=8)
def _power(place: int) -> np.ndarray[Any, Any]:
    """What each bit of a checksum becomes after 256 ** place more zero bytes."""
    if place == 0:
        # Adding a zero byte is an affine map; the part of it that depends on the checksum is linear.
        ends_with = [crc32c(b"\0", 1 << bit) ^ crc32c(b"\0", 0) for bit in range(32)]
        first: np.ndarray[Any, Any] = np.array(ends_with, _WORD)
        return first
    matrix: np.ndarray[Any, Any] = _power(place - 1)
    for _ in range(8):
        matrix = _times(matrix, matrix)
    return matrix


def _times(matrix: np.ndarray[Any, Any], columns: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Applies a matrix to each of some checksums."""
    bits = (columns[:, None] >> np.arange(32, dtype=_WORD)) & 1
    moved: np.ndarray[Any, Any] = np.bitwise_xor.reduce(np.where(bits == 1, matrix, _WORD(0)), axis=1)
    return moved
