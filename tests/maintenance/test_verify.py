"""Verification names exactly what is damaged, and nothing where nothing is."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest
from fsspec.callbacks import Callback

from pyspark_statestore import Checkpoint
from pyspark_statestore.format import Entry, MergedFileWriter, file_name
from pyspark_statestore.maintenance.verify import verification
from pyspark_statestore.session.doors import MERGED_PROVIDERS, PROVIDER_KEY
from tests.inspect.builders import CREATED_MS, STAMP, add_index, merged_file, merged_paths, plain_file, refused
from tests.inspect.spark_files import lz4, snapshot
from tests.maintenance import builders
from tests.maintenance.builders import (
    KINDS,
    LAST,
    copy_as,
    damages,
    entry_of,
    files_of_version,
    flip,
    index_of,
    make,
    merged_name,
    short,
    verify,
    write_logs,
    write_version,
)

SEGMENTS = ("0/1/3.changelog", "0/0/4.zip", "0/1/SSTs/000004-1.sst")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_nothing_is_wrong(tmp_path: Path, kind: str) -> None:
    found = verify(make(tmp_path, kind))
    assert found.is_clean
    assert (found.damages, found.notes) == ((), ())
    assert found.versions_count == 8
    assert found.files_count == {"merged": 4, "mixed": 2, "plain": 0}[kind]
    assert found.segments_count == {"merged": 16, "mixed": 8, "plain": 0}[kind]


def test_every_live_byte_is_read_and_told(tmp_path: Path) -> None:
    make(tmp_path)
    with merged_file(tmp_path, 9, plain=True) as out:
        out.delete("0/0/1.changelog", stamp=STAMP + 100, writer=7)
    callback = Callback()
    live = sum(e.length for path in merged_paths(tmp_path) for e in index_of(path) if e.path != "0/0/1.changelog")
    assert verify(tmp_path, callback=callback).read_bytes_count == live
    assert (callback.size, callback.value) == (live, live)


@pytest.mark.parametrize("logical_path", SEGMENTS)
@pytest.mark.parametrize("kind", ["merged", "mixed"])
def test_flipped_byte_in_a_segment(tmp_path: Path, kind: str, logical_path: str) -> None:
    make(tmp_path, kind)
    path, entry = entry_of(tmp_path, logical_path)
    flip(path, entry.offset + entry.length // 2)
    assert damages(tmp_path) == [("corrupt_segment", merged_name(path), entry.offset, logical_path)]


def test_flipped_byte_where_nothing_lives(tmp_path: Path) -> None:
    make(tmp_path)
    with merged_file(tmp_path, 9, plain=True) as out:
        out.put("0/0/4.zip", snapshot('{"sstFiles": []}'), stamp=STAMP + 9000)
    path = merged_paths(tmp_path)[3]
    entry = next(each for each in index_of(path) if each.path == "0/0/4.zip")
    flip(path, entry.offset)
    assert damages(tmp_path) == []


def test_flipped_byte_in_a_header(tmp_path: Path) -> None:
    path = merged_paths(make(tmp_path))[2]
    flip(path, 13)
    [(kind, where, offset, _)] = damages(tmp_path)
    assert (kind, where, offset is not None) == ("corrupt_file", merged_name(path), True)


def test_another_format_version(tmp_path: Path) -> None:
    path = merged_paths(make(tmp_path))[2]
    data = bytearray(path.read_bytes())
    data[7:8] = b"9"
    path.write_bytes(bytes(data))
    assert damages(tmp_path) == [("unsupported_version", merged_name(path), None, None)]


@pytest.mark.parametrize("at", range(0, 64, 7))
def test_flipped_byte_in_the_last_trailer(tmp_path: Path, at: int) -> None:
    path = merged_paths(make(tmp_path))[3]
    trailer = path.stat().st_size - 64
    flip(path, trailer + at)
    assert damages(tmp_path) == [("corrupt_index", merged_name(path), trailer, None)]


def test_flipped_byte_in_the_last_index_block(tmp_path: Path) -> None:
    path = merged_paths(make(tmp_path))[0]
    at = index_of(path).groups[-1].trailer.index_offset
    flip(path, at + 70)
    assert damages(tmp_path) == [("corrupt_index", merged_name(path), at, None)]


def test_flipped_byte_in_an_earlier_index_block(tmp_path: Path) -> None:
    builders.write_logs(tmp_path, range(1))
    with merged_file(tmp_path, 1, seal=False) as out:
        for partition in range(2):
            for logical_path, data in builders.files_of_version(partition, 1).items():
                out.put(logical_path, data, stamp=STAMP + partition)
            out.end_group()
    assert damages(tmp_path) == []
    [path] = merged_paths(tmp_path)
    at = index_of(path).groups[0].trailer.index_offset
    flip(path, at + 3)
    assert damages(tmp_path) == [("corrupt_index", merged_name(path), at, None)]


def test_one_unreadable_file_does_not_hide_another_damage(tmp_path: Path) -> None:
    make(tmp_path)
    flip(merged_paths(tmp_path)[0], 13)
    path, entry = entry_of_readable(tmp_path, "0/1/4.changelog")
    flip(path, entry.offset)
    assert {(kind, where) for kind, where, _, _ in damages(tmp_path)} == {
        ("corrupt_file", merged_name(merged_paths(tmp_path)[0])),
        ("corrupt_segment", merged_name(path)),
    }


def entry_of_readable(checkpoint: Path, logical_path: str) -> tuple[Path, Entry]:
    path = merged_paths(checkpoint)[3]
    return path, next(each for each in index_of(path) if each.path == logical_path)


@pytest.mark.parametrize("cut", [1, 64, 100, 10_000])
def test_truncated_file(tmp_path: Path, cut: int) -> None:
    path = merged_paths(make(tmp_path))[3]
    os.truncate(path, max(0, path.stat().st_size - cut))
    [(kind, where, _, _)] = damages(tmp_path)
    assert (kind, where) == ("truncated_file", merged_name(path))
    assert {each.kind for each in verify(tmp_path).notes} >= {"unrestorable_version"}


def test_truncated_file_that_an_index_only_file_knows_better(tmp_path: Path) -> None:
    make(tmp_path)
    path = merged_paths(tmp_path)[0]
    add_index(tmp_path)
    os.truncate(path, path.stat().st_size - 100)
    assert [(kind, where) for kind, where, _, _ in damages(tmp_path)] == [("truncated_file", merged_name(path))]


def test_deleted_merged_file(tmp_path: Path) -> None:
    make(tmp_path)
    merged_paths(tmp_path)[3].unlink()
    assert damages(tmp_path) == [
        ("unrestorable_version", f"state/0/{p}/4.changelog", None, f"0/{p}/4.changelog") for p in range(2)
    ]


def test_deleted_merged_file_that_an_index_only_file_remembers(tmp_path: Path) -> None:
    make(tmp_path)
    add_index(tmp_path)
    path = merged_paths(tmp_path)[3]
    path.unlink()
    assert [(kind, where) for kind, where, _, _ in damages(tmp_path)] == [("missing_file", merged_name(path))]


def test_index_only_file_remembers_what_was_rightly_unlinked(tmp_path: Path) -> None:
    make(tmp_path)
    add_index(tmp_path)
    with merged_file(tmp_path, 50, plain=True) as out:
        path = merged_paths(tmp_path)[0]
        for entry in index_of(path):
            data = path.read_bytes()[entry.offset : entry.offset + entry.length]
            out.put(entry.path, data, stamp=entry.stamp, writer=entry.writer, generation=1)
    path.unlink()
    assert damages(tmp_path) == []


@pytest.mark.parametrize("kind", ["plain", "mixed"])
def test_deleted_plain_files(tmp_path: Path, kind: str) -> None:
    make(tmp_path, kind)
    lost = "0/1/SSTs/000002-1.sst"
    (tmp_path / "state" / lost).unlink()
    assert damages(tmp_path) == [("missing_segment", f"state/{lost}", None, lost)]
    if kind == "plain":
        (tmp_path / "state/0/0/3.changelog").unlink()
        assert damages(tmp_path)[1:] == [("unrestorable_version", "state/0/0/3.changelog", None, "0/0/3.changelog")]


def test_whole_store_that_is_gone(tmp_path: Path) -> None:
    builders.write_logs(tmp_path, range(1))
    with merged_file(tmp_path, 1) as out:
        out.put("0/0/1.delta", lz4(b"x"), stamp=STAMP)
    [(kind, _, _, logical_path)] = damages(tmp_path)
    assert (kind, logical_path) == ("unrestorable_version", "0/1/1.zip")


def test_sst_of_another_size(tmp_path: Path, kind: str) -> None:
    path = "0/1/SSTs/000004-1.sst"
    make(tmp_path, kind)
    if kind == "plain":
        plain_file(tmp_path, path, b"short")
    else:
        with merged_file(tmp_path, 9, plain=True) as out:
            out.put(path, b"short", stamp=STAMP + 9000)
    assert damages(tmp_path) == [("missing_segment", f"state/{path}", None, path)]


@pytest.mark.parametrize("path", ["0/0/4.zip", "0/1/3.changelog"])
def test_plain_file_that_was_cut_off(tmp_path: Path, path: str) -> None:
    make(tmp_path, "plain")
    file = tmp_path / "state" / path
    os.truncate(file, file.stat().st_size - 1)
    assert damages(tmp_path) == [("corrupt_plain_file", f"state/{path}", None, path)]


def test_flipped_byte_in_a_plain_file_with_a_checksum_beside_it(tmp_path: Path) -> None:
    make(tmp_path, "plain")
    builders.companion(tmp_path, "0/1/3.changelog")
    assert damages(tmp_path) == []
    flip(tmp_path / "state/0/1/3.changelog", 30)
    assert damages(tmp_path) == [("corrupt_plain_file", "state/0/1/3.changelog", None, "0/1/3.changelog")]


@pytest.mark.parametrize("at", [0, 511, 512, 5_000_000, 9_999_999])
def test_flipped_byte_in_a_plain_file_on_a_local_disk(tmp_path: Path, at: int) -> None:
    make(tmp_path, "plain")
    data, path = os.urandom(10_000_000), "0/0/SSTs/loose.sst"
    plain_file(tmp_path, path, data)
    sums = [zlib.crc32(data[start : start + 512]) for start in range(0, len(data), 512)]
    plain_file(tmp_path, "0/0/SSTs/.loose.sst.crc", b"crc\0" + struct.pack(f">{1 + len(sums)}I", 512, *sums))
    assert damages(tmp_path) == []
    flip(tmp_path / "state" / path, at)
    assert damages(tmp_path) == [("corrupt_plain_file", f"state/{path}", None, path)]


@pytest.mark.parametrize("number", [0, 77])
@pytest.mark.parametrize("created_ms", [CREATED_MS - 5, CREATED_MS + 2, CREATED_MS + 99])
def test_duplicated_file(tmp_path: Path, created_ms: int, number: int) -> None:
    path = merged_paths(make(tmp_path))[1]
    copy = copy_as(path, file_name(created_ms, 7, number))
    if copy.name < path.name and created_ms == CREATED_MS + 2:
        path, copy = copy, path  # both names fit the header: the first one counts as the original
    assert damages(tmp_path) == [("duplicated_file", merged_name(copy), 0, None)]


def test_renamed_file(tmp_path: Path) -> None:
    path = merged_paths(make(tmp_path))[1]
    renamed = path.rename(path.with_name(file_name(CREATED_MS + 44, 7, 44)))
    assert damages(tmp_path) == [("misnamed_file", merged_name(renamed), 0, None)]


def test_two_relocators_may_copy_the_same(tmp_path: Path) -> None:
    make(tmp_path)
    path = merged_paths(tmp_path)[0]
    data = path.read_bytes()
    for number in (60, 61):
        with merged_file(tmp_path, number, writer=number, plain=True) as out:
            for each in index_of(path):
                segment = data[each.offset : each.offset + each.length]
                out.put(each.path, segment, stamp=each.stamp, writer=each.writer, generation=1)
    assert damages(tmp_path) == []


def test_index_only_file_that_says_less(tmp_path: Path) -> None:
    make(tmp_path)
    others = {path.name: list(index_of(path)) for path in merged_paths(tmp_path)}
    others[merged_paths(tmp_path)[2].name].pop()
    index = merged_paths(tmp_path)[0].with_name(file_name(CREATED_MS + 100, 7, 100, index_only=True))
    with index.open("wb") as out:
        MergedFileWriter(out, writer=7, created_ms=CREATED_MS + 100).seal_index_only(others)
    assert damages(tmp_path) == [("index_mismatch", merged_name(index), None, None)]


@pytest.mark.parametrize("where", ["header", "index", "end"])
def test_damaged_index_only_file(tmp_path: Path, where: str) -> None:
    make(tmp_path)
    index = add_index(tmp_path)
    if where == "end":
        os.truncate(index, index.stat().st_size - 10)
        assert damages(tmp_path) == []  # it repeats nothing any more, as if its writer had been killed
        return
    flip(index, 13 if where == "header" else 500)
    [found] = verify(tmp_path).damages
    assert short(tmp_path, found)[:2] == (
        {"header": "corrupt_file", "index": "corrupt_index"}[where],
        merged_name(index),
    )
    assert found.is_repairable


class TestNoDamage:
    """What is normal."""

    def test_versions_of_a_batch_that_was_never_committed(self, tmp_path: Path, kind: str) -> None:
        make(tmp_path, kind)
        later = ["0/0/SSTs/000006-0.sst", "0/1/6.changelog", "0/1/6.zip"]
        write_version(tmp_path, 6, merged=kind != "plain", leave_out=later)
        assert damages(tmp_path) == []

    def test_what_spark_has_cleaned(self, tmp_path: Path) -> None:
        builders.write_logs(tmp_path, range(5, 12))
        for version in range(6, 13):
            # SSTs go first, then snapshots, then changelogs: a query that was killed meanwhile.
            left_out = ["0/0/SSTs/000006-0.sst", "0/1/6.zip"] if version == 6 else []
            write_version(tmp_path, version, merged=True, leave_out=left_out)
        assert damages(tmp_path) == []

    def test_what_was_expired(self, tmp_path: Path, kind: str) -> None:
        builders.write_logs(tmp_path, range(12))
        for version in range(8, 13):
            write_version(tmp_path, version, merged=kind != "plain")
        assert damages(tmp_path) == []

    def test_remains_of_a_killed_writer(self, tmp_path: Path) -> None:
        make(tmp_path)
        with merged_file(tmp_path, 20, plain=True, seal=False, fronts=True) as file:
            file.put("0/0/4.changelog.crc", b"whole", stamp=STAMP + 1)
            file.end_group()
            file.put("0/0/5.changelog", b"torn", stamp=STAMP + 2)
        path = merged_paths(tmp_path)[-1]
        end = index_of(path).groups[0].end
        path.write_bytes(path.read_bytes()[:-20])
        os.utime(path, (CREATED_MS / 1000, CREATED_MS / 1000))
        with merged_file(tmp_path, 30, plain=True):
            pass
        found = verify(tmp_path)
        assert found.is_clean
        assert [short(tmp_path, each) for each in found.notes] == [("torn_tail", merged_name(path), end, None)]

    def test_open_file(self, tmp_path: Path) -> None:
        make(tmp_path)
        with merged_file(tmp_path, 30, plain=True, seal=False) as out:
            out.put("0/0/5.changelog", b"x", stamp=STAMP + 500)
        with merged_paths(tmp_path)[-1].open("ab") as file:
            file.write(b"half of a group")
        found = verify(tmp_path)
        assert (found.damages, found.notes) == ((), ())

    def test_foreign_file(self, tmp_path: Path) -> None:
        make(tmp_path)
        (tmp_path / "state/_merged/1700000000000-0000000000000007-1.relocating").touch()
        (tmp_path / "state/_merged/readme.txt").write_text("?")
        assert damages(tmp_path) == []


def test_versions_between_are_needed(tmp_path: Path, kind: str) -> None:
    """Those that Spark would still allow to go back to, though the last one does not need them."""
    builders.write_logs(tmp_path, range(12))
    lost = "0/1/7.changelog"
    for version in range(1, 13):
        write_version(tmp_path, version, merged=kind != "plain", leave_out=[lost])
    assert damages(tmp_path) == [("unrestorable_version", f"state/{lost}", None, lost)]
    assert "cannot go on" not in verify(tmp_path).damages[0].reason


def test_committed_attempt_is_needed(tmp_path: Path) -> None:
    """With checkpoint format 2 the log of commits says which attempt counts."""
    builders.write_logs(tmp_path, range(1))
    ids = {"0": [["good-0"], ["good-1"]]}
    (tmp_path / "commits/0").write_text("v2\n" + json.dumps({"stateUniqueIds": ids}))
    for partition in range(2):
        attempts = ["good-0", "other"] if partition == 0 else ["other"]
        for attempt in attempts:
            plain_file(tmp_path, f"0/{partition}/1_{attempt}.changelog", lz4(b"\x00\x02v1"))
    [(kind, _, _, logical_path)] = damages(tmp_path)
    assert kind == "unrestorable_version"
    assert logical_path is not None
    assert logical_path.startswith("0/1/1")


def test_no_checkpoint(tmp_path: Path) -> None:
    with refused("PSS_NOT_A_CHECKPOINT", str(tmp_path)):
        verify(tmp_path)


def test_large_segment_takes_little_memory(tmp_path: Path) -> None:
    size = 200 << 20
    (tmp_path / "offsets").mkdir()
    with merged_file(tmp_path, 1) as out:
        out.put("0/0/SSTs/1.sst", bytes(size), stamp=STAMP)
    tracemalloc.start()
    try:
        found = verify(tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found.is_clean, found.read_bytes_count) == (True, size)
    assert peak < 64 << 20
    flip(merged_paths(tmp_path)[0], size - 5)
    assert [kind for kind, *_ in damages(tmp_path)] == ["corrupt_segment"]


def test_says_what_is_lost_with_a_segment(tmp_path: Path) -> None:
    make(tmp_path)
    path, entry = entry_of(tmp_path, "0/1/4.zip")
    flip(path, entry.offset)
    changes, entry = entry_of(tmp_path, "0/1/4.changelog")
    flip(changes, entry.offset)
    found = verify(tmp_path)
    assert [each.kind for each in found.damages] == ["corrupt_segment"] * 2
    [note] = found.notes
    assert note.kind == "unrestorable_version"
    assert f"version {LAST + 1} of store 0/1" in note.reason
    assert "cannot go on" in note.reason
    assert found.to_arrow()["severity"].to_pylist() == ["damage", "damage", "note"]


def test_query_without_state(tmp_path: Path) -> None:
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
        (tmp_path / log / "0").write_text("v1\n{}")
    found = verify(tmp_path)
    assert (found.damages, found.notes, found.versions_count) == ((), (), 0)


def with_a_purged_log(checkpoint: Path) -> Path:
    """Versions 11 to 16 in a file each, of which Spark need not keep the first three any more."""
    for version in range(11, 17):
        with merged_file(checkpoint, version, plain=True) as out:
            for partition in range(2):
                for path, data in files_of_version(partition, version).items():
                    out.put(path, data, stamp=STAMP + version)
    write_logs(checkpoint, range(10, 16))
    return checkpoint


@pytest.mark.parametrize("damage", ["gone", "zeros"])
def test_a_gap_in_what_was_retained(tmp_path: Path, damage: str) -> None:
    """Nothing of it has to be there, but what was cleaned does not look like that."""
    with_a_purged_log(tmp_path)
    assert not verify(tmp_path).notes
    path = merged_paths(tmp_path)[2]
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(bytes(len(data)))

    found = verify(tmp_path)
    assert found.is_clean
    gaps = [each for each in found.notes if each.kind == "version_gap"]
    assert [each.logical_path for each in gaps] == ["0/0/13", "0/1/13"]
    assert "nothing of version 13 of store 0/0" in gaps[0].reason
    path.write_bytes(data)
    assert not verify(tmp_path).notes


def test_what_is_cleaned_is_no_gap(tmp_path: Path) -> None:
    with_a_purged_log(tmp_path)
    for path in merged_paths(tmp_path)[:3]:
        path.unlink()
    assert not verify(tmp_path).notes


def test_partitions_of_a_repartitioning_lack_nothing(tmp_path: Path) -> None:
    """They begin with it, though the others have older versions."""
    write_logs(tmp_path, range(8))
    for batch in range(8):
        conf = {"conf": {"spark.sql.shuffle.partitions": "3" if batch > 3 else "2"}}
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{json.dumps(conf)}\n{{}}")
    for version in range(1, 9):
        write_version(tmp_path, version, merged=True)
    with merged_file(tmp_path, 20, plain=True) as out:
        for version in range(5, 9):
            files = files_of_version(2, version)
            if version == 5:
                files = {"0/2/5.zip": snapshot('{"sstFiles": []}')}
            for path, data in files.items():
                out.put(path, data, stamp=STAMP + 9000 + version)

    found = verify(tmp_path)
    assert (found.damages, found.notes) == ((), ())
    assert Checkpoint(tmp_path).report().advice == ()
    assert found.restorable_version == 8


@pytest.mark.parametrize("lost", ["0/1/3.changelog", "0/1/5.changelog", None])
def test_partitions_that_only_earlier_batches_had_are_needed(tmp_path: Path, kind: str, lost: str | None) -> None:
    """A query can go back to these batches as long as their partitions were not removed; that takes all of them."""
    write_logs(tmp_path, range(8))
    for batch in range(8):
        conf = {"conf": {"spark.sql.shuffle.partitions": "1" if batch > 4 else "2"}}
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{json.dumps(conf)}\n{{}}")
    gone = {f"0/1/{version}.{ending}" for version in range(6, 9) for ending in ("changelog", "zip")}
    gone |= {f"0/1/SSTs/00000{version}-1.sst" for version in range(6, 9)}
    for version in range(1, 9):
        write_version(tmp_path, version, merged=kind != "plain", leave_out=[*gone, str(lost)])
    found = verify(tmp_path)
    assert [each.logical_path for each in found.damages] == ([lost] if lost else [])
    assert not any("cannot go on" in each.reason for each in found.damages)
    assert found.restorable_version == 8


@pytest.mark.parametrize("lost", [LAST - 1, LAST])
def test_an_entry_of_the_offset_log_that_a_restart_reads(tmp_path: Path, kind: str, lost: int) -> None:
    """Spark reads the last two; without one of them the query fails at each start."""
    (make(tmp_path, kind) / "offsets" / str(lost)).unlink()
    found = verify(tmp_path)
    assert damages(tmp_path) == [("unrestorable_version", f"offsets/{lost}", None, None)]
    assert "the query cannot go on" in found.damages[0].reason
    assert (found.committed_version, found.restorable_version) == (LAST + 1, lost)
    assert Checkpoint(tmp_path).inspect.summary()["not_restorable"].to_pylist() == [
        f"offsets/{lost} of Spark's own logs is missing"
    ]


@pytest.mark.parametrize("is_lost", [True, False])
@pytest.mark.parametrize("back", [True, False])
def test_what_the_other_store_has_written_is_no_base(tmp_path: Path, kind: str, is_lost: bool, back: bool) -> None:
    """A query that was converted begins with a snapshot, whose version its former store has, too."""
    write_logs(tmp_path, range(5))
    names = [MERGED_PROVIDERS[name] for name in (("rocksdb", "heap")[::-1] if back else ("rocksdb", "heap"))]
    for batch in range(5):
        conf = {"conf": {PROVIDER_KEY: names[batch >= 2]}}
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{json.dumps(conf)}\n{{}}")
    endings = [("zip", "changelog"), ("snapshot", "delta")][:: -1 if back else 1]
    files = {}
    for partition in range(2):
        for version in range(1, 6):
            for number, (whole, changes) in enumerate(endings):
                if (version <= 3) if number == 0 else (version >= 3):
                    data = snapshot('{"sstFiles": []}') if whole == "zip" else lz4(b"\x00\x02v1")
                    is_whole = version == 3 if number else version == 1
                    files[f"0/{partition}/{version}.{whole if is_whole else changes}"] = (
                        data if is_whole else lz4(b"\x00\x02v1")
                    )
    lost = f"0/1/3.{endings[1][0]}"
    if is_lost:
        del files[lost]
    if kind == "plain":
        for path, data in files.items():
            plain_file(tmp_path, path, data)
    else:
        with merged_file(tmp_path, 1, plain=True) as out:
            for number, (path, data) in enumerate(files.items()):
                out.put(path, data, stamp=STAMP + number)
    found = verify(tmp_path)
    assert {each.kind for each in found.damages} == ({"unrestorable_version"} if is_lost else set())
    assert all("store 0/1 " in each.reason and "cannot go on" in each.reason for each in found.damages)
    assert found.restorable_version == (2 if is_lost else 5)
    table = Checkpoint(tmp_path).inspect.versions()
    newest = {row["partition_id"]: row for row in table.to_pylist() if row["version"] == 5}
    assert newest[0]["base_snapshot_version"] == 3
    assert newest[1]["is_restorable"] is not is_lost


def test_one_store_has_lost_its_oldest_versions(tmp_path: Path) -> None:
    for version in range(1, 5):
        for partition in range(2):
            with merged_file(tmp_path, 10 * version + partition, plain=True) as out:
                for path, data in files_of_version(partition, version).items():
                    out.put(path, data, stamp=STAMP + version)
    write_logs(tmp_path, range(4))
    assert not verify(tmp_path).notes
    merged_paths(tmp_path)[1].unlink()
    [note] = verify(tmp_path).notes
    assert (note.kind, note.logical_path) == ("version_gap", "0/1/1")
    assert "other stores have what is as old" in note.reason
    merged_paths(tmp_path)[0].unlink()
    assert not verify(tmp_path).notes, "expired"


def test_a_gap_that_closes_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query deletes its versions one after the other, while they are looked for."""
    with_a_purged_log(tmp_path)
    paths = merged_paths(tmp_path)
    paths[1].unlink()
    passes: list[object] = []
    run_pass = verification.run_pass

    def cleaned_meanwhile(*arguments: object) -> object:
        if passes:
            paths[0].unlink(missing_ok=True)
        passes.append(None)
        return run_pass(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(verification, "run_pass", cleaned_meanwhile)
    assert not verify(tmp_path).notes
    assert len(passes) == 2
