"""What is asked of state, and what comes back when it cannot be given."""

from __future__ import annotations

import io
import json
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_statestore import Checkpoint, StateStoreFilesError
from pyspark_statestore.inspect import Inspection
from tests.inspect.builders import merged_paths, plain_file
from tests.state.small_stores import (
    KEY,
    VALUE,
    Row,
    changelog,
    commit,
    compressed,
    delta,
    row_bytes,
    schema_json,
    state_at,
    write_schema,
    write_store,
)

UNDECODED = b"pyspark_statestore.undecoded"


@pytest.fixture(params=[False, True], ids=["stock", "merged"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_store(tmp_path / "q1", merged=request.param)


def pairs_of(table: pa.Table) -> dict[tuple[int, Row], Row]:
    return {
        (row["partition_id"], tuple(row["key"].values())): tuple(row["value"].values()) for row in table.to_pylist()
    }


def refused(checkpoint: Path, condition: str, **arguments: Any) -> str:
    with pytest.raises(StateStoreFilesError) as caught:
        Checkpoint(checkpoint).state(**arguments)
    assert caught.value.getErrorClass() == condition, caught.value
    return str(caught.value)


def test_a_batch_that_is_committed_meanwhile(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest version is that of when the call began: a later one is not among the files that were listed."""
    listed = Inspection.scan

    def scan(inspection: Inspection, *args: Any, **kwargs: Any) -> Any:
        found = listed(inspection, *args, **kwargs)
        commit(checkpoint, 3)
        plain_file(checkpoint, "0/0/4.delta", delta({(1, 1): (14,)}))
        plain_file(checkpoint, "0/1/4.delta", delta({}))
        return found

    monkeypatch.setattr(Inspection, "scan", scan)
    assert pairs_of(Checkpoint(checkpoint).state()) == state_at(3)
    (checkpoint / "commits" / "3").unlink()
    changes = Checkpoint(checkpoint).state_changes(2)
    assert changes.schema.metadata[b"pyspark_statestore.to_version"] == b"3"


@pytest.mark.parametrize("version", [None, 0, 1, 2, 3])
def test_a_version(checkpoint: Path, version: int | None) -> None:
    found = Checkpoint(checkpoint).state(version=version)
    assert pairs_of(found) == state_at(3 if version is None else version)
    assert found.schema.metadata[b"pyspark_statestore.version"] == str(3 if version is None else version).encode()
    assert found.schema.field("key").type == pa.struct([(name, pa.int64()) for name in KEY])
    assert found.schema.field("value").type == pa.struct([(name, pa.int64()) for name in VALUE])


def test_the_newest_version_is_the_last_committed_one(checkpoint: Path) -> None:
    (checkpoint / "commits" / "2").unlink()
    assert pairs_of(Checkpoint(checkpoint).state()) == state_at(2)


def test_without_a_commit_log_the_newest_version_that_all_partitions_have(tmp_path: Path) -> None:
    checkpoint = write_store(tmp_path / "q1")
    for commit_ in (checkpoint / "commits").iterdir():
        commit_.unlink()
    (checkpoint / "state" / "0" / "1" / "3.delta").unlink()
    assert pairs_of(Checkpoint(checkpoint).state()) == state_at(2)


def test_a_partition(checkpoint: Path) -> None:
    found = Checkpoint(checkpoint).state(partition_id=1)
    assert pairs_of(found) == {key: value for key, value in state_at(3).items() if key[0] == 1}


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ({"user": 1, "day": 2}, [(1, 2)]),
        ({"user": 1}, [(1, 1), (1, 2)]),
        ({"user": "3", "day": "2"}, [(3, 2)]),
        ({"user": 4, "day": None}, [(4, None)]),
        ({"user": 99}, []),
    ],
    ids=str,
)
def test_a_key(checkpoint: Path, key: Any, expected: list[Row]) -> None:
    found = Checkpoint(checkpoint).state(key=key)
    assert sorted(each for _, each in pairs_of(found)) == expected


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (1, "user (bigint), day (bigint)"),
        ({"name": 1}, "user (bigint), day (bigint)"),
        ({"user": "Ann"}, "for user (bigint) a whole number"),
        ({"user": {"id": 1}}, "for user (bigint) a whole number"),
    ],
    ids=str,
)
def test_a_key_that_cannot_be(checkpoint: Path, key: Any, said: str) -> None:
    assert said in refused(checkpoint, "PSS_INVALID_OPTION", key=key)


def test_changes(checkpoint: Path) -> None:
    found = Checkpoint(checkpoint).state_changes(1, 3)
    rows = {
        (row["partition_id"], tuple(row["key"].values())): (row["change"], row["value_before"], row["value_after"])
        for row in found.to_pylist()
    }
    assert rows == {
        (0, (1, 1)): ("changed", {"clicks": 10}, {"clicks": 11}),
        (0, (1, 2)): ("added", None, {"clicks": 12}),
        (0, (2, 1)): ("removed", {"clicks": 20}, None),
        (0, (4, None)): ("changed", {"clicks": 40}, {"clicks": None}),
        (1, (3, 2)): ("added", None, {"clicks": 32}),
    }
    assert Checkpoint(checkpoint).state_changes(1, 3, key={"user": 2}).num_rows == 1
    assert Checkpoint(checkpoint).state_changes(3, 3).num_rows == 0
    assert set(Checkpoint(checkpoint).state_changes(0).column("change").to_pylist()) == {"added"}
    assert set(Checkpoint(checkpoint).state_changes(3, 0).column("change").to_pylist()) == {"removed"}


@pytest.mark.parametrize("version", [-1, "2", 1.0, True])
def test_what_is_no_version(checkpoint: Path, version: Any) -> None:
    refused(checkpoint, "PSS_INVALID_OPTION", version=version)


def test_a_version_that_is_not_there(checkpoint: Path) -> None:
    assert "1 to 3" in refused(checkpoint, "PSS_VERSION_NOT_RESTORABLE", version=9)


def test_a_version_that_something_is_missing_of(tmp_path: Path) -> None:
    checkpoint = write_store(tmp_path / "q1")
    (checkpoint / "state" / "0" / "0" / "1.delta").unlink()
    assert "2 to 3" in refused(checkpoint, "PSS_VERSION_NOT_RESTORABLE", version=1)
    assert pairs_of(Checkpoint(checkpoint).state(version=2)) == state_at(2), "its snapshot is enough"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"operator_id": 7}, "operator 0"),
        ({"partition_id": 7}, "partition 0, partition 1"),
        ({"store_name": "left"}, "store 'default'"),
        ({"state_variable": "total"}, "default"),
    ],
    ids=str,
)
def test_state_that_is_not_there(checkpoint: Path, arguments: dict[str, Any], said: str) -> None:
    assert said in refused(checkpoint, "PSS_NO_SUCH_STATE", **arguments)


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    refused(tmp_path / "nothing", "PSS_NOT_A_CHECKPOINT")


def test_a_type_that_is_not_known_is_given_as_bytes(checkpoint: Path) -> None:
    write_schema(checkpoint, value=schema_json(VALUE, {"clicks": "quaternion"}))
    found = Checkpoint(checkpoint).state()
    assert b"quaternion" in found.schema.field("value").metadata[UNDECODED]
    assert found.schema.field("key").metadata is None
    rows = {(row["partition_id"], tuple(row["key"].values())): row["value"] for row in found.to_pylist()}
    assert rows == {key: row_bytes(value) for key, value in state_at(3).items()}


def test_rows_that_do_not_fit_the_schema_are_given_as_bytes(checkpoint: Path) -> None:
    write_schema(checkpoint, key=schema_json([*KEY, "more"]))
    found = Checkpoint(checkpoint).state()
    assert found.schema.field("key").metadata[UNDECODED]
    assert sorted(found.column("key").to_pylist()) == sorted(row_bytes(key) for _, key in state_at(3))


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_schema_files_of_each_version(checkpoint: Path, version: str) -> None:
    write_schema(checkpoint, version=version)
    assert pairs_of(Checkpoint(checkpoint).state()) == state_at(3)


@pytest.mark.parametrize(
    "damage", [lambda data: b"\x00\x02v9" + data[4:], lambda data: data[:40]], ids=["newer", "cut"]
)
def test_a_schema_file_that_cannot_be_understood(checkpoint: Path, damage: Any) -> None:
    file = write_schema(checkpoint)
    file.write_bytes(damage(file.read_bytes()))
    assert "_metadata/schema" in refused(checkpoint, "PSS_UNREADABLE_STATE")


def test_a_wrong_byte_in_a_segment(tmp_path: Path) -> None:
    checkpoint = write_store(tmp_path / "q1", merged=True)
    [file] = merged_paths(checkpoint)
    data = bytearray(file.read_bytes())
    at = data.index(delta({(3, 2): (32,)}))
    data[at + 20] ^= 1
    file.write_bytes(data)
    assert "0/1/3.delta" in refused(checkpoint, "PSS_CORRUPT_SEGMENT")


def test_a_damaged_plain_file(tmp_path: Path) -> None:
    checkpoint = write_store(tmp_path / "q1")
    plain_file(checkpoint, "0/1/3.delta", b"LZ4Block" + bytes(13))
    assert "0/1/3.delta" in refused(checkpoint, "PSS_UNREADABLE_STATE")


def test_the_attempt_that_was_committed(tmp_path: Path) -> None:
    checkpoint = tmp_path / "q1"
    write_schema(checkpoint)
    plain_file(checkpoint, "0/0/1_a.changelog", changelog({(1, 1): (1,)}, []))
    plain_file(checkpoint, "0/0/1_b.changelog", changelog({(1, 1): (2,)}, []))
    plain_file(checkpoint, "0/0/2_c.changelog", changelog({(2, 2): (3,)}, [(1, "b")]))
    assert "2 attempts" in refused(checkpoint, "PSS_VERSION_NOT_RESTORABLE", version=1)
    commit(checkpoint, 0, stateUniqueIds={"0": [["b"]]})
    commit(checkpoint, 1, stateUniqueIds={"0": [["c"]]})
    assert pairs_of(Checkpoint(checkpoint).state(version=1)) == {(0, (1, 1)): (2,)}
    assert pairs_of(Checkpoint(checkpoint).state()) == {(0, (1, 1)): (2,), (0, (2, 2)): (3,)}
    commit(checkpoint, 0, stateUniqueIds={"0": [["gone"]]})
    assert "committed" in refused(checkpoint, "PSS_VERSION_NOT_RESTORABLE", version=1)


def test_rocksdict_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = tmp_path / "q1"
    write_schema(checkpoint)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("metadata", "v1\n" + json.dumps({"sstFiles": [], "numKeys": 0}))
    plain_file(checkpoint, "0/0/1.zip", archive.getvalue())
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    assert "pip install rocksdict" in refused(checkpoint, "PSS_MISSING_DEPENDENCY", version=1)


@pytest.mark.parametrize("name", ["../CURRENT", "/tmp/CURRENT", ".hidden"])
def test_a_zip_writes_nowhere_else(tmp_path: Path, name: str) -> None:
    checkpoint = tmp_path / "q1"
    write_schema(checkpoint)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("metadata", "v1\n" + json.dumps({"sstFiles": [], "numKeys": 0}))
        files.writestr(name, b"")
    plain_file(checkpoint, "0/0/1.zip", archive.getvalue())
    assert repr(name) in refused(checkpoint, "PSS_UNREADABLE_STATE", version=1)


def test_large_values_and_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark_statestore.state import decoding

    monkeypatch.setattr(decoding, "_BATCH", 7)
    monkeypatch.setattr(decoding, "_BATCH_BYTES", 3000)
    texts = {number: "x" * (number * 100 if number % 2 else number) for number in range(40)}
    checkpoint = tmp_path / "q1"
    write_schema(checkpoint, key=schema_json(["n"]), value=schema_json(["text"], {"text": "string"}))
    parts = []
    for number, text in texts.items():
        value = struct.pack("<QQ", 0, 16 << 32 | len(text)) + text.encode()
        parts.append(struct.pack(">i", 16) + row_bytes((number,)) + struct.pack(">i", len(value)) + value)
    plain_file(checkpoint, "0/0/1.delta", compressed(b"".join(parts) + struct.pack(">i", -1)))
    found = Checkpoint(checkpoint).state(version=1)
    assert found.column("value").num_chunks > 10
    assert {row["key"]["n"]: row["value"]["text"] for row in found.to_pylist()} == texts
