"""What nobody can need goes when it is old; what anybody might need stays, whatever else is wrong."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_statestore import StateStoreFilesError
from pyspark_statestore.checkpoint import Checkpoint
from pyspark_statestore.format import file_name
from pyspark_statestore.log.merged_log import MergedLog
from pyspark_statestore.maintenance.orphans import remove_orphan_files
from pyspark_statestore.storage import Directory, Location
from tests.inspect.builders import STAMP, merged_file, merged_paths, plain_file, refused, simple_checkpoint
from tests.inspect.spark_files import lz4, snapshot
from tests.maintenance.faults import Trouble, troubled_files
from tests.sampling import sample_of_calls

DAY = 86_400.0
DAYS = datetime.timedelta(days=3)
TEMPORARY = ".7.delta.0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f.TID12.tmp"
DRIVERS = ".7.zip.0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f.tmp"


@pytest.fixture
def trouble() -> Iterator[Trouble]:
    with troubled_files() as trouble:
        yield trouble


def zip_of(*ssts: str) -> bytes:
    files = [{"dfsSstFileName": f"{name}.sst", "sizeBytes": 3} for name in ssts]
    return snapshot(json.dumps({"sstFiles": files}))


def aged(path: Path, days: float) -> Path:
    at = time.time() - days * DAY
    os.utime(path, (at, at))
    return path


def plain(checkpoint: Path, path: str, data: bytes = b"123", days: float = 10) -> Path:
    return aged(plain_file(checkpoint, path, data), days)


def stamp(days: float) -> int:
    """Of something that was written so many days ago."""
    return int((time.time() - days * DAY) * 1000) << 16


def in_merged(checkpoint: Path, name: str, days: float, data: bytes = b"") -> Path:
    path = checkpoint / "state" / "_merged" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return aged(path, days)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A stock RocksDB checkpoint that merged files go on: all that is needed, and nothing else."""
    folder = simple_checkpoint(tmp_path / "checkpoint")
    for path in merged_paths(folder):
        path.unlink()
    plain(folder, "0/0/3.zip", zip_of("a", "b"), 9)
    plain(folder, "0/0/3.zip.crc", b"{}", 9)
    plain(folder, "0/0/4.changelog", lz4(b"x"), 9)
    plain(folder, "0/0/.4.changelog.crc", b"crc", 9)
    for name in ("a", "b", "m"):
        plain(folder, f"0/0/SSTs/{name}.sst")
        plain(folder, f"0/0/SSTs/.{name}.sst.crc", b"crc")
    plain(folder, "0/0/logs/000011-x.log", days=1)
    plain(folder, "0/0/_metadata/schema", b"{}")
    plain(folder, "0/1/2.delta", lz4(b"x"))
    plain(folder, "0/1/2.snapshot", lz4(b"x"))
    with merged_file(folder, 1, plain=True) as file:
        file.put("0/0/5.zip", zip_of("a", "m"), stamp=stamp(8))
    return folder


def everything(checkpoint: Path) -> dict[str, bytes]:
    files = (path for path in checkpoint.rglob("*") if path.is_file())
    return {str(path.relative_to(checkpoint / "state")): path.read_bytes() for path in files}


def reasons(checkpoint: Path, **narrowed: object) -> dict[str, str]:
    """By path below ``state/``; a real run, unless it is said otherwise."""
    done = Checkpoint(checkpoint).maintenance.remove_orphan_files(**{"dry_run": False, **narrowed})  # type: ignore[arg-type]
    rows = done.files.to_pylist()
    assert done.removed_files_count == len(rows)
    assert done.removed_bytes_count == sum(row["file_size_in_bytes"] for row in rows)
    prefix = f"file://{checkpoint}/state/"
    assert all(row["file_path"].startswith(prefix) for row in rows)
    return {row["file_path"].removeprefix(prefix): row["reason"] for row in rows}


def assert_goes(checkpoint: Path, orphans: list[Path], *words: str, stays: bool = False) -> None:
    """These go, or stay, and nothing else does."""
    before = everything(checkpoint)
    gone = {} if stays else {str(path.relative_to(checkpoint / "state")) for path in orphans}
    assert set(reasons(checkpoint, dry_run=True)) == set(gone)
    assert everything(checkpoint) == before
    said = reasons(checkpoint)
    assert set(said) == set(gone)
    assert everything(checkpoint) == {name: data for name, data in before.items() if name not in gone}
    for word in words:
        assert any(word in reason for reason in said.values()), said
    assert reasons(checkpoint) == {}, "a second run finds nothing"


