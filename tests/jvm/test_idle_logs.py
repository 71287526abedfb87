"""A process does not keep the log of every checkpoint that it ever saw, and makes directories without opening one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.jvm.harness import Checkpoint, until

pytestmark = pytest.mark.spark

KEPT = 300_000


@pytest.fixture
def forgetful(jvm: Any) -> Iterator[Any]:
    """Logs are forgotten as soon as others' files count as closed."""
    cleaning = jvm.io.pyspark.statestore.log.Cleaning
    cleaning.keepsLogsFor(0)
    yield cleaning
    cleaning.keepsLogsFor(KEPT)


def test_a_log_that_nobody_uses_is_forgotten_and_opened_anew(
    forgetful: Any, new_checkpoint: Callable[..., Checkpoint]
) -> None:
    checkpoint = new_checkpoint(closedAfter="8s")
    checkpoint.write("0/0/1.changelog", b"one")
    checkpoint.write("0/0/2.changelog", b"two")
    checkpoint.delete("0/0/1.changelog")
    assert checkpoint.log is not None
    until(lambda: checkpoint.log is None, "the end of the log", 60)
    assert all(checkpoint.sealed(name) for name in checkpoint.files()), "it was forgotten with a file open"
    assert checkpoint.contents() == {"0/0/2.changelog": b"two"}, "a deletion was not written"
    assert checkpoint.read("0/0/2.changelog") == b"two"


def test_a_log_that_is_used_stays(forgetful: Any, new_checkpoint: Callable[..., Checkpoint]) -> None:
    used, idle = (new_checkpoint(name=name, closedAfter="8s") for name in ("used", "idle"))
    for checkpoint in (used, idle):
        checkpoint.write("0/0/1.changelog")
    log = used.log
    version = 1

    def is_forgotten() -> bool:
        nonlocal version
        version += 1
        used.write(f"0/0/{version}.changelog")
        return idle.log is None

    until(is_forgotten, "the end of the idle log", 60)
    assert used.log == log


def test_a_heap_stores_directory_is_made_without_its_log(new_checkpoint: Callable[..., Checkpoint]) -> None:
    """Spark makes it while it holds the lock of all its stores, and opening a log may take long."""
    checkpoint = new_checkpoint()
    checkpoint.write("0/0/1.delta")
    checkpoint.forget()
    conf = checkpoint.jvm.org.apache.hadoop.conf.Configuration(checkpoint.fs.getConf())
    manager = checkpoint.jvm.io.pyspark.statestore.fs.MergedCheckpointFileManager(checkpoint.path("0/3"), conf)
    manager.mkdirs(checkpoint.path("0/3"))
    assert (checkpoint.state / "0" / "3").is_dir()
    assert checkpoint.log is None
