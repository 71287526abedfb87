"""How often a process that knows nothing yet asks the file system for the bytes of state."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.jvm.harness import STAMP, Checkpoint, calls

pytestmark = pytest.mark.spark

KIB = 1 << 10
VERSIONS = range(1, 7)
PARTITIONS = range(5)


def written(checkpoint: Checkpoint, size: int = KIB) -> dict[str, bytes]:
    """One file for each version, with a changelog of each partition in it."""
    chance = random.Random(1)
    data = {f"0/{p}/{v}.changelog": chance.randbytes(size) for v in VERSIONS for p in PARTITIONS}
    for version in VERSIONS:
        with checkpoint.foreign(version) as file:
            for path, content in data.items():
                if path.endswith(f"/{version}.changelog"):
                    file.put(path, content, stamp=STAMP + version)
    return data


def load_as_spark_does(checkpoint: Checkpoint, data: dict[str, bytes]) -> None:
    """Opens each changelog of each partition twice: for its version, and for its records."""
    for partition in PARTITIONS:
        for version in VERSIONS:
            path = f"0/{partition}/{version}.changelog"
            for _ in range(2):
                assert checkpoint.read(path) == data[path]


def reads_of(jvm: Any, checkpoint: Checkpoint, data: dict[str, bytes]) -> int:
    """Reads for data only: what the index takes was read before."""
    assert checkpoint.exists("0/0/1.changelog")
    before = calls(jvm, checkpoint)["read"]
    load_as_spark_does(checkpoint, data)
    return calls(jvm, checkpoint)["read"] - before


def test_a_changelog_that_spark_opens_twice_is_read_once(counted: Callable[..., Checkpoint], jvm: Any) -> None:
    checkpoint = counted()
    data = written(checkpoint)
    assert reads_of(jvm, checkpoint, data) == len(data)


@pytest.mark.parametrize("size", [KIB, 512 * KIB], ids=["fits", "too much to fetch ahead"])
def test_any_order_of_openings_gives_the_same_bytes(counted: Callable[..., Checkpoint], size: int) -> None:
    checkpoint = counted()
    data = written(checkpoint, size)
    for path in [*data, *reversed(data), *data]:
        assert checkpoint.read(path) == data[path]