def test_nothing_that_is_needed(checkpoint: Path) -> None:
    assert_goes(checkpoint, [])


@pytest.mark.parametrize("days", [10, 2])
def test_merged_file_without_a_group(checkpoint: Path, days: float) -> None:
    orphan = in_merged(checkpoint, file_name(1, 5, 1), days)
    assert_goes(checkpoint, [orphan], *(["without a group"] if days > 3 else []), stays=days < 3)


def test_a_file_of_zeros_may_have_been_another(checkpoint: Path) -> None:
    assert_goes(checkpoint, [in_merged(checkpoint, file_name(1, 5, 1), 10, bytes(100))], stays=True)


def test_header_alone_and_a_torn_group(checkpoint: Path) -> None:
    with merged_file(checkpoint, 70, fronts=True) as file:
        file.put("0/0/1.changelog", b"1" * 100, stamp=STAMP)
    whole = merged_paths(checkpoint)[-1]
    torn = aged(whole.rename(whole.with_name(file_name(1, 5, 2))), 10)
    torn.write_bytes(torn.read_bytes()[:-1])
    aged(torn, 10)
    header = in_merged(checkpoint, file_name(1, 5, 3), 10, torn.read_bytes()[:100])
    index = in_merged(checkpoint, file_name(1, 5, 4, index_only=True), 10)
    assert_goes(checkpoint, [torn, header, index], "without a group")


def test_file_that_may_be_open_stays_for_a_day_whatever_is_said(checkpoint: Path) -> None:
    young, old = (in_merged(checkpoint, file_name(1, 5, n), days) for n, days in ((1, 0.9), (2, 1.1)))
    said = reasons(checkpoint, older_than=datetime.timedelta(0), force=True)
    assert f"_merged/{old.name}" in said
    assert young.exists()


def test_dead_files_and_files_with_segments_are_no_orphans(checkpoint: Path) -> None:
    with merged_file(checkpoint, 80, seal=False) as file:
        file.put("0/9/1.changelog", b"1", stamp=STAMP)
        file.delete("0/9/1.changelog", stamp=STAMP, writer=7)
    aged(merged_paths(checkpoint)[-1], 10)
    assert_goes(checkpoint, [])


@pytest.mark.parametrize("days", [10, 2])
def test_announcement(checkpoint: Path, days: float) -> None:
    orphan = in_merged(checkpoint, file_name(1, 5, 1).replace(".merged", ".relocating"), days)
    assert_goes(checkpoint, [orphan], *(["relocation"] if days > 3 else []), stays=days < 3)


@pytest.mark.parametrize("name", [TEMPORARY, DRIVERS])
@pytest.mark.parametrize("folder", ["0/0", "0/1/left-keyToNumValues", "0/_metadata/v2", "0/_stateSchema/default"])
def test_temporary_files_of_sparks_writers(checkpoint: Path, folder: str, name: str) -> None:
    orphan = plain(checkpoint, f"{folder}/{name}")
    companion = plain(checkpoint, f"{folder}/.{name}.crc", b"crc")
    young = plain(checkpoint, f"{folder}/{name.replace('7', '8')}", days=2)
    assert young != orphan
    assert_goes(checkpoint, [orphan, companion], "crashed")


def test_what_only_looks_like_a_temporary_file(checkpoint: Path) -> None:
    for name in (TEMPORARY[1:], ".7.delta.tmp", TEMPORARY.removesuffix(".tmp"), "notes.tmp"):
        plain(checkpoint, f"0/0/{name}")
    assert_goes(checkpoint, [])


def test_immutable_files_that_no_snapshot_names(checkpoint: Path) -> None:
    sst = plain(checkpoint, "0/0/SSTs/000008-x.sst")
    hidden = plain(checkpoint, "0/0/SSTs/.000008-x.sst.crc", b"crc")
    log = plain(checkpoint, "0/0/logs/000009-x.log")
    assert_goes(checkpoint, [sst, hidden, log], "no snapshot names it")


def test_snapshots_of_another_store_name_nothing_here(checkpoint: Path) -> None:
    plain(checkpoint, "0/0/left/1.zip", zip_of("z"), 8)
    orphan = plain(checkpoint, "0/0/left/SSTs/a.sst")
    plain(checkpoint, "0/0/left/SSTs/z.sst")
    assert_goes(checkpoint, [orphan])


