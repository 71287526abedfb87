"""The tables are what a plain reading of the rules, entry by entry, says of the same files."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_statestore.checkpoint import Checkpoint
from pyspark_statestore.format import Kind, read_merged_file
from pyspark_statestore.format.reader import BytesSource
from pyspark_statestore.inspect import TABLES, schema_of
from tests.inspect.builders import CREATED_MS, STAMP, merged_file, merged_paths, simple_checkpoint, statuses
from tests.sampling import EXHAUSTIVE

ID = "0a0c2a92-7b4b-4d5e-9c59-0f0d9a4d3f11"
PATHS = [
    "0/0/1.changelog",
    "0/0/2.changelog",
    "0/0/2.zip",
    "0/1/1.delta",
    f"1/0/left-keyToNumValues/1_{ID}.changelog",
    f"1/0/left-keyToNumValues/SSTs/000008-{ID}.sst",
    "no/store/of/sparks.log",
]


@dataclass(frozen=True)
class Write:
    """An entry: a segment, or a tombstone."""

    path: str
    stamp: int
    writer: int
    generation: int
    length: int
    deletes: bool
    ends_group: bool


WRITES = st.builds(
    Write,
    path=st.sampled_from(PATHS),
    stamp=st.integers(0, 3),
    writer=st.integers(1, 2),
    generation=st.integers(0, 2),
    length=st.integers(1, 20),
    deletes=st.booleans(),
    ends_group=st.booleans(),
)
FILES = st.lists(st.tuples(st.lists(WRITES, max_size=8), st.booleans()), max_size=4)


def write(checkpoint: Path, files: list[tuple[list[Write], bool]]) -> None:
    (checkpoint / "offsets").mkdir(parents=True)
    for number, (writes, seal) in enumerate(files):
        with merged_file(checkpoint, number, seal=seal) as file:
            for w in writes:
                if w.deletes:
                    file.delete(w.path, stamp=STAMP + w.stamp, writer=w.writer)
                else:
                    data = bytes([w.length]) * w.length
                    file.put(w.path, data, stamp=STAMP + w.stamp, writer=w.writer, generation=w.generation)
                if w.ends_group:
                    file.end_group()


def entries(path: Path) -> list[Any]:
    return list(read_merged_file(BytesSource(path.read_bytes())))


@settings(max_examples=150 if EXHAUSTIVE else 50)
@given(FILES)
@pytest.mark.sweep
def test_tables_say_what_the_rules_say(files: list[tuple[list[Write], bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "q1"
        write(checkpoint, files)
        expected = statuses(checkpoint)
        inspect = Checkpoint(checkpoint).inspect

        segments = inspect.segments().to_pylist()
        found = [
            (row["file_path"].rpartition("/")[2], row["offset"], row["logical_path"], row["status"]) for row in segments
        ]
        assert sorted(found) == expected
        assert [row[:2] for row in found] == sorted(row[:2] for row in found)
        by_place: dict[tuple[str, int, str], list[Any]] = {}
        for path in merged_paths(checkpoint):
            for entry in entries(path):
                if entry.kind is Kind.PUT:
                    by_place.setdefault((path.name, entry.offset, entry.path), []).append(entry)
        for row in segments:
            described = (row["length"], row["generation"], row["crc32c"], row["written_at"].timestamp() * 1000)
            place = (row["file_path"].rpartition("/")[2], row["offset"], row["logical_path"])
            assert described in [(e.length, e.generation, e.crc32c, e.stamp >> 16) for e in by_place[place]]
            assert row["type"] == by_place[place][0].type.name.lower()

        live = {(name, offset, path) for name, offset, path, status in expected if status == "live"}
        lengths = {place: by_place[place][0].length for place in live}
        for row, path in zip(inspect.files().to_pylist(), merged_paths(checkpoint), strict=True):
            mine = entries(path)
            size, live_bytes = path.stat().st_size, sum(n for place, n in lengths.items() if place[0] == path.name)
            assert row["file_path"].endswith(path.name)
            assert row["file_size_in_bytes"] == size
            assert row["live_bytes"] == live_bytes
            assert row["segment_count"] == sum(e.kind is Kind.PUT for e in mine)
            assert row["live_segment_count"] == sum(place[0] == path.name for place in live)
            assert row["tombstone_count"] == sum(e.kind is Kind.DELETE for e in mine)
            assert row["generation"] == max((e.generation for e in mine), default=0)
            assert row["space_amplification"] == (size / live_bytes if live_bytes else None)
            assert row["created_at"].timestamp() * 1000 == int(path.name[:13])

        summary = inspect.summary().to_pylist()[0]
        size, live_bytes = sum(path.stat().st_size for path in merged_paths(checkpoint)), sum(lengths.values())
        spark = [path for _, _, path in live if not path.startswith("no/")]
        versions = [int(p.rpartition("/")[2].split(".")[0].split("_")[0]) for p in spark if "SSTs" not in p]
        assert summary == {
            "file_count": len(files),
            "file_size_in_bytes": size,
            "live_bytes": live_bytes,
            "space_amplification": size / live_bytes if live_bytes else None,
            "segment_count": len(expected),
            "live_segment_count": len(live),
            "orphan_file_count": 0,
            "operator_count": len({path.split("/")[0] for path in spark}),
            "partition_count": len({tuple(path.split("/")[:2]) for path in spark}),
            "min_version": min(versions, default=None),
            "max_version": max(versions, default=None),
            "plain_file_count": 0,
            "plain_bytes": 0,
            "foreign_file_count": 0,
            "foreign_live_bytes": 0,
            "forked_from": None,
            "fork_count": 0,
            "committed_version": None,
            "restorable_version": None,
            "not_restorable": None,
            "provider": None,
            "door": None,
        }


@pytest.mark.parametrize("name", TABLES)
def test_columns_are_those_declared(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty" / "offsets").mkdir(parents=True)
    for checkpoint in (simple_checkpoint(tmp_path / "full"), tmp_path / "empty"):
        found = Checkpoint(checkpoint).inspect.table(name)
        assert found.schema == schema_of(name)
        found.validate(full=True)


NARROWED = [
    {"operator_id": 0},
    {"partition_id": 0},
    {"store_name": "default"},
    {"operator_id": 1, "partition_id": 0, "store_name": "left-keyToNumValues"},
    {"operator_id": 7},
    {"store_name": ""},
]


@pytest.mark.parametrize("wanted", NARROWED, ids=str)
@pytest.mark.parametrize("name", ["segments", "versions"])
def test_narrowed_tables_are_parts_of_the_whole(tmp_path: Path, name: str, wanted: dict[str, Any]) -> None:
    with merged_file(tmp_path, 1) as file:
        for path in PATHS:
            file.put(path, b"x", stamp=STAMP)
    inspect = Checkpoint(tmp_path).inspect
    whole = inspect.table(name).to_pylist()
    expected = [row for row in whole if all(row[column] == value for column, value in wanted.items())]
    assert inspect.table(name, **wanted).to_pylist() == expected
    assert len(expected) < len(whole)


def test_origin_of_a_file(tmp_path: Path) -> None:
    with merged_file(tmp_path, 1, writer=0xBEEF) as file:
        file.put("0/0/1.changelog", b"x", stamp=STAMP)
    row = Checkpoint(tmp_path).inspect.files().to_pylist()[0]
    assert row["writer"] == "000000000000beef"
    assert (row["app_id"], row["executor_id"], row["query_run_id"]) == ("app-1", "driver", "run-1")
    assert math.isclose(row["created_at"].timestamp(), (CREATED_MS + 1) / 1000)
