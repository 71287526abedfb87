"""What people get wrong, on real queries: an error that names it, and nothing lost or half-written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pyspark_statestore._version import __version__
from tests.faults.queries import CONF, MASTER, Query
from tests.jvm.harness import CREATED_MS, PREFIX, TESTING, View

pytestmark = pytest.mark.spark


NEEDS_THE_READER = pytest.mark.since("4.0", "Spark's reader of state, which they ask, came with Spark 4.0")


@pytest.fixture(scope="module")
def session(make_spark: Any) -> SparkSession:
    spark: SparkSession = make_spark(CONF, mode="path", master=MASTER)
    return spark


@pytest.fixture
def new_query(session: SparkSession, tmp_path: Path, jvm: Any) -> Iterator[Callable[..., Query]]:
    yield lambda name="query", **arguments: Query(session, tmp_path / name, **arguments)
    getattr(jvm, TESTING).FaultyFileSystem.clear()


def files_of(directory: Path) -> dict[str, bytes]:
    found = (path for path in directory.rglob("*") if path.is_file() and path.suffix not in (".running", ".ended"))
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


@pytest.mark.parametrize(("door", "store"), [("path", "rocksdb"), ("provider", "rocksdb"), ("provider", "heap")])
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("maxFilesize", "1m", ["PSS_UNKNOWN_OPTION", PREFIX + "maxFilesize", "maxFileSize"]),
        ("maxFileSize", "huge", ["PSS_INVALID_OPTION", PREFIX + "maxFileSize", "'huge'", "such as 128m"]),
        ("shimVersion", "9.9.9", ["PSS_VERSION_MISMATCH", "9.9.9", __version__]),
    ],
)
@NEEDS_THE_READER
def test_settings_that_are_wrong(
    new_query: Callable[..., Query],
    session: SparkSession,
    door: str,
    store: str,
    name: str,
    value: str,
    words: list[str],
) -> None:
    query = new_query(door=door, store=store, scheme="file")
    query.feed(0)
    before = session.conf.get(PREFIX + name, None)
    session.conf.set(PREFIX + name, value)
    try:
        said = query.failure()
    finally:
        if before is None:
            session.conf.unset(PREFIX + name)
        else:
            session.conf.set(PREFIX + name, before)

    assert [word for word in words if word not in said] == [], said
    assert not (query.state / "_merged").exists()
    query.run()
    query.assert_right()


def test_a_scheme_that_no_file_system_has(new_query: Callable[..., Query]) -> None:
    query = new_query(scheme="nosuch")
    query.feed(0)

    said = query.failure()

    assert "PSS_UNKNOWN_SCHEME" in said, said
    assert "merged+nosuch" in said
    assert not query.checkpoint.exists()


@pytest.mark.parametrize("door", ["path", "provider"])
def test_a_checkpoint_that_is_a_file(new_query: Callable[..., Query], door: str) -> None:
    query = new_query(door=door, scheme="file")
    query.feed(0)
    query.checkpoint.write_text("somebody's")

    said = query.failure()

    assert str(query.checkpoint) in said
    # Through the provider's door this is between Spark and the file system.
    assert door == "provider" or "PSS_NOT_A_CHECKPOINT" in said, said
    assert query.checkpoint.read_text() == "somebody's"


@NEEDS_THE_READER
def test_no_permission_to_make_the_checkpoint(new_query: Callable[..., Query], jvm: Any) -> None:
    query = new_query()
    query.feed(0)
    faulty = getattr(jvm, TESTING).FaultyFileSystem
    faulty.addRule("mkdirs", str(query.checkpoint), 1, 1000, "permission")

    said = query.failure()

    assert "Permission denied" in said
    assert str(query.checkpoint) in said
    assert not files_of(query.checkpoint)
    faulty.clear()
    query.run()
    query.assert_right()


@pytest.mark.parametrize(("door", "store"), [("path", "rocksdb"), ("provider", "heap")])
@pytest.mark.parametrize(
    ("what", "content", "words"),
    [
        ("of another version", b"PSSMERG2" + bytes(200), ["PSS_UNSUPPORTED_FORMAT_VERSION", "version 2", "version 1"]),
        ("garbage", b"#!/bin/sh\n" * 30, ["PSS_CORRUPT_FILE"]),
    ],
)
@NEEDS_THE_READER
def test_files_that_do_not_belong_there(
    new_query: Callable[..., Query], door: str, store: str, what: str, content: bytes, words: list[str]
) -> None:
    query = new_query(door=door, store=store, scheme="file")
    query.feed(0, 1)
    query.run()
    strange = query.state / "_merged" / f"{CREATED_MS}-00000000000000ff-1.merged"
    strange.write_bytes(content)
    before = files_of(query.state)
    query.feed(2)

    said = query.failure()

    assert [word for word in [*words, str(strange)] if word not in said] == [], said
    after = files_of(query.state)
    assert {name: after.get(name) for name in before} == before
    strange.unlink()
    query.run()
    query.assert_right()


@NEEDS_THE_READER
def test_files_that_are_not_called_merged_are_left_alone(new_query: Callable[..., Query]) -> None:
    query = new_query(scheme="file")
    query.feed(0)
    query.run()
    note = query.state / "_merged" / "README.txt"
    note.write_text("do not touch")
    query.feed(1)

    query.run()

    query.assert_right()
    assert note.read_text() == "do not touch"


def test_a_wrong_byte_stops_the_query(new_query: Callable[..., Query], jvm: Any) -> None:
    """Whoever restarts from a damaged changelog is told where it is, and gets no wrong result."""
    query = new_query(scheme="file")
    query.feed(0, 1)
    query.run()
    live = View.of(query.state).live
    path = next(path for path in live if path.endswith("2.changelog"))
    name, entry = live[path]
    with (query.state / "_merged" / name).open("r+b") as file:
        file.seek(entry.offset + entry.length // 2)
        byte = file.read(1)[0]
        file.seek(entry.offset + entry.length // 2)
        file.write(bytes([byte ^ 1]))
    jvm.io.pyspark.statestore.log.MergedLogs.forgetBelow(jvm.org.apache.hadoop.fs.Path(f"file:{query.checkpoint}"))
    query.feed(2)

    said = query.failure()

    words = [
        "PSS_CORRUPT_SEGMENT",
        f"state/{path}",
        f"checkpoint file:{query.checkpoint}",
        name,
        f"offset {entry.offset}",
    ]
    assert [word for word in words if word not in said] == [], said
