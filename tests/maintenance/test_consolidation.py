"""One file that repeats the indexes of all sealed ones: written once, true for ever, safe beside everybody else."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_statestore import StateStoreFilesError
from pyspark_statestore.checkpoint import Checkpoint
from pyspark_statestore.format import Kind, read_merged_file
from pyspark_statestore.format.reader import BytesSource
from pyspark_statestore.log import resolve
from pyspark_statestore.maintenance.maintenance import Maintenance
from pyspark_statestore.storage.changes import is_temporary
from tests.inspect.builders import CREATED_MS, STAMP, add_index, merged_file, merged_paths, refused, simple_checkpoint
from tests.maintenance.faults import Breakage, DiedError, Trouble, troubled_files
from tests.sampling import sample_of_calls

FILES = 6


@pytest.fixture
def trouble() -> Iterator[Trouble]:
    with troubled_files() as trouble:
        yield trouble


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Six sealed files with segments, tombstones and a relocated copy; one that somebody has open."""
    folder = simple_checkpoint(tmp_path / "checkpoint", FILES - 2)
    with merged_file(folder, 20) as file:
        file.delete("0/0/1.changelog", stamp=STAMP + 1, writer=7)
        file.put("0/0/2.changelog", b"\x00" * 12, stamp=STAMP + 2, writer=7, generation=1)
    with merged_file(folder, 21):
        pass
    with merged_file(folder, 30, writer=8, seal=False) as file:
        file.put("0/5/1.changelog", b"open", stamp=STAMP + 30)
    return folder


def indexes(checkpoint: Path) -> list[Path]:
    return [path for path in merged_paths(checkpoint) if path.name.endswith(".index.merged")]


def left_with_its_index_only(checkpoint: Path) -> tuple[Maintenance, Path]:
    """Consolidates, and deletes all files but the index."""
    maintenance = Checkpoint(checkpoint).maintenance
    maintenance.consolidate_index()
    [index] = indexes(checkpoint)
    for path in merged_paths(checkpoint):
        if path != index:
            path.unlink()
    return maintenance, index


def names(checkpoint: Path) -> set[str]:
    return {path.name for path in merged_paths(checkpoint)}


def rows(checkpoint: Path) -> list[tuple[object, ...]]:
    """The segments, with an index and without."""
    table = Checkpoint(checkpoint).inspect.segments()
    assert table.equals(Checkpoint(checkpoint).inspect.tables("segments", "files")["segments"])
    return sorted(map(tuple, (row.values() for row in table.drop(["crc32c"]).to_pylist())), key=repr)


def test_repeats_what_the_sealed_files_say_and_nothing_else(checkpoint: Path) -> None:
    before = {path.name: read_merged_file(BytesSource(path.read_bytes())) for path in merged_paths(checkpoint)}
    done = Checkpoint(checkpoint).maintenance.consolidate_index()
    [path] = indexes(checkpoint)
    assert (done.index_file, done.covered_files_count, done.removed_files_count) == (f"file://{path}", FILES, 0)
    index = read_merged_file(BytesSource(path.read_bytes()))
    covered = index.groups[-1].index.names
    assert set(covered) == {name for name, file in before.items() if file.sealed}
    said = Counter((covered[e.file_ref - 1], e.kind, e.type, e.generation, e.crc32c, *e.key, e.path) for e in index)
    meant = ((n, e.kind, e.type, e.generation, e.crc32c, *e.key, e.path) for n in covered for e in before[n])
    assert said == Counter(meant)
    assert {(covered[e.file_ref - 1], e.offset, e.length, e.path) for e in index} == {
        (n, e.offset, e.length, e.path) for n in covered for e in before[n]
    }
    assert index.sealed
    assert index.header is not None
    assert index.header.meta["plain"] is False


def test_one_file_is_opened_instead_of_all(checkpoint: Path, trouble: Trouble) -> None:
    before = rows(checkpoint)
    Checkpoint(checkpoint).maintenance.consolidate_index()
    trouble.log.clear()
    Checkpoint(checkpoint).inspect.segments()
    [index] = indexes(checkpoint)
    opened = {name for operation, name in trouble.log if operation == "open"}
    assert opened == {index.name, f"{CREATED_MS + 30}-0000000000000008-30.merged"}
    assert rows(checkpoint) == before


