"""Old versions go; what any version that stays needs is never touched, whatever goes wrong."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore import StateStoreFilesError
from pyspark_statestore.checkpoint import Checkpoint
from pyspark_statestore.maintenance.expiry import Expiry
from tests.inspect.builders import STAMP, merged_file, merged_paths, plain_file, refused
from tests.inspect.spark_files import changelog, lz4, snapshot
from tests.maintenance.faults import Breakage, DiedError, Trouble, troubled_files
from tests.sampling import sample_of_calls

A, B = "a" * 36, "b" * 36
CHANGES = lz4(b"some changes" + b"\xff" * 4)


@pytest.fixture
def trouble() -> Iterator[Trouble]:
    with troubled_files() as trouble:
        yield trouble


@pytest.fixture(params=["merged", "plain", "mixed"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def zip_of(*ssts: str) -> bytes:
    files = [{"dfsSstFileName": f"{name}.sst", "sizeBytes": 3} for name in ssts]
    return snapshot(json.dumps({"sstFiles": files}))


def grow_old(checkpoint: Path, days: float = 1) -> None:
    """The query was stopped so long ago."""
    at = time.time() - days * 86_400
    for path in checkpoint.rglob("*"):
        if path.is_file():
            os.utime(path, (at, at))


def commit(checkpoint: Path, *batches: int) -> None:
    for log in ("offsets", "commits"):
        (checkpoint / log).mkdir(parents=True, exist_ok=True)
        for batch in batches:
            (checkpoint / log / str(batch)).write_text("v1\n{}")
            (checkpoint / log / f".{batch}.crc").write_bytes(b"crc")


def write(checkpoint: Path, kind: str, files: dict[str, bytes], number: int = 1) -> Path:
    """State files, each merged or plain, or every other one; the merged ones in several files."""
    for place, (name, data) in enumerate(files.items()):
        if kind == "merged" or (kind == "mixed" and place % 2):
            with merged_file(checkpoint, 100 * number + place, plain=kind == "mixed") as file:
                file.put(name, data, stamp=STAMP + 100 * number + place)
        else:
            plain_file(checkpoint, name, data)
            folder, _, base = name.rpartition("/")
            plain_file(checkpoint, f"{folder}/.{base}.crc", b"crc")
    grow_old(checkpoint)
    return checkpoint


def deltas(store: str, versions: range, snapshots: tuple[int, ...] = ()) -> dict[str, bytes]:
    found = {f"{store}/{version}.delta": CHANGES for version in versions}
    return {**found, **{f"{store}/{version}.snapshot": CHANGES for version in snapshots}}


def restorable(checkpoint: Path) -> dict[tuple[Any, ...], tuple[int, int, int]]:
    """By store, version and id: how it is restored."""
    rows = Checkpoint(checkpoint).inspect.versions().to_pylist()
    names = ("operator_id", "partition_id", "store_name", "version", "state_store_checkpoint_id")
    how = ("base_snapshot_version", "replay_count", "restore_bytes")
    return {tuple(row[n] for n in names): tuple(row[n] for n in how) for row in rows if row["is_restorable"]}


def above(found: dict[tuple[Any, ...], Any], version: int) -> dict[tuple[Any, ...], Any]:
    return {key: how for key, how in found.items() if key[3] >= version}


def paths(checkpoint: Path) -> set[str]:
    """Logical files, and Hadoop's checksums of plain ones."""
    rows = Checkpoint(checkpoint).inspect.segments().to_pylist()
    plain = (path for path in (checkpoint / "state").rglob("*") if path.is_file() and "_merged" not in path.parts)
    return {row["logical_path"] for row in rows if row["status"] == "live"} | {
        str(path.relative_to(checkpoint / "state")) for path in plain
    }


def expire(checkpoint: Path, retain_last: int, **rest: Any) -> Expiry:
    return Checkpoint(checkpoint).maintenance.expire(retain_last, **{"dry_run": False, **rest})


