"""What the index service answers to executors that ask for much, or where it cannot answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.jvm.harness import Checkpoint

pytestmark = pytest.mark.spark


@pytest.fixture
def doors(jvm: Any) -> Any:
    return jvm.io.pyspark.statestore.log.ServiceDoors


@pytest.mark.parametrize("characters", [10, 100_000])
def test_a_refusal_arrives_however_long_its_reason_is(doors: Any, characters: int) -> None:
    """A server's error may come with a page of HTML."""
    reason = doors.refusal(characters)
    assert reason.startswith("java.io.IOException: €€")
    assert len(reason) == min(10_000, characters + len("java.io.IOException: "))


@pytest.mark.parametrize("bound", [1, 3_000, 1 << 25])
def test_an_answer_is_bounded_and_all_is_answered(
    doors: Any, new_checkpoint: Callable[..., Checkpoint], jvm: Any, bound: int
) -> None:
    partitions, versions = 20, 10
    checkpoint = new_checkpoint()
    state = jvm.org.apache.hadoop.fs.Path(f"file:{checkpoint.state}")
    conf = checkpoint.fs.getConf()
    longest, questions, known = doors.loadAll(state.getFileSystem(conf), state, conf, partitions, versions, bound)
    assert known == partitions
    a_partition = 100 + (versions + 1) * 100
    assert longest <= bound + a_partition + 20 * partitions
    assert questions == {1: partitions, 3_000: 4, 1 << 25: 1}[bound]


def test_nothing_is_missed_between_two_answers(doors: Any, new_checkpoint: Callable[..., Checkpoint], jvm: Any) -> None:
    checkpoint = new_checkpoint()
    state = jvm.org.apache.hadoop.fs.Path(f"file:{checkpoint.state}")
    conf = checkpoint.fs.getConf()
    assert list(doors.foundMeanwhile(state.getFileSystem(conf), state, conf)) == [2, 2, 2]