def test_what_it_resolves_to_is_the_same(checkpoint: Path) -> None:
    inspect = Checkpoint(checkpoint).inspect
    before = resolve(inspect.scan(headers=True).entries)
    Checkpoint(checkpoint).maintenance.consolidate_index()
    scan = inspect.scan(headers=False)
    assert all(
        not file.groups
        for name, file in scan.files.items()
        if name not in {p.name for p in indexes(checkpoint)} and "-30." not in name
    )
    number = {name: i for i, name in enumerate(scan.entries.files)}
    for attribute in ("live_segment_count", "live_bytes", "tombstone_count", "segment_count"):
        old, new = getattr(before.totals, attribute), getattr(scan.resolution.totals, attribute)
        assert [new[number[name]] for name in before.entries.files] == old.tolist()


def test_nothing_new_nothing_written(checkpoint: Path) -> None:
    maintenance = Checkpoint(checkpoint).maintenance
    maintenance.consolidate_index()
    before = names(checkpoint)
    again = maintenance.consolidate_index()
    assert (again.index_file, again.covered_files_count, again.removed_files_count) == (None, FILES, 0)
    assert names(checkpoint) == before


def test_a_new_file_is_taken_in_and_the_old_index_goes(checkpoint: Path, trouble: Trouble) -> None:
    maintenance = Checkpoint(checkpoint).maintenance
    maintenance.consolidate_index()
    [old] = indexes(checkpoint)
    with merged_file(checkpoint, 40) as file:
        file.put("0/0/9.changelog", b"new", stamp=STAMP + 40)
    before = rows(checkpoint)
    trouble.log.clear()
    done = maintenance.consolidate_index()
    [new] = indexes(checkpoint)
    assert new != old
    assert (done.index_file, done.covered_files_count, done.removed_files_count) == (f"file://{new}", FILES + 1, 1)
    opened = {name for operation, name in trouble.log if operation == "open" and not is_temporary(name)}
    assert opened == {old.name, merged_paths(checkpoint)[-2].name, merged_paths(checkpoint)[-3].name}, (
        "what an index-only file says need not be read again"
    )
    assert rows(checkpoint) == before


def test_dry_run_says_the_same_and_does_nothing(checkpoint: Path) -> None:
    maintenance = Checkpoint(checkpoint).maintenance
    add_index(checkpoint)
    with merged_file(checkpoint, 40) as file:
        file.put("0/0/9.changelog", b"new", stamp=STAMP + 40)
    before = names(checkpoint)
    said = maintenance.consolidate_index(dry_run=True)
    assert names(checkpoint) == before
    done = maintenance.consolidate_index()
    assert (said.covered_files_count, said.removed_files_count) == (done.covered_files_count, done.removed_files_count)
    assert (said.index_file, said.dry_run, done.dry_run) == (None, True, False)


def test_abandoned_files_are_not_taken_in(checkpoint: Path) -> None:
    """Were their writer to come back after all, what an index-only file says of them would not be all."""
    for path in merged_paths(checkpoint)[-1:]:
        os.utime(path, (1, 1))
    Checkpoint(checkpoint).maintenance.consolidate_index()
    [index] = indexes(checkpoint)
    file = read_merged_file(BytesSource(index.read_bytes()))
    assert not [name for name in file.groups[0].index.names if name.endswith("-30.merged")]


def test_covered_files_that_are_gone_are_not_heard_of(checkpoint: Path) -> None:
    Checkpoint(checkpoint).maintenance.consolidate_index()
    gone = merged_paths(checkpoint)[1]
    gone.unlink()
    with_index = rows(checkpoint)
    for path in indexes(checkpoint):
        path.unlink()
    assert rows(checkpoint) == with_index
    assert not [row for row in with_index if gone.name in str(row[0])]


def test_covered_files_that_compaction_has_replaced(checkpoint: Path) -> None:
    maintenance = Checkpoint(checkpoint).maintenance
    maintenance.consolidate_index()
    before = live(checkpoint)
    covered = read_merged_file(BytesSource(indexes(checkpoint)[0].read_bytes())).groups[0].index.names
    done = maintenance.compact()
    assert done.removed_files_count
    assert not set(covered) <= names(checkpoint)
    assert live(checkpoint) == before
    maintenance.consolidate_index()
    assert live(checkpoint) == before
    assert len(indexes(checkpoint)) <= 1


