"""The merged file format: what is written is read, and nothing else is believed."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_statestore import StateStoreFilesError
from pyspark_statestore.format import (
    BytesSource,
    Entry,
    Kind,
    MergedFile,
    MergedFileWriter,
    SegmentType,
    file_name,
    foreign_path,
    is_foreign_path,
    parse_file_name,
    read_groups,
    read_merged_file,
    read_segment,
    split_foreign_path,
)
from pyspark_statestore.format.checksum import crc32c
from pyspark_statestore.format.layout import (
    ENTRY,
    FLAG_CUMULATIVE,
    FLAG_FOREIGN,
    FLAG_INDEX_ONLY,
    FLAG_SEALED,
    FRONT_SIZE,
    TRAILER,
    TRAILER_MAGIC,
    TRAILER_SIZE,
    U32,
    is_valid_path,
    pack_front,
)
from pyspark_statestore.format.reader import TAIL_LENGTH

META: dict[str, str | bool] = {
    "app_id": "local-1",
    "executor_id": "driver",
    "query_run_id": "r",
    "shim": "0.1.0",
    "plain": True,
}
STEMS = st.sampled_from(
    ["1.changelog", "2.zip", "3.delta", "000004-x.sst", "5.zip.crc", "x.log", "schema", "ü.changelog"]
)
PATHS = st.builds("{}/{}/default/{}".format, st.integers(0, 3), st.integers(0, 200), STEMS)
PUTS = st.tuples(st.just("put"), PATHS, st.binary(max_size=200), st.integers(0, 2**63 - 1), st.integers(0, 2**16 - 1))
DELETES = st.tuples(st.just("delete"), PATHS, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
GROUPS = st.lists(st.lists(st.one_of(PUTS, DELETES), max_size=8), max_size=6)


FRONTS = {**META, "fronts": True}


def written(
    groups: list[Any], seal: bool, meta: dict[str, str | bool] = FRONTS
) -> tuple[bytes, list[Entry], list[bytes | None]]:
    out = io.BytesIO()
    file = MergedFileWriter(out, writer=2**63 - 1, created_ms=1_700_000_000_123, meta=meta)
    entries, payloads = [], []
    for group in groups:
        for kind, path, *rest in group:
            if kind == "put":
                data, stamp, generation = rest
                entries.append(file.put(path, data, stamp=stamp, generation=generation))
                payloads.append(data)
            else:
                entries.append(file.delete(path, stamp=rest[0], writer=rest[1]))
                payloads.append(None)
        file.end_group()
    if seal:
        file.seal()
    return out.getvalue(), entries, payloads


def sample(*, seal: bool = False, meta: dict[str, str | bool] = FRONTS) -> bytes:
    return written(
        [
            [("put", "0/0/default/1.changelog", b"first" * 5, 10, 0), ("put", "0/1/default/1.changelog", b"", 11, 0)],
            [("put", "0/0/default/2.zip", b"second" * 9, 20, 3), ("delete", "0/0/default/1.changelog", 10, 77)],
            [("put", "0/0/left-keyToNumValues/3.changelog", b"third", 30, 0)],
        ],
        seal,
        meta,
    )[0]


def read(data: bytes) -> MergedFile:
    return read_merged_file(BytesSource(data), "some.merged")


LAYOUTS = pytest.mark.parametrize("meta", [FRONTS, META], ids=["fronts", "release 0.1"])


@settings(max_examples=120)
@given(GROUPS, st.booleans(), st.sampled_from([FRONTS, META]))
def test_round_trip(groups: list[Any], seal: bool, meta: dict[str, str | bool]) -> None:
    data, entries, payloads = written(groups, seal, meta)

    file = read(data)

    assert file.header is not None
    assert (file.header.writer, file.header.created_ms, file.header.meta) == (2**63 - 1, 1_700_000_000_123, meta)
    assert list(file) == entries
    assert file.sealed == seal
    assert file.valid_length == (len(data) if groups or seal else 0)
    assert len(file) == len(entries) == file.to_arrow().num_rows
    for entry, payload in zip(entries, payloads, strict=True):
        if payload is not None:
            assert read_segment(BytesSource(data), entry) == payload


def test_arrow_and_entries_agree() -> None:
    file = read(sample())

    columns = file.to_arrow().to_pydict()

    assert columns["path"] == [entry.path for entry in file]
    assert columns["crc32c"] == [entry.crc32c for entry in file]
    assert columns["kind"] == [1, 1, 1, 2, 1]
    assert columns["type"] == [2, 2, 3, 2, 2]
    assert columns["generation"] == [0, 0, 3, 0, 0]
    assert columns["writer"][3] == 77
    assert read(sample()[:40]).to_arrow().schema == file.to_arrow().schema


def test_a_cumulative_group_holds_all_and_ends_the_walk() -> None:
    sealed = read(sample(seal=True))

    assert len(sealed.groups) == 1
    assert list(sealed) == list(read(sample()))
    assert [group.trailer.group_stamp for group in read(sample()).groups] == [11, 20, 30]


def test_segments_and_seal_can_share_a_trailer() -> None:
    out = io.BytesIO()
    file = MergedFileWriter(out, writer=1, created_ms=0)
    file.put("a/1.delta", b"x", stamp=1)
    file.end_group()
    file.put("a/2.delta", b"y", stamp=2)
    file.seal(group_stamp=9)

    parsed = read(out.getvalue())

    assert [entry.path for entry in parsed] == ["a/1.delta", "a/2.delta"]
    assert parsed.groups[0].trailer.group_stamp == 9
    with pytest.raises(ValueError, match="sealed"):
        file.put("a/3.delta", b"z", stamp=3)


def test_an_index_only_file_names_the_others() -> None:
    names = [file_name(1_700_000_000_000, 5, number) for number in (0, 1)]
    first, second = list(read(sample(seal=True))), list(read(sample(seal=True)))[:2]
    out = io.BytesIO()
    MergedFileWriter(out, writer=6, created_ms=1).seal_index_only({names[0]: first, names[1]: second})

    parsed = read(out.getvalue())

    block = parsed.groups[0].index
    assert parsed.groups[0].trailer.flags == 7
    assert list(block.names) == names
    assert [entry.file_ref for entry in parsed] == [1, 1, 1, 1, 1, 2, 2]
    assert [entry.path for entry in parsed] == [entry.path for entry in [*first, *second]]


@LAYOUTS
def test_every_truncation_length_loses_whole_groups_only(meta: dict[str, str | bool]) -> None:
    data = sample(meta=meta)
    whole = read(data)
    ends = [group.end for group in whole.groups]

    for length in range(len(data) + 1):
        file = read(data[:length])
        assert file.header is None or file.accounted == (meta is FRONTS or length in (file.header.length, *ends))
        survivors = sum(end <= length for end in ends)
        assert [group.end for group in file.groups] == ends[:survivors]
        assert list(file) == [entry for group in whole.groups[:survivors] for entry in group.index]


@LAYOUTS
@pytest.mark.parametrize("seal", [False, True])
def test_every_flipped_byte_is_noticed_or_harmless(seal: bool, meta: dict[str, str | bool]) -> None:
    data = sample(seal=seal, meta=meta)
    facts = list(read(data))
    contents = {entry: read_segment(BytesSource(data), entry) for entry in facts if entry.kind is Kind.PUT}
    in_use = set().union(*(range(e.offset, e.offset + e.length) for e in contents))
    for position in range(len(data)):
        for flip in (0x01, 0xFF):
            damaged = bytearray(data)
            damaged[position] ^= flip
            source = BytesSource(bytes(damaged))
            try:
                # Nothing is ever missing from what is answered, whatever was hit.
                assert list(read_merged_file(source)) == facts
                for entry in contents:
                    assert read_segment(source, entry) == contents[entry]
            except StateStoreFilesError as error:
                assert error.getErrorClass().startswith(("PSS_CORRUPT_", "PSS_UNSUPPORTED_FORMAT_VERSION"))
            else:
                assert position not in in_use


OLD_TAILS = [b"\0" * 100, b"PSSGROUP" * 40 + bytes(64), bytes(range(256)) * 600]


@pytest.mark.parametrize("tail", OLD_TAILS)
def test_what_follows_the_last_group_without_fronts_is_not_accounted_for(tail: bytes) -> None:
    data = sample(meta=META)

    file = read(data + tail)

    assert list(file) == list(read(data))
    assert file.valid_length == len(data)
    assert file.size == len(data) + len(tail)
    assert read(data).accounted
    assert not file.accounted


def test_zeros_at_the_end_are_no_group_and_not_accounted_for() -> None:
    data = sample()
    groups = read(data).groups

    for last in (1, 2, 3):
        end = groups[-last - 1].end if last < len(groups) else data.index(b"PSSFRONT")
        for length in (len(data) - end, len(data) - end - FRONT_SIZE, len(data) - groups[-last].trailer_offset):
            file = read(data[:-length] + bytes(length))
            assert list(file) == [entry for group in groups[:-last] for entry in group.index]
            assert not file.accounted
    assert not read(bytes(5000)).accounted
    assert read(b"").accounted


@pytest.mark.parametrize("tail", [b"PSSGROUP" * 40, b"x", bytes(40) + b"x", b"PSSFRONT\1", sample()])
def test_what_no_writer_leaves_behind_is_damage(tail: bytes) -> None:
    with pytest.raises(StateStoreFilesError, match=r"PSS_CORRUPT_INDEX.*some\.merged"):
        read(sample() + tail)


@LAYOUTS
@pytest.mark.parametrize("tail", [b"x", bytes(100), bytes(5000), b"PSSFRO"])
def test_nothing_follows_a_seal(tail: bytes, meta: dict[str, str | bool]) -> None:
    with pytest.raises(StateStoreFilesError, match="PSS_CORRUPT_INDEX"):
        read(sample(seal=True, meta=meta) + tail)


def test_a_file_that_is_whole_ends_with_its_seal() -> None:
    whole = sample(seal=True, meta={**META, "whole": True})

    assert read(whole).sealed
    for length in range(read(whole).header.length, len(whole)):  # type: ignore[union-attr]
        with pytest.raises(StateStoreFilesError, match=r"PSS_CORRUPT_INDEX.*some\.merged"):
            read(whole[:length])
        if any(whole[length:]):
            with pytest.raises(StateStoreFilesError, match=r"PSS_CORRUPT_INDEX.*some\.merged"):
                read(whole[:length] + bytes(len(whole) - length))


def test_a_trailer_inside_a_torn_payload_is_not_one_of_the_file() -> None:
    data = sample(meta=META)

    assert list(read(data + sample(meta=META) + b"torn")) == list(read(data))


def test_groups_before_a_damaged_one_are_shown_to_people() -> None:
    for meta in (FRONTS, META):
        data = bytearray(sample(meta=meta))
        data[-1] ^= 1
        _, groups = read_groups(BytesSource(bytes(data)))

        assert [next(groups).end, next(groups).end] == [group.end for group in read(sample(meta=meta)).groups[1::-1]]
        with pytest.raises(StateStoreFilesError, match="PSS_CORRUPT_INDEX"):
            next(groups)


def test_a_front_and_little_by_little_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="front"):
        MergedFileWriter(io.BytesIO(), writer=1, created_ms=0, meta={"fronts": True}).append(b"")


class CountingSource(BytesSource):
    reads: list[tuple[int, int]]

    def read_at(self, offset: int, length: int) -> bytes:
        self.__dict__.setdefault("reads", []).append((offset, length))
        assert 0 <= offset <= offset + length <= self.size
        return super().read_at(offset, length)


def test_one_read_serves_a_small_file_and_two_a_large_one_with_a_short_index() -> None:
    small = CountingSource(sample())
    read_merged_file(small)
    assert len(small.reads) == 1

    large = CountingSource(written([[("put", "0/0/default/1.zip", bytes(10 * TAIL_LENGTH), 1, 0)]], True)[0])
    read_merged_file(large)
    assert len(large.reads) == 2
    assert sum(length for _, length in large.reads) < 2 * TAIL_LENGTH


def test_a_group_that_is_being_written_is_not_searched() -> None:
    data = sample()
    written_so_far = bytes(range(256)) * (8 * TAIL_LENGTH // 256)
    source = CountingSource(data + pack_front(len(data), 64 * TAIL_LENGTH) + written_so_far)

    assert list(read_merged_file(source)) == list(read(data))
    assert len(source.reads) <= 4
    assert sum(length for _, length in source.reads) <= 4 * TAIL_LENGTH


def test_trailers_with_wrong_checksums_take_no_time() -> None:
    wrong = bytearray(sample(meta=META)[-TRAILER_SIZE:])
    source = CountingSource(sample(meta=META) + bytes(wrong) * 65_536 + b"x")

    read_merged_file(source)

    assert sum(length for _, length in source.reads) <= 2 * source.size


@pytest.mark.parametrize("entries", [900, 1000, 1100, 3000])
@pytest.mark.parametrize("tail", [0, 1, 70_000])
def test_indexes_that_cross_and_exceed_the_tail(entries: int, tail: int) -> None:
    group = [("put", f"0/{number}/default/1.changelog", b"x", number, 0) for number in range(entries)]
    data, facts, _ = written([group[:10], group[10:]], False)

    file = read(data + bytes(tail))

    assert list(file) == facts
    assert [group.end for group in file.groups][-1] == len(data)


def test_another_version_is_named() -> None:
    data = sample()

    with pytest.raises(
        StateStoreFilesError, match=r"PSS_UNSUPPORTED_FORMAT_VERSION.*some\.merged.*version 2.*version 1"
    ):
        read(b"PSSMERG2" + data[8:])
    with pytest.raises(StateStoreFilesError, match="PSS_CORRUPT_FILE"):
        read(b"PAR1" + data[4:])


def with_meta(meta: bytes) -> bytes:
    header = struct.pack("<8sIQQI", b"PSSMERG1", 36 + len(meta), 1, 2, len(meta)) + meta
    return header + U32.pack(crc32c(header))


@pytest.mark.parametrize(
    "meta", [b"", b"nonsense", b"[1]", b'"text"', b"\xff{}", b'{"app_id": 5}', b'{"plain": "yes"}', b"[" * 100_000]
)
def test_meta_that_is_not_what_it_should_be_is_refused(meta: bytes) -> None:
    with pytest.raises(StateStoreFilesError, match="PSS_CORRUPT_FILE"):
        read(with_meta(meta))


def test_unknown_meta_keys_are_kept_and_ignored() -> None:
    header = read(with_meta(json.dumps({**META, "later": [1]}).encode())).header

    assert header is not None
    assert header.meta["later"] == [1]


def forged(
    change_entry: Callable[[list[Any]], None] | None = None,
    path: bytes = b"0/0/default/1.changelog",
    names: list[bytes] | None = None,
    **trailer: int,
) -> bytes:
    """A file whose one group is wrong as asked for, with every checksum right."""
    header = with_meta(b"{}")
    entry = [1, 2, 0, crc32c(b"abc"), 5, 1, len(header), 3, 0, 0]
    if change_entry:
        change_entry(entry)
    index_offset = len(header) + 3
    index = ENTRY.pack(*entry) + U32.pack(0) + U32.pack(len(path)) + path
    table = 0
    if names is not None:
        table = index_offset + len(index)
        offsets = [0]
        for name in names:
            offsets.append(offsets[-1] + len(name))
        index += U32.pack(len(names)) + b"".join(map(U32.pack, offsets)) + b"".join(names)
    fields = {
        "flags": 0,
        "count": 1,
        "index_offset": index_offset,
        "index_length": len(index),
        "previous": 0,
        "group_stamp": 5,
        "name_table_offset": table,
        "index_crc": crc32c(index),
    }
    body = TRAILER.pack(TRAILER_MAGIC, *{**fields, **trailer}.values())
    return header + b"abc" + index + body + U32.pack(crc32c(body))


def forged_trailer(field: str, value: int) -> bytes:
    changed: dict[str, Any] = {field: value}
    return forged(**changed)


def test_the_forger_itself_is_right() -> None:
    assert [entry.path for entry in read(forged())] == ["0/0/default/1.changelog"]
    assert read(forged(flags=0xF0)).groups[0].trailer.flags == 0xF0  # unknown flags are ignored


@pytest.mark.parametrize(
    "path",
    [b"/etc/passwd", b"../x", b"a/../../x", b"a/..", b".", b"a/./b", b"a//b", b"a/", b"", b"a\\b", b"a\0b", b"\xff"]  # noqa: RUF005
    + [b"_merged/x.merged", b"a" * 4097],
)
def test_hostile_paths_are_refused(path: bytes) -> None:
    with pytest.raises(StateStoreFilesError, match=r"PSS_CORRUPT_INDEX.*some\.merged"):
        read(forged(path=path))


@pytest.mark.parametrize(
    ("field", "value"),
    [(0, 0), (0, 3), (4, 2**63), (5, 2**64 - 1), (6, 10_000), (6, 2**64 - 1), (7, 2**63), (7, 10_000), (8, 1)],
)
def test_hostile_entries_are_refused(field: int, value: int) -> None:
    with pytest.raises(StateStoreFilesError, match="PSS_CORRUPT_INDEX"):
        read(forged(lambda entry: entry.__setitem__(field, value)))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("count", 2**32 - 1),
        ("count", 2),
        ("index_offset", 0),
        ("index_offset", 2**64 - 1),
        ("index_length", 2**63),
        ("previous", 2**64 - 1),
        ("group_stamp", 2**63),
    ],
)
def test_trailers_that_cannot_be_right_are_refused(field: str, value: int) -> None:
    with pytest.raises(StateStoreFilesError, match="PSS_CORRUPT_INDEX"):
        read(forged_trailer(field, value))


@pytest.mark.parametrize(
    ("field", "value"), [("name_table_offset", 1), ("name_table_offset", 2**64 - 1), ("previous", 1), ("count", 0)]
)
def test_trailers_that_contradict_their_index_are_refused(field: str, value: int) -> None:
    with pytest.raises(StateStoreFilesError, match="PSS_CORRUPT_INDEX"):
        read(forged_trailer(field, value))


@pytest.mark.parametrize("name", [b"../x", b"", b"x.merged", b"a/" + file_name(1, 2, 3).encode(), b"\xff"])
def test_hostile_file_names_are_refused(name: bytes) -> None:
    with pytest.raises(StateStoreFilesError, match="PSS_CORRUPT_INDEX"):
        read(forged(names=[name]))


def test_name_tables_with_hostile_counts_are_refused() -> None:
    data = bytearray(forged(names=[file_name(1, 2, 3).encode()]))
    table = struct.unpack_from("<Q", data, len(data) - 16)[0]
    data[table : table + 4] = U32.pack(2**32 - 1)
    at = len(data) - TRAILER_SIZE
    index_offset = struct.unpack_from("<Q", data, at + 16)[0]
    data[-8:-4] = U32.pack(crc32c(bytes(data[index_offset:at])))
    data[-4:] = U32.pack(crc32c(bytes(data[at:-4])))

    with pytest.raises(StateStoreFilesError, match="PSS_CORRUPT_INDEX"):
        read(bytes(data))


@settings(max_examples=200)
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_an_error_or_nothing(data: bytes, with_header: bool) -> None:
    try:
        assert read((with_meta(b"{}") if with_header else b"") + data).groups == ()
    except StateStoreFilesError as error:
        assert error.getErrorClass() in ("PSS_CORRUPT_FILE", "PSS_UNSUPPORTED_FORMAT_VERSION")


FOREIGN = "/checkpoints/b\u00fccher/state/_merged/" + file_name(1, 2, 3)
WHOLE = FLAG_SEALED | FLAG_CUMULATIVE | FLAG_FOREIGN


def test_a_reference_file_names_files_of_other_checkpoints_and_own_ones() -> None:
    first, second = list(read(sample()))[:2]
    other = foreign_path("/", file_name(4, 5, 6))
    own = file_name(7, 8, 9)
    out = io.BytesIO()
    references = {FOREIGN: [first], other: [second], own: [first]}
    MergedFileWriter(out, writer=1, created_ms=1).seal_references(references, group_stamp=99)

    found = read(out.getvalue())

    assert found.sealed
    assert found.foreign == (FOREIGN, other, own)
    assert list(found) == [replace(entry, file_ref=n) for n, entry in ((1, first), (2, second), (3, first))]
    assert found.groups[0].trailer.flags == WHOLE
    assert read(sample()).foreign == ()
    assert split_foreign_path(FOREIGN) == ("/checkpoints/b\u00fccher", file_name(1, 2, 3))
    assert split_foreign_path(other) == ("/", file_name(4, 5, 6))


def test_a_reference_file_holds_no_segments_of_its_own() -> None:
    file = MergedFileWriter(io.BytesIO(), writer=1, created_ms=1)
    file.put("0/0/default/1.changelog", b"", stamp=1)

    with pytest.raises(ValueError, match="no segments of its own"):
        file.seal_references({})


NOT_FOREIGN = [
    file_name(1, 2, 3, index_only=True),
    file_name(1, 2, 3) + "\n",
    "./" + file_name(1, 2, 3),
    "x/state/_merged/" + file_name(1, 2, 3),
    "//x/state/_merged/" + file_name(1, 2, 3),
    "/x//state/_merged/" + file_name(1, 2, 3),
    "/x/../state/_merged/" + file_name(1, 2, 3),
    "/./x/state/_merged/" + file_name(1, 2, 3),
    "/../state/_merged/" + file_name(1, 2, 3),
    "/x\\y/state/_merged/" + file_name(1, 2, 3),
    "/x\0y/state/_merged/" + file_name(1, 2, 3),
    "/x/_merged/" + file_name(1, 2, 3),
    "/x/state/_merged/y/" + file_name(1, 2, 3),
    "/x/state/_merged/" + file_name(1, 2, 3) + "\n",
    "/x/state/_merged/" + file_name(1, 2, 3, index_only=True),
    "/x/state/_merged/../" + file_name(1, 2, 3),
    "/x/state/_merged/..",
    "hdfs://nn/x/state/_merged/" + file_name(1, 2, 3),
    "/" + "x" * 4096 + "/state/_merged/" + file_name(1, 2, 3),
    "",
]


@pytest.mark.parametrize("path", NOT_FOREIGN)
def test_a_reference_file_refuses_paths_that_lead_elsewhere(path: str) -> None:
    with pytest.raises(StateStoreFilesError, match="PSS_CORRUPT_INDEX"):
        read(forged(lambda entry: entry.__setitem__(8, 1), names=[path.encode()], flags=WHOLE))
    with pytest.raises(StateStoreFilesError, match="PSS_BAD_PATH"):
        MergedFileWriter(io.BytesIO(), writer=1, created_ms=1).seal_references({path: []})
    assert not is_foreign_path(path)


@pytest.mark.parametrize(("field", "value"), [(0, Kind.DELETE), (8, 0), (8, 2), (6, 2**63 - 1)])
def test_a_reference_file_has_nothing_but_foreign_segments(field: int, value: int) -> None:
    def change(entry: list[Any]) -> None:
        entry[8] = 1
        entry[field] = value

    with pytest.raises(StateStoreFilesError, match="PSS_CORRUPT_INDEX"):
        read(forged(change, names=[FOREIGN.encode()], flags=WHOLE))


def test_the_flag_and_the_names_have_to_agree() -> None:
    def refer(entry: list[Any]) -> None:
        entry[8] = 1

    assert read(forged(refer, names=[FOREIGN.encode()], flags=WHOLE)).foreign == (FOREIGN,)
    for names, flags in (
        ([FOREIGN], FLAG_SEALED | FLAG_CUMULATIVE),
        ([file_name(1, 2, 3)], WHOLE & ~FLAG_SEALED),
        ([FOREIGN], WHOLE & ~FLAG_SEALED),
        ([FOREIGN], WHOLE & ~FLAG_CUMULATIVE),
        ([FOREIGN], WHOLE | FLAG_INDEX_ONLY),
    ):
        with pytest.raises(StateStoreFilesError, match="PSS_CORRUPT_INDEX"):
            read(forged(refer, names=[name.encode() for name in names], flags=flags))


def test_segments_are_checked() -> None:
    data = sample()
    entry = next(iter(read(data)))

    with pytest.raises(
        StateStoreFilesError, match=r"PSS_CORRUPT_SEGMENT.*0/0/default/1\.changelog.*x\.merged.*checksum"
    ):
        read_segment(BytesSource(data.replace(b"first", b"FIRST")), entry, "x.merged")
    with pytest.raises(StateStoreFilesError, match=r"PSS_CORRUPT_SEGMENT.*the file has only 20 bytes"):
        read_segment(BytesSource(data[:20]), entry)


@pytest.mark.parametrize("path", ["/a", "a/../b", "", "a//b", "_merged/a"])
def test_the_writer_refuses_what_the_reader_would(path: str) -> None:
    file = MergedFileWriter(io.BytesIO(), writer=1, created_ms=1)

    with pytest.raises(StateStoreFilesError, match="PSS_BAD_PATH"):
        file.put(path, b"", stamp=1)
    with pytest.raises(StateStoreFilesError, match="PSS_BAD_PATH"):
        file.seal_index_only({path: []})
    assert not is_valid_path(path)


def test_names_and_types() -> None:
    assert file_name(1_700_000_000_000, 255, 3) == "1700000000000-00000000000000ff-3.merged"
    assert parse_file_name("1700000000000-00000000000000ff-3.merged") == (1_700_000_000_000, 255, 3)
    for name in ("x.merged", "1700000000000-00000000000000FF-3.merged", "1700000000000-00000000000000ff-3.merged\n"):
        assert parse_file_name(name) is None
    assert SegmentType.of("0/0/default/1_a.changelog") is SegmentType.CHANGELOG
    assert SegmentType.of("0/0/default/1.zip.crc") is SegmentType.CHECKSUM
    assert SegmentType.of("0/0.5/schema") is SegmentType.OTHER
    assert SegmentType.of("changelog") is SegmentType.OTHER
