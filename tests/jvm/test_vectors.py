"""The committed files: each language reads the other's, and writes the same bytes as ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore.format import BytesSource, Kind, read_merged_file, read_segment
from tests.jvm.harness import dump, java_dump
from tests.jvm.vectors import DIRECTORY, SAYS, names, read_names, write_java, write_python

pytestmark = pytest.mark.spark

VECTORS = sorted(DIRECTORY.glob("*.merged"))


def described(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    return found


def test_all_are_there_and_small() -> None:
    assert {path.stem for path in VECTORS} == SAYS.keys()
    assert {path.stem for path in DIRECTORY.glob("*.json")} == SAYS.keys()
    assert sum(path.stat().st_size for path in VECTORS) < 12_288


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_python_reads_it(path: Path) -> None:
    source = BytesSource(path.read_bytes())

    assert dump(source.data) == described(path)["facts"]

    puts = [entry for entry in read_merged_file(source) if entry.kind is Kind.PUT and not entry.file_ref]
    assert {entry.path: read_segment(source, entry).hex() for entry in puts} == described(path)["segments"]


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_java_reads_it(jvm: Any, path: Path) -> None:
    assert java_dump(jvm, path) == described(path)["facts"]


def test_both_call_the_same_names_ours(jvm: Any) -> None:
    committed = read_names()
    ending = jvm.io.pyspark.statestore.format.PathRules.ending

    assert len(committed) > 400
    assert len(set(committed.values())) == 13
    assert dict(names()) == committed
    assert {name: ending(name) for name in committed} == committed


def test_what_is_written_today_is_what_was_written_then(jvm: Any, tmp_path: Path) -> None:
    write_java(jvm, tmp_path)
    write_python(tmp_path)

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        path.name: path.read_bytes() for path in VECTORS
    }
