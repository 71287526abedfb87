"""A real HDFS for the tests in this directory. Without one they are skipped, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.local_hdfs import HdfsUnavailable, LocalHdfs
from tests.hdfs.harness import Disk, Hdfs, Place, SharedCheckpoint, Shell


@pytest.fixture(scope="package")
def hdfs() -> Iterator[LocalHdfs]:
    """One NameNode and one DataNode; they stop with the tests."""
    try:
        servers = LocalHdfs()
        servers.start()
    except HdfsUnavailable as error:
        pytest.skip(f"no HDFS to test with: {error}")
    yield servers
    servers.stop()


@pytest.fixture(scope="session")
def jvm(_sessions: Any) -> Any:
    """py4j's view of the JVM that all sessions of this process share."""
    from pyspark import SparkContext

    return SparkContext._jvm


@pytest.fixture
def on_hdfs(hdfs: LocalHdfs, jvm: Any, tmp_path: Path) -> Iterator[Hdfs]:
    """A test's own directory on HDFS."""
    place = Hdfs(jvm, tmp_path, hdfs.url)
    yield place
    # Or this JVM would go on renewing leases on an HDFS that is not there any more.
    place.forget()


@pytest.fixture(params=["hdfs", "file"])
def place(request: pytest.FixtureRequest, jvm: Any, tmp_path: Path) -> Place:
    """A test's own directory, on HDFS and on the disk: what holds on one holds on the other."""
    if request.param == "hdfs":
        on_hdfs: Hdfs = request.getfixturevalue("on_hdfs")
        return on_hdfs
    return Disk(jvm, tmp_path)


@pytest.fixture
def here() -> Iterator[Callable[..., SharedCheckpoint]]:
    """Makes this process's view of a place's checkpoint: ``here(place, closedAfter="10s")``."""
    made: list[SharedCheckpoint] = []

    def make(place: Place, **options: str) -> SharedCheckpoint:
        made.append(SharedCheckpoint(place, **options))
        return made[-1]

    yield make
    for checkpoint in made:
        checkpoint.forget()


@pytest.fixture
def shell(main_jar: Path, test_jar: Path) -> Iterator[Callable[..., Shell]]:
    """Starts another process that works on a place's checkpoint: ``shell(place, closedAfter="10s")``."""
    started: list[Shell] = []

    def start(place: Place, **options: str) -> Shell:
        started.append(Shell(place, [main_jar, test_jar], options))
        return started[-1]

    yield start
    for process in started:
        process.kill()
