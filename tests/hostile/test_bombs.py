"""Small files that unpack, or say that they reach, to more than a memory holds."""

from __future__ import annotations

import cProfile
import pstats
import resource
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_statestore import Checkpoint
from pyspark_statestore.format.checksum import crc32c
from pyspark_statestore.format.layout import ENTRY, TRAILER, TRAILER_SIZE, U32, Trailer
from pyspark_statestore.sparkfiles import files_named, is_whole_stream
from pyspark_statestore.sparkfiles.compression import LARGEST, decompressed, decompressed_start
from pyspark_statestore.sparkfiles.records import read_snapshot
from tests.hostile.builders import NOW
from tests.inspect.builders import STAMP, merged_file, merged_paths, refused
from tests.inspect.spark_files import LZ4_END, snappy
from tests.migration.builders import make
from tests.state.small_stores import write_store

MEMORY = 400 << 20
"""Bytes that a process may grow by: far less than what is said, more than anything here takes."""

GIB = 1 << 30


@contextmanager
def little_memory() -> Iterator[None]:
    """Checks that the process's largest size did not grow much."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < MEMORY, f"{grown} bytes"


def lz4_bomb() -> bytes:
    """A hundred blocks of the largest size."""
    size = 1 << 25
    packed: bytes = pa.Codec("lz4_raw").compress(bytes(size), asbytes=True)
    block = b"LZ4Block\x2f" + struct.pack("<iii", len(packed), size, 7) + packed
    return block * 100 + LZ4_END


def snappy_bomb() -> bytes:
    packed: bytes = pa.Codec("snappy").compress(bytes(1 << 25), asbytes=True)
    return snappy(b"") + (struct.pack(">i", len(packed)) + packed) * 65


def zstd_bomb() -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for _ in range(65):
            stream.write(bytes(1 << 25))
    return bytes(sink.getvalue())


BOMBS: dict[str, Callable[[], bytes]] = {"lz4": lz4_bomb, "snappy": snappy_bomb, "zstd": zstd_bomb}


@pytest.mark.parametrize("codec", BOMBS)
def test_streams_that_unpack_to_gigabytes(codec: str) -> None:
    bomb = BOMBS[codec]()

    with little_memory():
        with pytest.raises(ValueError, match=f"unpacks to more than {LARGEST} bytes"):
            decompressed(bomb)
        assert is_whole_stream(lambda offset, length: bomb[offset : offset + length], len(bomb))
        assert decompressed_start(bomb, 100)[:100] == bytes(100)


@pytest.mark.parametrize(
    "data",
    [
        b"LZ4Block\x26" + struct.pack("<iii", 5, 0x7FFFFFFF, 0) + b"abcde" + LZ4_END,
        b"LZ4Block\x2f" + struct.pack("<iii", 200_000, 1 << 26, 0) + bytes(200_000) + LZ4_END,
        b"\x82SNAPPY\x00" + bytes(8) + struct.pack(">i", 12) + b"\xff" * 11 + b"\x01",
        b"\x82SNAPPY\x00" + bytes(8) + struct.pack(">i", 6) + b"\xff\xff\xff\xff\x0fa",
        b"\x82SNAPPY\x00" + bytes(8) + struct.pack(">i", 6) + b"\xff\xff\xff\xff\x07a",
        b"ZV\x01\0\x05\xff\xff\xe0\xff\x10\xe0\xff",
        b"ZV\x01\0\x03\0\x03\x20\x00\x00",
    ],
    ids=["lz4", "lz4 block", "varint", "5 bytes", "2 GiB", "lzf", "lzf before"],
)
def test_lengths_that_no_codec_writes(data: bytes) -> None:
    with little_memory(), pytest.raises(ValueError, match="it "):
        decompressed(data)


def test_holes_after_a_magic_are_no_blocks() -> None:
    """A disk gives zeros for what was never written; there may be terabytes of them."""
    for magic in (b"\x82SNAPPY\x00" + bytes(8), b"ZV\x00\x00\x00"):
        asked = 0

        def read_at(offset: int, length: int, magic: bytes = magic) -> bytes:
            nonlocal asked
            asked += length
            return (magic + bytes(length))[offset : offset + length] if offset < len(magic) else bytes(length)

        assert not is_whole_stream(read_at, 1 << 40)
        assert asked < 16 << 20


def bomb_zip(name: str) -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w") as file:
        for _ in range(300):
            file.write(bytes(1 << 20))
    return out.getvalue()


@pytest.mark.parametrize("name", ["metadata", "MANIFEST-000001"])
def test_zips_that_unpack_to_much(name: str) -> None:
    bomb = bomb_zip(name)

    with little_memory():
        assert files_named(bomb) is None
        with pytest.raises(ValueError, match="at most"):
            read_snapshot(bomb)


def with_hole(checkpoint: Path, path: str, size: int) -> Path:
    """A merged file of one segment, which is a hole on the disk."""
    with merged_file(checkpoint, 1, plain=True) as out:
        out.put(path, b"", stamp=STAMP)
    [file] = merged_paths(checkpoint)
    data = file.read_bytes()
    trailer = Trailer.unpack(data[-TRAILER_SIZE:], len(data) - TRAILER_SIZE)
    assert trailer is not None
    index = bytearray(data[trailer.index_offset : -TRAILER_SIZE])
    fields = list(ENTRY.unpack_from(index))
    fields[6:8] = [trailer.index_offset, size]
    ENTRY.pack_into(index, 0, *fields)
    old = list(TRAILER.unpack_from(data, len(data) - TRAILER_SIZE))
    old[3], old[8] = trailer.index_offset + size, crc32c(bytes(index))
    body = TRAILER.pack(*old)
    with file.open("r+b") as out:
        out.truncate(trailer.index_offset)
        out.seek(trailer.index_offset + size)
        out.write(bytes(index) + body + U32.pack(crc32c(body)))
    return checkpoint


@pytest.mark.parametrize("name", ["0/0/1.delta", "0/0/2.snapshot", "0/0/3.zip"])
@pytest.mark.parametrize("merged", [True, False])
def test_files_that_are_mostly_holes(tmp_path: Path, name: str, merged: bool) -> None:
    checkpoint = write_store(tmp_path / "q")
    if name.endswith(".zip"):  # beside files of the heap store it would not count
        for path in (checkpoint / "state/0").rglob("[0-9]*.*"):
            path.unlink()
    if merged:
        with_hole(checkpoint, name, 30 * GIB)
    else:
        with (checkpoint / "state" / name).open("wb") as out:
            out.truncate(30 * GIB)
    inspection = Checkpoint(checkpoint, closed_after=NOW)

    with little_memory():
        assert inspection.inspect.summary().num_rows == 1
        if name.endswith(".zip"):
            with refused("PSS_READ_FAILED", name, f"{30 * GIB} bytes", "at most"):
                inspection.inspect.versions()
        else:
            assert inspection.inspect.versions().num_rows
        with pytest.raises(Exception, match=r"at most|cannot be understood|cannot be restored"):
            inspection.state(version=2 if "2" in name else 1)


@pytest.mark.parametrize("log", ["commits/2", "offsets/2", "state/0/_metadata/metadata", "state/0/0/_metadata/schema"])
def test_small_files_that_are_mostly_holes(tmp_path: Path, log: str) -> None:
    checkpoint = write_store(tmp_path / "q")
    (checkpoint / log).parent.mkdir(exist_ok=True)
    with (checkpoint / log).open("wb") as out:
        out.truncate(30 * GIB)

    with little_memory(), refused("PSS_READ_FAILED", log, f"{30 * GIB} bytes", "at most"):
        Checkpoint(checkpoint, closed_after=NOW).state(version=3)


@pytest.mark.slow
def test_a_large_segment_is_verified_and_exported_little_by_little(tmp_path: Path) -> None:
    checkpoint = with_hole(write_store(tmp_path / "q"), "0/0/9.delta", GIB)

    with little_memory():
        found = Checkpoint(checkpoint, closed_after=NOW).maintenance.verify()
        assert [each.kind for each in found.damages if each.logical_path == "0/0/9.delta"] == ["corrupt_segment"]
        with refused("PSS_CORRUPT_SEGMENT", "0/0/9.delta"):
            Checkpoint(checkpoint, closed_after=NOW).export(tmp_path / "new", force=True)
    assert not list((tmp_path / "new").rglob("9.delta"))


def test_a_fork_copies_logs_of_any_size(tmp_path: Path) -> None:
    checkpoint, size = make(tmp_path / "q", "plain"), 257 << 20
    with (checkpoint / "sources" / "0" / "0").open("wb") as log:
        log.truncate(size)

    with little_memory():
        Checkpoint(checkpoint).fork(tmp_path / "fork")

    assert (tmp_path / "fork" / "sources" / "0" / "0").stat().st_size == size


@pytest.mark.parametrize("ids", [False, True], ids=["bare", "ids"])
@pytest.mark.parametrize("extension", ["changelog", "delta"])
def test_many_versions_take_no_step_each(tmp_path: Path, extension: str, ids: bool) -> None:
    """Python's calls are counted, since how long they take depends on the machine."""
    count = 20_000
    with merged_file(tmp_path, 1) as out:
        for number in range(1, count + 1):
            name = f"{number}_{number:x}" if ids else f"{number}"
            out.put(f"0/0/{name}.{extension}", b"abc", stamp=STAMP + number)
    profile = cProfile.Profile()

    profile.enable()
    found = Checkpoint(tmp_path).inspect.versions()
    profile.disable()

    assert found.num_rows == count
    assert pstats.Stats(profile).total_calls < count * (60 if ids else 3)  # type: ignore[attr-defined]
