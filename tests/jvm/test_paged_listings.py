"""Directories that are listed page by page, while files come and go: no listing is a snapshot, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pyspark_statestore.format import file_name
from tests.jvm.lab import CREATED_MS, STAMP, TESTING, Checkpoint, java_error

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("by_hand")]

P = "0/0/1.changelog"
DATA = b"moved to a page that has been read"
FIRST_MS, LAST_MS = CREATED_MS - 10, CREATED_MS + 10
MANY = 450


@pytest.fixture
def pages(jvm: Any) -> Iterator[Any]:
    """The file system that lists so; the size of its pages is a test's to choose."""
    paged = getattr(jvm, f"{TESTING}.PagedFileSystem")
    yield paged
    paged.pageSizeOfHdfs()


def fill(checkpoint: Checkpoint, files: int) -> str:
    """Many files, and a last one in which a path lives.

    Returns:
        The name of the last one.
    """
    for number in range(files):
        with checkpoint.foreign(number) as file:
            file.put(f"0/1/{number}.changelog", b"%d" % number, stamp=STAMP + number)
    with checkpoint.foreign(files, created_ms=LAST_MS) as file:
        file.put(P, DATA, stamp=STAMP)
    return file_name(LAST_MS, 77, files)


def move_to_the_first_page(checkpoint: Checkpoint, original: str) -> None:
    with checkpoint.foreign(9999, writer=5, created_ms=FIRST_MS) as file:
        file.put(P, DATA, stamp=STAMP, writer=77, generation=1)
    (checkpoint.merged / original).unlink()


@pytest.mark.parametrize("what", ["refresh", "clean"])
def test_rule_5_what_was_known_is_looked_for_again(
    new_checkpoint: Callable[..., Checkpoint], gate: Any, pages: Any, what: str
) -> None:
    pages.pageSize(2)
    checkpoint = new_checkpoint("paged")
    original = fill(checkpoint, 4)
    checkpoint.write("0/2/1.changelog", b"newest")
    assert checkpoint.read(P) == DATA
    gate.hold(pages.BETWEEN, "_merged ")
    with ThreadPoolExecutor(1) as background:
        looking = background.submit(getattr(checkpoint.log, what))
        assert gate.awaitHeld(pages.BETWEEN)
        move_to_the_first_page(checkpoint, original)
        gate.release(pages.BETWEEN)
        looking.result(30)

    assert checkpoint.log.find(P) is not None
    assert checkpoint.read(P) == DATA
    assert checkpoint.contents()[P] == DATA


def test_rule_5_what_was_not_known_yet_is_found(
    new_checkpoint: Callable[..., Checkpoint], gate: Any, pages: Any
) -> None:
    """As by a process that has just started."""
    pages.pageSize(MANY // 3)
    checkpoint = new_checkpoint("paged")
    (checkpoint.merged / fill(checkpoint, MANY)).unlink()
    assert not checkpoint.exists(P)
    with checkpoint.foreign(MANY, created_ms=LAST_MS) as file:
        file.put(P, DATA, stamp=STAMP)
    gate.hold(pages.BETWEEN, "_merged ")
    with ThreadPoolExecutor(1) as background:
        looking = background.submit(checkpoint.log.refresh)
        assert gate.awaitHeld(pages.BETWEEN)
        move_to_the_first_page(checkpoint, file_name(LAST_MS, 77, MANY))
        gate.release(pages.BETWEEN)
        looking.result(30)

    assert checkpoint.log.find(P) is not None
    assert checkpoint.read(P) == DATA


def test_rule_5_an_older_write_does_not_come_back_meanwhile(
    new_checkpoint: Callable[..., Checkpoint], gate: Any, pages: Any
) -> None:
    pages.pageSize(2)
    checkpoint = new_checkpoint("paged")
    with checkpoint.foreign(8, writer=4) as file:
        file.put(P, b"older", stamp=STAMP - 1)
    original = fill(checkpoint, 4)
    assert checkpoint.read(P) == DATA
    gate.hold(pages.BETWEEN, "_merged ")
    with ThreadPoolExecutor(1) as background:
        looking = background.submit(checkpoint.log.refresh)
        assert gate.awaitHeld(pages.BETWEEN)
        move_to_the_first_page(checkpoint, original)
        gate.release(pages.BETWEEN)
        looking.result(30)

    assert checkpoint.log.find(P).entry().stamp() == STAMP


def test_rule_8_a_file_that_exists_is_not_forgotten(new_checkpoint: Callable[..., Checkpoint], faulty: Any) -> None:
    checkpoint = new_checkpoint("faulty")
    fill(checkpoint, 3)
    assert checkpoint.read(P) == DATA
    faulty.addRule("listStatus", "_merged", 1, "short")

    with java_error("leaves out", "is not used"):
        checkpoint.log.refresh()

    assert checkpoint.log.find(P) is not None
    checkpoint.log.refresh()
    assert checkpoint.read(P) == DATA