def live(checkpoint: Path) -> dict[str, bytes]:
    """What is read of each live path, found with the help of index-only files."""
    found = {}
    for row in Checkpoint(checkpoint).inspect.segments().to_pylist():
        if row["status"] == "live":
            data = Path(row["file_path"].removeprefix("file://")).read_bytes()
            found[row["logical_path"]] = data[row["offset"] : row["offset"] + row["length"]]
    return found


def test_index_that_speaks_mostly_of_what_is_gone_is_written_again(checkpoint: Path) -> None:
    maintenance = Checkpoint(checkpoint).maintenance
    maintenance.consolidate_index()
    size = indexes(checkpoint)[0].stat().st_size
    for path in merged_paths(checkpoint)[:3]:
        path.unlink()
    before = rows(checkpoint)
    done = maintenance.consolidate_index()
    assert (done.covered_files_count, done.removed_files_count) == (FILES - 3, 1)
    [index] = indexes(checkpoint)
    assert index.stat().st_size < size
    assert rows(checkpoint) == before
    assert maintenance.consolidate_index().index_file is None


def test_index_that_speaks_for_nothing_goes_unless_it_has_the_highest_stamp(checkpoint: Path) -> None:
    maintenance, _ = left_with_its_index_only(checkpoint)
    assert maintenance.consolidate_index().removed_files_count == 0, "stamps must not go back (rule 3)"
    with merged_file(checkpoint, 50) as file:
        file.put("0/0/1.changelog", b"new", stamp=STAMP + 50)
    assert maintenance.consolidate_index().removed_files_count == 1
    assert indexes(checkpoint) == []


def test_compaction_keeps_an_index_that_has_the_highest_stamp(checkpoint: Path) -> None:
    maintenance, index = left_with_its_index_only(checkpoint)
    maintenance.compact()
    assert indexes(checkpoint) == [index], "stamps must not go back (rule 3)"
    with merged_file(checkpoint, 50) as file:
        file.put("0/0/1.changelog", b"new", stamp=STAMP + 50)
    maintenance.compact()
    assert indexes(checkpoint) == []


def test_the_highest_stamp_is_kept(checkpoint: Path) -> None:
    def highest() -> int:
        files = [read_merged_file(BytesSource(path.read_bytes())) for path in merged_paths(checkpoint)]
        return max(group.trailer.group_stamp for file in files for group in file.groups)

    with merged_file(checkpoint, 60) as file:
        file.end_group(group_stamp=STAMP + (1 << 40))
    Checkpoint(checkpoint).maintenance.consolidate_index()
    before = highest()
    with merged_file(checkpoint, 61):
        pass
    Checkpoint(checkpoint).maintenance.consolidate_index()
    assert highest() > before
    for path in merged_paths(checkpoint):
        if path not in indexes(checkpoint):
            path.unlink()
    assert highest() > STAMP + (1 << 40)


