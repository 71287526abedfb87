"""A JVM without a Spark session, and checkpoints in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jvm.harness import TESTING, Checkpoint


@pytest.fixture(scope="session")
def jvm(_sessions: Any) -> Any:
    """py4j's view of the JVM that all sessions of this process share."""
    from pyspark import SparkContext

    return SparkContext._jvm


@pytest.fixture
def new_checkpoint(jvm: Any, tmp_path: Path) -> Iterator[Callable[..., Checkpoint]]:
    """Makes checkpoints: ``new_checkpoint("counting", name="other", maxFileSize="64k")``."""
    made: list[Checkpoint] = []

    def make(scheme: str = "file", name: str = "checkpoint", **options: Any) -> Checkpoint:
        made.append(Checkpoint(jvm, tmp_path / name, scheme, **options))
        return made[-1]

    yield make
    for checkpoint in made:
        checkpoint.forget()


@pytest.fixture
def checkpoint(new_checkpoint: Callable[..., Checkpoint]) -> Checkpoint:
    """A checkpoint on ``file:``, with the default options."""
    return new_checkpoint()


@pytest.fixture
def counted(jvm: Any, new_checkpoint: Callable[..., Checkpoint], tmp_path: Path) -> Callable[..., Checkpoint]:
    """Checkpoints whose calls are counted."""

    def make(scheme: str = "counting", **options: Any) -> Checkpoint:
        checkpoint = new_checkpoint(scheme, name=tmp_path.name, **options)
        counting = getattr(jvm, f"{TESTING}.CountingFileSystem")
        counting.registerRoot(checkpoint.directory.name, str(checkpoint.directory))
        return checkpoint

    return make


@pytest.fixture
def faulty(jvm: Any) -> Iterator[Any]:
    """The file system that fails on demand, without a rule before and after."""
    faulty = getattr(jvm, f"{TESTING}.FaultyFileSystem")
    faulty.clear()
    yield faulty
    faulty.clear()


@pytest.fixture
def by_hand(jvm: Any) -> Iterator[None]:
    """Cleaning passes come only when the test asks for one, so that it can say what each has done."""
    cleaning = jvm.io.pyspark.statestore.log.Cleaning
    cleaning.byHand()
    yield
    cleaning.byItself()


@pytest.fixture
def gate(jvm: Any) -> Iterator[Any]:
    """Stops threads where a test says so, and nobody any more afterwards."""
    gate = getattr(jvm, f"{TESTING}.Gate")
    yield gate
    gate.releaseAll()
