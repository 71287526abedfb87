"""What is read from the files of Spark's state stores, and that damage is told from it."""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_statestore.sparkfiles import files_named, is_whole_stream, lineage_of
from pyspark_statestore.sparkfiles.compression import decompressed_start
from tests.inspect.spark_files import changelog, lz4, lzf, snappy, snapshot, zstd

CODECS = {"lz4": lz4, "snappy": snappy, "zstd": zstd, "lzf": lzf}
LINEAGE = {3: "a" * 36, 4: "b" * 36, 5: "c" * 36}


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=300), times=st.integers(1, 300))
def test_starts_of_compressed_streams(codec: str, data: bytes, times: int) -> None:
    assert decompressed_start(CODECS[codec](data * times), len(data) * times) == data * times


@pytest.mark.parametrize("codec", CODECS)
def test_lineage(codec: str) -> None:
    assert lineage_of(CODECS[codec](changelog(LINEAGE))) == LINEAGE
    assert lineage_of(CODECS[codec](changelog({}))) == {}


@pytest.mark.parametrize("codec", CODECS)
def test_lineage_in_the_start_of_a_long_changelog(codec: str) -> None:
    whole = CODECS[codec](changelog(LINEAGE, rest=bytes(range(256)) * 2000))
    assert lineage_of(whole[: 64 * 1024]) == LINEAGE


def test_changelogs_without_lineage() -> None:
    assert lineage_of(lz4(changelog(None, "v2"))) == {}
    assert lineage_of(lz4(struct.pack(">i", 12) + bytes(100))) == {}  # version 1 says nothing of itself


@pytest.mark.parametrize(
    "data", [b"", b"\x00\x01", b"LZ4Block", b"\x28\xb5\x2f\xfd\x00", b"ZV\x01", b"ZV\x01\0\5\0\5\xe0"]
)
def test_what_is_no_changelog(data: bytes) -> None:
    assert not lineage_of(data)


@given(st.sampled_from(sorted(CODECS)), st.integers(0, 400), st.integers(1, 255))
def test_damage_is_no_accident(codec: str, at: int, change: int) -> None:
    data = bytearray(CODECS[codec](changelog(LINEAGE)))
    data[at % len(data)] ^= change
    lineage_of(bytes(data))
    lineage_of(bytes(data[: at % len(data)]))


def test_hostile_lengths_allocate_nothing() -> None:
    huge = struct.pack("<iii", 5, 0x7FFFFFFF, 0)
    assert decompressed_start(b"LZ4Block\x26" + huge + b"abcde", 100) == b""
    negative = struct.pack("<iii", 5, -1, 0)
    assert decompressed_start(b"LZ4Block\x26" + negative + b"abcde", 100) == b""
    assert decompressed_start(b"\x82SNAPPY\x00" + bytes(8) + struct.pack(">i", 6) + b"\xff\xff\xff\xff\x07a", 9) == b""


@pytest.mark.parametrize("size", [0, 1, 20, 21, 22, 500])
def test_streams_that_were_cut_off(size: int) -> None:
    def whole(data: bytes) -> bool:
        return is_whole_stream(lambda offset, length: data[offset : offset + length], len(data))

    data = lz4(random.Random(1).randbytes(5000), block=400)
    assert whole(data)
    assert not whole(data[:size])
    assert not whole(data[:-1])
    assert whole(b"what no codec has written")


@pytest.mark.parametrize("codec", CODECS)
def test_streams_of_all_codecs_that_were_cut_off(codec: str) -> None:
    data = CODECS[codec](random.Random(2).randbytes(300))

    def whole(size: int) -> bool:
        return is_whole_stream(lambda offset, length: data[:size][offset : offset + length], size)

    assert whole(len(data))
    cuts = [size for size in range(20, len(data)) if whole(size)]
    # Blocks of these are one after the other, and nothing says which is the last.
    assert cuts == [] or (codec == "lzf" and len(cuts) < 6), cuts


def test_files_that_a_snapshot_names() -> None:
    ssts = [{"localSstFileName": "000008.sst", "dfsSstFileName": "000008-a.sst", "sizeBytes": 7}]
    logs = [{"localLogFileName": "000009.log", "dfsLogFileName": "000009-b.log", "sizeBytes": 8}]
    whole = snapshot(json.dumps({"sstFiles": ssts, "logFiles": logs, "numKeys": 1}))
    assert files_named(whole) == {"SSTs/000008-a.sst": 7, "logs/000009-b.log": 8}
    assert files_named(snapshot(json.dumps({"sstFiles": ssts}), first_line="v2\n")) == {"SSTs/000008-a.sst": 7}
    assert files_named(snapshot(json.dumps({"sstFiles": []}))) == {}


@pytest.mark.parametrize(
    "metadata",
    ["", "[]", "null", "7", '{"sstFiles": 7}', '{"sstFiles": [7]}', '{"sstFiles": [{}]}', "[" * 100_000],
    ids=lambda text: text[:20] or "empty",
)
def test_what_is_no_metadata(metadata: str) -> None:
    assert files_named(snapshot(metadata)) is None


def test_zips_that_were_cut_off_or_damaged() -> None:
    whole = snapshot(json.dumps({"sstFiles": []}))
    assert [files_named(whole[:size]) for size in range(len(whole))] == [None] * len(whole)
    for at in range(len(whole)):
        data = bytearray(whole)
        data[at] ^= 0xFF
        files_named(bytes(data))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("other", b"x")
    assert files_named(out.getvalue()) is None
