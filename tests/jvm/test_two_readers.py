"""The format, read by Java and by Python: the same facts or both an error, whatever the bytes."""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_statestore import StateStoreFilesError
from pyspark_statestore.format import (
    BytesSource,
    Kind,
    MergedFileWriter,
    SegmentType,
    file_name,
    read_merged_file,
    read_segment,
)
from pyspark_statestore.format.checksum import crc32c
from pyspark_statestore.format.layout import (
    FLAG_CUMULATIVE,
    FLAG_FOREIGN,
    FLAG_SEALED,
    HEADER_FIXED,
    TRAILER,
    TRAILER_MAGIC,
    U32,
    is_foreign_path,
    is_valid_path,
)
from tests.jvm.harness import CREATED_MS, STAMP, TESTING, dump, java_dump
from tests.jvm.vectors import DIRECTORY
from tests.sampling import sample

pytestmark = pytest.mark.spark

WRITER = 2**63 - 1
Read = Callable[[bytes], dict[str, Any]]

STEMS = st.sampled_from(
    ["1.changelog", "2.zip", "3.delta", "SSTs/000004-x.sst", "5.zip.crc", "logs/x.log", "\u00fc.delta"]
)
PATHS = st.builds("{}/{}/{}".format, st.integers(0, 3), st.integers(0, 200), STEMS)
STAMPS = st.integers(0, 2**63 - 1)
PUTS = st.fixed_dictionaries(
    {"put": PATHS, "data": st.binary(max_size=200), "stamp": STAMPS, "generation": st.integers(0, 2**16 - 1)}
)
DELETES = st.fixed_dictionaries({"delete": PATHS, "stamp": STAMPS, "writer": STAMPS})
GROUPS = st.lists(st.lists(PUTS | DELETES, max_size=8), max_size=6)
TEXTS = st.dictionaries(st.sampled_from(["app_id", "shim", "later"]), st.text('a"\\\u00fc\n\u2028', max_size=5))
META = st.builds(lambda texts, fronts: {**texts, **fronts}, TEXTS, st.sampled_from([{}, {"fronts": True}]))
RANDOM = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def java_reads(jvm: Any, tmp_path: Path) -> Read:
    """Java's view of some bytes."""

    def read(data: bytes) -> dict[str, Any]:
        path = tmp_path / "read.merged"
        path.write_bytes(data)
        return java_dump(jvm, path)

    return read


def python_reads(data: bytes) -> dict[str, Any]:
    """Python's view of some bytes, errors in the shape of Java's."""
    try:
        return dump(data)
    except StateStoreFilesError as error:
        return {"error": error.getErrorClass()}


def written_by_python(groups: list[Any], seal: str, meta: dict[str, str | bool]) -> bytes:
    out = io.BytesIO()
    file = MergedFileWriter(out, writer=WRITER, created_ms=CREATED_MS, meta=meta)
    for number, group in enumerate(groups, 1):
        for each in group:
            if "put" in each:
                file.put(each["put"], each["data"], stamp=each["stamp"], generation=each["generation"])
            else:
                file.delete(each["delete"], stamp=each["stamp"], writer=each["writer"])
        if seal == "with" and number == len(groups):
            file.seal()
        else:
            file.end_group()
    if seal == "after":
        file.seal()
    return out.getvalue()


def written_by_java(jvm: Any, path: Path, groups: list[Any], seal: str, meta: dict[str, str | bool]) -> bytes:
    script = {"writer": WRITER, "created_ms": CREATED_MS, "meta": meta, "groups": groups, "seal": seal}
    text = json.dumps(script, default=lambda data: base64.b64encode(data).decode())
    getattr(jvm, f"{TESTING}.MergedFileScript").write(str(path), text)
    return path.read_bytes()


