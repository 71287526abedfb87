"""Files are unlinked with few requests, where the file system can delete many at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.jvm.harness import Checkpoint, calls

pytestmark = [
    pytest.mark.spark,
    pytest.mark.usefixtures("by_hand"),
    pytest.mark.since("4.0", "Hadoop deletes many files at once from 3.4.1 on, which came with Spark 4.0"),
]

ONE = "0/0/1.changelog"
DEAD = 10


def pages_of(size: str, refused: str = "") -> dict[str, str]:
    """Settings of a file system that deletes so many files at once, but for one."""
    return {"fs.bulk.impl.disable.cache": "true", "fs.bulk.page.size": size, "fs.bulk.refused": refused}


def with_dead_files(checkpoint: Checkpoint) -> list[str]:
    """Ten files whose only content was written anew, and one with that; returns the names of the ten."""
    for _ in range(DEAD):
        checkpoint.write(ONE, bytes(70_000))
    checkpoint.write(ONE, b"new")
    return checkpoint.files()[:-1]


def deletions(jvm: Any, checkpoint: Checkpoint) -> tuple[int, int]:
    """Requests that delete one file, and many."""
    done = calls(jvm, checkpoint)
    return done.get("delete", 0), done.get("bulkDelete", 0)


@pytest.mark.parametrize(("page", "requests"), [("4", (0, 3)), ("250", (0, 1)), ("1", (DEAD, 0))])
def test_a_page_of_files_goes_with_one_request(
    counted: Callable[..., Checkpoint], jvm: Any, page: str, requests: tuple[int, int]
) -> None:
    checkpoint = counted("bulk", maxFileSize="64k", fs=pages_of(page))
    dead = with_dead_files(checkpoint)
    assert checkpoint.clean() == DEAD
    assert deletions(jvm, checkpoint) == requests
    assert not set(dead) & set(checkpoint.files())
    assert checkpoint.contents() == {ONE: b"new"}
    assert checkpoint.metrics()["unlinkedFiles"] == DEAD


def test_what_one_request_did_not_delete_is_tried_again(counted: Callable[..., Checkpoint], jvm: Any) -> None:
    checkpoint = counted("bulk", maxFileSize="64k", fs=pages_of("250", refused="-3.merged"))
    dead = with_dead_files(checkpoint)
    (kept,) = [name for name in dead if name.endswith("-3.merged")]
    checkpoint.clean()
    failed = checkpoint.metrics()["failedDeletes"]
    assert failed >= 1
    assert set(checkpoint.files()) & set(dead) == {kept}
    assert checkpoint.contents() == {ONE: b"new"}
    checkpoint.clean()
    assert checkpoint.metrics()["failedDeletes"] > failed