def test_heap_store(tmp_path: Path, kind: str) -> None:
    commit(tmp_path, *range(10))
    write(tmp_path, kind, {**deltas("0/0", range(1, 12), (4, 8)), **deltas("0/1", range(1, 11), (4,))})
    before, files = restorable(tmp_path), paths(tmp_path)
    done = expire(tmp_path, 2)
    # Batches 8 and 9: versions 9 and 10. The base of the first store is 8, of the second 4; version 11 stays.
    assert restorable(tmp_path) == {key: how for key, how in before.items() if key[3] >= (8 if key[1] == 0 else 4)}
    gone = {name for name in files - paths(tmp_path) if not name.endswith(".crc")}
    assert gone == {
        *(f"0/0/{version}.delta" for version in range(1, 8)),
        "0/0/4.snapshot",
        *(f"0/1/{version}.delta" for version in range(1, 4)),
    }
    assert not [n for n in paths(tmp_path) if n.endswith(".crc") and n.replace("/.", "/")[:-4] in gone]
    assert (done.removed_versions_count, done.removed_files_count, done.oldest_retained_batch) == (10, 11, 8)
    assert (done.removed_bytes_count, done.untouched_stores_count) == (11 * len(CHANGES), 0)
    again = expire(tmp_path, 2, force=True)
    assert (again.removed_versions_count, again.removed_files_count) == (0, 0)


def rocksdb(store: str = "0/0") -> dict[str, bytes]:
    files = {f"{store}/{version}.changelog": CHANGES for version in range(1, 11)}
    files |= {f"{store}/3.zip": zip_of("a", "b"), f"{store}/6.zip": zip_of("b", "c"), f"{store}/9.zip": zip_of("c")}
    return files | {f"{store}/SSTs/{name}.sst": b"123" for name in "abcd"}


@pytest.mark.parametrize(
    ("retain_last", "base", "ssts"), [(1, 9, {"c", "d"}), (2, 9, {"c", "d"}), (3, 6, set("bcd")), (5, 6, set("bcd"))]
)
def test_rocksdb_with_changelogs(tmp_path: Path, kind: str, retain_last: int, base: int, ssts: set[str]) -> None:
    commit(tmp_path, *range(10))
    write(tmp_path, kind, rocksdb())
    before = restorable(tmp_path)
    done = expire(tmp_path, retain_last)
    assert done.oldest_retained_batch == 10 - retain_last
    assert restorable(tmp_path) == above(before, base)
    assert {Path(name).stem for name in paths(tmp_path) if name.endswith(".sst")} == ssts, "none named d ever"


def test_rocksdb_with_a_snapshot_in_each_batch(tmp_path: Path, kind: str) -> None:
    commit(tmp_path, *range(6))
    files = {f"0/0/{version}.zip": zip_of(f"s{version - 1}", f"s{version}") for version in range(1, 7)}
    write(tmp_path, kind, files | {f"0/0/SSTs/s{version}.sst": b"123" for version in range(7)})
    before = restorable(tmp_path)
    expire(tmp_path, 2)
    assert restorable(tmp_path) == above(before, 5)
    assert len(before) == 6
    assert {Path(name).stem for name in paths(tmp_path) if name.endswith(".sst")} == {"s4", "s5", "s6"}


def test_merged_bytes_are_freed(tmp_path: Path) -> None:
    commit(tmp_path, *range(10))
    write(tmp_path, "merged", rocksdb())
    count = len(merged_paths(tmp_path))
    expire(tmp_path, 1)
    assert len(merged_paths(tmp_path)) < count / 2