@RANDOM
@given(groups=GROUPS, seal=st.sampled_from(["no", "after", "with"]), meta=META)
def test_what_python_writes_java_reads(
    java_reads: Read, groups: list[Any], seal: str, meta: dict[str, str | bool]
) -> None:
    data = written_by_python(groups, seal, meta)

    seen = java_reads(data)

    assert seen == dump(data)
    assert seen["meta"] == meta
    assert seen["sealed"] == (seal == "after" or (seal == "with" and bool(groups)))


@RANDOM
@given(groups=GROUPS, seal=st.sampled_from(["no", "after", "with"]), meta=META)
def test_what_java_writes_python_reads(
    jvm: Any, tmp_path: Path, java_reads: Read, groups: list[Any], seal: str, meta: dict[str, str | bool]
) -> None:
    data = written_by_java(jvm, tmp_path / "written.merged", groups, seal, meta)

    seen = dump(data)

    assert seen == java_reads(data)
    entries = list(read_merged_file(BytesSource(data)))
    asked = [each for group in groups for each in group]
    assert len(entries) == len(asked)
    for entry, each in zip(entries, asked, strict=True):
        assert (entry.path, entry.stamp) == (each.get("put", each.get("delete")), each["stamp"])
        assert entry.type == SegmentType.of(entry.path)
        if entry.kind is Kind.PUT:
            assert read_segment(BytesSource(data), entry) == each["data"]
    # Nothing of the same description is left to a writer's taste.
    assert data == written_by_python(groups, seal, meta)


SAMPLES = {
    "growing": (DIRECTORY / "java-groups-and-tombstones.merged").read_bytes(),
    "sealed": (DIRECTORY / "java-sealed.merged").read_bytes(),
    "by-python": (DIRECTORY / "python-growing.merged").read_bytes(),
    "fronts": (DIRECTORY / "java-fronts.merged").read_bytes(),
    "fronts-by-python": (DIRECTORY / "python-fronts.merged").read_bytes(),
    "fronts-torn": (DIRECTORY / "java-fronts-torn.merged").read_bytes(),
    "whole": (DIRECTORY / "python-whole.merged").read_bytes(),
    "index-only": (DIRECTORY / "python-index-only.merged").read_bytes(),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["growing", "sealed", "by-python"])
@pytest.mark.parametrize("reader", ["java", "python"])
def test_every_truncation_of_the_last_group_shows_the_earlier_ones(java_reads: Read, name: str, reader: str) -> None:
    read = java_reads if reader == "java" else python_reads
    data = SAMPLES[name]
    # The groups before a cumulative one are not in its view.
    before = read(data[: read(data)["groups"][-1]["previous"] + 64])
    assert before["groups"]

    for length in sample(range(before["length"], len(data)), 60):
        seen = read(data[:length])
        assert seen == {**before, "length": length, "accounted": length == before["length"]}


@pytest.mark.sweep
@pytest.mark.parametrize("reader", ["java", "python"])
def test_what_a_front_announces_and_is_not_there_was_torn(java_reads: Read, reader: str) -> None:
    read = java_reads if reader == "java" else python_reads
    data = SAMPLES["fronts"]
    begin = read(data)["groups"][-1]["previous"] + 64

    for length in sample(range(data.index(b"PSSFRONT"), len(data)), 60):
        seen = read(data[:length])
        assert seen["accounted"]
        assert not seen["sealed"]
        assert [group["trailer_offset"] + 64 for group in seen["groups"] if group["trailer_offset"] + 64 > length] == []
    assert len(read(data[:begin])["groups"]) == 3


