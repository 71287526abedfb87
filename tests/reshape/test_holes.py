"""Lists of file sinks without an entry for a repartitioning, by the files that there are; with Spark in test_sinks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pyspark_statestore import Checkpoint, Sink
from pyspark_statestore.cli.main import cli
from pyspark_statestore.session.doors import MERGED_PROVIDERS, PROVIDER_KEY
from pyspark_statestore.sink.holes import interval_of
from pyspark_statestore.sink.notes import Intent
from pyspark_statestore.storage import Directory, Location
from tests.inspect.builders import refused
from tests.maintenance.builders import contents
from tests.maintenance.faults import Breakage, DiedError
from tests.migration.builders import at, make, write_offsets
from tests.migration.test_unfinished_repartition import BATCH
from tests.reshape.builders import repartition_by_hand
from tests.sampling import sample_of_calls
from tests.sink import made
from tests.sink.made import line, write_list

INTERVAL = BATCH + 1
"""With which the repartitioning would have repeated the list."""


def lines_of(sink: Path, name: str) -> list[str]:
    version, *lines = (sink / "_spark_metadata" / name).read_text().split("\n")
    assert version == "v1"
    return lines


def entries(sink: Path, *, temporary: bool = False) -> set[str]:
    """The entries of the list; no temporary file is to be left, but by a process that dies."""
    found = {path.name for path in (sink / "_spark_metadata").iterdir() if path.is_file()}
    assert temporary or not [name for name in found if name.startswith(".")], found
    return found


def write_sink(folder: Path, last: int = BATCH - 1, *compacts: int) -> Path:
    """A sink with a file for each of batches 0 to the last one; some repeat the list."""
    lines: list[str] = []
    for batch in range(last + 1):
        made.put(folder, made.name(batch))
        lines.append(line(f"file:{folder / made.name(batch)}"))
        is_compact = batch in compacts
        write_list(folder, lines if is_compact else lines[-1:], entry=f"{batch}.compact" if is_compact else str(batch))
    return folder


def goes_on(checkpoint: Path, batch: int = BATCH + 1) -> None:
    """The query has committed a batch after the repartitioning."""
    write_offsets(checkpoint, "x", [batch])
    (checkpoint / "commits" / str(batch)).write_text("v1\n{}")


@pytest.fixture
def q1(tmp_path: Path) -> Path:
    """Batches 0 to 3, 4, which is a repartitioning, and 5."""
    checkpoint = repartition_by_hand(make(tmp_path / "q1"))
    goes_on(checkpoint)
    return checkpoint


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    """Its list has no entry for batch 4."""
    return with_hole(tmp_path / "sink")


def with_hole(folder: Path, *compacts: int) -> Path:
    sink = write_sink(folder, BATCH + 1, *compacts)
    (sink / "_spark_metadata" / str(BATCH)).unlink()
    return sink


def mend(sink: Path, checkpoint: Path, **others: Any) -> tuple[str, ...]:
    return Sink(sink).verify(repair=True, checkpoint=checkpoint, **others).repaired


def named(sink: Path) -> list[str]:
    return sorted(Sink(sink).files()["file_path"].to_pylist())


@pytest.mark.parametrize("is_compact", [True, False])
def test_a_hole_is_mended_once(q1: Path, sink: Path, is_compact: bool) -> None:
    assert not Sink(sink).verify().is_clean
    before = named(sink)
    interval = INTERVAL if is_compact else 10
    name = f"{BATCH}.compact" if is_compact else str(BATCH)
    said = (f"file://{sink}/_spark_metadata/{name}",)
    there = contents(sink)
    assert mend(sink, q1, compact_interval=interval, dry_run=True) == said
    assert contents(sink) == there

    assert mend(sink, q1, compact_interval=interval) == said

    assert lines_of(sink, name) == ([lines_of(sink, str(b))[0] for b in range(BATCH)] if is_compact else [])
    assert named(sink) == before
    assert Sink(sink).verify().is_clean
    there = contents(sink)
    assert mend(sink, q1, compact_interval=interval) == ()
    assert contents(sink) == there


@pytest.mark.parametrize("has_entered", [True, False])
def test_nothing_is_written_after_the_last_entry(tmp_path: Path, has_entered: bool) -> None:
    """A query whose list has come as far would skip its batch of that number, be it this one's or another's."""
    q1, sink = repartition_by_hand(make(tmp_path / "q1")), write_sink(tmp_path / "sink")
    if has_entered:
        write_offsets(q1, "x", [BATCH + 1])
    there = contents(tmp_path)
    assert mend(sink, q1) == mend(sink, q1, compact_interval=INTERVAL) == ()
    assert contents(tmp_path) == there


def test_the_list_tells_its_interval(q1: Path, tmp_path: Path) -> None:
    """Whatever is given."""
    assert mend(with_hole(tmp_path / "a", 3), q1, compact_interval=INTERVAL)[0].endswith("/4")
    assert [interval_of(found, default) for found, default in [([], 7), ([4], 10), ([29], 10), ([19], 10)]] == [
        7,
        5,
        10,
        20,
    ], "as Spark's deriveCompactInterval"
    assert interval_of([0, 1, 8], 3) == 7


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("lost", "/_spark_metadata/2 is missing, and the query's logs do not show"),
        ("purged", "/_spark_metadata/1 is missing, and the query's logs begin with batch 3"),
        ("another query's, longer", "not the sink of this query"),
        ("another query's, shorter", "not the sink of this query"),
        ("another interval", "compactInterval"),
        ("no query", "no checkpoint of a query"),
        ("somebody else", "somebody else joins or publishes"),
    ],
)
def test_what_is_not_mended(q1: Path, sink: Path, tmp_path: Path, what: str, words: str) -> None:
    log, options, checkpoint = sink / "_spark_metadata", {}, q1
    if what == "lost":
        (log / "2").unlink()
    elif what == "purged":
        (log / "1").unlink()
        for batch in range(3):
            (q1 / "offsets" / str(batch)).unlink()
    elif what == "another query's, longer":
        write_sink(sink, 8)
        (log / str(BATCH)).unlink()
    elif what == "another query's, shorter":
        goes_on(q1, BATCH + 2)
    elif what == "another interval":
        options = {"compact_interval": 2}
    elif what == "no query":
        checkpoint = tmp_path / "nothing"

    def check() -> None:
        before, logs = contents(sink), contents(q1)
        with refused("PSS_CANNOT_REPAIR_SINK", words):
            mend(sink, checkpoint, **options)
        assert contents(sink) == before
        assert contents(q1) == logs

    if what == "somebody else":
        with Intent(Directory(Location.of(sink)), "3"):
            check()
    else:
        check()


def test_what_the_arguments_have_to_be(q1: Path, sink: Path) -> None:
    before = contents(sink)
    with refused("PSS_INVALID_OPTION", "with repair"):
        Sink(sink).verify(repair=True)
    with refused("PSS_INVALID_OPTION", "with repair"):
        Sink(sink).verify(checkpoint=q1)
    with refused("PSS_INVALID_OPTION", "at least 1"):
        mend(sink, q1, compact_interval=0)
    with refused("PSS_NOT_A_SINK"):
        mend(q1, q1)
    with refused("PSS_INVALID_OPTION", "a mapping"):
        Checkpoint(q1).fork(q1.parent / "fork", sinks=[sink])  # type: ignore[arg-type]
    assert contents(sink) == before


@pytest.mark.sweep
@pytest.mark.parametrize("is_compact", [True, False])
def test_a_crash_while_it_is_mended(tmp_path: Path, breakage: Breakage, is_compact: bool) -> None:
    """At each operation: the entry is whole or not there, and the same call again ends it."""
    goes_on(repartition_by_hand(make(tmp_path / "q1")))
    original = with_hole(tmp_path / "sink")
    name = f"{BATCH}.compact" if is_compact else str(BATCH)

    def verb(sink: Path) -> set[str]:
        mend(sink, tmp_path / "q1", compact_interval=INTERVAL if is_compact else 10)
        return entries(sink)

    def check(sink: Path) -> None:
        if (sink / "_spark_metadata" / name).exists():
            assert len(lines_of(sink, name)) == (BATCH if is_compact else 0)

    expected = verb(Path(shutil.copytree(original, tmp_path / "whole")))
    operations = list(breakage.operations)
    assert len(operations) > 10
    for operation in sample_of_calls(operations):
        sink = Path(shutil.copytree(original, tmp_path / str(operation)))
        breakage.at, breakage.deadly, breakage.torn = operation, True, True
        try:
            verb(sink)
        except DiedError:
            breakage.mended()
            check(sink)
            for note in (sink / "_spark_metadata" / "_replaced").glob("*.json"):
                note.unlink()  # of a process that has died: after half an hour it counts no more
            mend(sink, tmp_path / "q1", compact_interval=INTERVAL if is_compact else 10)
        breakage.mended()
        check(sink)
        assert {each for each in entries(sink, temporary=True) if not each.startswith(".")} == expected


@pytest.mark.parametrize(
    ("version", "compacts", "expected"),
    [
        (BATCH, (), {"0", "1", "2", "3"}),
        (BATCH, (1, 3), {"1.compact", "3.compact"}),
        (BATCH - 1, (1, 3), {"1.compact", "2"}),
        (BATCH, (2,), {"2.compact", "3"}),
        (1, (2,), {"0"}),
    ],
)
def test_a_fork_gets_a_sink_of_its_own(
    tmp_path: Path, version: int, compacts: tuple[int, ...], expected: set[str]
) -> None:
    q1, sink = make(tmp_path / "q1"), write_sink(tmp_path / "sink", BATCH - 1, *compacts)
    before, to = contents(tmp_path), tmp_path / "sink-test"
    assert Checkpoint(q1).fork(tmp_path / "fork", version=version, sinks={sink: to}, dry_run=True).sinks_count == 1
    assert contents(tmp_path) == before

    made_fork = Checkpoint(q1).fork(tmp_path / "fork", "copy", version=version, sinks={sink: to})

    assert made_fork.sinks_count == 1
    assert entries(to) == expected
    assert not any(lines_of(to, name) for name in expected)
    assert Sink(to).verify().is_clean
    assert {name: data for name, data in contents(tmp_path).items() if name in before} == before


@pytest.mark.parametrize(
    "what", ["a sink", "not empty", "below", "above", "fork", "no sink", "too short", "twice", "file"]
)
def test_what_is_no_sink_for_a_fork(tmp_path: Path, what: str) -> None:
    sink = write_sink(tmp_path / "sink")
    q1, to, fork = make(tmp_path / "q1"), tmp_path / "to", tmp_path / "fork"
    pairs: dict[Any, Any] = {sink: to}
    identifier, words = "PSS_BAD_PATH", "contains or lies in"
    if what == "a sink":
        write_sink(to)
        identifier, words = "PSS_NOT_EMPTY", "_spark_metadata"
    elif what == "not empty":
        made.put(to, "x")
        identifier, words = "PSS_NOT_EMPTY", "x"
    elif what == "below":
        pairs = {sink: sink / "to"}
    elif what == "above":
        pairs = {sink: tmp_path}
    elif what == "fork":
        pairs = {sink: fork / "to"}
    elif what == "no sink":
        pairs, identifier, words = {to: tmp_path / "to2"}, "PSS_NOT_A_SINK", ""
    elif what == "too short":
        pairs, words = {write_sink(tmp_path / "s", 1): to}, "its last batch is 1"
    elif what == "twice":
        pairs = {sink: to, write_sink(tmp_path / "s"): to}
    else:
        to.write_text("")
        words = "it is a file"
    before = contents(tmp_path)
    for dry_run in (True, False):
        with refused(identifier, words):
            Checkpoint(q1).fork(fork, sinks=pairs, dry_run=dry_run)
    assert contents(tmp_path) == before
    assert not fork.exists()


def test_a_failure_leaves_neither_fork_nor_sink(tmp_path: Path, breakage: Breakage) -> None:
    sink = write_sink(tmp_path / "sink")
    q1, to, fork = make(tmp_path / "q1"), tmp_path / "to", tmp_path / "fork"
    other = write_sink(tmp_path / "other")
    breakage.at = lambda done: (
        done[-1].startswith("create .3.") and len([x for x in done if x == "mkdirs _spark_metadata"]) > 1
    )
    with pytest.raises(Exception, match="broken on purpose"):
        Checkpoint(q1).fork(fork, sinks={sink: to, other: tmp_path / "to2"})
    breakage.mended()
    assert not [path for folder in (fork, to, tmp_path / "to2") for path in folder.rglob("*") if path.is_file()]
    Checkpoint(q1).fork(fork, sinks={sink: to, other: tmp_path / "to2"})
    assert entries(to) == entries(tmp_path / "to2") == {"0", "1", "2", "3"}


def run(*arguments: object, status: int = 0) -> str:
    result = CliRunner().invoke(cli, [*map(str, arguments)])
    assert result.exit_code == status, result.output
    return result.output


def test_the_command_line(tmp_path: Path) -> None:
    q1, sink = make(tmp_path / "q1"), write_sink(tmp_path / "sink")
    made_fork = run("fork", q1, tmp_path / "fork", "--sink", sink, tmp_path / "to", "--output", "json")
    assert '"sinks_count": 1' in made_fork
    assert entries(tmp_path / "to") == {"0", "1", "2", "3"}
    twice = ("--sink", sink, tmp_path / "a", "--sink", sink, tmp_path / "b")
    assert "twice" in run("fork", q1, tmp_path / "fork2", *twice, status=2)
    goes_on(repartition_by_hand(q1))
    sink = with_hole(tmp_path / "sink-with-hole")
    repair = ("sink", "verify", sink, "--repair", "--checkpoint", q1)
    assert "To be written" in run(*repair, "--dry-run", status=3)
    assert str(BATCH) not in entries(sink)
    assert f"Written: file://{sink}/_spark_metadata/{BATCH}" in run(*repair)
    assert str(BATCH) in entries(sink)
    assert "PSS_INVALID_OPTION" in run("sink", "verify", sink, "--repair", status=1)


def test_a_hole_is_mended_after_a_conversion_to_another_store(q1: Path, sink: Path) -> None:
    """Which writes the class of the other store into the newest entry, and that is the repartitioning's."""
    entry = q1 / "offsets" / str(BATCH)
    version, settings, *sources = entry.read_text().split("\n")
    said = json.loads(settings)
    said["conf"][PROVIDER_KEY] = MERGED_PROVIDERS["heap"]
    entry.write_text("\n".join([version, json.dumps(said), *sources]))
    assert mend(sink, q1) == (f"file://{sink}/_spark_metadata/{BATCH}",)
    assert Sink(sink).verify().is_clean


def test_a_fork_begins_before_the_repartitioning_that_its_query_has_not_gone_on_after(tmp_path: Path) -> None:
    """It can still be taken back. Its entry is written by the fork's query, as by the source's."""
    q1, sink = repartition_by_hand(make(tmp_path / "q1")), write_sink(tmp_path / "sink")
    to, fork = tmp_path / "sink-of-fork", tmp_path / "fork"
    Checkpoint(q1).fork(fork, "copy", sinks={sink: to})
    assert entries(to) == {"0", "1", "2", "3"}
    assert at(fork).undo_repartition(force=True).batch == BATCH