def test_two_at_the_same_time(checkpoint: Path) -> None:
    before = rows(checkpoint)
    threads = [threading.Thread(target=Checkpoint(checkpoint).maintenance.consolidate_index) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert indexes(checkpoint), "neither removes what the other one keeps"
    assert rows(checkpoint) == before
    Checkpoint(checkpoint).maintenance.consolidate_index()
    assert len(indexes(checkpoint)) == 1
    assert rows(checkpoint) == before


def test_executor_unlinks_a_covered_file_while_the_index_is_written(checkpoint: Path, trouble: Trouble) -> None:
    gone = merged_paths(checkpoint)[2]

    def unlink(operation: str, path: str) -> None:
        if operation == "close" and ".index.merged" in path:
            gone.unlink()

    trouble.before = unlink
    done = Checkpoint(checkpoint).maintenance.consolidate_index()
    trouble.before = lambda operation, path: None
    assert done.index_file
    assert not gone.exists()
    with_index = rows(checkpoint)
    assert not [row for row in with_index if gone.name in str(row[0])]
    indexes(checkpoint)[0].unlink()
    assert rows(checkpoint) == with_index


def test_executor_unlinks_a_file_while_it_is_looked_at(checkpoint: Path, trouble: Trouble) -> None:
    gone = merged_paths(checkpoint)[2]

    def unlink(operation: str, path: str) -> None:
        if operation == "open" and path.endswith(gone.name):
            gone.unlink(missing_ok=True)

    trouble.before = unlink
    assert Checkpoint(checkpoint).maintenance.consolidate_index().covered_files_count == FILES - 1


@pytest.mark.sweep
@pytest.mark.parametrize("done", [False, True], ids=["undone", "done"])
def test_any_operation_may_fail(checkpoint: Path, tmp_path: Path, trouble: Trouble, done: bool) -> None:
    add_index(checkpoint)
    with merged_file(checkpoint, 40) as file:
        file.put("0/0/9.changelog", b"new", stamp=STAMP + 40)
    before = live(checkpoint)
    shutil.copytree(checkpoint, tmp_path / "whole")
    trouble.log.clear()
    Checkpoint(tmp_path / "whole").maintenance.consolidate_index()
    assert len(trouble.log) >= FILES
    steps = sample_of_calls(trouble.log)
    failed = 0
    for at in steps:
        copy = tmp_path / str(at)
        shutil.copytree(checkpoint, copy)
        trouble.log.clear()
        trouble.at, trouble.done = at, done
        try:
            Checkpoint(copy).maintenance.consolidate_index()
        except StateStoreFilesError:
            failed += 1
        trouble.at = None
        assert live(copy) == before, trouble.log[at]
        assert any(path.stat().st_size > 0 for path in indexes(copy)), "the old index goes after the new one is there"
        Checkpoint(copy).maintenance.consolidate_index()
        assert live(copy) == before, trouble.log[at]
        assert sum(path.stat().st_size > 0 for path in indexes(copy)) == 1, trouble.log[at]
    assert failed == len(steps)


@pytest.mark.sweep
@pytest.mark.parametrize("torn", [False, True], ids=["whole", "torn"])
def test_may_be_killed_at_any_operation(checkpoint: Path, tmp_path: Path, breakage: Breakage, torn: bool) -> None:
    Checkpoint(checkpoint).maintenance.consolidate_index()
    with merged_file(checkpoint, 40) as file:
        file.put("0/0/9.changelog", b"new", stamp=STAMP + 40)
    before = live(checkpoint)
    breakage.mended()
    Checkpoint(shutil.copytree(checkpoint, tmp_path / "whole")).maintenance.consolidate_index()
    for at in sample_of_calls(breakage.operations):
        copy = Path(shutil.copytree(checkpoint, tmp_path / str(at)))
        breakage.mended()
        breakage.at, breakage.deadly, breakage.torn = at, True, torn
        with contextlib.suppress(DiedError):
            Checkpoint(copy).maintenance.consolidate_index()
        breakage.mended()
        assert live(copy) == before, at
        assert Checkpoint(copy).maintenance.consolidate_index().covered_files_count == FILES + 1
        assert live(copy) == before, at
        whole = [path for path in indexes(copy) if read_merged_file(BytesSource(path.read_bytes())).sealed]
        assert len(whole) == 1, at


def test_damaged_file_is_not_taken_in(checkpoint: Path) -> None:
    path = merged_paths(checkpoint)[0]
    path.write_bytes(b"something else" + path.read_bytes())
    before = names(checkpoint)
    with refused("PSS_CORRUPT_FILE", path.name):
        Checkpoint(checkpoint).maintenance.consolidate_index()
    assert names(checkpoint) == before


def test_place_that_is_no_checkpoint(tmp_path: Path) -> None:
    with refused("PSS_NOT_A_CHECKPOINT", str(tmp_path)):
        Checkpoint(tmp_path / "nothing").maintenance.consolidate_index()


@pytest.mark.parametrize("files", [0, 1])
def test_one_file_needs_no_index(tmp_path: Path, files: int) -> None:
    folder = simple_checkpoint(tmp_path / "checkpoint", files)
    assert Checkpoint(folder).maintenance.consolidate_index().index_file is None
    assert len(names(folder)) == files


def test_tombstones_are_repeated_too(checkpoint: Path) -> None:
    Checkpoint(checkpoint).maintenance.consolidate_index()
    file = read_merged_file(BytesSource(indexes(checkpoint)[0].read_bytes()))
    assert [entry.path for entry in file if entry.kind is Kind.DELETE] == ["0/0/1.changelog"]