@pytest.mark.sweep
@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("reader", ["java", "python"])
def test_every_flipped_byte_is_noticed_or_harmless(java_reads: Read, name: str, reader: str) -> None:
    read = java_reads if reader == "java" else python_reads
    data = SAMPLES[name]
    whole = read(data)
    for position in sample(range(len(data)), 120, lambda position: position // 32):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        seen = read(bytes(damaged))
        if "error" in seen:
            assert seen["error"] in ("PSS_CORRUPT_FILE", "PSS_CORRUPT_INDEX", "PSS_UNSUPPORTED_FORMAT_VERSION")
            continue
        # Nothing of the index was hit; what was is a segment, whose own checksum tells, or what nobody reads.
        found = [entry for group in seen["groups"] for entry in group["entries"]]
        assert seen["groups"] == whole["groups"]
        for entry in found:
            if entry["kind"] == Kind.PUT and not entry["file_ref"]:
                end = entry["offset"] + entry["length"]
                intact = crc32c(bytes(damaged[entry["offset"] : end])) == entry["crc32c"]
                assert intact == (not entry["offset"] <= position < end)


# ---- files whose checksums are all right and that say the impossible


def sealed_header(meta: bytes = b"{}", **fields: int) -> bytes:
    length = HEADER_FIXED.size + len(meta) + 4
    values = {"length": length, "writer": 1, "created_ms": 2, "meta_length": len(meta)} | fields
    head = HEADER_FIXED.pack(b"PSSMERG1", *values.values()) + meta
    return head + U32.pack(crc32c(head))


def forged(
    entry: dict[str, int] | None = None,
    path: bytes = b"0/0/1.changelog",
    offsets: list[int] | None = None,
    names: list[bytes] | None = None,
    name_count: int | None = None,
    meta: bytes = b"{}",
    **trailer: int,
) -> bytes:
    """A file of one group that is wrong as asked for, signed with the right checksums."""
    header = sealed_header(meta)
    fields = {"kind": 1, "type": 2, "generation": 0, "crc32c": crc32c(b"abc"), "stamp": 5, "writer": 1}
    fields |= {"offset": len(header), "length": 3, "file_ref": 0, "zero": 0}
    packed = struct.pack("<BBHIQQQQII", *(fields | (entry or {})).values())
    start = len(header) + 3
    index = packed + b"".join(map(U32.pack, offsets or [0, len(path)])) + path
    table = 0
    if names is not None:
        table = start + len(index)
        ends = [sum(map(len, names[:n])) for n in range(len(names) + 1)]
        index += U32.pack(len(names) if name_count is None else name_count)
        index += b"".join(map(U32.pack, ends)) + b"".join(names)
    values = {"flags": 0, "count": 1, "index_offset": start, "index_length": len(index), "previous": 0}
    values |= {"group_stamp": 5, "name_table_offset": table, "index_crc": crc32c(index)}
    body = TRAILER.pack(TRAILER_MAGIC, *(values | trailer).values())
    return header + b"abc" + index + body + U32.pack(crc32c(body))


NAME = file_name(CREATED_MS, 1, 1).encode()
INDEX_NAME = file_name(CREATED_MS, 1, 1, index_only=True).encode()
FOREIGN = b"/a/b/state/_merged/" + NAME
WHOLE = FLAG_SEALED | FLAG_CUMULATIVE | FLAG_FOREIGN


def reference(name: bytes, flags: int = WHOLE, previous: int = 0, **entry: int) -> bytes:
    """A reference file of one entry."""
    return forged({"file_ref": 1, **entry}, names=[name], flags=flags, previous=previous)


HOSTILE: dict[str, bytes] = {
    **{
        f"the foreign path {path!r}": reference(path)
        for path in (
            NAME.replace(b".merged", b".index.merged"),
            NAME + b"\n",
            b"./" + NAME,
            b"",
            b"/",
            b"a" + FOREIGN,
            b"/" + FOREIGN,
            b"/.." + FOREIGN,
            b"/." + FOREIGN,
            b"/a/" + FOREIGN,
            b"/a\\b" + FOREIGN,
            b"/a\0b" + FOREIGN,
            b"/\xff" + FOREIGN,
            FOREIGN + b"/",
            FOREIGN + b"\n",
            b"/a/_merged/" + NAME,
            b"/astate/_merged/" + NAME,
            b"/state/_merged/a/" + NAME,
            b"/state/_merged/x.merged",
            b"/state/_merged/" + NAME.replace(b".merged", b".index.merged"),
            b"hdfs://host" + FOREIGN,
            b"/" + b"a" * 4096 + FOREIGN,
        )
    },
    "a foreign path in an index-only file": forged({"file_ref": 1}, names=[FOREIGN], flags=7),
    "a foreign path without the flag": forged({"file_ref": 1}, names=[FOREIGN]),
    "a reference file that is not sealed": reference(FOREIGN, flags=WHOLE & ~FLAG_SEALED),
    "a reference file that is not cumulative": reference(FOREIGN, flags=WHOLE & ~FLAG_CUMULATIVE),
    "a reference file that is index-only": reference(FOREIGN, flags=WHOLE | 4),
    "a reference file of two groups": reference(FOREIGN, previous=1),
    "a reference file with a tombstone": reference(FOREIGN, kind=2),
    "a reference file with a segment of its own": reference(FOREIGN, file_ref=0),
    "a reference beyond the foreign paths": reference(FOREIGN, file_ref=2),
    "an overflow in a foreign file": reference(FOREIGN, offset=2**62, length=2**63 - 1),
    "absolute path": forged(path=b"/etc/passwd"),
    "path that climbs": forged(path=b"0/../../x"),
    "path that ends above": forged(path=b"0/.."),
    "path with a dot": forged(path=b"0/./1.delta"),
    "path with an empty part": forged(path=b"0//1.delta"),
    "path with a slash at its end": forged(path=b"0/0/"),
    "empty path": forged(path=b""),
    "path with a backslash": forged(path=b"0\\1.delta"),
    "path with a NUL": forged(path=b"0/\0"),
    "path into _merged": forged(path=b"_merged/" + NAME),
    "path of _merged itself": forged(path=b"_merged"),
    "path that is too long in UTF-16": forged(path=b"0/" + "\U0001f600".encode() * 2048),
    "a name of an index-only file": forged({"file_ref": 1}, names=[INDEX_NAME]),
    "path that is not UTF-8": forged(path=b"0/0/\xff.delta"),
    "path that is too long": forged(path=b"0/" + b"a" * 4096),
    "path offsets that go back": forged(offsets=[9, 0]),
    "path offsets that go on": forged(offsets=[0, 2**31]),
    "path offsets beyond 31 bits": forged(offsets=[0, 2**32 - 1]),
    "kind 0": forged({"kind": 0}),
    "kind 3": forged({"kind": 3}),
    "stamp of 64 bits": forged({"stamp": 2**63}),
    "writer of 64 bits": forged({"writer": 2**64 - 1}),
    "offset beyond the file": forged({"offset": 10_000}),
    "offset of 64 bits": forged({"offset": 2**64 - 1}),
    "length beyond the file": forged({"length": 10_000}),
    "length of 64 bits": forged({"length": 2**63}),
    "offset and length that overflow": forged({"offset": 2**62, "length": 2**62 + 2**61}),
    "a reference without a name": forged({"file_ref": 1}),
    "a reference of 32 bits": forged({"file_ref": 2**32 - 1}, names=[NAME]),
    "a reference beyond the names": forged({"file_ref": 2}, names=[NAME]),
    "an overflow in another file": forged({"file_ref": 1, "offset": 2**62, "length": 2**63 - 1}, names=[NAME]),
    "a name with a way out": forged(names=[b"../../" + NAME]),
    "a name of another file": forged(names=[b"x.merged"]),
    "an empty name": forged(names=[b""]),
    "a name that is not UTF-8": forged(names=[b"\xff"]),
    "a name count of 32 bits": forged(names=[NAME], name_count=2**32 - 1),
    "a name count that is too high": forged(names=[NAME], name_count=9),
    "a name table before the block": forged(name_table_offset=1),
    "a name table beyond the file": forged(name_table_offset=2**64 - 1),
    "a name table in the heap": forged(name_table_offset=36 + 3 + 48 + 8 + 13),
    "a previous trailer that is none": forged(previous=1),
    "a count that is too low": forged(count=0),
    "meta that is nonsense": forged(meta=b"nonsense"),
    "meta that is a list": forged(meta=b"[1]"),
    "meta that is nonsense in braces": forged(meta=b"{nonsense}"),
    "meta of other types": forged(meta=b'{"app_id": 5}'),
    "meta that is nested deeply": forged(meta=b'{"a":' * 5000 + b"1" + b"}" * 5000),
    "meta with a long number": forged(meta=b'{"a":' + b"9" * 5000 + b"}"),
    "meta that is not UTF-8": forged(meta=b'{"app_id": "\xff"}'),
    "header of 4 GiB": sealed_header(length=2**32 - 1) + bytes(100),
    "header shorter than its meta": sealed_header(b"{}", length=36) + bytes(100),
    "meta longer than the header": sealed_header(b"{}", meta_length=2**31) + bytes(100),
}
HOSTILE |= {
    "a count of 32 bits": forged(count=2**32 - 1),
    "a count that is too high": forged(count=2),
    "an index at 0": forged(index_offset=0),
    "an index beyond the file": forged(index_offset=2**64 - 1),
    "an index of 64 bits": forged(index_length=2**63),
    "a group that follows itself": forged(previous=2**64 - 1),
    "a group stamp of 64 bits": forged(group_stamp=2**63),
}


@pytest.mark.parametrize("reader", ["java", "python"])
def test_the_forger_itself_is_right(java_reads: Read, reader: str) -> None:
    read = java_reads if reader == "java" else python_reads
    assert [entry["path"] for entry in read(forged())["groups"][0]["entries"]] == ["0/0/1.changelog"]
    assert read(forged({"file_ref": 1}, names=[NAME]))["groups"][0]["names"] == [NAME.decode()]
    for path in (FOREIGN, b"/state/_merged/" + NAME, "/\u00fc x/state/_merged/".encode() + NAME):
        assert read(reference(path))["groups"][0]["names"] == [path.decode()]
    assert read(forged(flags=0xF0))["groups"][0]["flags"] == 0xF0
    assert read(forged(meta=b'{"later": [1]}'))["meta"] == {"later": [1]}
    # The type only tells what a file is for, so that of a later release is none of our business.
    assert "error" not in read(forged({"type": 99}))


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("reader", ["java", "python"])
def test_what_cannot_be_is_refused(java_reads: Read, reader: str, what: str) -> None:
    seen = (java_reads if reader == "java" else python_reads)(HOSTILE[what])

    assert seen.get("error") in ("PSS_CORRUPT_FILE", "PSS_CORRUPT_INDEX"), seen
    assert reader == "python" or "read.merged" in seen["message"]


@pytest.mark.parametrize("reader", ["java", "python"])
def test_another_version_is_named(java_reads: Read, reader: str) -> None:
    seen = (java_reads if reader == "java" else python_reads)(b"PSSMERG7" + SAMPLES["growing"][8:])

    assert seen["error"] == "PSS_UNSUPPORTED_FORMAT_VERSION"
    if reader == "java":
        assert all(word in seen["message"] for word in ("read.merged", "version 7", "version 1"))


@RANDOM
@given(st.data())
def test_any_change_is_seen_alike(java_reads: Read, data: st.DataObject) -> None:
    """Cut, flip and splice: both readers give the same facts, or both refuse."""
    name = data.draw(st.sampled_from(list(SAMPLES)))
    changed = bytearray(SAMPLES[name])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(changed) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "insert", "repeat"])):
            case "flip":
                changed[at] ^= data.draw(st.integers(1, 255))
            case "cut":
                del changed[at : at + data.draw(st.integers(1, 80))]
            case "insert":
                changed[at:at] = data.draw(st.binary(max_size=80))
            case "repeat":
                changed[at:at] = changed[max(0, at - 300) : at]
        if not changed:
            return
    mine, theirs = python_reads(bytes(changed)), java_reads(bytes(changed))
    theirs.pop("message", None)
    assert mine == theirs


