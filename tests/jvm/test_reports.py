"""A task goes on while its report is under way, and ends only after the driver has heard of what it committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.jvm.harness import Checkpoint, until

pytestmark = pytest.mark.spark

CHANGELOG = "0/0/{}.changelog"


@pytest.fixture
def checkpoint(new_checkpoint: Callable[..., Checkpoint]) -> Checkpoint:
    return new_checkpoint()


@pytest.fixture
def executor(jvm: Any, checkpoint: Checkpoint) -> Iterator[Any]:
    """An executor's log, with one group that was reported; from then on reports are held."""
    state = jvm.org.apache.hadoop.fs.Path(f"file:{checkpoint.state}")
    made = jvm.io.pyspark.statestore.log.HeldReports(
        jvm.org.apache.hadoop.fs.FileSystem.getLocal(checkpoint.fs.getConf()), state, checkpoint.fs.getConf()
    )
    assert made.outcome(made.commit(CHANGELOG.format(1), b"one")) is None
    assert made.outcome(made.endTask()) is None
    made.hold()
    yield made
    made.close()


def commit(executor: Any, version: int) -> Any:
    return executor.commit(CHANGELOG.format(version), b"some bytes")


def test_a_commit_does_not_wait_for_its_report_and_the_end_of_its_task_does(executor: Any) -> None:
    assert executor.outcome(commit(executor, 2)) is None
    executor.awaitHeld(1)
    assert not executor.isKnown(CHANGELOG.format(2))

    end = executor.endTask()
    assert not end.isDone()
    executor.arrive()
    assert executor.outcome(end) is None
    assert executor.isKnown(CHANGELOG.format(2))


def test_a_commit_of_no_task_waits_for_its_report(executor: Any) -> None:
    executor.hasTask(False)
    written = commit(executor, 2)
    executor.awaitHeld(1)
    assert not written.isDone()
    executor.arrive()
    assert executor.outcome(written) is None


def test_a_snapshot_waits_for_its_report(executor: Any) -> None:
    """Later snapshots name its files as soon as it is written."""
    written = executor.commit("0/0/SSTs/000008-1a2b.sst", b"some bytes")
    executor.awaitHeld(1)
    assert not written.isDone()
    executor.arrive()
    assert executor.outcome(written) is None


def test_a_group_with_deletions_waits_for_its_report(executor: Any) -> None:
    """If the report failed, the deletions would have to be written again, and nobody would remember them."""
    written = executor.delete(CHANGELOG.format(1))
    executor.awaitHeld(1)
    assert not written.isDone()
    executor.lose()
    assert "PSS_INDEX_SERVICE_FAILED" in executor.outcome(written)
    assert executor.isKnown(CHANGELOG.format(1))

    again = commit(executor, 3)
    executor.awaitHeld(1)
    executor.arrive()
    assert executor.outcome(again) is None
    assert not executor.isKnown(CHANGELOG.format(1)), "the deletion was forgotten"


def test_nothing_is_appended_to_a_file_while_a_report_on_it_is_under_way(executor: Any, checkpoint: Checkpoint) -> None:
    """Otherwise the next report would hide the group that the driver has not heard of."""
    assert executor.outcome(commit(executor, 2)) is None
    executor.awaitHeld(1)
    (name,) = checkpoint.files()
    size = (checkpoint.merged / name).stat().st_size

    second = commit(executor, 3)
    assert (checkpoint.merged / name).stat().st_size == size
    assert not second.isDone()
    assert executor.held() == 1
    executor.arrive()
    assert executor.outcome(second) is None
    executor.awaitHeld(1)
    executor.arrive()
    assert executor.outcome(executor.endTask()) is None
    assert executor.isKnown(CHANGELOG.format(3))


def test_a_report_that_fails_fails_the_task_and_ends_the_file(executor: Any, checkpoint: Checkpoint) -> None:
    assert executor.outcome(commit(executor, 2)) is None
    executor.awaitHeld(1)
    (before,) = checkpoint.files()
    size = (checkpoint.merged / before).stat().st_size
    executor.lose()
    assert "PSS_INDEX_SERVICE_FAILED" in executor.outcome(executor.endTask())

    assert executor.outcome(commit(executor, 3)) is None
    executor.awaitHeld(1)
    executor.arrive()
    assert executor.outcome(executor.endTask()) is None
    assert len(checkpoint.files()) == 2
    assert (checkpoint.merged / before).stat().st_size == size
    assert executor.isKnown(CHANGELOG.format(3))


def test_all_tasks_of_a_group_wait_for_its_report(executor: Any) -> None:
    first = commit(executor, 2)
    executor.awaitHeld(1)
    others = [commit(executor, version) for version in range(3, 7)]
    executor.arrive()
    assert executor.outcome(first) is None
    # The others share groups, of which each waits for the report of the one before.
    until(lambda: [executor.arrive(), all(each.isDone() for each in others)][1], "the commits")
    assert [executor.outcome(each) for each in others] == [None] * 4
    end = executor.endTask()
    until(lambda: [executor.arrive(), end.isDone()][1], "the end of the task")
    assert executor.outcome(end) is None
    assert all(executor.isKnown(CHANGELOG.format(version)) for version in range(2, 7))