def test_format_2_keeps_the_past_that_is_followed(tmp_path: Path, kind: str) -> None:
    def log(*past: tuple[int, str]) -> bytes:
        return lz4(changelog(dict(past)))

    commit(tmp_path, *range(6))
    files = {
        f"0/0/1_{A}.changelog": log(),
        f"0/0/2_{A}.changelog": log((1, A)),
        f"0/0/2_{A}.zip": zip_of("a"),
        f"0/0/3_{A}.changelog": log((2, A)),
        f"0/0/3_{B}.changelog": log((2, A)),
        f"0/0/4_{A}.changelog": log((2, A), (3, B)),
        f"0/0/4_{B}.changelog": log((2, A), (3, A)),
        f"0/0/4_{B}.zip": zip_of("b"),
        f"0/0/5_{A}.changelog": log((2, A), (3, B), (4, A)),
        f"0/0/5_{B}.changelog": log((4, B)),
        f"0/0/6_{A}.changelog": log((2, A), (3, B), (4, A), (5, A)),
        "0/0/SSTs/a.sst": b"123",
        "0/0/SSTs/b.sst": b"123",
    }
    write(tmp_path, kind, files)
    before = restorable(tmp_path)
    assert before[0, 0, "default", 6, A][0] == 2
    done = expire(tmp_path, 1)
    assert restorable(tmp_path) == above(before, 2)
    assert done.removed_files_count == 1
    assert above(restorable(tmp_path), 6) == above(before, 6)


def test_checksums_go_with_their_files(tmp_path: Path, kind: str) -> None:
    commit(tmp_path, *range(10))
    files = deltas("0/0", range(1, 11), (9,))
    write(tmp_path, kind, files | {f"{name}.crc": b"{}" for name in files})
    expire(tmp_path, 1)
    left = {name for name in paths(tmp_path) if not name.rpartition("/")[2].startswith(".")}
    kept = {"0/0/9.delta", "0/0/9.snapshot", "0/0/10.delta"}
    assert left == kept | {f"{name}.crc" for name in kept}


def test_version_above_the_last_committed_one_stays(tmp_path: Path, kind: str) -> None:
    commit(tmp_path, *range(5))
    write(tmp_path, kind, deltas("0/0", range(1, 8), (4, 5, 6)))
    before = restorable(tmp_path)
    expire(tmp_path, 1)
    assert restorable(tmp_path) == above(before, 5)


def test_plain_file_under_a_merged_one_does_not_come_back(tmp_path: Path) -> None:
    commit(tmp_path, *range(5))
    write(tmp_path, "plain", deltas("0/0", range(1, 6), (4,)))
    with merged_file(tmp_path, 9, plain=True) as file:
        file.put("0/0/2.delta", CHANGES, stamp=STAMP)
    grow_old(tmp_path)
    before = restorable(tmp_path)
    expire(tmp_path, 1)
    assert restorable(tmp_path) == above(before, 4)
    assert not [name for name in paths(tmp_path) if name.endswith("/2.delta")]


def test_store_that_cannot_be_restored_is_left_alone(tmp_path: Path, kind: str) -> None:
    commit(tmp_path, *range(10))
    broken = rocksdb("0/1")
    for name in ("0/1/10.changelog", "0/1/SSTs/a.sst"):
        del broken[name]
    write(tmp_path, kind, {**rocksdb("0/0"), **broken})
    before = paths(tmp_path)
    done = expire(tmp_path, 1)
    assert done.untouched_stores_count == 1
    assert {name for name in before if name.startswith("0/1/")} <= paths(tmp_path)
    assert "0/0/1.changelog" not in paths(tmp_path)


@pytest.mark.parametrize("gone", ["9.delta", "11.delta"])
def test_store_without_a_version_that_is_to_stay_is_left_alone(tmp_path: Path, kind: str, gone: str) -> None:
    """The last committed version could be restored alone; the one before, or an attempt at the next, could not."""
    commit(tmp_path, *range(10))
    files = deltas("0/0", range(1, 13), (4, 10))
    del files[f"0/0/{gone}"]
    write(tmp_path, kind, files)
    before = paths(tmp_path)
    done = expire(tmp_path, 2)
    assert (done.removed_files_count, done.untouched_stores_count) == (0, 1)
    assert paths(tmp_path) == before


def test_way_around_a_broken_snapshot_stays(tmp_path: Path, kind: str) -> None:
    commit(tmp_path, *range(10))
    files = rocksdb()
    write(tmp_path, kind, {**files, "0/0/9.zip": zip_of("gone")})
    before = restorable(tmp_path)
    expire(tmp_path, 1)
    assert restorable(tmp_path) == above(before, 6)


