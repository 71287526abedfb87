"""Which versions are restorable, from files that are made for one question each; Spark's answers are another test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from pyspark_statestore.checkpoint import Checkpoint
from tests.inspect.builders import STAMP, merged_file, merged_paths, plain_file
from tests.inspect.spark_files import changelog, lz4, snapshot

A, B = "a" * 36, "b" * 36
CHANGES = lz4(b"some changes" + b"\xff" * 4)


def zip_of(**ssts: int) -> bytes:
    """A snapshot that names SSTs with these sizes."""
    files = [{"dfsSstFileName": f"{name}.sst", "sizeBytes": size} for name, size in ssts.items()]
    return snapshot(json.dumps({"sstFiles": files}))


def write(checkpoint: Path, merged: bool, files: Mapping[str, bytes]) -> None:
    """Files of the store 0/0, merged or plain."""
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    if not merged:
        for name, data in files.items():
            plain_file(checkpoint, f"0/0/{name}", data)
        return
    with merged_file(checkpoint, len(merged_paths(checkpoint))) as file:
        for number, (name, data) in enumerate(files.items()):
            file.put(f"0/0/{name}", data, stamp=STAMP + number)


def bases(checkpoint: Path) -> dict[tuple[int, str | None], int | None]:
    """(version, checkpoint id): base, None where it cannot be restored."""
    rows = Checkpoint(checkpoint).inspect.versions().to_pylist()
    assert all(row["is_restorable"] is (row["base_snapshot_version"] is not None) for row in rows)
    return {(row["version"], row["state_store_checkpoint_id"]): row["base_snapshot_version"] for row in rows}


@pytest.fixture(params=[True, False], ids=["merged", "plain"])
def merged(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_snapshot_with_all_that_it_names(tmp_path: Path, merged: bool) -> None:
    files = {"5.zip": zip_of(x=3, y=4), "SSTs/x.sst": b"123", "SSTs/y.sst": b"1234", "6.changelog": CHANGES}
    write(tmp_path, merged, files)
    assert bases(tmp_path) == {(5, None): 5, (6, None): 5}
    rows = Checkpoint(tmp_path).inspect.versions().to_pylist()
    size = len(files["5.zip"]) + 7
    assert [(row["replay_count"], row["restore_bytes"]) for row in rows] == [(0, size), (1, size + len(CHANGES))]
    assert [(row["has_snapshot"], row["has_changelog"]) for row in rows] == [(True, False), (False, True)]


@pytest.mark.parametrize("sst", [{}, {"SSTs/x.sst": b"12"}, {"SSTs/z.sst": b"123"}], ids=["none", "short", "other"])
def test_snapshot_without_what_it_names(tmp_path: Path, merged: bool, sst: dict[str, bytes]) -> None:
    write(tmp_path, merged, {"5.zip": zip_of(x=3), "6.changelog": CHANGES, **sst})
    assert bases(tmp_path) == {(5, None): None, (6, None): None}


def test_older_snapshot_serves_where_a_newer_one_is_broken(tmp_path: Path, merged: bool) -> None:
    files = {f"{version}.changelog": CHANGES for version in (5, 6, 7)}
    write(tmp_path, merged, {"4.zip": zip_of(), "6.zip": zip_of(x=3), **files})
    assert bases(tmp_path) == {(4, None): 4, (5, None): 4, (6, None): 4, (7, None): 4}


def test_spark_goes_only_so_far_back_around_a_broken_snapshot(tmp_path: Path) -> None:
    files = {f"{version}.changelog": CHANGES for version in range(1, 504)}
    write(tmp_path, True, files)
    assert bases(tmp_path)[503, None] == 0, "far, but around nothing"
    write(tmp_path, True, {"2.zip": zip_of(x=3)})
    found = bases(tmp_path)
    assert [found[version, None] for version in (2, 500, 501, 503)] == [0, 0, None, None]


def test_changelog_that_is_missing_ends_the_way(tmp_path: Path, merged: bool) -> None:
    write(tmp_path, merged, {f"{version}.delta": CHANGES for version in (1, 2, 4, 5)} | {"5.snapshot": CHANGES})
    assert bases(tmp_path) == {(1, None): 0, (2, None): 0, (4, None): None, (5, None): 5}


@pytest.mark.parametrize("name", ["2.changelog", "2.snapshot"])
def test_plain_file_that_was_cut_off(tmp_path: Path, name: str) -> None:
    write(tmp_path, False, {"1.changelog": CHANGES, name: CHANGES[:-1], "3.changelog": CHANGES})
    assert bases(tmp_path) == {(1, None): 0, (2, None): None, (3, None): None}


def test_bytes_of_a_merged_snapshot_that_changed(tmp_path: Path) -> None:
    data = zip_of()
    write(tmp_path, True, {"3.zip": data})
    path = merged_paths(tmp_path)[0]
    content = bytearray(path.read_bytes())
    content[content.index(data) + len(data) - 1] ^= 1  # in the zip's comment length, which nothing needs
    content[content.index(b"MANIFEST")] ^= 1
    path.write_bytes(bytes(content))
    assert bases(tmp_path) == {(3, None): None}


def test_checksum_of_a_version_that_is_gone_is_no_version(tmp_path: Path, merged: bool) -> None:
    write(tmp_path, merged, {"1.changelog.crc": b"{}", "2.zip.crc": b"{}", "2.zip": zip_of()})
    assert bases(tmp_path) == {(2, None): 2}


def log(lineage: dict[int, str]) -> bytes:
    return lz4(changelog(lineage))


def test_only_the_attempt_that_is_named_is_followed(tmp_path: Path, merged: bool) -> None:
    files = {
        f"1_{A}.changelog": log({}),
        f"2_{A}.changelog": log({1: A}),
        f"2_{B}.changelog": log({1: A}),
        f"3_{A}.changelog": log({1: A, 2: B}),
    }
    write(tmp_path, merged, files)
    assert bases(tmp_path) == {(1, A): 0, (2, A): 0, (2, B): 0, (3, A): 0}
    write(tmp_path / "without", merged, {name: data for name, data in files.items() if B not in name})
    assert bases(tmp_path / "without") == {(1, A): 0, (2, A): 0, (3, A): None}


def test_past_goes_on_before_the_snapshot_that_a_changelog_begins_with(tmp_path: Path, merged: bool) -> None:
    files = {f"{v}_{A}.changelog": log({v - 1: A} if v > 1 else {}) for v in (1, 2, 3, 4)}
    whole = {**files, f"2_{A}.zip": zip_of(), f"3_{A}.zip": zip_of()}
    write(tmp_path / "whole", merged, whole)
    assert list(bases(tmp_path / "whole").values()) == [0, 2, 3, 3]
    broken = {**whole, f"3_{A}.zip": zip_of(x=3)}
    write(tmp_path / "broken", merged, broken)
    assert list(bases(tmp_path / "broken").values()) == [0, 2, 2, 2]


def test_lost_snapshot_is_not_made_up_for_by_the_empty_state(tmp_path: Path, merged: bool) -> None:
    files = {
        f"1_{A}.changelog": log({}),
        f"2_{A}.changelog": log({1: A}),
        f"3_{A}.changelog": log({2: A}),
    }
    write(tmp_path / "lost", merged, files)
    assert list(bases(tmp_path / "lost").values()) == [0, 0, None]
    write(tmp_path / "broken", merged, {**files, f"2_{A}.zip": zip_of(x=3)})
    assert list(bases(tmp_path / "broken").values()) == [0, 0, 0]
