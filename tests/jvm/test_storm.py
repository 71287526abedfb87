"""Many threads that commit at the same time: each acknowledged commit is there, and groups share flushes.

PSS_STORM_SECONDS=60 makes the storms last a minute each.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.processes import second_jvm
from tests.jvm.harness import FILE_SYSTEMS, TESTING, Checkpoint

pytestmark = [pytest.mark.spark, pytest.mark.slow]

THREADS = 32
SECONDS = float(os.environ.get("PSS_STORM_SECONDS", "4"))
PAUSE_MICROS = int(SECONDS * 100)
"""Between two commits of a thread. A longer storm is not a larger one: all of it is read in the end."""

FILE_SYSTEMS.setdefault("slowflush", "SlowFlushFileSystem")


def merged_calls(jvm: Any, label: str) -> dict[str, int]:
    """Calls on merged files, over all threads."""
    counting = getattr(jvm, f"{TESTING}.CountingFileSystem")
    by_thread = json.loads(counting.snapshotJson()).get(label, {})
    counted: dict[str, int] = {}
    for categories in by_thread.values():
        for operation, count in categories.get("merged", {}).items():
            counted[operation] = counted.get(operation, 0) + count
    return counted


@pytest.mark.parametrize("scheme", ["slowflush", "objectstore"])
def test_a_storm_loses_nothing_and_shares_flushes(
    new_checkpoint: Callable[..., Checkpoint], jvm: Any, tmp_path: Path, scheme: str
) -> None:
    checkpoint = new_checkpoint(scheme, name=tmp_path.name)
    counting = getattr(jvm, f"{TESTING}.CountingFileSystem")
    counting.registerRoot(tmp_path.name, str(checkpoint.directory))
    storm = getattr(jvm, f"{TESTING}.Storm")
    timed = getattr(jvm, f"{TESTING}.TimedStorm")
    if scheme == "objectstore":
        counting.setDelayMillis("merged", 2)  # a request's time
    try:
        run = timed(checkpoint.fs, f"merged+{scheme}:{checkpoint.state}", THREADS, int(SECONDS * 1000), PAUSE_MICROS)
        assert list(run.failures()) == []
    finally:
        counting.setDelayMillis("merged", 0)

    acknowledged = [run.acknowledged(thread) for thread in range(THREADS)]
    commits = sum(acknowledged)
    calls = merged_calls(jvm, tmp_path.name)
    flushes = calls["hflush"] if scheme == "slowflush" else calls["close"]
    print(f"{scheme}: {commits} commits, {flushes} flushes, {calls}")
    # Read by another program, from the bytes on the disk alone.
    view = checkpoint.view()
    contents = view.contents()
    assert len(contents) == commits
    for partition, last in enumerate(acknowledged):
        assert last > 10
        assert all(f"0/{partition}/{version}.changelog" in contents for version in range(1, last + 1))
        for version in {1, last // 2, last}:
            assert contents[f"0/{partition}/{version}.changelog"] == bytes(storm.content(partition, version))
    assert flushes <= commits / 4
    metrics = checkpoint.metrics()
    assert metrics["commits"] == metrics["segments"] == commits
    assert metrics["groups"] == flushes
    if scheme == "objectstore":
        assert calls["create"] == flushes == len(view.files)
        assert "rename" not in calls


def test_a_storm_is_seen_by_another_process(
    main_jar: Path, test_jar: Path, new_checkpoint: Callable[..., Checkpoint], jvm: Any
) -> None:
    checkpoint = new_checkpoint()
    storm = getattr(jvm, f"{TESTING}.Storm")
    timed = getattr(jvm, f"{TESTING}.TimedStorm")
    with second_jvm(main_jar, test_jar) as other:
        there = Checkpoint(other.view, checkpoint.directory)
        run = timed(checkpoint.fs, f"merged+file:{checkpoint.state}", THREADS, int(SECONDS * 400), 10 * PAUSE_MICROS)
        compared = 0
        end = time.monotonic() + SECONDS * 0.4
        while compared < 10 or time.monotonic() < end:
            # What was acknowledged before the other process asks must be in its answer.
            for partition in (0, THREADS - 1):
                version = run.acknowledged(partition)
                if version:
                    path = f"0/{partition}/{version}.changelog"
                    assert there.read(path) == bytes(storm.content(partition, version))
                    compared += 1
        assert list(run.failures()) == []
        assert len(there.names("0/0")) == run.acknowledged(0)
