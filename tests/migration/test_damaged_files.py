"""One flipped bit is damage for everybody who deletes: what lives in the file stays, and an error says where."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint, StateStoreFilesError
from pyspark_statestore.format import BytesSource, read_merged_file
from pyspark_statestore.format.layout import FRONT_SIZE
from tests.inspect.builders import STAMP, merged_file, merged_paths
from tests.maintenance.builders import contents, flip, write_version
from tests.maintenance.harness import live_files
from tests.migration.builders import at, make, markers

FOUR_DAYS = 4 * 86_400


def aged(checkpoint: Path) -> None:
    then = time.time() - FOUR_DAYS
    for path in merged_paths(checkpoint):
        os.utime(path, (then, then))


@pytest.fixture
def compacted(tmp_path: Path) -> Path:
    """All of the state in one file of one group, written by ``compact``, four days old."""
    checkpoint = make(tmp_path / "checkpoint")
    Checkpoint(checkpoint).maintenance.compact(max_space_amplification=1.0)
    assert len(merged_paths(checkpoint)) == 1
    aged(checkpoint)
    return checkpoint


VERBS: dict[str, Callable[[Checkpoint], object]] = {
    "compact": lambda checkpoint: checkpoint.maintenance.compact(),
    "orphans": lambda checkpoint: checkpoint.maintenance.remove_orphan_files(dry_run=False),
    "consolidate": lambda checkpoint: checkpoint.maintenance.consolidate_index(),
    "export": lambda checkpoint: checkpoint.export(force=True),
    "state": lambda checkpoint: checkpoint.inspect.versions(),
}


def refuses(verb: str, checkpoint: Path) -> None:
    with pytest.raises(StateStoreFilesError, match=r"PSS_CORRUPT_INDEX.*\.merged"):
        VERBS[verb](Checkpoint(checkpoint))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("where", ["trailer", "index", "cut", "zeros"])
def test_a_damaged_output_of_compact_is_damage_for_everybody(compacted: Path, verb: str, where: str) -> None:
    [path] = merged_paths(compacted)
    data = path.read_bytes()
    if where == "trailer":
        flip(path, len(data) - 20)
    elif where == "index":
        flip(path, read_merged_file(BytesSource(data)).groups[0].trailer.index_offset + 60)
    elif where == "cut":
        path.write_bytes(data[: len(data) // 2])
    else:
        path.write_bytes(data[:-500] + bytes(500))
    aged(compacted)
    before = contents(compacted)

    refuses(verb, compacted)

    assert contents(compacted) == before


@pytest.mark.parametrize("verb", ["compact", "orphans", "consolidate"])
@pytest.mark.parametrize("where", ["trailer", "front of a torn group", "index"])
def test_a_damaged_group_of_an_executor_is_damage_for_everybody(tmp_path: Path, verb: str, where: str) -> None:
    checkpoint = make(tmp_path / "checkpoint")
    with merged_file(checkpoint, 50, seal=False, fronts=True, plain=True) as out:
        out.put("0/0/3.changelog", b"redone", stamp=STAMP + 5000)
        out.end_group()
        out.put("0/1/3.changelog", b"redone", stamp=STAMP + 5001)
    path = merged_paths(checkpoint)[-1]
    [first, last] = read_merged_file(BytesSource(path.read_bytes())).groups
    offsets = {"trailer": last.trailer_offset + 9, "index": last.trailer.index_offset}
    if where == "front of a torn group":
        path.write_bytes(path.read_bytes()[:-1])
    flip(path, offsets.get(where, first.end + FRONT_SIZE - 1))
    aged(checkpoint)
    before = contents(checkpoint)

    refuses(verb, checkpoint)
    refuses("state", checkpoint)

    assert contents(checkpoint) == before


def test_bytes_that_cannot_be_told_apart_from_a_crash_stay(tmp_path: Path) -> None:
    """What release 0.1 wrote has no fronts: a group without a trailer may have been whole."""
    checkpoint = make(tmp_path / "checkpoint")
    with merged_file(checkpoint, 50, seal=False, plain=True) as out:
        out.put("0/0/3.changelog", b"redone", stamp=STAMP + 5000)
    path = merged_paths(checkpoint)[-1]
    path.write_bytes(path.read_bytes()[:-70] + bytes(70))
    aged(checkpoint)

    Checkpoint(checkpoint).maintenance.compact()
    Checkpoint(checkpoint).maintenance.remove_orphan_files(dry_run=False)

    assert path.exists()
    [note] = [each for each in Checkpoint(checkpoint).maintenance.verify().notes if each.name == path.name]
    assert (note.kind, "cannot be told" in note.reason) == ("torn_tail", True)


def test_what_a_crash_has_torn_goes(tmp_path: Path) -> None:
    checkpoint = make(tmp_path / "checkpoint")
    with merged_file(checkpoint, 50, seal=False, fronts=True, plain=True) as out:
        out.put("0/0/3.changelog", b"never acknowledged", stamp=STAMP + 5000)
    path = merged_paths(checkpoint)[-1]
    path.write_bytes(path.read_bytes()[:-1])
    aged(checkpoint)

    Checkpoint(checkpoint).maintenance.remove_orphan_files(dry_run=False)

    assert not path.exists()
    assert len(live_files(checkpoint)) > 0


def test_export_refuses_where_all_of_the_state_is_gone(tmp_path: Path) -> None:
    checkpoint = make(tmp_path / "checkpoint")
    for path in merged_paths(checkpoint):
        header = read_merged_file(BytesSource(path.read_bytes())).header
        assert header is not None
        path.write_bytes(path.read_bytes()[: header.length] + bytes(100))
    aged(checkpoint)
    kept = [path.name for path in merged_paths(checkpoint)]

    for target in (None, tmp_path / "target"):
        with pytest.raises(StateStoreFilesError, match="PSS_VERSION_NOT_RESTORABLE"):
            at(checkpoint).export(target, force=True)
    with pytest.raises(StateStoreFilesError, match="PSS_DROP_REFUSED"):
        at(checkpoint).drop_merged(dry_run=False)

    assert markers(checkpoint) == []
    assert [path.name for path in merged_paths(checkpoint)] == kept


def test_a_maintainer_that_dies_leaves_nothing_under_a_merged_files_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is whole appears when it is sealed; what is left of it otherwise is removed with the orphans."""
    checkpoint = make(tmp_path / "checkpoint")
    before = {path.name for path in merged_paths(checkpoint)}

    def dies(*arguments: object) -> None:
        raise SystemExit("killed")

    monkeypatch.setattr("pyspark_statestore.storage.changes._rename", dies)
    with pytest.raises(SystemExit):
        Checkpoint(checkpoint).maintenance.compact(max_space_amplification=1.0)
    monkeypatch.undo()

    assert {path.name for path in merged_paths(checkpoint)} == before
    left = [path for path in (checkpoint / "state" / "_merged").iterdir() if path.suffix == ".tmp"]
    assert len(left) == 1
    then = time.time() - FOUR_DAYS
    os.utime(left[0], (then, then))
    write_version(checkpoint, 9, merged=True)  # somebody whose files say what time it is
    Checkpoint(checkpoint).maintenance.remove_orphan_files(dry_run=False)
    assert not left[0].exists()