@pytest.mark.parametrize("tail", [65_471, 65_472, 65_473, 65_504, 65_535, 65_536, 131_000])
def test_a_trailer_across_the_border_of_two_reads(java_reads: Read, tail: int) -> None:
    data = SAMPLES["growing"] + bytes(tail)

    assert java_reads(data) == dump(data)
    assert dump(data)["valid_length"] == len(SAMPLES["growing"])


def test_a_long_index_and_a_long_tail(java_reads: Read) -> None:
    """Indexes that exceed the 64 KiB that are read first, and torn tails that do."""
    for count in (900, 1100, 3000):
        groups = [[{"delete": f"0/{n}/1.changelog", "stamp": STAMP + n, "writer": 5} for n in range(count)]] * 2
        data = written_by_python(groups, "no", {})
        for tail in (b"", b"x", bytes(70_000), b"PSSGROUP" * 20_000 + b"x" * 64):
            assert java_reads(data + tail) == dump(data + tail)
            assert dump(data + tail)["valid_length"] == len(data)


LONGEST = "a" * 4096
LOGICAL_PATHS = [
    *(
        "0",
        "0/0/1.changelog",
        "_merged",
        "_merged/x",
        "_mergedx",
        "_merged.x",
        "0/_merged",
        "0/_merged/x",
        "x_merged/y",
    ),
    *(
        "",
        "/",
        "/0",
        "0/",
        "0//1",
        ".",
        "..",
        "./0",
        "../0",
        "0/.",
        "0/..",
        "0/./1",
        "0/../1",
        "...",
        "0/...",
        ".0",
        "0.",
    ),
    *(".\n", "..\n", "0/..\n", "0/.\n/1", "0\n", "_merged\n", "_merged\n/x", "\n", "0\n/..", " ", "0/ /1", "0\r"),
    *("0\\1", "\\", "0/\0", "\0", "\u00fc/\u00fc", "\u2028", "0/\u2024\u2024/1", "\uff0e\uff0e/x", "%2e%2e/x"),
    *(LONGEST, LONGEST + "a", "\u00fc" * 4096, "\u00fc" * 4097, "\U0001f600" * 2048, "\U0001f600" * 2048 + "a"),
]
OF_MERGED_FILES = [
    *(
        "",
        "/",
        "/a",
        "/a/b",
        "a",
        "//a",
        "/a/",
        "/./a",
        "/../a",
        "/a/..",
        "/a/.",
        "/a\n",
        "/a\\b",
        "/a\0",
        "/ ",
        "/..\n",
    ),
    *("/_merged", "/state/_merged", "/\u00fc", "/" + "a" * 3000, "/" + "\U0001f600" * 2000, "/" + "\U0001f600" * 2040),
    *("/" + "a" * (4096 - 1 - len("/state/_merged/") - len(NAME) + extra) for extra in range(-1, 3)),
]


@pytest.mark.parametrize("path", LOGICAL_PATHS, ids=lambda path: ascii(path)[:30])
def test_both_judge_a_path_alike(jvm: Any, java_reads: Read, path: str) -> None:
    said = jvm.io.pyspark.statestore.format.PathRules.isValidPath(path)

    assert is_valid_path(path) is said
    data = forged(path=path.encode())
    assert ("error" not in python_reads(data), "error" not in java_reads(data)) == (said, said)


@pytest.mark.parametrize("checkpoint", OF_MERGED_FILES, ids=lambda path: ascii(path)[:30])
def test_both_judge_the_path_of_another_checkpoint_alike(jvm: Any, java_reads: Read, checkpoint: str) -> None:
    path = f"{checkpoint}/state/_merged/{NAME.decode()}"
    said = jvm.io.pyspark.statestore.format.PathRules.isForeignPath(path)

    assert is_foreign_path(path) is said
    data = reference(path.encode())
    assert ("error" not in python_reads(data), "error" not in java_reads(data)) == (said, said)
