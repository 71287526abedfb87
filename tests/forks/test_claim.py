"""mode="claim": the fork owns the files of its source, which nobody else may go on with."""

from __future__ import annotations

import datetime
import os
import shutil
from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint
from tests.forks.harness import go_on, merged_names, pins, restorable, state_of
from tests.inspect.builders import refused
from tests.maintenance.builders import contents


@pytest.fixture
def stopped(source: Path) -> Path:
    """A source that nobody has written to for two days."""
    at = datetime.datetime.now().timestamp() - 2 * 86_400
    for path in source.rglob("*"):
        os.utime(path, (at, at))
    return source


def test_a_claimed_checkpoint_is_read_only(stopped: Path, tmp_path: Path) -> None:
    state = state_of(stopped)
    made = Checkpoint(stopped).fork(tmp_path / "fork", "claim")
    before = contents(stopped)

    assert (made.mode, made.referenced_segments_count) == ("claim", 16)
    maintenance = Checkpoint(stopped).maintenance
    for forbidden in (
        maintenance.compact,
        maintenance.consolidate_index,
        lambda: maintenance.expire(1, dry_run=False, force=True),
        lambda: maintenance.remove_orphan_files(dry_run=False),
        lambda: Checkpoint(stopped).fork(tmp_path / "second"),
    ):
        with refused("PSS_CLAIMED", str(stopped), str(tmp_path / "fork"), ".fork"):
            forbidden()
    assert contents(stopped) == before
    assert not (tmp_path / "second").exists()
    assert state_of(stopped) == state_of(tmp_path / "fork") == state
    assert maintenance.verify().is_clean


def test_a_running_checkpoint_cannot_be_claimed(source: Path, tmp_path: Path) -> None:
    before = contents(source)
    with refused("PSS_QUERY_RUNNING", "Claiming a checkpoint", "force=True"):
        Checkpoint(source).fork(tmp_path / "fork", "claim")
    assert contents(source) == before
    assert not (tmp_path / "fork").exists()
    assert Checkpoint(source).fork(tmp_path / "fork", "claim", force=True).mode == "claim"


def test_what_the_fork_does_not_read_any_more_is_deleted(stopped: Path, tmp_path: Path) -> None:
    fork = tmp_path / "fork"
    Checkpoint(stopped).fork(fork, "claim")
    assert Checkpoint(fork).maintenance.compact().removed_claimed_files_count == 0
    assert len(merged_names(stopped)) == 4

    go_on(fork, 6, 50)
    done = Checkpoint(fork).maintenance.compact()

    assert done.removed_claimed_files_count == 4
    assert merged_names(stopped) == set()
    assert len(pins(stopped)) == 1
    assert restorable(fork) == {6}
    assert Checkpoint(fork).maintenance.verify().is_clean


def test_what_was_brought_home_is_deleted(stopped: Path, tmp_path: Path) -> None:
    fork = tmp_path / "fork"
    Checkpoint(stopped).fork(fork, "claim")
    state = state_of(fork)

    assert Checkpoint(fork).maintenance.compact(localize=True).removed_claimed_files_count == 4
    shutil.rmtree(stopped)
    assert state_of(fork) == state


def test_what_another_fork_needs_stays(stopped: Path, tmp_path: Path) -> None:
    other, fork, third = tmp_path / "other", tmp_path / "fork", tmp_path / "third"
    Checkpoint(stopped).fork(other, version=3)
    Checkpoint(stopped).fork(fork, "claim")
    Checkpoint(fork).fork(third)
    states = {each: state_of(each) for each in (other, third)}
    go_on(fork, 6, 50)

    Checkpoint(fork).maintenance.compact()
    assert {each: state_of(each) for each in states} == states
    assert len(merged_names(stopped)) == 4

    Checkpoint(third).maintenance.compact(localize=True)
    assert Checkpoint(fork).maintenance.compact().removed_claimed_files_count == 0
    shutil.rmtree(other)
    Checkpoint(stopped, closed_after=datetime.timedelta(0))
    assert state_of(third) == states[third]


def test_orphans_of_the_fork_are_in_its_source(stopped: Path, tmp_path: Path) -> None:
    fork = tmp_path / "fork"
    Checkpoint(stopped).fork(fork, "claim")
    go_on(fork, 6, 50)
    hour = datetime.timedelta(hours=1)

    planned = Checkpoint(fork).maintenance.remove_orphan_files(hour)
    assert planned.removed_files_count == 4 == len(merged_names(stopped))
    assert set(planned.files["file_path"].to_pylist()) == {
        f"file://{stopped}/state/_merged/{name}" for name in merged_names(stopped)
    }
    Checkpoint(fork).maintenance.remove_orphan_files(hour, dry_run=False)
    assert merged_names(stopped) == set()
    assert restorable(fork) == {6}


def test_a_deleted_fork_gives_the_checkpoint_back(stopped: Path, tmp_path: Path) -> None:
    fork = tmp_path / "fork"
    Checkpoint(stopped).fork(fork, "claim")
    shutil.rmtree(fork)
    now = Checkpoint(stopped, closed_after=datetime.timedelta(0)).maintenance

    done = now.remove_orphan_files(datetime.timedelta(0), dry_run=False, force=True)

    assert [Path(path).suffix for path in done.files["file_path"].to_pylist()] == [".fork"]
    assert Checkpoint(stopped).fork(tmp_path / "again").version == 4
    assert Checkpoint(stopped).maintenance.compact().added_files_count == 1
