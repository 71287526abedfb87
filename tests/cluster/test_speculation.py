"""Two attempts of one task, on two executors, that both commit the same version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.sums import MASTER, OPTIONS, Hold, Sums, await_gone, held_key, settings, stable_view
from tests.jvm.lab import until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BATCHES = 6


def writers_of(sums: Sums, version: int) -> dict[str, set[int]]:
    """Who has written a version of each partition."""
    found: dict[str, set[int]] = {}
    for file in stable_view(sums.checkpoint / "state").files.values():
        for entry in file:
            if entry.path.endswith(f"/{version}.changelog"):
                found.setdefault(entry.path, set()).add(entry.writer)
    return found


def test_two_attempts_that_commit_the_same_version(
    make_spark: Callable[..., Any], main_jar: Path, test_jar: Path, tmp_path: Path
) -> None:
    conf = settings(
        (main_jar, test_jar),
        spark__locality__wait="0s",
        spark__speculation="true",
        spark__speculation__interval="50ms",
        spark__speculation__multiplier="1.01",
        spark__speculation__quantile="0.5",
        spark__speculation__minTaskRuntime="0ms",
    )
    spark = make_spark(conf, mode="provider", master=MASTER, **OPTIONS)
    sums = Sums(spark, tmp_path, hold=tmp_path / "holds")
    holds = {}
    for batch in (1, 3, 4):
        key = held_key(batch)
        # The first attempt stops before its commit, the second one after its own, with a row of the result.
        holds[batch] = Hold(tmp_path / "holds", str(key)), Hold(tmp_path / "holds", f"out-{key}")
    sums.feed(range(BATCHES))
    query = sums.start(available_now=False)
    try:
        for batch, (before, after) in holds.items():
            before.wait()
            after.wait()
            before.release()
            both = until(
                lambda batch=batch: [path for path, who in writers_of(sums, batch + 1).items() if len(who) == 2],
                f"two commits of one version in batch {batch}",
                120,
            )
            assert len(both) == 1
            after.release()
        query.processAllAvailable()
        sums.assert_right(BATCHES)
        await_gone(sums)
    finally:
        query.stop()
