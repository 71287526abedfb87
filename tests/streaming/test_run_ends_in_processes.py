"""As tests/streaming/test_run_ends.py, for each way of turning it on, and with executors of their own."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.streaming.ends import begin, driver, has_committed, of_runs, put, require_at_once, require_wait, until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(0, files="sessions in processes")]

CASES = [
    (how, mode, store, master)
    for how, mode, store, master in (
        ("raw", "provider", "rocksdb", "local[2]"),
        ("raw", "path", "heap", "local[2]"),
        ("attach", "path", "rocksdb", "local[2]"),
        ("attach", "provider", "heap", "local-cluster[2,1,1024]"),
        ("configure", "path", "heap", "local-cluster[2,1,1024]"),
        ("configure", "provider", "rocksdb", "local-cluster[2,1,1024]"),
    )
]


@pytest.mark.parametrize(("how", "mode", "store", "master"), CASES)
def test_every_way_to_turn_it_on(tmp_path: Path, how: str, mode: str, store: str, master: str) -> None:
    with driver(tmp_path, how, mode, store, master) as running:
        begin(running, tmp_path)
        running.do("stop")
        until(lambda: of_runs(tmp_path) == [".ended"], "it did not say that it has ended")
        require_at_once(tmp_path / "q1")
        put(tmp_path, 4)
        running.do("available")
        until(lambda: of_runs(tmp_path) == [".ended"], "it did not say that it has ended")
        require_at_once(tmp_path / "q1")
        put(tmp_path, -2)  # a task takes a minute
        running.do("start")
        until(lambda: len(list(tmp_path.glob("slow-*"))) == 1, "no task begins")
        running.do("stop")
        until(lambda: of_runs(tmp_path) == [".ended"], "it did not say that it has ended")
        assert not has_committed(tmp_path, 2)
        running.do("start")
        until(lambda: len(list(tmp_path.glob("slow-*"))) == 2, "no task begins again")
        running.do("stop session")  # in the middle of a batch
        running.do("exit")
        running.await_jvm()
        assert of_runs(tmp_path) == [".running"], "its tasks may have gone on"
        require_wait(tmp_path / "q1")


def test_two_drivers(tmp_path: Path) -> None:
    """The query is where the newest run is: who ends beside it says nothing."""
    with driver(tmp_path) as first, driver(tmp_path) as second:
        begin(first, tmp_path)
        second.do("start")
        assert of_runs(tmp_path) == [".running"]
        first.do("stop")
        time.sleep(2)
        assert of_runs(tmp_path) == [".running"]
        require_wait(tmp_path / "q1")
        second.do("stop")
        until(lambda: of_runs(tmp_path) == [".ended"], "it did not say that it has ended")
        require_at_once(tmp_path / "q1")
