"""Directories that are listed page by page, while files come and go: no listing is a snapshot, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from pyspark_statestore.format import file_name
from tests.jvm.harness import CREATED_MS, STAMP, TESTING, Checkpoint, java_error

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


@pytest.fixture
def deleted(new_checkpoint: Callable[..., Checkpoint], pages: Any, jvm: Any) -> Checkpoint:
    """A process that cleans for all, and knows a deletion but nothing that it kills."""
    pages.pageSize(MANY // 3)
    checkpoint = new_checkpoint("paged", compaction__enabled="false")
    (checkpoint.merged / fill(checkpoint, MANY)).unlink()
    with checkpoint.foreign(5000, writer=6) as file:
        file.delete(P, stamp=STAMP, writer=77)
    checkpoint.write("0/2/1.changelog", b"newest")
    jvm.io.pyspark.statestore.log.Cleaning.cleansForAll(checkpoint.log)
    return checkpoint


@contextmanager
def between_pages_of_a_pass(checkpoint: Checkpoint, gate: Any, pages: Any) -> Iterator[None]:
    gate.hold(pages.BETWEEN, "_merged ")
    with ThreadPoolExecutor(1) as background:
        cleaning = background.submit(checkpoint.log.clean)
        assert gate.awaitHeld(pages.BETWEEN)
        yield
        gate.release(pages.BETWEEN)
        cleaning.result(30)


def assert_stays_deleted(checkpoint: Checkpoint) -> None:
    for _ in range(4):
        checkpoint.log.clean()
        assert P not in checkpoint.contents()
    assert not checkpoint.exists(P)


def test_rule_6_what_is_moved_while_one_listing_runs_stays_deleted(deleted: Checkpoint, gate: Any, pages: Any) -> None:
    with deleted.foreign(MANY, created_ms=LAST_MS) as file:
        file.put(P, DATA, stamp=STAMP)
    with between_pages_of_a_pass(deleted, gate, pages):
        move_to_the_first_page(deleted, file_name(LAST_MS, 77, MANY))
    assert_stays_deleted(deleted)


def test_rule_6_what_a_relocation_copies_while_one_listing_runs_stays_deleted(
    deleted: Checkpoint, gate: Any, pages: Any
) -> None:
    """The relocator has read the original, and others have unlinked that. Its marker goes with the listing's end."""
    marker = deleted.merged / file_name(LAST_MS, 5, 1).replace(".merged", ".relocating")
    marker.touch()
    deleted.log.clean()
    with between_pages_of_a_pass(deleted, gate, pages):
        with deleted.foreign(9999, writer=5, created_ms=FIRST_MS) as file:
            file.put(P, DATA, stamp=STAMP, writer=77, generation=1)
        marker.unlink()
    assert_stays_deleted(deleted)


def test_a_deletion_is_unneeded_after_two_passes(
    new_checkpoint: Callable[..., Checkpoint], pages: Any, jvm: Any
) -> None:
    checkpoint = new_checkpoint("paged")
    fill(checkpoint, MANY)
    with checkpoint.foreign(5000, writer=6) as file:
        file.delete("0/3/1.changelog", stamp=STAMP, writer=77)
    checkpoint.write("0/2/1.changelog", b"newest")
    jvm.io.pyspark.statestore.log.Cleaning.cleansForAll(checkpoint.log)
    name = file_name(CREATED_MS, 6, 5000)
    passes = 0
    while (checkpoint.merged / name).exists():
        before = pages.listings()
        checkpoint.log.clean()
        passes += 1
        assert pages.listings() == before + 1
        assert passes <= 4
    assert passes > 2, "one listing was enough"


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
