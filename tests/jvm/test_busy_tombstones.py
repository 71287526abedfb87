"""A cleaner that needs tombstones to be durable which a commit of another lane is writing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.jvm.harness import Checkpoint, in_time

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("by_hand")]


def test_a_cleaner_does_not_wait_for_ever_for_tombstones_of_another_lane(
    new_checkpoint: Callable[..., Checkpoint], gate: Any
) -> None:
    checkpoint = new_checkpoint("gated")
    checkpoint.write("0/0/1.changelog", b"one")
    checkpoint.log.seal()
    dead = checkpoint.files()[0]
    checkpoint.write("0/0/2.changelog", b"two")
    assert checkpoint.delete("0/0/1.changelog")
    gate.hold("before hflush", "_merged")
    with ThreadPoolExecutor(1) as background:
        # The snapshots' lane takes the deletion along, and is held before it is durable.
        commit = background.submit(checkpoint.write, "0/0/3.snapshot", b"three")
        assert gate.awaitHeld("before hflush")
        try:
            assert in_time(checkpoint.clean) == 0
            assert dead in checkpoint.files()
        finally:
            gate.release("before hflush")
        commit.result()

    assert checkpoint.clean() == 1
    assert dead not in checkpoint.files()
    assert sorted(checkpoint.contents()) == ["0/0/2.changelog", "0/0/3.snapshot"]
