"""Checksums of runs are those of their bytes."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_statestore.format.checksum import crc32c, joined_crc32c

PARTS = st.lists(st.binary(max_size=600), min_size=1, max_size=40)


@given(PARTS, st.sets(st.integers(1, 39)))
@example([b"", b"", b""], {1})
@example([b"a" * 255, b"b", b"c" * 256, b""], set())
def test_it_is_the_checksum_of_the_bytes(parts: list[bytes], begins: set[int]) -> None:
    first = [0, *sorted(begin for begin in begins if begin < len(parts))]
    crc = np.array([crc32c(part) for part in parts], "u4")
    length = np.array([len(part) for part in parts], "i8")
    ends = [*first[1:], len(parts)]
    wanted = [crc32c(b"".join(parts[a:b])) for a, b in zip(first, ends, strict=True)]
    assert joined_crc32c(crc, length, np.array(first)).tolist() == wanted


def test_runs_of_many_megabytes() -> None:
    """Whose lengths have four digits."""
    noise = random.Random(1)
    parts = [noise.randbytes(size) for size in (1, (1 << 24) + 77, 65_536, 3)]
    crc = np.array([crc32c(part) for part in parts], "u4")
    length = np.array([len(part) for part in parts], "i8")
    assert joined_crc32c(crc, length, np.array([0])).tolist() == [crc32c(b"".join(parts))]


def test_nothing() -> None:
    assert len(joined_crc32c(np.empty(0, "u4"), np.empty(0, "i8"), np.array([0]))) == 0
