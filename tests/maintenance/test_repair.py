"""What can be mended without losing anything is; all else stays as it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyspark_statestore.format import Entry, file_name
from tests.inspect.builders import CREATED_MS, STAMP, add_index, merged_file, merged_paths, plain_file
from tests.maintenance import builders
from tests.maintenance.builders import contents, copy_as, entry_of, flip, index_of, make, verify
from tests.maintenance.harness import live_files

DAY = 86_400


def segment(path: Path, entry: Entry) -> bytes:
    return path.read_bytes()[entry.offset : entry.offset + entry.length]


def add_copy(checkpoint: Path, number: int, logical_path: str) -> None:
    """A file with a copy of one segment, as a relocation leaves it."""
    path, entry = entry_of(checkpoint, logical_path)
    with merged_file(checkpoint, number, writer=number, plain=True) as out:
        key = {"stamp": entry.stamp, "writer": entry.writer}
        out.put(logical_path, segment(path, entry), **key, generation=entry.generation + 1)


def assert_mended(checkpoint: Path, before: dict[str, bytes], *kinds: str) -> None:
    """A dry run changes nothing and says the same; then all is mended, and reads as before."""
    files = contents(checkpoint)
    planned = verify(checkpoint, repair=True, dry_run=True)
    assert contents(checkpoint) == files
    assert planned.dry_run
    seen = planned.damages or planned.notes
    assert [(each.kind, each.is_repairable, each.repaired) for each in seen] == [(kind, True, False) for kind in kinds]
    done = verify(checkpoint, repair=True)
    seen = done.damages or done.notes
    assert [(each.kind, each.is_repairable, each.repaired) for each in seen] == [(kind, True, True) for kind in kinds]
    assert (done.is_clean, done.repaired_count, done.dry_run) == (True, len(kinds), False)
    again = verify(checkpoint)
    assert (again.damages, again.notes) == ((), ())
    assert live_files(checkpoint) == before
    assert list((checkpoint / "state/_merged").glob("*.relocating")) == []


def assert_left_alone(checkpoint: Path, *kinds: str) -> None:
    """Repair changes nothing."""
    files = contents(checkpoint)
    done = verify(checkpoint, repair=True)
    assert [(each.kind, each.is_repairable, each.repaired) for each in done.damages] == [
        (kind, False, False) for kind in kinds
    ]
    assert (done.is_clean, done.repaired_count) == (False, 0)
    assert contents(checkpoint) == files


def test_copy_that_was_not_unlinked_yet(tmp_path: Path) -> None:
    make(tmp_path)
    add_copy(tmp_path, 50, "0/1/SSTs/000004-1.sst")
    before = live_files(tmp_path)
    copy = merged_paths(tmp_path)[-1]
    flip(copy, next(iter(index_of(copy))).offset)
    assert_mended(tmp_path, before, "corrupt_segment")


def test_copy_that_is_damaged_as_well(tmp_path: Path) -> None:
    make(tmp_path)
    original, entry = entry_of(tmp_path, "0/1/SSTs/000004-1.sst")
    add_copy(tmp_path, 50, "0/1/SSTs/000004-1.sst")
    copy = merged_paths(tmp_path)[-1]
    flip(copy, next(iter(index_of(copy))).offset)
    flip(original, entry.offset + 1)
    assert_left_alone(tmp_path, "corrupt_segment")


def test_another_write_of_the_path_is_no_copy(tmp_path: Path) -> None:
    make(tmp_path)
    with merged_file(tmp_path, 50, plain=True) as out:
        out.put("0/1/4.changelog", b"other bytes", stamp=STAMP + 9000)
    path = merged_paths(tmp_path)[-1]
    flip(path, next(iter(index_of(path))).offset)
    assert_left_alone(tmp_path, "corrupt_segment")


@pytest.mark.parametrize("same", [True, False])
def test_plain_file_with_the_same_bytes(tmp_path: Path, same: bool) -> None:
    make(tmp_path)
    path, entry = entry_of(tmp_path, "0/0/3.changelog")
    before = live_files(tmp_path)
    data = segment(path, entry)
    plain_file(tmp_path, entry.path, data if same else data[:-1] + b"?")
    flip(path, entry.offset)
    if same:
        assert_mended(tmp_path, before, "corrupt_segment")
    else:
        assert_left_alone(tmp_path, "corrupt_segment")


def test_segment_of_an_open_file_is_left_to_its_writer(tmp_path: Path) -> None:
    make(tmp_path)
    with merged_file(tmp_path, 50, plain=True, seal=False) as out:
        out.put("0/0/5.changelog", b"the same", stamp=STAMP + 900)
    path = merged_paths(tmp_path)[-1]
    plain_file(tmp_path, "0/0/5.changelog", b"the same")
    flip(path, next(iter(index_of(path))).offset)
    os.utime(path)
    assert_left_alone(tmp_path, "corrupt_segment")


@pytest.mark.parametrize("damage", ["header", "index"])
def test_index_only_file(tmp_path: Path, damage: str) -> None:
    make(tmp_path)
    before = live_files(tmp_path)
    index = add_index(tmp_path)
    flip(index, 13 if damage == "header" else 500)
    assert_mended(tmp_path, before, "corrupt_file" if damage == "header" else "corrupt_index")
    assert not index.exists()


@pytest.mark.parametrize("created_ms", [CREATED_MS - 5, CREATED_MS + 99])
def test_duplicated_file(tmp_path: Path, created_ms: int) -> None:
    """Under a lower name nothing in it is read; under a higher one all of it is."""
    path = merged_paths(make(tmp_path))[1]
    before = live_files(tmp_path)
    copy = copy_as(path, file_name(created_ms, 7, 5))
    assert_mended(tmp_path, before, "duplicated_file")
    assert not copy.exists()


def test_duplicated_file_whose_copy_is_damaged(tmp_path: Path) -> None:
    path = merged_paths(make(tmp_path))[1]
    before = live_files(tmp_path)
    copy = copy_as(path, file_name(CREATED_MS + 99, 7, 5))
    flip(copy, next(iter(index_of(path))).offset)
    assert_mended(tmp_path, before, "duplicated_file", "corrupt_segment")


def test_torn_tail(tmp_path: Path) -> None:
    make(tmp_path)
    with merged_file(tmp_path, 2, seal=False, plain=True, writer=9) as out:
        out.put("0/0/2.delta", b"lives", stamp=STAMP)
    path = next(path for path in merged_paths(tmp_path) if "0000000000000009-2" in path.name)
    with path.open("ab") as file:
        file.write(b"half of a group")
    before = live_files(tmp_path)
    old = path.stat().st_mtime - 3 * DAY
    os.utime(path, (old, old))
    assert_mended(tmp_path, before, "torn_tail")
    assert not path.exists()


@pytest.mark.parametrize("damage", ["header", "middle of the index", "end", "flipped trailer"])
def test_nothing_is_moved_where_it_is_not_known_what_lives(tmp_path: Path, damage: str) -> None:
    make(tmp_path)
    path, other = merged_paths(tmp_path)[3], merged_paths(tmp_path)[1]
    copy_as(other, file_name(CREATED_MS + 99, 7, 5))
    size = path.stat().st_size
    if damage == "end":
        os.truncate(path, size - 100)
    else:
        flip(path, {"header": 13, "middle of the index": size - 200, "flipped trailer": size - 30}[damage])
    kinds = {"header": "corrupt_file", "end": "truncated_file"}
    found = sorted([kinds.get(damage, "corrupt_index"), "duplicated_file"])
    files = contents(tmp_path)
    done = verify(tmp_path, repair=True)
    assert sorted(each.kind for each in done.damages) == found
    assert not any(each.repaired or each.is_repairable for each in done.damages)
    assert contents(tmp_path) == files


@pytest.mark.parametrize("kind", ["missing", "plain"])
def test_what_is_lost_stays_as_it_is(tmp_path: Path, kind: str) -> None:
    make(tmp_path, "merged" if kind == "missing" else "plain")
    if kind == "missing":
        merged_paths(tmp_path)[3].unlink()
        assert_left_alone(tmp_path, "unrestorable_version", "unrestorable_version")
    else:
        file = tmp_path / "state/0/0/4.changelog"
        os.truncate(file, file.stat().st_size - 1)
        assert_left_alone(tmp_path, "corrupt_plain_file")


def test_clean_checkpoint_is_not_touched(tmp_path: Path) -> None:
    files = contents(make(tmp_path, "mixed"))
    assert verify(tmp_path, repair=True).is_clean
    assert contents(tmp_path) == files
    assert builders.damages(tmp_path) == []
