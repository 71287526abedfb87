"""Files that are torn, damaged, newer, unreadable or gone: what can be told is told, all else is a clear error."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore.checkpoint import Checkpoint
from pyspark_statestore.format import file_name, read_merged_file
from pyspark_statestore.format.checksum import crc32c
from pyspark_statestore.format.layout import HEADER_FIXED, HEADER_MAGIC, HEADER_MIN_LENGTH, TRAILER_SIZE, U32
from pyspark_statestore.format.reader import BytesSource
from pyspark_statestore.session.doors import MERGED_PROVIDERS, STOCK_PROVIDERS
from tests.inspect.builders import (
    ALL_TABLES,
    CREATED_MS,
    STAMP,
    Watch,
    add_index,
    merged_file,
    merged_paths,
    plain_file,
    refused,
)
from tests.migration.builders import write_offsets


def table(checkpoint: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = Checkpoint(checkpoint).inspect.table(name).to_pylist()
    return rows


def live(checkpoint: Path) -> dict[str, str]:
    rows = [row for row in table(checkpoint, "segments") if row["status"] == "live"]
    return {row["logical_path"]: row["file_path"].rpartition("/")[2] for row in rows}


@ALL_TABLES
def test_missing_directory(tmp_path: Path, table: str) -> None:
    with refused("PSS_NOT_A_CHECKPOINT", str(tmp_path / "nowhere"), "does not exist"):
        Checkpoint(tmp_path / "nowhere").inspect.table(table)


@ALL_TABLES
def test_directory_that_is_no_checkpoint(tmp_path: Path, table: str) -> None:
    (tmp_path / "something").mkdir()
    with refused("PSS_NOT_A_CHECKPOINT", "offsets", "checkpointLocation"):
        Checkpoint(tmp_path).inspect.table(table)


def test_file_that_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with refused("PSS_NOT_A_CHECKPOINT"):
        Checkpoint(tmp_path / "file").inspect.files()


def test_state_directory_itself_is_no_checkpoint(checkpoint: Path) -> None:
    with refused("PSS_NOT_A_CHECKPOINT"):
        Checkpoint(checkpoint / "state").inspect.files()


def test_checkpoint_without_state_has_empty_tables(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    assert [table(tmp_path, name) for name in ("files", "segments", "versions")] == [[], [], []]
    summary = table(tmp_path, "summary")[0]
    assert {value for value in summary.values() if value is not None} == {0}
    assert {name for name, value in summary.items() if value is None} == {
        "space_amplification",
        "forked_from",
        "min_version",
        "max_version",
        "committed_version",
        "restorable_version",
        "not_restorable",
        "provider",
        "door",
    }


def test_unknown_table_names_the_known(checkpoint: Path) -> None:
    with refused("PSS_INVALID_OPTION", "files, segments, versions, summary"):
        Checkpoint(checkpoint).inspect.table("fils")


def test_stock_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text("{}")
    for path in ("0/0/1.delta", "0/0/2.delta", "0/1/2.snapshot", "0/_metadata/metadata", "0/0/.1.delta.crc"):
        plain_file(tmp_path, path)
    assert table(tmp_path, "files") == table(tmp_path, "segments") == []
    summary = table(tmp_path, "summary")[0]
    assert (summary["plain_file_count"], summary["partition_count"], summary["file_count"]) == (3, 2, 0)
    assert (summary["min_version"], summary["max_version"]) == (1, 2)
    found = {(row["partition_id"], row["version"]): row for row in table(tmp_path, "versions")}
    assert {key for key, row in found.items() if row["is_restorable"]} == {(0, 1), (0, 2), (1, 2)}
    assert [found[0, 2][name] for name in ("base_snapshot_version", "replay_count", "restore_bytes")] == [0, 2, 10]


def test_plain_files_beside_merged_ones(tmp_path: Path) -> None:
    with merged_file(tmp_path, 1, plain=True) as file:
        file.put("0/0/2.delta", b"two", stamp=STAMP)
    plain_file(tmp_path, "0/0/1.delta")
    plain_file(tmp_path, "0/0/2.delta", b"an older write of what is merged now")
    assert table(tmp_path, "summary")[0]["plain_file_count"] == 1
    assert [row["restore_bytes"] for row in table(tmp_path, "versions")] == [5, 8]


def test_no_plain_file_is_looked_for_where_the_checkpoint_was_begun_merged(checkpoint: Path, watch: Watch) -> None:
    Checkpoint(checkpoint).inspect.summary()
    assert set(watch.listings) == {"_merged", "commits", "offsets"}


def test_only_file_of_its_kind_is_read_from_a_merged_directory(checkpoint: Path) -> None:
    folder = checkpoint / "state" / "_merged"
    for name in ("x.merged", f"{CREATED_MS}-{7:016x}-1.relocating", ".1.merged.crc"):
        (folder / name).write_text("no merged file")
    (folder / file_name(CREATED_MS, 9, 9)).mkdir()
    assert len(table(checkpoint, "files")) == 2


def test_torn_tail_is_left_out(checkpoint: Path) -> None:
    whole = table(checkpoint, "segments")
    before = {path.name for path in merged_paths(checkpoint)}
    with merged_file(checkpoint, 1, writer=8, seal=False, fronts=True) as file:
        file.put("0/0/3.changelog", os.urandom(500), stamp=STAMP)
    torn = next(path for path in merged_paths(checkpoint) if path.name not in before)
    os.truncate(torn, torn.stat().st_size - 1)
    assert table(checkpoint, "segments") == whole
    assert len(table(checkpoint, "files")) == len(before) + 1


def test_nothing_follows_a_seal(checkpoint: Path) -> None:
    with merged_paths(checkpoint)[0].open("ab") as file:
        file.write(os.urandom(500))
    with refused("PSS_CORRUPT_INDEX"):
        table(checkpoint, "segments")


@pytest.mark.parametrize("with_fronts", [True, False])
def test_file_torn_in_its_only_group(checkpoint: Path, with_fronts: bool) -> None:
    torn = merged_paths(checkpoint)[0]
    with merged_file(checkpoint, 1, fronts=with_fronts) as file:
        file.put("0/0/1.changelog", b"x" * 20, stamp=STAMP)
    os.truncate(torn, torn.stat().st_size - 1)
    assert set(live(checkpoint)) == {"0/0/2.changelog", "0/1/2.changelog"}
    first = table(checkpoint, "files")[0]
    assert (first["segment_count"], first["is_sealed"], first["is_orphan"]) == (0, False, False)
    os.utime(torn, (CREATED_MS / 1000, CREATED_MS / 1000))
    first = table(checkpoint, "files")[0]
    assert (first["is_closed"], first["is_orphan"], first["space_amplification"]) == (True, with_fronts, None)
    assert table(checkpoint, "summary")[0]["orphan_file_count"] == int(with_fronts)


@pytest.mark.parametrize("content", [b"", b"PSSM", b"\0" * 5000, b"PSSMERG1" + b"\x50\0\0\0"], ids=len)
def test_file_without_a_whole_header(checkpoint: Path, content: bytes) -> None:
    name = file_name(CREATED_MS, 9, 9)
    (checkpoint / "state" / "_merged" / name).write_bytes(content)
    assert len(live(checkpoint)) == 4
    row = next(row for row in table(checkpoint, "files") if row["file_path"].endswith(name))
    assert (row["file_size_in_bytes"], row["segment_count"], row["app_id"]) == (len(content), 0, None)
    assert row["writer"] == f"{9:016x}"


def test_unsealed_file_is_closed_when_it_has_not_changed(checkpoint: Path) -> None:
    with merged_file(checkpoint, 3, seal=False) as file:
        file.put("0/0/3.changelog", b"three", stamp=STAMP + 3)
        file.end_group()
        file.put("0/0/4.changelog", b"four", stamp=STAMP + 4)
    row = table(checkpoint, "files")[2]
    assert (row["is_sealed"], row["is_closed"], row["live_segment_count"]) == (False, False, 2)
    path = merged_paths(checkpoint)[2]
    os.utime(path, (CREATED_MS / 1000, CREATED_MS / 1000))
    row = table(checkpoint, "files")[2]
    assert (row["is_sealed"], row["is_closed"]) == (False, True)
    assert row["last_modified_at"].timestamp() * 1000 == CREATED_MS


def test_index_only_file_spares_opening_what_it_speaks_for(checkpoint: Path, watch: Watch) -> None:
    without = table(checkpoint, "segments")
    index = add_index(checkpoint)
    with merged_file(checkpoint, 3) as file:
        file.put("0/0/3.changelog", b"three", stamp=STAMP + 3)
    watch.opens.clear()
    assert table(checkpoint, "segments")[: len(without)] == without
    assert len(live(checkpoint)) == 5
    assert set(watch.opens) == {index.name, merged_paths(checkpoint)[2].name}


def test_index_only_file_changes_no_count(checkpoint: Path) -> None:
    names = ("files", "versions", "summary")
    before = [table(checkpoint, name) for name in names]
    index = add_index(checkpoint)
    files, versions, summary = (table(checkpoint, name) for name in names)
    assert files[:2] == before[0]
    assert versions == before[1]
    assert (files[2]["segment_count"], files[2]["is_sealed"], files[2]["is_orphan"]) == (0, True, False)
    size = index.stat().st_size
    expected = before[2][0] | {
        "file_count": 3,
        "file_size_in_bytes": before[2][0]["file_size_in_bytes"] + size,
        "space_amplification": (before[2][0]["file_size_in_bytes"] + size) / before[2][0]["live_bytes"],
    }
    assert summary == [expected]


def test_torn_index_only_file_is_an_orphan(checkpoint: Path) -> None:
    index = add_index(checkpoint)
    os.truncate(index, index.stat().st_size - 1)
    assert [row["is_orphan"] for row in table(checkpoint, "files")] == [False] * 3
    os.utime(index, (CREATED_MS / 1000, CREATED_MS / 1000))
    assert [row["is_orphan"] for row in table(checkpoint, "files")] == [False, False, True]
    assert len(live(checkpoint)) == 4


def test_index_only_file_that_speaks_for_a_file_that_is_gone(checkpoint: Path) -> None:
    add_index(checkpoint)
    merged_paths(checkpoint)[0].unlink()
    assert set(live(checkpoint)) == {"0/0/2.changelog", "0/1/2.changelog"}


@ALL_TABLES
def test_corrupt_index_names_file_and_offset(checkpoint: Path, table: str) -> None:
    path = merged_paths(checkpoint)[1]
    with merged_file(checkpoint, 2, seal=False) as file:
        file.put("0/0/3.changelog", b"three", stamp=STAMP)
        file.end_group()
        file.put("0/0/4.changelog", b"four", stamp=STAMP)
    data = bytearray(path.read_bytes())
    first = read_merged_file(BytesSource(bytes(data))).groups[0]
    data[first.trailer.index_offset + 3] ^= 1
    path.write_bytes(data)
    at = f"at offset {first.trailer.index_offset}"
    with refused("PSS_CORRUPT_INDEX", f"file://{path}", at, "Restore the file"):
        Checkpoint(checkpoint).inspect.table(table)


@ALL_TABLES
def test_file_of_a_newer_version(checkpoint: Path, table: str) -> None:
    path = merged_paths(checkpoint)[1]
    path.write_bytes(b"PSSMERG2" + path.read_bytes()[8:])
    with refused("PSS_UNSUPPORTED_FORMAT_VERSION", path.name, "format version 2"):
        Checkpoint(checkpoint).inspect.table(table)


@ALL_TABLES
def test_something_else_with_a_merged_files_name(checkpoint: Path, table: str) -> None:
    path = merged_paths(checkpoint)[1]
    path.write_bytes(b"something else" * 20)
    with refused("PSS_CORRUPT_FILE", path.name, "at offset 0"):
        Checkpoint(checkpoint).inspect.table(table)


def test_meta_that_is_no_text_is_shown_as_far_as_it_goes(checkpoint: Path) -> None:
    meta = b'{"app_id":"a\\ud800b"}'  # valid JSON, but no character
    header = HEADER_FIXED.pack(HEADER_MAGIC, HEADER_MIN_LENGTH + len(meta), 9, CREATED_MS, len(meta)) + meta
    name = file_name(CREATED_MS, 9, 9)
    (checkpoint / "state" / "_merged" / name).write_bytes(header + U32.pack(crc32c(header)))
    assert "a?b" in [row["app_id"] for row in table(checkpoint, "files")]


@ALL_TABLES
def test_no_permission_to_list(checkpoint: Path, watch: Watch, table: str) -> None:
    def deny(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    watch.before_list = deny
    with refused("PSS_NO_PERMISSION", "list", "state/_merged", "Permission denied"):
        Checkpoint(checkpoint).inspect.table(table)


@ALL_TABLES
def test_no_permission_to_read(checkpoint: Path, watch: Watch, table: str) -> None:
    denied = merged_paths(checkpoint)[1].name

    def deny(path: str) -> None:
        if path.endswith(denied):
            raise PermissionError(13, "Permission denied", path)

    watch.before_open = deny
    with refused("PSS_NO_PERMISSION", "read", denied):
        Checkpoint(checkpoint).inspect.table(table)


def test_no_permission_for_a_directory_of_plain_files(tmp_path: Path, watch: Watch) -> None:
    (tmp_path / "offsets").mkdir()
    plain_file(tmp_path, "0/0/1.delta")

    def deny(path: str) -> None:
        if path.endswith("state/0/0"):
            raise PermissionError(13, "Permission denied", path)

    watch.before_list = deny
    for name in ("versions", "summary"):
        with refused("PSS_NO_PERMISSION", "list", "state/0/0"):
            Checkpoint(tmp_path).inspect.table(name)


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), RuntimeError("NoCredentialsError")], ids=repr)
def test_whatever_a_file_system_raises_says_what_was_done(checkpoint: Path, watch: Watch, error: Exception) -> None:
    def fail(path: str) -> None:
        raise error

    watch.before_open = fail
    with refused("PSS_READ_FAILED", "read file://", type(error).__name__):
        Checkpoint(checkpoint).inspect.files()
    watch.before_open, watch.before_list = (lambda path: None), fail
    with refused("PSS_READ_FAILED", "list file://", type(error).__name__):
        Checkpoint(checkpoint).inspect.files()


def test_each_question_looks_afresh(checkpoint: Path) -> None:
    inspect = Checkpoint(checkpoint).inspect
    assert inspect.files().num_rows == 2
    with merged_file(checkpoint, 3) as file:
        file.put("0/0/3.changelog", b"three", stamp=STAMP)
    assert inspect.files().num_rows == 3
    shutil.rmtree(checkpoint / "state")
    assert inspect.files().num_rows == 0


def test_deep_group_chain_and_a_trailer_like_payload(tmp_path: Path) -> None:
    with merged_file(tmp_path, 1, seal=False) as file:
        for version in range(1, 300):
            file.put(f"0/0/{version}.changelog", b"PSSGROUP" + bytes(TRAILER_SIZE), stamp=STAMP + version)
            file.end_group()
    assert len(live(tmp_path)) == 299


@pytest.mark.parametrize(
    ("provider", "merged", "door"),
    [
        (MERGED_PROVIDERS["rocksdb"], True, "provider"),
        (STOCK_PROVIDERS["rocksdb"], True, "path"),
        (STOCK_PROVIDERS["heap"], True, "path"),
        (MERGED_PROVIDERS["heap"], True, None),  # the path door may have it, too
        (STOCK_PROVIDERS["rocksdb"], False, None),
        ("org.example.Store", True, None),
    ],
)
def test_the_door_is_told_where_it_can_be(tmp_path: Path, provider: str, merged: bool, door: str | None) -> None:
    if merged:
        with merged_file(tmp_path, 1) as file:
            file.put("0/0/1.zip", b"x", stamp=STAMP)
    write_offsets(tmp_path, provider, [0])
    assert table(tmp_path, "summary")[0]["door"] == door
