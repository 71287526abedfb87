"""Compaction changes where things are, and nothing else."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_statestore import Checkpoint
from pyspark_statestore.format import read_merged_file
from pyspark_statestore.format.reader import BytesSource
from pyspark_statestore.log import MAX_GENERATION
from tests.inspect.builders import STAMP, add_index, merged_file, merged_paths, refused, simple_checkpoint
from tests.maintenance.harness import live_files

FACTS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "delete"]),
        st.integers(0, 7),
        st.integers(1, 5),
        st.integers(1, 2),
        st.sampled_from([0, 1, 2, MAX_GENERATION]),
    ),
    max_size=12,
)
FILES = st.lists(st.tuples(FACTS, st.booleans(), st.integers(1, 4)), min_size=1, max_size=8)


def content(path: str, stamp: int, writer: int) -> bytes:
    """The same for all copies of a write."""
    return f"{path} {stamp} {writer} ".encode() * (stamp * 17 % 23 * 3)


def build(checkpoint: Path, files: list[tuple[list[tuple[str, int, int, int, int]], bool, int]]) -> None:
    for number, (facts, seal, group) in enumerate(files):
        with merged_file(checkpoint, number, seal=seal) as file:
            for count, (kind, partition, stamp, writer, generation) in enumerate(facts, start=1):
                path = f"0/{partition}/1.delta"
                key = {"stamp": STAMP + stamp, "writer": writer, "generation": generation}
                if kind == "put":
                    file.put(path, content(path, stamp, writer), **key)
                else:
                    file.delete(path, **key)
                if count % group == 0:
                    file.end_group()


@settings(max_examples=100)
@given(FILES, st.booleans(), st.sampled_from([1.0, 1.2, 2.0, 10.0]), st.sampled_from([1, 1000, 1500, 3000, 1 << 20]))
def test_what_is_read_stays_the_same_and_a_second_time_changes_nothing(
    files: list[tuple[list[tuple[str, int, int, int, int]], bool, int]], index: bool, amplification: float, target: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder)
        (checkpoint / "offsets").mkdir()
        build(checkpoint, files)
        if index and all(seal for _, seal, _ in files):  # it never speaks for others
            add_index(checkpoint)
        before = live_files(checkpoint)
        unsealed = {path: path.read_bytes() for path, (_, seal, _) in zip(merged_paths(checkpoint), files) if not seal}  # noqa: B905
        maintenance = Checkpoint(checkpoint).maintenance

        done = maintenance.compact(max_space_amplification=amplification, target_file_size=target)

        assert live_files(checkpoint) == before
        assert {path: path.read_bytes() for path in unsealed} == unsealed, "somebody may be writing to it"
        largest = max(map(len, before.values()), default=0) + 64
        for row in done.files.filter(pc.field("is_added")).to_pylist():
            assert row["file_size_in_bytes"] <= max(target, 512) + largest
            assert read_merged_file(BytesSource(Path(row["file_path"].removeprefix("file://")).read_bytes())).sealed
        again = maintenance.compact(max_space_amplification=amplification, target_file_size=target)
        assert (again.rewritten_files_count, again.added_files_count, again.removed_files_count) == (0, 0, 0)


def garbage(checkpoint: Path, size: int = 20_000) -> Path:
    """Three quarters of what was written is deleted; the file that says so is dead, too."""
    (checkpoint / "offsets").mkdir(parents=True)
    for number in range(1, 9):
        with merged_file(checkpoint, number) as file:
            for partition in range(4):
                file.put(f"0/{partition}/{number}.delta", os.urandom(size), stamp=STAMP + number)
    with merged_file(checkpoint, 20) as file:
        for number in range(1, 9):
            for partition in range(3):
                file.delete(f"0/{partition}/{number}.delta", stamp=STAMP + number, writer=7)
    return checkpoint


def test_garbage_of_a_query_that_is_stopped_goes(tmp_path: Path) -> None:
    checkpoint = Checkpoint(garbage(tmp_path / "c"))
    before = live_files(tmp_path / "c")

    done = checkpoint.maintenance.compact()

    assert live_files(tmp_path / "c") == before
    summary = checkpoint.inspect.summary().to_pylist()[0]
    assert summary["space_amplification"] <= 1.05
    assert summary["file_count"] == 1, "also the one with the tombstones"
    assert (done.rewritten_files_count, done.added_files_count, done.removed_files_count) == (8, 1, 9)
    assert done.rewritten_bytes_count == summary["live_bytes"]
    assert done.added_bytes_count == summary["file_size_in_bytes"]
    assert done.reclaimed_bytes_count == sum(
        done.files.filter(pc.field("is_removed"))["file_size_in_bytes"].to_pylist()
    )


def test_tombstones_that_hold_each_other_down_go(tmp_path: Path) -> None:
    checkpoint = tmp_path / "c"
    for number, other in ((1, 2), (2, 1)):
        with merged_file(checkpoint, number) as file:
            file.put(f"0/{number}/1.delta", bytes(9000), stamp=STAMP)
            file.delete(f"0/{other}/1.delta", stamp=STAMP, writer=7)
    with merged_file(checkpoint, 3) as file:
        file.put("0/9/1.delta", b"x", stamp=STAMP + 1)

    assert Checkpoint(checkpoint).maintenance.compact().removed_files_count == 2
    assert [path.name for path in merged_paths(checkpoint)] == ["1700000000003-0000000000000007-3.merged"]


def test_dead_file_with_the_highest_stamp_is_replaced_by_a_tiny_one(tmp_path: Path) -> None:
    checkpoint = tmp_path / "c"
    with merged_file(checkpoint, 1) as file:
        file.put("0/0/1.delta", bytes(20_000), stamp=STAMP)
        file.delete("0/0/1.delta", stamp=STAMP, writer=7)

    Checkpoint(checkpoint).maintenance.compact()

    (left,) = merged_paths(checkpoint)
    assert left.stat().st_size < 512
    assert read_merged_file(BytesSource(left.read_bytes())).groups[-1].trailer.group_stamp > STAMP
    Checkpoint(checkpoint).maintenance.compact()
    assert merged_paths(checkpoint) == [left]


def test_dry_run_changes_nothing_and_says_what_would_be_done(tmp_path: Path) -> None:
    checkpoint = Checkpoint(garbage(tmp_path / "c"))
    before = {path: path.read_bytes() for path in merged_paths(tmp_path / "c")}

    would = checkpoint.maintenance.compact(dry_run=True)

    assert {path: path.read_bytes() for path in merged_paths(tmp_path / "c")} == before
    done = checkpoint.maintenance.compact()
    assert would.dry_run
    assert not done.dry_run
    for name in ("rewritten_files_count", "added_files_count", "removed_files_count", "rewritten_bytes_count"):
        assert getattr(would, name) == getattr(done, name)
    assert would.reclaimed_bytes_count == done.reclaimed_bytes_count
    assert abs(would.added_bytes_count - done.added_bytes_count) < 512
    assert would.files["is_rewritten"].to_pylist().count(True) == 8


def test_where_says_which_files(tmp_path: Path) -> None:
    folder = simple_checkpoint(tmp_path / "c", files=4)
    before, paths = live_files(folder), merged_paths(folder)

    Checkpoint(folder).maintenance.compact(where=pc.ends_with(pc.field("file_path"), "-3.merged"))

    assert live_files(folder) == before
    assert set(paths) - set(merged_paths(folder)) == {paths[2]}
    with refused("PSS_INVALID_OPTION", "SQL needs spark="):
        Checkpoint(folder).maintenance.compact(where="live_bytes > 0")
    with refused("PSS_INVALID_OPTION", "where", "space_amplification"):
        Checkpoint(folder).maintenance.compact(where=pc.field("nonsense") > 0)


@pytest.mark.parametrize("option", ["max_space_amplification", "target_file_size"])
def test_impossible_wishes(tmp_path: Path, option: str) -> None:
    wish: dict[str, Any] = {option: 0}
    with refused("PSS_INVALID_OPTION", option):
        Checkpoint(simple_checkpoint(tmp_path / "c")).maintenance.compact(**wish)


def test_not_a_checkpoint(tmp_path: Path) -> None:
    with refused("PSS_NOT_A_CHECKPOINT", str(tmp_path)):
        Checkpoint(tmp_path / "nothing").maintenance.compact()
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "new" / "offsets").mkdir(parents=True)
    assert Checkpoint(tmp_path / "new").maintenance.compact().removed_files_count == 0
    assert not (tmp_path / "new" / "state").exists()


def test_segment_that_was_copied_too_often_stays(tmp_path: Path) -> None:
    with merged_file(tmp_path, 1) as file:
        file.put("0/0/1.delta", b"abc", stamp=STAMP, generation=MAX_GENERATION)
        file.put("0/1/1.delta", b"abc", stamp=STAMP)
    with merged_file(tmp_path, 2) as file:
        file.put("0/2/1.delta", b"abc", stamp=STAMP)
    before = {path: path.read_bytes() for path in merged_paths(tmp_path)}

    Checkpoint(tmp_path).maintenance.compact(max_space_amplification=1)

    assert {path: path.read_bytes() for path in merged_paths(tmp_path)} == before


def test_corrupt_segment_is_not_copied_and_others_are(tmp_path: Path) -> None:
    folder = garbage(tmp_path / "c", size=3000)
    before, paths = live_files(folder), merged_paths(folder)
    broken = paths[2]
    data = bytearray(broken.read_bytes())
    entry = next(entry for entry in read_merged_file(BytesSource(bytes(data))) if entry.path == "0/3/3.delta")
    data[entry.offset + 5] ^= 1
    broken.write_bytes(bytes(data))

    with refused("PSS_CORRUPT_SEGMENT", f"file://{folder}", "0/3/3.delta", broken.name, str(entry.offset), "checksum"):
        Checkpoint(folder).maintenance.compact(target_file_size=7500)

    after = live_files(folder)
    assert {path for path in before if after[path] != before[path]} == {"0/3/3.delta"}
    assert broken in merged_paths(folder)
    assert len(merged_paths(folder)) < len(paths), "other bins were written"
    assert [path.name for path in broken.parent.iterdir() if path.suffix != ".merged"] == [], "nothing is announced"


def test_file_that_ends_too_early_is_named(tmp_path: Path) -> None:
    with merged_file(tmp_path, 1) as file:
        file.put("0/0/1.delta", bytes(1000), stamp=STAMP)
    with merged_file(tmp_path, 2) as file:
        file.put("0/1/1.delta", bytes(100), stamp=STAMP)
    add_index(tmp_path)
    before = live_files(tmp_path)
    Checkpoint(tmp_path).maintenance.compact()
    assert live_files(tmp_path) == before


def test_segments_larger_than_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_statestore.log.payload.MAX_READ", 1000)
    with merged_file(tmp_path, 1) as file:
        for partition, size in enumerate([10, 999, 1000, 1001, 5000, 0, 0, 2000, 300, 300, 300, 300]):
            file.put(f"0/{partition}/1.delta", os.urandom(size), stamp=STAMP)
    with merged_file(tmp_path, 2) as file:
        file.delete("0/3/1.delta", stamp=STAMP, writer=7)
    before = live_files(tmp_path)

    assert Checkpoint(tmp_path).maintenance.compact(where=pc.field("live_bytes") > 0).added_files_count == 1

    assert live_files(tmp_path) == before


def test_neighbours_are_read_with_one_request(tmp_path: Path) -> None:
    from pyspark_statestore.log.payload import read_segments
    from pyspark_statestore.log.scan import scan
    from pyspark_statestore.storage import Directory, Location

    with merged_file(tmp_path, 1) as file:
        for partition in range(100):
            file.put(f"0/{partition}/1.delta", os.urandom(5000), stamp=STAMP)
            if partition == 50:
                file.put("0/0/0.delta", bytes(70_000), stamp=STAMP)
        for partition in range(0, 100, 2):
            file.delete(f"0/{partition}/1.delta", stamp=STAMP, writer=7)
        file.delete("0/0/0.delta", stamp=STAMP, writer=7)
    directory = Directory(Location.of(tmp_path))
    found = scan(directory)
    parts = list(read_segments(directory, found.entries, found.resolution.live.nonzero()[0]))
    assert [len(data) for data in parts] == [25 * 5000] * 2

    path = merged_paths(tmp_path)[0]
    damaged = bytearray(path.read_bytes())
    damaged[found.entries.offset[found.resolution.live.nonzero()[0][30]] + 4999] ^= 1
    path.write_bytes(damaged)
    reading = read_segments(directory, found.entries, found.resolution.live.nonzero()[0])
    assert next(reading) == parts[0]
    with refused("PSS_CORRUPT_SEGMENT", "0/61/1.delta", "checksum"):
        next(reading)


def consolidated(checkpoint: Path) -> Path:
    """The index-only file that was written."""
    url = Checkpoint(checkpoint).maintenance.consolidate_index().index_file
    assert url is not None
    return Path(url.removeprefix("file://"))


def test_an_index_of_files_that_are_gone_goes_too(tmp_path: Path) -> None:
    checkpoint = simple_checkpoint(tmp_path / "q1", files=3)
    index = consolidated(checkpoint)
    before = live_files(checkpoint)
    foreseen = Checkpoint(checkpoint).maintenance.compact(dry_run=True)
    assert index.exists()
    done = Checkpoint(checkpoint).maintenance.compact()
    assert [path.name.endswith(".index.merged") for path in merged_paths(checkpoint)] == [False]
    assert live_files(checkpoint) == before
    assert foreseen.removed_files_count == done.removed_files_count == 4


def test_an_index_stays_while_it_speaks_for_a_file(tmp_path: Path) -> None:
    checkpoint = simple_checkpoint(tmp_path / "q1", files=3)
    index = consolidated(checkpoint)
    only_two = pc.field("file_path") != f"file://{merged_paths(checkpoint)[0]}"
    Checkpoint(checkpoint).maintenance.compact(where=only_two)
    assert index.exists()
    assert len(merged_paths(checkpoint)) == 3