def test_superseded_snapshot_is_asked_too(checkpoint: Path) -> None:
    with merged_file(checkpoint, 2, plain=True) as file:
        file.put("0/0/3.zip", zip_of("a"), stamp=stamp(8))
    assert_goes(checkpoint, [])


def test_file_of_a_snapshot_that_failed_stays_until_a_later_one_does_without(checkpoint: Path) -> None:
    """RocksDB counts what was uploaded as there, and the next snapshot, however late, may name it."""
    orphan = plain(checkpoint, "0/0/SSTs/failed.sst", days=7)
    assert_goes(checkpoint, [orphan], stays=True)
    with merged_file(checkpoint, 3, plain=True) as file:
        file.put("0/0/6.changelog", lz4(b"x"), stamp=stamp(6.5))
        file.put("0/0/6.zip", zip_of("a"), stamp=stamp(6))
    assert_goes(checkpoint, [orphan])


@pytest.mark.parametrize("is_plain", [False, True], ids=["merged", "plain"])
@pytest.mark.parametrize("has_changelog", [True, False], ids=["changelogs", "snapshots only"])
def test_what_was_made_while_a_snapshot_waited_for_its_upload_stays(
    checkpoint: Path, is_plain: bool, has_changelog: bool
) -> None:
    """A store may need it, and have it nowhere else; that the snapshot does not name it says nothing."""
    made = plain(checkpoint, "0/0/SSTs/made.sst", days=6)

    def snapshot(version: int, taken: float, written: float) -> None:
        with merged_file(checkpoint, version, plain=True) as file:
            for name, data, days in (("changelog", lz4(b"x"), taken), ("zip", zip_of("a"), written)):
                if name == "changelog" and not has_changelog:
                    continue
                if is_plain:
                    plain(checkpoint, f"0/0/{version}.{name}", data, days)
                else:
                    file.put(f"0/0/{version}.{name}", data, stamp=stamp(days))

    snapshot(6, 6.5, 5.5)
    assert_goes(checkpoint, [made], stays=True)
    snapshot(7, 5.5 if has_changelog else 5.2, 4.5)
    assert_goes(checkpoint, [made])


def test_store_without_a_snapshot(checkpoint: Path) -> None:
    orphan = plain(checkpoint, "0/7/SSTs/first.sst")
    assert_goes(checkpoint, [orphan], stays=True)


def test_checksums_of_nothing(checkpoint: Path) -> None:
    orphans = [plain(checkpoint, name) for name in ("0/0/.9.zip.crc", "0/0/2.zip.crc", "0/0/.2.zip.crc.crc")]
    assert_goes(checkpoint, orphans, "checksum")


def test_checksum_of_a_file_that_is_merged(checkpoint: Path) -> None:
    plain(checkpoint, "0/0/5.zip.crc")
    assert_goes(checkpoint, [])


def test_plain_files_that_merged_ones_supersede_stay(checkpoint: Path) -> None:
    plain(checkpoint, "0/0/5.zip", zip_of())
    assert_goes(checkpoint, [])


@pytest.mark.parametrize("where", ["plain", "merged"])
def test_snapshot_that_cannot_be_read(checkpoint: Path, where: str) -> None:
    plain(checkpoint, "0/0/SSTs/000008-x.sst")
    plain(checkpoint, f"0/0/{TEMPORARY}")
    if where == "plain":
        plain(checkpoint, "0/0/9.zip", zip_of("a")[:-30])
    else:
        with merged_file(checkpoint, 9, plain=True) as file:
            file.put("0/0/9.zip", zip_of("a")[:-30], stamp=STAMP)
    before = everything(checkpoint)
    with refused("PSS_READ_FAILED", "0/0/9.zip"):
        reasons(checkpoint)
    assert everything(checkpoint) == before


def test_index_that_cannot_be_read(checkpoint: Path) -> None:
    plain(checkpoint, f"0/0/{TEMPORARY}")
    in_merged(checkpoint, file_name(1, 5, 1), 10, b"something else")
    before = everything(checkpoint)
    with refused("PSS_CORRUPT_FILE"):
        reasons(checkpoint)
    assert everything(checkpoint) == before


