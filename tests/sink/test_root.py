"""Sinks whose directory is the root of a file system: a path has no name there, and nothing before its first slash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import MakeSpark
from tests.sink.sinks import WAITING, FileSink, rows_of
from tests.sink.test_waiting import LONG, forget

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="sinks")]


@pytest.fixture
def sink(make_spark: MakeSpark, tmp_path: Path) -> FileSink:
    """A sink at the root of a file system."""
    of_file_system = {
        "fs.rooted.impl": "io.pyspark.statestore.testing.RootedFileSystem",
        "fs.rooted.impl.disable.cache": "true",
        "fs.rooted.directory": str(tmp_path / "files"),
    }
    sink = FileSink(make_spark(), tmp_path, "json", ("q",), url="rooted:/")
    for key, value in of_file_system.items():
        sink.spark.conf.set(key, value)
    return sink


def listed(sink: FileSink, batch: int) -> list[str]:
    lines = (sink.files / "_spark_metadata" / str(batch)).read_text().splitlines()[1:]
    return [each["path"] for each in map(json.loads, lines) if not each["isDir"]]


def test_a_batch_is_joined(sink: FileSink) -> None:
    sink.feed(rows_of(0), rows_of(1))
    sink.run()

    assert sink.ids() == list(range(80))
    assert [len(listed(sink, batch)) for batch in range(2)] == [2, 2]
    assert {path.rpartition("/")[0] for path in listed(sink, 0)} == {"rooted:/q=0", "rooted:/q=1"}
    assert all(name.startswith("q=") for name in sink.present())


def test_rows_wait_and_are_published_once(sink: FileSink) -> None:
    for batch in range(3):
        sink.feed(rows_of(batch))
        sink.run(maxDelay=LONG)
        assert listed(sink, batch) == []
        assert all(name.startswith(f"{WAITING}/") for name in sink.present())
    forget(sink)
    sink.feed(rows_of(3))
    sink.run()

    assert sink.ids() == list(range(160))
    assert [name for name in sink.present() if name.startswith(f"{WAITING}/q")] == []
