"""What is written to one logical file: collected, spilled, cancelled, read back, and checked."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.jvm.harness import Checkpoint, java_error, snapshot_zip

pytestmark = pytest.mark.spark

MB = 1 << 20
P = "0/0/1.changelog"


def local_files(jvm: Any) -> set[Path]:
    """What payloads have put on the local disk."""
    root = Path(jvm.java.lang.System.getProperty("java.io.tmpdir"))
    return {path for path in root.glob("**/merged-log*/*") if path.is_file()}


def flip(checkpoint: Checkpoint, path: str, position: int) -> tuple[str, int]:
    """Changes one byte of a segment on disk; says in which file the segment is, and where."""
    name, entry = checkpoint.view().live[path]
    with (checkpoint.merged / name).open("r+b") as file:
        file.seek(entry.offset + position)
        byte = file.read(1)[0]
        file.seek(entry.offset + position)
        file.write(bytes([byte ^ 4]))
    return name, entry.offset


FITS = 8 * MB - 512
"""Bytes that one stream has in memory: its chunks grow from 512 bytes to 1 MiB, and one more would be above 8 MiB."""


@pytest.mark.parametrize("size", [0, 1, 8191, 8192, 8193, 3 * MB + 1, FITS, FITS + 1, 9 * MB + 1])
@pytest.mark.parametrize("memory_is_taken", [False, True])
def test_any_size_comes_back(checkpoint: Checkpoint, jvm: Any, size: int, memory_is_taken: bool) -> None:
    other = checkpoint.fs.create(checkpoint.path("0/0/2.changelog"), True)
    if memory_is_taken:
        other.write(bytes(FITS))
    before = local_files(jvm)
    data = random.Random(size).randbytes(size)
    stream = checkpoint.fs.create(checkpoint.path(P), True)
    stream.write(data)
    # One chunk of 512 bytes is left for it.
    assert len(local_files(jvm) - before) == (size > (512 if memory_is_taken else FITS))

    stream.close()

    assert checkpoint.read(P) == data
    assert checkpoint.contents() == {P: data}
    assert checkpoint.fs.getFileStatus(checkpoint.path(P)).getLen() == size
    other.close()


def test_what_does_not_fit_into_memory_waits_on_the_local_disk(checkpoint: Checkpoint, jvm: Any) -> None:
    before = local_files(jvm)
    small, large = (checkpoint.fs.create(checkpoint.path(f"0/0/{n}.zip"), True) for n in (1, 2))
    small.write(bytes(1000))
    assert local_files(jvm) == before
    large.write(b"a" * 5 * MB)
    large.write(b"b" * 5 * MB)
    assert len(local_files(jvm) - before) == 1

    large.close()
    small.close()

    assert local_files(jvm) == before
    assert checkpoint.contents() == {"0/0/1.zip": bytes(1000), "0/0/2.zip": b"a" * 5 * MB + b"b" * 5 * MB}


def test_a_cancelled_spill_leaves_nothing(checkpoint: Checkpoint, jvm: Any) -> None:
    before = local_files(jvm)
    manager = file_manager(checkpoint)
    stream = manager.createAtomic(checkpoint.path(P), True)
    stream.write(bytes(9 * MB))
    assert len(local_files(jvm) - before) == 1

    stream.cancel()

    assert local_files(jvm) == before
    assert not checkpoint.exists(P)


def file_manager(checkpoint: Checkpoint) -> Any:
    """Spark's view of the checkpoint."""
    manager = checkpoint.jvm.io.pyspark.statestore.fs.MergedCheckpointFileManager
    return manager(checkpoint.path("0/0"), checkpoint.fs.getConf())


def test_cancel_leaves_nothing_visible(checkpoint: Checkpoint) -> None:
    manager = file_manager(checkpoint)
    checkpoint.write(P, b"what was there before")
    stream = manager.createAtomic(checkpoint.path(P), True)
    stream.write(b"thrown away")
    assert checkpoint.read(P) == b"what was there before"

    stream.cancel()
    stream.cancel()
    stream.close()

    with java_error("closed"):
        stream.write(b"more")
    assert checkpoint.read(P) == b"what was there before"
    assert checkpoint.contents() == {P: b"what was there before"}


def test_nothing_is_visible_before_close(checkpoint: Checkpoint) -> None:
    stream = checkpoint.fs.create(checkpoint.path(P), False)
    stream.write(b"some")
    stream.flush()
    stream.hflush()
    assert not checkpoint.exists(P)
    assert not checkpoint.merged.exists()

    stream.close()
    stream.close()

    assert checkpoint.read(P) == b"some"
    assert checkpoint.metrics()["commits"] == 1
    with java_error("FileAlreadyExists", P):
        checkpoint.fs.create(checkpoint.path(P), False)
    with java_error("FileAlreadyExists", P):
        file_manager(checkpoint).createAtomic(checkpoint.path(P), False)