@pytest.mark.parametrize("older_than", [datetime.timedelta(minutes=59), datetime.timedelta(-1), 3, None])
def test_less_than_an_hour_has_to_be_said_twice(checkpoint: Path, older_than: object) -> None:
    with refused("PSS_INVALID_OPTION", "older_than", "an hour"):
        Checkpoint(checkpoint).maintenance.remove_orphan_files(older_than)  # type: ignore[arg-type]


def test_force(checkpoint: Path) -> None:
    orphan = plain(checkpoint, f"0/0/{TEMPORARY}", days=0.01)
    assert reasons(checkpoint, older_than=datetime.timedelta(hours=1)) == {}
    assert orphan.exists()
    assert f"0/0/{TEMPORARY}" in reasons(checkpoint, older_than=datetime.timedelta(minutes=1), force=True)
    with refused("PSS_INVALID_OPTION", "older_than"):
        reasons(checkpoint, older_than=datetime.timedelta(seconds=-1), force=True)


def test_clock_that_is_ahead_removes_nothing(checkpoint: Path) -> None:
    """Ages are the smaller ones of two: by this process's clock, and by the file system's."""
    plain(checkpoint, f"0/0/{TEMPORARY}", days=2)
    ahead = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=30)
    before = everything(checkpoint)
    log = MergedLog(Directory(Location.of(checkpoint)), datetime.timedelta(minutes=10), clock=lambda: ahead)
    assert remove_orphan_files(log, DAYS, dry_run=False).removed_files_count == 0
    assert everything(checkpoint) == before


def test_clock_that_is_behind_removes_nothing(checkpoint: Path) -> None:
    plain(checkpoint, f"0/0/{TEMPORARY}", days=4)
    behind = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=2)
    log = MergedLog(Directory(Location.of(checkpoint)), datetime.timedelta(minutes=10), clock=lambda: behind)
    assert remove_orphan_files(log, DAYS, dry_run=False).removed_files_count == 0
    assert remove_orphan_files(log, DAYS, dry_run=True).removed_files_count == 0


def test_checkpoint_in_which_nothing_is_new(checkpoint: Path) -> None:
    """The newest file there is as old as the orphan, so only the file system itself can tell how old that is."""
    orphan = plain(checkpoint, f"0/0/{TEMPORARY}")
    for path in checkpoint.rglob("*"):
        if path.is_file():
            aged(path, 10)
    assert_goes(checkpoint, [orphan])


@pytest.mark.sweep
def test_snapshot_is_uploaded_meanwhile(checkpoint: Path, trouble: Trouble) -> None:
    """Its files come before its zip, at whatever moment this looks."""
    for at in sample_of_calls(operations_of_a_dry_run(checkpoint, trouble), reading=3):
        copy = checkpoint.parent / str(at)
        shutil.copytree(checkpoint, copy)
        orphan = plain(copy, "0/0/SSTs/orphan.sst")
        uploaded = upload_at(copy, at, trouble)
        assert "0/0/SSTs/orphan.sst" in reasons(copy)
        trouble.before = lambda operation, path: None
        assert not orphan.exists()
        assert all(path.exists() for path in uploaded), at
        assert Checkpoint(copy).inspect.versions().filter(versions_of(copy, 8)).num_rows == 1


def operations_of_a_dry_run(checkpoint: Path, trouble: Trouble) -> list[tuple[str, str]]:
    trouble.log.clear()
    reasons(checkpoint, dry_run=True)
    return list(trouble.log)


def versions_of(checkpoint: Path, version: int) -> list[bool]:
    rows = Checkpoint(checkpoint).inspect.versions().to_pylist()
    return [row["version"] == version and row["is_restorable"] for row in rows]


def upload_at(checkpoint: Path, at: int, trouble: Trouble) -> list[Path]:
    """An executor uploads one SST before the n-th operation of the next run, and the zip at the one after."""
    sst = checkpoint / "state/0/0/SSTs/new.sst"
    package = checkpoint / "state/0/0/8.zip"
    steps = [(at + 1, sst, b"123"), (at + 2, package, zip_of("new", "a"))]
    start = len(trouble.log)
    one_at_a_time = threading.Lock()

    def upload(operation: str, path: str) -> None:
        with one_at_a_time:
            while steps and len(trouble.log) - start >= steps[0][0]:
                _, file, data = steps.pop(0)
                hidden = file.with_name(f".{file.name}.tmp")
                hidden.write_bytes(data)
                hidden.rename(file)

    trouble.before = upload
    return [sst, package]


