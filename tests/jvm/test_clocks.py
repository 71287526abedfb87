"""Steps of the wall clock: what others may still be at is not taken for closed, given up or abandoned by them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore.format import Kind, file_name
from tests.jvm.harness import STAMP, Checkpoint, until

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("by_hand")]

HOUR_MS = 3_600_000
DEAD, LIVES = "0/1/1.changelog", "0/1/2.changelog"


@pytest.fixture
def wall_clock(jvm: Any) -> Iterator[Any]:
    """That of the JVM, which is right again afterwards."""
    clock = jvm.io.pyspark.statestore.files.WallClock
    yield clock
    clock.right()


def open_file_of_another(checkpoint: Checkpoint, number: int = 1) -> str:
    """Nothing lives in it yet, and its writer may come back to it any moment."""
    now = time.time_ns() // 1_000_000
    with checkpoint.foreign(number, seal=False, created_ms=now) as file:
        file.put(DEAD, b"dead", stamp=now << 16)
        file.delete(DEAD, stamp=now << 16, writer=77)
    return file_name(now, 77, number)


def test_rule_7_a_step_forward_closes_no_file_of_others(checkpoint: Checkpoint, wall_clock: Any) -> None:
    name = open_file_of_another(checkpoint)
    checkpoint.write("0/0/1.changelog")
    assert checkpoint.clean() == 0

    wall_clock.ahead(HOUR_MS)
    checkpoint.write("0/0/2.changelog")
    for _ in range(3):
        checkpoint.clean()

    assert name in checkpoint.files()
    assert checkpoint.read("0/0/1.changelog") == b"some bytes"


def test_rule_7_it_takes_two_clocks_to_abandon_a_file(checkpoint: Checkpoint, wall_clock: Any) -> None:
    """The file system's says two days; this process's says so, too, but only since it was put forward."""
    name = open_file_of_another(checkpoint)
    two_days_ago = time.time() - 2 * 86_400
    os.utime(checkpoint.merged / name, (two_days_ago, two_days_ago))
    checkpoint.write("0/0/1.changelog")

    wall_clock.ahead(50 * HOUR_MS)
    checkpoint.write("0/0/2.changelog")
    for _ in range(3):
        checkpoint.clean()

    assert name in checkpoint.files()


def test_a_step_forward_ends_no_relocation_of_others(checkpoint: Checkpoint, wall_clock: Any) -> None:
    """A copy may still appear, so the tombstone has to stay."""
    with checkpoint.foreign(1) as file:
        file.put("0/2/1.changelog", b"so that the tombstone's file is not the newest", stamp=STAMP + 10)
    with checkpoint.foreign(2) as file:
        file.put(DEAD, bytes(5000), stamp=STAMP)
        file.delete(DEAD, stamp=STAMP, writer=77)
    marker = checkpoint.merged / "0000000000001-0000000000000007-1.relocating"
    marker.touch()
    checkpoint.write(LIVES)
    checkpoint.clean()

    wall_clock.ahead(HOUR_MS)
    for _ in range(3):
        checkpoint.clean()
        checkpoint.log.seal()

    assert marker.exists()
    deleted = [entry.path for file in checkpoint.view().files.values() for entry in file if entry.kind is Kind.DELETE]
    assert deleted == [DEAD]


def test_a_step_forward_gives_no_pin_up(checkpoint: Checkpoint, wall_clock: Any) -> None:
    checkpoint.write(LIVES)
    with checkpoint.foreign(1) as file:
        file.put(DEAD, b"dead", stamp=STAMP)
        file.delete(DEAD, stamp=STAMP, writer=77)
    pin = checkpoint.merged / file_name(1, 98, 1).replace(".merged", ".fork")
    pin.touch()
    assert checkpoint.clean() == 0

    wall_clock.ahead(HOUR_MS)

    assert checkpoint.clean() == 0
    pin.unlink()
    assert checkpoint.clean() == 1


def test_a_step_back_keeps_nothing_for_longer(new_checkpoint: Callable[..., Checkpoint], wall_clock: Any) -> None:
    checkpoint = new_checkpoint(closedAfter="5s")
    name = open_file_of_another(checkpoint)
    left: Path = checkpoint.merged / "0000000000001-0000000000000007-1.relocating"
    left.touch()
    checkpoint.write("0/0/1.changelog")
    checkpoint.clean()

    wall_clock.ahead(-HOUR_MS)
    checkpoint.write("0/0/2.changelog")

    until(lambda: checkpoint.clean() >= 0 and name not in checkpoint.files(), "the file to count as closed")
    until(lambda: checkpoint.clean() >= 0 and not left.exists(), "the marker to go")
    assert checkpoint.read("0/0/1.changelog") == checkpoint.read("0/0/2.changelog") == b"some bytes"
