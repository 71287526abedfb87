"""When a process cleans by itself, and what the files say meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from pyspark_statestore.format import BytesSource, Kind, file_name, read_groups
from tests.jvm.harness import CREATED_MS, Checkpoint, no_file_goes, until

pytestmark = pytest.mark.spark

KEEP, NEW = "0/0/1.changelog", "0/0/99.changelog"
OLD = [f"0/0/{version}.changelog" for version in range(2, 30)]
STAMP = CREATED_MS << 16
HELD_BACK = 0.5
"""For so many seconds at least deletions wait for the next round."""


def written_with(checkpoint: Checkpoint, path: str) -> set[str]:
    """What was deleted by the group that made a path durable."""
    for name in checkpoint.files():
        data = (checkpoint.state / "_merged" / name).read_bytes()
        groups = [list(group.index) for group in read_groups(BytesSource(data))[1]]
        # Oldest last; a sealed file says all of it once more.
        for entries in reversed(groups):
            if any(entry.path == path for entry in entries):
                return {entry.path for entry in entries if entry.kind is Kind.DELETE}
    raise AssertionError(f"{path} is nowhere")


def test_what_is_deleted_and_its_space_go_together(new_checkpoint: Callable[..., Checkpoint]) -> None:
    checkpoint = new_checkpoint(maxFileSize="64k", closedAfter="1h")
    for path in (KEEP, *OLD):
        checkpoint.write(path, bytes(30_000))
    started = time.monotonic()
    for path in OLD:
        checkpoint.delete(path)
    # A batch's commit comes before the round of cleaning: the deletions do not ride in its group.
    checkpoint.write(NEW, bytes(30_000))
    if time.monotonic() - started < HELD_BACK:
        assert no_file_goes(lambda: written_with(checkpoint, NEW)) == set()

    until(lambda: len(checkpoint.files()) <= 3, "the space to be free", 10)
    until(lambda: set(checkpoint.view().live) == {KEEP, NEW}, "the rest to be deleted", 10)


@pytest.mark.parametrize("compaction", ["true", "false"])
def test_deletions_that_go_on_do_not_wait_for_ever(new_checkpoint: Callable[..., Checkpoint], compaction: str) -> None:
    checkpoint = new_checkpoint(maxFileSize="64k", closedAfter="1h", compaction__enabled=compaction)
    for path in (KEEP, *OLD):
        checkpoint.write(path, bytes(30_000))
    checkpoint.clean()  # the next round is not due for a while
    started = time.monotonic()
    for path in OLD:
        checkpoint.delete(path)
        time.sleep(0.03)  # Spark deletes: it is never quiet for long
    checkpoint.write(NEW, b"new")
    assert time.monotonic() - started > 0.5

    written = {e.path for file in checkpoint.view().files.values() for e in file if e.kind is Kind.DELETE}

    assert OLD[0] in written or OLD[0] not in checkpoint.view().live


@pytest.mark.usefixtures("by_hand")
def test_a_file_with_few_tombstones_goes_at_once(new_checkpoint: Callable[..., Checkpoint]) -> None:
    """What they hold down goes in the same round, so a little later they need not be written again; who would wait?"""
    checkpoint = new_checkpoint(closedAfter="1h")
    with checkpoint.foreign(1, writer=5) as file:
        file.put(OLD[0], bytes(30_000), stamp=STAMP)
    with checkpoint.foreign(2, writer=6) as file:
        file.put(OLD[1], bytes(30_000), stamp=STAMP + 1)
        file.delete(OLD[0], stamp=STAMP, writer=5)
        file.delete(OLD[1], stamp=STAMP + 1, writer=6)
    checkpoint.write(NEW, b"new")

    assert checkpoint.clean() == 2

    assert not (checkpoint.merged / file_name(CREATED_MS, 6, 2)).exists()
    assert set(checkpoint.view().live) == {NEW}