def test_a_large_segment_is_streamed_and_sought_in(checkpoint: Checkpoint) -> None:
    data = random.Random(1).randbytes(5 * MB + 77)
    checkpoint.write("0/0/0.zip", b"before")
    checkpoint.write("0/0/1.zip", data)
    checkpoint.write("0/0/2.zip", b"behind")
    stream = checkpoint.fs.open(checkpoint.path("0/0/1.zip"))

    for position in (0, 5 * MB, 256 * 1024 - 1, 256 * 1024, 5 * MB + 70, 1, 4 * MB):
        stream.seek(position)
        assert stream.getPos() == position
        assert bytes(stream.readNBytes(100)) == data[position : position + 100]
    stream.seek(len(data))
    assert stream.read() == -1
    with java_error("EOFException", str(len(data) + 1)):
        stream.seek(len(data) + 1)
    stream.close()
    assert checkpoint.read("0/0/1.zip") == data
    assert checkpoint.read("0/0/2.zip") == b"behind"


@pytest.mark.parametrize("size", [1000, 5 * MB])
def test_rule_9_a_wrong_byte_is_an_error(checkpoint: Checkpoint, tmp_path: Path, size: int) -> None:
    checkpoint.write("0/0/0.zip", b"before")
    checkpoint.write("0/0/1.zip", random.Random(1).randbytes(size))
    name, offset = flip(checkpoint, "0/0/1.zip", size // 2)
    words = (
        "PSS_CORRUPT_SEGMENT",
        f"state/0/0/1.zip of checkpoint file:{checkpoint.directory}",
        name,
        f"offset {offset}",
    )
    target = tmp_path / "copy"

    with java_error(*words):
        checkpoint.read("0/0/1.zip")
    with java_error(*words):
        checkpoint.fs.copyToLocalFile(
            False, checkpoint.path("0/0/1.zip"), checkpoint.jvm.org.apache.hadoop.fs.Path(f"file:{target}"), True
        )
    assert not target.exists()
    assert checkpoint.read("0/0/0.zip") == b"before"


def test_a_wrong_byte_in_what_was_fetched_ahead(checkpoint: Checkpoint) -> None:
    for version in range(1, 6):
        checkpoint.write(f"0/0/{version}.delta", bytes([version]) * 500)
    flip(checkpoint, "0/0/3.delta", 250)

    assert checkpoint.read("0/0/1.delta") == b"\1" * 500
    assert checkpoint.read("0/0/2.delta") == b"\2" * 500
    with java_error("PSS_CORRUPT_SEGMENT", "state/0/0/3.delta"):
        checkpoint.read("0/0/3.delta")
    assert checkpoint.read("0/0/4.delta") == b"\4" * 500


def test_what_was_fetched_ahead_is_not_read_once_it_is_written_anew(checkpoint: Checkpoint) -> None:
    for version in (1, 2, 3):
        checkpoint.write(f"0/0/{version}.changelog", b"old")
    assert checkpoint.read(P) == b"old"

    checkpoint.write("0/0/2.changelog", b"new")
    checkpoint.delete("0/0/3.changelog")

    assert checkpoint.read("0/0/2.changelog") == b"new"
    assert not checkpoint.exists("0/0/3.changelog")


def test_a_segment_that_is_cut_off_is_an_error(checkpoint: Checkpoint) -> None:
    """Its file was sealed, known, and truncated since."""
    checkpoint.write("0/0/1.delta", bytes(9000))
    checkpoint.log.seal()
    name = checkpoint.files()[0]
    data = (checkpoint.merged / name).read_bytes()
    (checkpoint.merged / name).write_bytes(data[:4000])

    with java_error("EOFException"):
        checkpoint.read("0/0/1.delta")


# ---- snapshots


def groups_of(checkpoint: Checkpoint) -> list[set[str]]:
    """The paths that were made visible together."""
    return [{e.path for e in g.index} for f in checkpoint.view().files.values() for g in f.groups if not f.sealed]


def test_rule_2_ssts_become_visible_with_their_zip(checkpoint: Checkpoint, jvm: Any) -> None:
    before = local_files(jvm)
    checkpoint.stage("0/0/SSTs/000008-a.sst", b"eight")
    checkpoint.stage("0/0/logs/000009-b.log", b"nine")
    checkpoint.stage("0/1/SSTs/000008-c.sst", b"of another partition")
    checkpoint.stage("0/0/left/SSTs/000008-d.sst", b"of another store")

    assert not checkpoint.merged.exists()
    for path in ("0/0/SSTs/000008-a.sst", "0/0/logs/000009-b.log"):
        assert not checkpoint.exists(path)
        with java_error("FileNotFound"):
            checkpoint.read(path)

    checkpoint.write("0/0/3.zip", b"names them")

    mine = {"0/0/SSTs/000008-a.sst": b"eight", "0/0/logs/000009-b.log": b"nine", "0/0/3.zip": b"names them"}
    assert groups_of(checkpoint) == [set(mine)]
    assert checkpoint.contents() == mine
    assert {path: checkpoint.read(path) for path in mine} == mine
    assert len(local_files(jvm) - before) == 2

    checkpoint.write("0/1/3.zip", b"z")
    checkpoint.write("0/0/left/3.zip", b"z")
    assert groups_of(checkpoint)[1:] == [
        {"0/1/SSTs/000008-c.sst", "0/1/3.zip"},
        {"0/0/left/SSTs/000008-d.sst", "0/0/left/3.zip"},
    ]
    assert local_files(jvm) == before


def test_rule_2_a_cancelled_zip_keeps_its_ssts_for_the_next(checkpoint: Checkpoint) -> None:
    checkpoint.stage("0/0/SSTs/000008-a.sst", b"eight")
    zip_stream = file_manager(checkpoint).createAtomic(checkpoint.path("0/0/3.zip"), True)
    zip_stream.write(b"half of a zi")
    zip_stream.cancel()
    assert not checkpoint.merged.exists()

    checkpoint.stage("0/0/SSTs/000010-b.sst", b"ten")
    checkpoint.write("0/0/4.zip", b"names both")

    assert groups_of(checkpoint) == [{"0/0/SSTs/000008-a.sst", "0/0/SSTs/000010-b.sst", "0/0/4.zip"}]


@pytest.mark.parametrize("operation", ["create", "hflush", "write"])
def test_rule_2_a_failed_zip_keeps_its_ssts_for_the_next(
    new_checkpoint: Callable[..., Checkpoint], jvm: Any, operation: str
) -> None:
    checkpoint = new_checkpoint("faulty")
    faulty = jvm.io.pyspark.statestore.testing.FaultyFileSystem
    checkpoint.stage("0/0/SSTs/000008-a.sst", b"eight")
    faulty.addRule(operation, str(checkpoint.merged), 1, "torn")
    try:
        with java_error("PSS_WRITE_FAILED"):
            checkpoint.write("0/0/3.zip", b"names it")
    finally:
        faulty.clear()
    assert checkpoint.contents() == {}

    checkpoint.write("0/0/4.zip", b"names it, too")

    assert checkpoint.contents() == {"0/0/SSTs/000008-a.sst": b"eight", "0/0/4.zip": b"names it, too"}
    assert {frozenset(group) for group in groups_of(checkpoint) if group} == {
        frozenset({"0/0/SSTs/000008-a.sst", "0/0/4.zip"})
    }


def test_a_staged_file_that_is_deleted_is_not_written(checkpoint: Checkpoint) -> None:
    checkpoint.stage("0/0/SSTs/000008-a.sst", b"eight")
    checkpoint.stage("0/0/SSTs/000009-b.sst", b"nine")
    checkpoint.delete("0/0/SSTs/000008-a.sst")

    checkpoint.write("0/0/3.zip", b"z")

    assert checkpoint.contents() == {"0/0/SSTs/000009-b.sst": b"nine", "0/0/3.zip": b"z"}


def test_ssts_are_read_in_few_ranges(new_checkpoint: Callable[..., Checkpoint], jvm: Any, tmp_path: Path) -> None:
    """Opening a zip fetches what it names; each merged file is opened once."""
    checkpoint = new_checkpoint("counting", name=tmp_path.name)
    counting = jvm.io.pyspark.statestore.testing.CountingFileSystem
    counting.registerRoot(tmp_path.name, str(checkpoint.directory))
    names = [f"{n:06d}-x.sst" for n in range(20)]
    for name in names:
        checkpoint.stage(f"0/0/SSTs/{name}", name.encode() * 50)
    packed = snapshot_zip(*names)
    checkpoint.write("0/0/1.zip", packed)
    checkpoint.forget()
    checkpoint.exists("0/0")
    before = json.loads(counting.snapshotJson())[tmp_path.name]

    assert checkpoint.read("0/0/1.zip") == packed
    for name in names:
        target = tmp_path / name
        checkpoint.fs.copyToLocalFile(
            False, checkpoint.path(f"0/0/SSTs/{name}"), jvm.org.apache.hadoop.fs.Path(f"file:{target}"), True
        )
        assert target.read_bytes() == name.encode() * 50

    after = json.loads(counting.snapshotJson())[tmp_path.name]

    def count(snapshot: Any, operation: str) -> int:
        return sum(categories.get("merged", {}).get(operation, 0) for categories in snapshot.values())

    assert count(after, "read") - count(before, "read") <= 6
    assert count(after, "open") - count(before, "open") <= 2
