"""Whatever is asked wrongly gets an error that says what to do, and changes nothing."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

import pyspark_statestore
from pyspark_statestore import Checkpoint
from tests.forks.harness import clean_up, go_on, pins, state_of
from tests.inspect.builders import merged_paths, refused
from tests.maintenance.builders import contents, make
from tests.maintenance.faults import Breakage


@pytest.fixture(autouse=True)
def _nothing_changes(request: pytest.FixtureRequest, source: Path, tmp_path: Path) -> object:
    """Tests without the mark leave both as they were."""
    if request.node.get_closest_marker("changes"):
        yield
        return
    (tmp_path / "fork").mkdir()
    before = contents(tmp_path)
    yield
    assert contents(tmp_path) == before


def test_a_directory_that_is_not_empty(source: Path, tmp_path: Path) -> None:
    there = make(tmp_path / "there")
    before = contents(there)
    with refused("PSS_NOT_EMPTY", str(there), "commits, offsets, state", "does not exist yet"):
        Checkpoint(source).fork(there)
    assert contents(there) == before
    for path in sorted(there.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    there.rmdir()


@pytest.mark.parametrize(("version", "reason"), [(5, "commits/4 does not exist"), (77, "commits/76 does not exist")])
def test_a_version_that_is_not_there(source: Path, tmp_path: Path, version: int, reason: str) -> None:
    with refused("PSS_VERSION_NOT_RESTORABLE", f"Version {version}", reason, "1 to 4"):
        Checkpoint(source).fork(tmp_path / "fork", version=version)


@pytest.mark.changes
def test_a_version_that_the_logs_do_not_reach(source: Path, tmp_path: Path) -> None:
    (source / "offsets" / "1").unlink()
    with refused("PSS_VERSION_NOT_RESTORABLE", "offsets/1 does not exist"):
        Checkpoint(source).fork(tmp_path / "fork", version=3)
    assert not (tmp_path / "fork").exists()


@pytest.mark.changes
def test_a_version_that_cannot_be_restored(source: Path, tmp_path: Path) -> None:
    merged_paths(source)[3].unlink()
    before = contents(source)
    with refused("PSS_VERSION_NOT_RESTORABLE", "Version 4 of operator 0, partition 0, store 'default'"):
        Checkpoint(source).fork(tmp_path / "fork")
    assert contents(source) == before
    assert Checkpoint(source).fork(tmp_path / "fork", version=3).version == 3


@pytest.mark.changes
def test_a_newest_snapshot_that_is_broken_is_gone_around(tmp_path: Path) -> None:
    source = make(tmp_path / "source", "plain")
    (source / "state" / "0" / "0" / "4.zip").write_bytes(b"no zip")

    assert Checkpoint(source).fork(tmp_path / "fork").version == 4


@pytest.mark.changes
def test_no_batch_was_committed(tmp_path: Path) -> None:
    (tmp_path / "new" / "offsets").mkdir(parents=True)
    with refused("PSS_VERSION_NOT_RESTORABLE", "no batch was committed"):
        Checkpoint(tmp_path / "new").fork(tmp_path / "fork")
    with refused("PSS_NOT_A_CHECKPOINT"):
        Checkpoint(tmp_path / "nothing").fork(tmp_path / "fork")


def test_another_file_system(source: Path, tmp_path: Path) -> None:
    with refused("PSS_OTHER_FILE_SYSTEM", "memory://", "mode='copy'"):
        Checkpoint(source).fork("memory://there/fork")


@pytest.mark.changes
def test_copies_may_be_in_another_file_system(source: Path) -> None:
    made = Checkpoint(source).fork("memory://there/copied", "copy")
    assert state_of(made.path) == state_of(source)


@pytest.mark.parametrize("below", ["", "state/fork", ".."])
def test_within_each_other(source: Path, below: str) -> None:
    with refused("PSS_BAD_PATH", "it is, contains or lies in the checkpoint that is forked"):
        Checkpoint(source).fork(source / below)


@pytest.mark.parametrize("mode", ["", "clone", None])
def test_an_unknown_mode(source: Path, tmp_path: Path, mode: str) -> None:
    with refused("PSS_INVALID_OPTION", "mode", "no_claim, claim, copy"):
        pyspark_statestore.fork(source, tmp_path / "fork", mode)


@pytest.mark.parametrize("version", [0, -1, True, "3"])
def test_no_version(source: Path, tmp_path: Path, version: int) -> None:
    with refused("PSS_INVALID_OPTION", "version", "a whole number of at least 1"):
        Checkpoint(source).fork(tmp_path / "fork", version=version)


@pytest.mark.changes
@pytest.mark.parametrize(
    "damage", [b"{", b"[]", b'{"fork": 1}', b"\xff", b'{"fork":"/f","mode":"x","files":[],"created_ms":1}']
)
def test_a_damaged_pin_pins_everything(source: Path, tmp_path: Path, damage: bytes) -> None:
    Checkpoint(source).fork(tmp_path / "fork")
    [pin] = (source / "state" / "_merged").glob("*.fork")
    pin.write_bytes(damage)
    go_on(source, 6, 50)
    go_on(source, 8, 51)
    before = contents(source)

    assert clean_up(source) == set()
    Checkpoint(source).maintenance.remove_orphan_files(datetime.timedelta(0), dry_run=False, force=True)
    assert contents(source) == before
    [found] = pins(source)
    assert found.damage
    assert found.files is None


@pytest.mark.changes
def test_a_file_of_the_source_that_is_gone(source: Path, tmp_path: Path) -> None:
    fork = tmp_path / "fork"
    Checkpoint(source).fork(fork)
    lost = merged_paths(source)[1]
    lost.unlink()

    words = (str(fork), str(lost), "0/0/2.zip", "localize=True")
    with refused("PSS_FOREIGN_FILE_MISSING", *words):
        Checkpoint(fork).inspect.versions()
    with refused("PSS_FOREIGN_FILE_MISSING", str(lost)):
        Checkpoint(fork).maintenance.compact(localize=True)
    with refused("PSS_FOREIGN_FILE_MISSING", str(lost)):
        Checkpoint(fork).fork(tmp_path / "second")
    assert not (tmp_path / "second").exists()
    found = Checkpoint(fork).maintenance.verify()
    assert [(each.kind, each.path) for each in found.damages] == [("missing_file", f"file://{lost}")]


@pytest.mark.changes
def test_a_release_that_would_break_the_fork(source: Path, tmp_path: Path) -> None:
    fork = tmp_path / "fork"
    made = Checkpoint(source).fork(fork)
    size = made.referenced_bytes_count

    with refused("PSS_FORK_NEEDS", str(fork), "16 segments", f"{size} bytes", "in 4 files", "force=True"):
        Checkpoint(source).maintenance.release_fork(fork)
    assert len(pins(source)) == 1
    assert Checkpoint(source).maintenance.release_fork(fork, force=True, dry_run=True).broken_files_count == 4
    assert len(pins(source)) == 1
    done = Checkpoint(source).maintenance.release_fork(fork, force=True)
    assert (done.broken_segments_count, done.broken_bytes_count, done.released_pins_count) == (16, size, 1)
    assert pins(source) == ()


@pytest.mark.changes
def test_looking_takes_too_long(source: Path, tmp_path: Path, breakage: Breakage) -> None:
    checkpoint = Checkpoint(source, closed_after=datetime.timedelta(0))
    with refused("PSS_WRITE_FAILED", "half of closedAfter"):
        checkpoint.fork(tmp_path / "fork")
    assert pins(source) == ()
    assert not list((tmp_path / "fork").glob("*"))