def test_way_around_that_needs_the_whole_past(tmp_path: Path, kind: str) -> None:
    """Spark goes around a broken snapshot of format 2 along a past that it knows from the beginning only."""
    commit(tmp_path, *range(4))
    files = {f"0/0/{v}_{A}.changelog": lz4(changelog({v - 1: A} if v > 1 else {})) for v in (1, 2, 3, 4)}
    write(tmp_path, kind, {**files, f"0/0/2_{A}.zip": zip_of(), f"0/0/3_{A}.zip": zip_of("gone")})
    before = restorable(tmp_path)
    assert before[0, 0, "default", 4, A][0] == 2
    done = expire(tmp_path, 1)
    assert restorable(tmp_path) == before
    assert (done.untouched_stores_count, done.removed_files_count) == (1, 0)


@pytest.mark.parametrize("retain_last", [10, 11, 1000])
def test_fewer_batches_than_are_to_stay(tmp_path: Path, kind: str, retain_last: int) -> None:
    commit(tmp_path, *range(10))
    write(tmp_path, kind, deltas("0/0", range(1, 11), (1, 9)))
    before = paths(tmp_path)
    assert expire(tmp_path, retain_last).removed_files_count == 0
    assert paths(tmp_path) == before


def test_log_of_commits_that_knows_fewer_batches_than_are_to_stay(tmp_path: Path, kind: str) -> None:
    commit(tmp_path, *range(5, 10))
    write(tmp_path, kind, deltas("0/0", range(1, 11), (2, 6, 9)))
    before = paths(tmp_path)
    done = expire(tmp_path, 8)
    assert (done.removed_files_count, done.oldest_retained_batch) == (0, 5)
    assert paths(tmp_path) == before


def test_no_batch_was_committed(tmp_path: Path) -> None:
    commit(tmp_path)
    write(tmp_path, "merged", deltas("0/0", range(1, 3), (2,)))
    done = expire(tmp_path, 1)
    assert (done.removed_files_count, done.oldest_retained_batch) == (0, None)


def test_commits_with_gaps(tmp_path: Path, kind: str) -> None:
    """With asynchronous progress tracking Spark does not log each batch."""
    commit(tmp_path, 2, 5, 9)
    write(tmp_path, kind, deltas("0/0", range(1, 11), (3, 6, 9)))
    before = restorable(tmp_path)
    done = expire(tmp_path, 2)
    assert done.oldest_retained_batch == 5
    assert restorable(tmp_path) == above(before, 6)


@pytest.mark.parametrize("retain_last", [0, -1, True, 1.0, "1", None])
def test_retain_last(tmp_path: Path, retain_last: Any) -> None:
    commit(tmp_path, 0)
    with refused("PSS_INVALID_OPTION", "retain_last"):
        expire(tmp_path, retain_last)


def test_place_that_is_no_checkpoint(tmp_path: Path) -> None:
    with refused("PSS_NOT_A_CHECKPOINT", str(tmp_path)):
        expire(tmp_path / "nothing", 1)


def test_dry_run_says_the_same_and_does_nothing(tmp_path: Path, kind: str) -> None:
    commit(tmp_path, *range(10))
    write(tmp_path, kind, rocksdb())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    said = Checkpoint(tmp_path).maintenance.expire(1)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    done = expire(tmp_path, 1)
    assert (said.dry_run, done.dry_run) == (True, False)
    assert said.removed_files_count == done.removed_files_count > 0
    assert said.removed_versions_count == done.removed_versions_count > 0


SIGNS = ["commits/9", "offsets/10", "stamp", "unsealed", "plain"]


