"""One merged file, taken apart."""

from __future__ import annotations

import json
import os
from pathlib import Path

import fsspec
import pytest

from pyspark_statestore.format import BytesSource, read_groups, read_merged_file
from tests.cli.builders import META, TORN, WRITER_63, name, write_index_only, write_sink
from tests.cli.conftest import Invoke, rows


def file_of(checkpoint: Path, number: int) -> Path:
    return checkpoint / "state" / "_merged" / name(number)


def test_each_group_of_a_sealed_file(invoke: Invoke, checkpoint: Path) -> None:
    path = file_of(checkpoint, 1)
    shown = rows(invoke("show", path, "--output", "json"))

    assert shown["file_path"] == f"file://{path}"
    assert shown["meta"] == META
    assert shown["writer"] == f"{WRITER_63:016x}"
    assert [group["flags"] for group in shown["groups"]] == [[], [], [], ["sealed", "cumulative"]]
    assert [len(group["entries"]) for group in shown["groups"]] == [3, 3, 3, 9]
    starts = [group["offset"] for group in shown["groups"]]
    assert starts == [shown["header_length"], *(group["end"] for group in shown["groups"][:-1])]
    assert shown["groups"][-1]["end"] == shown["file_size_in_bytes"] == path.stat().st_size
    assert shown["torn_tail_bytes"] == 0
    assert shown["error"] is None


def test_an_entry_says_what_the_index_says(invoke: Invoke, checkpoint: Path) -> None:
    path = file_of(checkpoint, 2)
    expected = list(read_merged_file(BytesSource(path.read_bytes())))
    shown = [e for group in rows(invoke("show", path, "--output", "json"))["groups"] for e in group["entries"]]

    assert [entry["logical_path"] for entry in shown] == [entry.path for entry in expected]
    assert [entry["kind"] for entry in shown] == [entry.kind.name.lower() for entry in expected]
    assert "delete" in {entry["kind"] for entry in shown}
    puts = [(s, e) for s, e in zip(shown, expected, strict=True) if s["kind"] == "put"]
    assert all((s["offset"], s["length"], s["crc32c"]) == (e.offset, e.length, f"{e.crc32c:08x}") for s, e in puts)
    assert shown[0]["written_at"] == "2025-10-09T08:53:24+00:00"


def test_for_people(invoke: Invoke, checkpoint: Path) -> None:
    shown = invoke("show", os.path.relpath(file_of(checkpoint, 2))).stdout

    assert "app_id = app-1" in shown
    assert "group 1 of 2: bytes " in shown
    assert "stamp 2025-10-09 08:53:24 UTC" in shown
    assert "delete  changelog  0/1/1.changelog  -" in shown
    assert "torn" not in shown


def test_a_torn_tail(invoke: Invoke, checkpoint: Path) -> None:
    path = file_of(checkpoint, 2)
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes() + TORN)

    shown = rows(invoke("show", path, "--output", "json"))

    assert shown["torn_tail_bytes"] == len(TORN)
    assert len(shown["groups"]) == 2
    assert f"torn tail: {len(TORN)} bytes from {whole} on" in invoke("show", path).stdout


def test_a_file_without_any_group(invoke: Invoke, checkpoint: Path) -> None:
    torn = rows(invoke("show", file_of(checkpoint, 3), "--output", "json"))
    file_of(checkpoint, 3).write_bytes(b"")

    assert (torn["groups"], torn["torn_tail_bytes"]) == ([], len(TORN))
    assert "no header" in invoke("show", file_of(checkpoint, 3)).stdout


def test_an_index_only_file_names_the_files_that_it_is_about(invoke: Invoke, checkpoint: Path) -> None:
    path = write_index_only(checkpoint)
    [group] = rows(invoke("show", path, "--output", "json"))["groups"]

    assert group["flags"] == ["sealed", "cumulative", "index-only"]
    assert {entry["file_name"] for entry in group["entries"]} == {name(1)}
    assert f"  {name(1)}\n" in invoke("show", path).stdout


def test_of_a_damaged_file_what_is_after_the_damage(invoke: Invoke, checkpoint: Path) -> None:
    path = file_of(checkpoint, 1)
    data = bytearray(path.read_bytes())
    groups = list(read_groups(BytesSource(bytes(data)))[1])
    second = groups[-2].trailer_offset
    data[second + 20] ^= 1
    path.write_bytes(data)

    failed = invoke("show", path, "--output", "json", status=1)
    for_people = invoke("show", path, status=1)

    assert f"[PSS_CORRUPT_INDEX] file://{path} has a damaged index, at offset {second}" in failed.stderr
    shown = json.loads(failed.stdout)
    assert [len(group["entries"]) for group in shown["groups"]] == [3, 9]
    assert shown["groups"][0]["offset"] is None
    assert shown["error"] == failed.stderr.rstrip("\n")
    assert "damaged: only the groups that follow can be read" in for_people.stdout
    assert "0/2/3.changelog" in for_people.stdout


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"something else entirely", "[PSS_CORRUPT_FILE]"), (b"PSSMERG9" + bytes(40), "has format version 9")],
)
def test_what_is_no_merged_file(invoke: Invoke, tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "x.merged"
    path.write_bytes(data)

    failed = invoke("show", path, status=1)

    assert words in failed.stderr
    assert failed.stdout == ""


def test_a_file_that_is_missing(invoke: Invoke, tmp_path: Path) -> None:
    assert "[PSS_READ_FAILED]" in invoke("show", tmp_path / "x.merged", status=1).stderr


def test_a_url(invoke: Invoke, checkpoint: Path) -> None:
    url = f"memory://cli-show/{name(1)}"
    with fsspec.open(url, "wb") as out:
        out.write(file_of(checkpoint, 1).read_bytes())

    assert len(rows(invoke("show", f"merged+{url}", "--output", "json"))["groups"]) == 4


def test_a_hostile_path_moves_no_cursor(invoke: Invoke, tmp_path: Path) -> None:
    import io

    from pyspark_statestore.format import MergedFileWriter

    data = io.BytesIO()
    writer = MergedFileWriter(data, writer=1, created_ms=1, meta={"app_id": "\x1b[2J"})
    writer.put("0/0/\x1b[31m.sst", b"x", stamp=1)
    writer.seal()
    path = tmp_path / "x.merged"
    path.write_bytes(data.getvalue())

    shown = invoke("show", path).stdout

    assert "\x1b" not in shown
    assert r"0/0/\x1b[31m.sst" in shown


def test_a_directory_is_called_one(invoke: Invoke, checkpoint: Path, tmp_path: Path) -> None:
    files = f"pyspark-statestore files {checkpoint.as_uri()}"
    for folder in (checkpoint, checkpoint / "state" / "_merged", f"{checkpoint}/"):
        said = invoke("show", folder, status=1).stderr
        assert "it is a directory, and show takes one merged file" in said
        assert files in said
    write_sink(tmp_path / "clicks")
    said = invoke("show", tmp_path / "clicks", status=1).stderr
    assert f"pyspark-statestore sink files {(tmp_path / 'clicks').as_uri()}" in said
    assert f"pyspark-statestore list {tmp_path.as_uri()}" in invoke("show", tmp_path, status=1).stderr
    assert "there is no such file" in invoke("show", tmp_path / "never", status=1).stderr
