"""Races between commits, refreshes and cleaning, each stopped at the point where it would go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest

from pyspark_statestore.format import file_name
from tests.jvm.harness import CREATED_MS, STAMP, TESTING, Checkpoint

pytestmark = pytest.mark.spark


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


def assert_kept(checkpoint: Checkpoint, expected: dict[str, bytes]) -> None:
    """All of it is there, and stays when the files are sealed and cleaned."""
    assert checkpoint.contents() == expected
    checkpoint.log.seal()
    checkpoint.log.refresh()
    checkpoint.clean()
    assert checkpoint.contents() == expected
    assert {path: checkpoint.read(path) for path in expected} == expected


def test_a_refresh_that_sees_a_new_file_before_its_lane_does(
    new_checkpoint: Callable[..., Checkpoint], gate: Any, background: ThreadPoolExecutor
) -> None:
    checkpoint = new_checkpoint("gated")
    checkpoint.exists("0/0")
    gate.hold("after create", "_merged")
    gate.hold("before open", "_merged")
    commit = background.submit(checkpoint.write, "0/0/1.changelog", b"one")
    assert gate.awaitHeld("after create")
    looked = background.submit(checkpoint.log.refresh)
    wait([looked], timeout=1)  # it may as well open the file, and is held then
    gate.release("after create")
    commit.result()
    gate.release("before open")
    looked.result()

    assert_kept(checkpoint, {"0/0/1.changelog": b"one"})


def test_a_listing_that_is_older_than_a_file(
    new_checkpoint: Callable[..., Checkpoint], gate: Any, background: ThreadPoolExecutor
) -> None:
    checkpoint = new_checkpoint("gated")
    checkpoint.write("0/0/1.changelog", b"one")
    checkpoint.log.seal()
    gate.hold("after listStatus", "_merged")
    looked = background.submit(checkpoint.log.refresh)
    assert gate.awaitHeld("after listStatus")
    checkpoint.write("0/0/2.changelog", b"two")
    gate.release("after listStatus")
    looked.result()

    assert_kept(checkpoint, {"0/0/1.changelog": b"one", "0/0/2.changelog": b"two"})


def test_an_object_that_is_not_visible_yet(
    new_checkpoint: Callable[..., Checkpoint], gate: Any, background: ThreadPoolExecutor
) -> None:
    checkpoint = new_checkpoint("gatedstore")
    checkpoint.exists("0/0")
    gate.hold("before close", "_merged")
    commit = background.submit(checkpoint.write, "0/0/1.changelog", b"one")
    assert gate.awaitHeld("before close")
    looked = background.submit(checkpoint.log.refresh)
    wait([looked], timeout=1)  # it may as well wait for the lane
    gate.release("before close")
    commit.result()
    looked.result()

    assert_kept(checkpoint, {"0/0/1.changelog": b"one"})


def test_objects_that_are_written_while_others_look(new_checkpoint: Callable[..., Checkpoint], jvm: Any) -> None:
    checkpoint = new_checkpoint("objectstore", maxFileSize="64k")
    storm = getattr(jvm, f"{TESTING}.Storm")
    state = f"merged+objectstore:{checkpoint.state}"

    assert list(storm.commitWhileListing(checkpoint.fs, state, 4, 30)) == []

    expected = {f"0/{t}/{v}.changelog": bytes(storm.content(t, v)) for t in range(4) for v in range(1, 31)}
    assert_kept(checkpoint, expected)


def test_rule_5_file_that_was_unlinked_between_its_listing_and_its_read_is_looked_for_again(
    new_checkpoint: Callable[..., Checkpoint], gate: Any, background: ThreadPoolExecutor
) -> None:
    checkpoint = new_checkpoint("gated")
    path, data = "0/0/7.changelog", b"moved before anybody had read it"
    checkpoint.write("0/1/1.changelog", b"newest")
    with checkpoint.foreign(1, writer=5) as file:
        file.put(path, data, stamp=STAMP)
    original = checkpoint.merged / file_name(CREATED_MS, 5, 1)
    gate.hold("after listStatus", "_merged")
    looking = background.submit(checkpoint.log.refresh)
    assert gate.awaitHeld("after listStatus")
    with checkpoint.foreign(2, writer=6) as file:
        file.put(path, data, stamp=STAMP, writer=5, generation=1)
    original.unlink()
    gate.release("after listStatus")
    looking.result(30)
    assert checkpoint.log.find(path) is not None
    assert checkpoint.read(path) == data
