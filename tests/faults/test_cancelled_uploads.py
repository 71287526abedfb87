"""A killed task's snapshot upload stops where it is, and costs nobody else anything."""

from __future__ import annotations

from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import pytest

from tests.faults.scripts import KIB, Step, changelog, read, stage, write
from tests.faults.test_every_operation import check, run_all

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("by_hand")]

BLOCK = 64 * KIB
UPLOAD: list[Step] = [
    changelog(0, 1, 1),
    *[stage(f"0/0/SSTs/{name}.sst", name, 256) for name in ("one", "two", "three", "four")],
    write("0/0/2.zip", "zip", 1),
    changelog(0, 2, 1),
    *read("0/0/1.changelog", "0/0/2.changelog"),
]


def test_a_killed_upload_stops_early(jvm: Any, tmp_path: Path) -> None:
    # Every block of the snapshot in turn is the one during whose write the task is killed.
    runs = run_all(jvm, tmp_path, UPLOAD, scheme="faulty", operation="write", kind="killed_unnoticed")

    cancelled = [run for run in runs if run["metrics"]["cancelledCommits"]]
    # Before the check, whose later process cleans some of it up.
    uploads = [bytes_of_snapshots(tmp_path / str(run["n"])) for run in cancelled]
    assert [problem for run in runs for problem in check(jvm, tmp_path / str(run["n"]), UPLOAD, run)] == []
    assert len(cancelled) > 10
    for run in cancelled:
        zip_step, after = run["steps"][5], run["steps"][6:]
        assert "killed while its commit was written" in str(zip_step)
        assert all("error" not in step for step in after)
        assert run["metrics"]["failedGroups"] == 0
    # What is written to its end, and then taken back, leaves no file.
    stopped = list(takewhile(lambda size: size > 4 * KIB, uploads))
    assert all(size <= 4 * KIB for size in uploads[len(stopped) :])
    assert len(stopped) > 8
    # The thread that writes may be a block ahead of the kill.
    assert all(earlier <= later + BLOCK for earlier, later in pairwise(stopped))
    assert stopped[0] < 256 * KIB
    assert stopped[len(stopped) // 2] < 3 * 256 * KIB


def bytes_of_snapshots(checkpoint: Path) -> int:
    """How much of the upload is on the disk."""
    return sum(file.stat().st_size for file in (checkpoint / "state" / "_merged").iterdir())


def test_a_file_in_which_nothing_was_written_goes(jvm: Any, tmp_path: Path) -> None:
    """Its only commit was taken back. No listing shows it yet, so none would show that it went with its checkpoint."""
    runs = run_all(jvm, tmp_path, [changelog(0, 1, 1)], scheme="faulty", operation="create", kind="killed_unnoticed")
    assert "killed while its commit was written" in str(runs[0]["steps"][0])
    assert list((tmp_path / "1" / "state" / "_merged").glob("*.merged*")) == []
    assert len(list((tmp_path / str(runs[-1]["n"]) / "state" / "_merged").glob("*.merged"))) == 1
