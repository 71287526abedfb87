"""Whatever is thrown in the background, nobody waits for ever, and what was to be done is done the next time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.jvm.harness import Checkpoint, in_time, until
from tests.jvm.test_idle_logs import forgetful

__all__ = ["forgetful"]

pytestmark = pytest.mark.spark


@pytest.fixture
def errors(jvm: Any) -> Any:
    return jvm.io.pyspark.statestore.log.BackgroundErrors


@pytest.mark.parametrize("failures", [1, 2, 9])
def test_tasks_end_where_threads_cannot_be_started(errors: Any, failures: int) -> None:
    assert in_time(errors.parallel, failures) == 5


def test_a_batch_begins_anew_where_no_thread_could_be_started(errors: Any) -> None:
    assert in_time(errors.batchBeginsAnew)


def test_a_batch_is_paid_after_an_error(errors: Any) -> None:
    assert in_time(errors.batchIsPaid)


def test_housekeeping_goes_on_after_an_error(
    errors: Any, forgetful: Any, new_checkpoint: Callable[..., Checkpoint]
) -> None:
    """A timer does not call again what has failed: nothing would be sealed, cleaned or forgotten in this process."""
    checkpoint = new_checkpoint(closedAfter="5s")
    manager = errors.housekeeperFails(2)
    try:
        checkpoint.write("0/0/1.changelog", b"one")
        until(lambda: errors.left() == 0, "the errors", 60)
        until(lambda: checkpoint.log is None, "the end of the log", 60)
    finally:
        errors.end(manager)
