"""Copies that become visible late, where a file appears when it is closed: nothing comes back by them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from pyspark_statestore.format import Kind, file_name
from tests.jvm.lab import CREATED_MS, STAMP, Checkpoint, until

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("by_hand")]

MOVED, ALSO_MOVED = "0/0/2.zip", "0/0/3.zip"
CLOSED_AFTER_S = 5


class Relocator:
    """A process whose relocation hangs while the file system takes its file."""

    def __init__(self, checkpoint: Checkpoint, gate: Any, background: ThreadPoolExecutor) -> None:
        self._gate = gate
        checkpoint.write("0/0/7.changelog", b"served")
        with checkpoint.foreign(1, writer=5) as file:
            file.put("0/0/1.zip", bytes(50_000), stamp=STAMP)
            file.put(MOVED, b"lives" * 100, stamp=STAMP + 1)
            file.put(ALSO_MOVED, b"lives, too", stamp=STAMP + 2)
            file.delete("0/0/1.zip", stamp=STAMP, writer=5)
        self.original = file_name(CREATED_MS, 5, 1)
        gate.hold("before close", ".merged")
        self._work: Future[int] = background.submit(checkpoint.clean)
        assert gate.awaitHeld("before close")

    def goes_on(self) -> int:
        """How many files it unlinks."""
        self._gate.release("before close")
        return self._work.result(30)


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def tombstones(checkpoint: Checkpoint) -> set[str]:
    view = checkpoint.view()
    return {entry.path for file in view.files.values() for entry in file if entry.kind is Kind.DELETE}


def announcements(checkpoint: Checkpoint) -> list[str]:
    return [path.name for path in checkpoint.merged.glob("*.relocating")]


@pytest.mark.slow
def test_rule_5_what_was_deleted_meanwhile_stays_deleted(
    new_checkpoint: Callable[..., Checkpoint], gate: Any, background: ThreadPoolExecutor
) -> None:
    """However long it takes: whoever cleans waits for a relocation whose process lives."""
    options = {"idleSeal": "1s", "closedAfter": f"{CLOSED_AFTER_S}s"}
    other = new_checkpoint("objectstore", **options)
    relocator = Relocator(new_checkpoint("gatedstore", **options), gate, background)
    begun = time.monotonic()
    assert other.delete(MOVED)
    assert other.delete(ALSO_MOVED)
    other.log.seal()
    other.write("0/1/2.changelog")
    expected = other.contents()

    def original_is_forgotten() -> bool:
        other.clean()
        other.write("0/1/2.changelog")  # newer than the tombstones, since the newest file is kept
        return relocator.original not in other.files() and not tombstones(other)

    until(lambda: original_is_forgotten() or time.monotonic() - begun > 1.6 * CLOSED_AFTER_S, "nobody waits any more")
    relocator.goes_on()

    assert other.contents() == expected
    assert MOVED not in expected
    assert not other.exists(MOVED)
    until(original_is_forgotten, "the tombstones to go, now that the relocation has ended")
    assert announcements(other) == []
    assert other.contents() == expected


def test_rule_5_nothing_is_unlinked_on_copies_that_nobody_may_have_waited_for(
    new_checkpoint: Callable[..., Checkpoint], gate: Any, background: ThreadPoolExecutor, jvm: Any
) -> None:
    """As when the process was stopped, or could not renew its announcement."""
    checkpoint = new_checkpoint("gatedstore")
    relocator = Relocator(checkpoint, gate, background)
    before = checkpoint.contents()
    jvm.io.pyspark.statestore.log.WallClock.ahead(3_600_000)
    try:
        assert relocator.goes_on() == 0
    finally:
        jvm.io.pyspark.statestore.log.WallClock.right()

    assert relocator.original in checkpoint.files()
    assert len(announcements(checkpoint)) == 1
    assert checkpoint.contents() == before