@pytest.mark.parametrize("sign", SIGNS)
def test_query_that_seems_to_run(tmp_path: Path, sign: str) -> None:
    commit(tmp_path, *range(10))
    write(tmp_path, "mixed", rocksdb())
    if sign == "stamp":
        with merged_file(tmp_path, 999, plain=True) as file:
            file.put("0/0/11.changelog", CHANGES, stamp=int(time.time() * 1000) << 16)
        grow_old(tmp_path)
    elif sign == "unsealed":
        with merged_file(tmp_path, 999, plain=True, seal=False) as file:
            file.put("0/0/11.changelog", CHANGES, stamp=STAMP)
    elif sign == "plain":
        plain_file(tmp_path, "0/0/11.changelog", CHANGES)
    else:
        (tmp_path / sign).write_text("v1")
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    for dry_run in (True, False):
        with refused("PSS_QUERY_RUNNING", str(tmp_path), "force"):
            expire(tmp_path, 1, dry_run=dry_run)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before
    assert expire(tmp_path, 1, force=True).removed_files_count


def test_clock_that_is_ahead_does_not_take_a_running_query_for_stopped(tmp_path: Path) -> None:
    from pyspark_statestore.log.merged_log import MergedLog
    from pyspark_statestore.maintenance.expiry import expire as expire_at
    from pyspark_statestore.storage import Directory, Location

    commit(tmp_path, *range(10))
    write(tmp_path, "merged", rocksdb())
    (tmp_path / "commits" / "10").write_text("v1")
    ahead = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=5)
    log = MergedLog(Directory(Location.of(tmp_path)), datetime.timedelta(minutes=10), clock=lambda: ahead)
    with refused("PSS_QUERY_RUNNING"):
        expire_at(log, 1, dry_run=False)


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("done", [False, True], ids=["undone", "done"])
def test_any_operation_may_fail(tmp_path: Path, trouble: Trouble, done: bool) -> None:
    original = tmp_path / "original"
    commit(original, *range(10))
    write(original, "mixed", {**rocksdb(), **deltas("0/1", range(1, 11), (8,))})
    before = restorable(original)
    whole = tmp_path / "whole"
    shutil.copytree(original, whole)
    trouble.log.clear()
    expire(whole, 1)
    expected = paths(whole)
    steps = sample_of_calls(trouble.log)
    failed = 0
    for at in steps:
        copy = tmp_path / str(at)
        shutil.copytree(original, copy)
        trouble.log.clear()
        trouble.at, trouble.done = at, done
        try:
            expire(copy, 1)
        except StateStoreFilesError:
            failed += 1
        trouble.at = None
        what = trouble.log[at] if at < len(trouble.log) else at
        assert above(restorable(copy), 10) == above(before, 10), what
        expire(copy, 1, force=True)
        assert above(restorable(copy), 10) == above(before, 10), what
        assert {name for name in paths(copy) if ".clock." not in name} == expected, what
        shutil.rmtree(copy)
    assert failed >= len(steps) - 10


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("torn", [False, True], ids=["whole", "torn"])
def test_may_be_killed_at_any_operation(tmp_path: Path, breakage: Breakage, torn: bool) -> None:
    original = tmp_path / "original"
    commit(original, *range(10))
    write(original, "mixed", rocksdb())
    before = restorable(original)
    breakage.mended()
    whole = Path(shutil.copytree(original, tmp_path / "whole"))
    expire(whole, 1)
    steps, expected = sample_of_calls(breakage.operations), paths(whole)
    for at in steps:
        copy = Path(shutil.copytree(original, tmp_path / str(at)))
        breakage.mended()
        breakage.at, breakage.deadly, breakage.torn = at, True, torn
        with contextlib.suppress(DiedError):
            expire(copy, 1)
        breakage.mended()
        assert above(restorable(copy), 10) == above(before, 10), at
        expire(copy, 1, force=True)
        assert above(restorable(copy), 10) == above(before, 10), at
        assert {name for name in paths(copy) if ".clock." not in name} == expected, at
        shutil.rmtree(copy)


def test_snapshot_that_cannot_be_read_names_what_may_be_needed(tmp_path: Path, kind: str) -> None:
    commit(tmp_path, *range(10))
    write(tmp_path, kind, {**rocksdb(), "0/0/10.zip": zip_of("a")[:-30]})
    ssts = {name for name in paths(tmp_path) if name.endswith(".sst")}
    before = restorable(tmp_path)
    expire(tmp_path, 1)
    assert above(restorable(tmp_path), 10) == above(before, 10)
    assert ssts <= paths(tmp_path)
