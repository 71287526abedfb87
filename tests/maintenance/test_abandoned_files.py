"""Rule 7 where nobody has written for long: files that were never sealed, and nothing younger beside them."""

from __future__ import annotations

import datetime
import os
import time
from pathlib import Path

import pytest

from pyspark_statestore.checkpoint import Checkpoint
from pyspark_statestore.log.merged_log import MergedLog
from pyspark_statestore.storage import Directory, Location
from tests.inspect.builders import STAMP, merged_file, merged_paths

CLOSED_AFTER = datetime.timedelta(minutes=10)


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The checkpoint of a query whose processes were all killed, two days ago."""
    (tmp_path / "offsets").mkdir()
    for number in (1, 2):
        with merged_file(tmp_path, number, seal=False) as file:
            file.put(f"0/0/{number}.changelog", bytes(1000), stamp=STAMP + number)
    for path in merged_paths(tmp_path):
        age(path, days=2)
    return tmp_path


def age(path: Path, *, days: float) -> None:
    os.utime(path, (time.time() - 86_400 * days,) * 2)


def everything_in(checkpoint: Path) -> list[str]:
    return sorted(str(path.relative_to(checkpoint)) for path in checkpoint.rglob("*") if path.is_file())


def test_files_of_processes_that_were_killed_long_ago_are_rewritten(killed: Path) -> None:
    before = merged_paths(killed)
    done = Checkpoint(killed).maintenance.compact()
    assert (done.rewritten_files_count, done.added_files_count, done.removed_files_count) == (2, 1, 2)
    (left,) = merged_paths(killed)
    assert left not in before
    assert everything_in(killed) == [str(left.relative_to(killed))]


def test_a_dry_run_says_so_and_writes_nothing(killed: Path) -> None:
    before = everything_in(killed)
    folders = {path: path.stat().st_mtime_ns for path in (killed / "state", killed / "state" / "_merged")}
    planned = Checkpoint(killed).maintenance.compact(dry_run=True)
    assert planned.rewritten_files_count == 2
    assert everything_in(killed) == before
    assert folders == {path: path.stat().st_mtime_ns for path in folders}


def test_a_clock_that_is_ahead_makes_no_file_older(killed: Path) -> None:
    for path in merged_paths(killed):
        age(path, days=0.9)

    def ahead() -> datetime.datetime:
        return datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=30)

    view = MergedLog(Directory(Location.of(killed)), CLOSED_AFTER, clock=ahead).snapshot()
    assert [state.closed for state in view.states.values()] == [False, False]
    assert everything_in(killed) == [str(path.relative_to(killed)) for path in merged_paths(killed)]


def test_stamps_that_are_young_keep_a_file_open(killed: Path) -> None:
    with merged_file(killed, 3, seal=False) as file:
        file.put("0/0/3.changelog", bytes(1000), stamp=int(time.time() * 1000) << 16)
    age(merged_paths(killed)[-1], days=2)
    view = MergedLog(Directory(Location.of(killed)), CLOSED_AFTER).snapshot()
    assert [state.closed for state in view.states.values()] == [True, True, False]


def test_rule_8_bytes_that_no_group_accounts_for_keep_a_file(killed: Path) -> None:
    torn = merged_paths(killed)[0]
    with torn.open("ab") as file:
        file.write(bytes(100))
    age(torn, days=2)

    done = Checkpoint(killed).maintenance.compact()

    # What lived in it was copied. It stays all the same: the bytes may be a group that was damaged.
    assert done.rewritten_files_count == 2
    assert torn in merged_paths(killed)
    assert [damage.name for damage in Checkpoint(killed).maintenance.verify().notes] == [torn.name]
    Checkpoint(killed).maintenance.verify(repair=True)
    assert torn not in merged_paths(killed)