@pytest.mark.sweep
@pytest.mark.parametrize("done", [False, True], ids=["undone", "done"])
def test_any_operation_may_fail(checkpoint: Path, trouble: Trouble, done: bool) -> None:
    needed = everything(checkpoint)
    with_orphans = checkpoint.parent / "with-orphans"
    shutil.copytree(checkpoint, with_orphans)
    plain(with_orphans, f"0/0/{TEMPORARY}")
    plain(with_orphans, "0/0/SSTs/000008-x.sst")
    plain(with_orphans, "0/0/SSTs/.000008-x.sst.crc")
    in_merged(with_orphans, file_name(1, 5, 1), 10)
    whole = checkpoint.parent / "whole"
    shutil.copytree(with_orphans, whole)
    trouble.log.clear()
    assert len(reasons(whole)) == 4
    steps = sample_of_calls(trouble.log)
    failed = 0
    for at in steps:
        copy = checkpoint.parent / str(at)
        shutil.copytree(with_orphans, copy)
        trouble.log.clear()
        trouble.at, trouble.done = at, done
        try:
            reasons(copy)
        except StateStoreFilesError:
            failed += 1
        trouble.at = None
        assert needed.items() <= everything(copy).items(), trouble.log[at]
        for path in (copy / "state").glob(".clock.*.tmp"):
            aged(path, 10)
        reasons(copy)
        assert everything(copy) == needed, trouble.log[at]
    assert failed == len(steps)


def test_stock_checkpoint_gets_no_merged_directory(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    plain(tmp_path, "0/0/1.delta", lz4(b"x"))
    orphan = plain(tmp_path, f"0/0/{TEMPORARY}")
    assert_goes(tmp_path, [orphan])
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == ["0"]


def test_place_that_is_no_checkpoint(tmp_path: Path) -> None:
    with refused("PSS_NOT_A_CHECKPOINT", str(tmp_path)):
        Checkpoint(tmp_path / "nothing").maintenance.remove_orphan_files()


SST = "0/0/SSTs/000012-5b5d9c0a-0f3c-4c43-9a3e-6a1d0a3f5b11.sst"


def uploaded(checkpoint: Path, days: float, path: str = SST) -> None:
    """A segment that an executor has uploaded before the snapshot that was to name it."""
    with merged_file(checkpoint, 2, plain=True) as file:
        file.put(path, b"an SST", stamp=stamp(days))
    for merged in merged_paths(checkpoint):
        aged(merged, days)


def live(checkpoint: Path) -> set[str]:
    return set(Checkpoint(checkpoint).inspect.segments()["logical_path"].to_pylist())


@pytest.mark.parametrize(
    ("days", "older_than", "goes"),
    [
        pytest.param(11, 3, True, id="old"),
        pytest.param(8.001, 3, False, id="as young as the newest snapshot"),
        pytest.param(10, 12, False, id="younger than asked for"),
    ],
)
def test_a_segment_that_no_snapshot_names(checkpoint: Path, days: float, older_than: float, goes: bool) -> None:
    uploaded(checkpoint, days)
    before = live(checkpoint)
    narrowed = {"older_than": datetime.timedelta(days=older_than)}
    expected = {SST: "no snapshot names it"} if goes else {}
    assert reasons(checkpoint, dry_run=True, **narrowed) == expected
    assert live(checkpoint) == before
    assert reasons(checkpoint, **narrowed) == expected
    assert live(checkpoint) == before - expected.keys()
    assert reasons(checkpoint, **narrowed) == {}


def test_a_segment_stays_for_a_day_whatever_is_asked_for(checkpoint: Path) -> None:
    with merged_file(checkpoint, 3, plain=True) as file:
        file.put("0/0/6.zip", zip_of("a", "m"), stamp=stamp(0.1))
    uploaded(checkpoint, 0.9)
    soon = {"older_than": datetime.timedelta(hours=1), "force": True}
    assert SST not in reasons(checkpoint, **soon)
    assert SST in live(checkpoint)


def test_a_segment_that_a_snapshot_names_stays(checkpoint: Path) -> None:
    uploaded(checkpoint, 10, "0/0/SSTs/m.sst")
    assert reasons(checkpoint) == {}
    assert "0/0/SSTs/m.sst" in live(checkpoint)
