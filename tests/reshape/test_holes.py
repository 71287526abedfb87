"""Lists of file sinks without an entry for a repartitioning, by the files that there are; with Spark in test_sinks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pyspark_statestore import Checkpoint, Sink
from pyspark_statestore.cli.main import cli
from pyspark_statestore.session.doors import MERGED_PROVIDERS, PROVIDER_KEY
from pyspark_statestore.sink.holes import SinksOfQuery, interval_of
from pyspark_statestore.sink.notes import Intent
from pyspark_statestore.storage import Directory, Location
from tests.inspect.builders import refused
from tests.maintenance.builders import contents
from tests.maintenance.faults import Breakage, DiedError
from tests.maintenance.harness import live_files
from tests.migration.builders import NOW, at, make, write_offsets
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


def notes(checkpoint: Path) -> list[Path]:
    """That a sink has an entry for the repartitioning."""
    return list((checkpoint / "_replaced").glob(f"{BATCH}-*.sink.json"))


def write_sink(folder: Path, last: int = BATCH - 1, *compacts: int) -> Path:
    """A sink with a file for each of batches 0 to the last one; some repeat the list."""
    lines: list[str] = []
    for batch in range(last + 1):
        made.put(folder, made.name(batch))
        lines.append(line(f"file:{folder / made.name(batch)}"))
        is_compact = batch in compacts
        write_list(folder, lines if is_compact else lines[-1:], entry=f"{batch}.compact" if is_compact else str(batch))
    return folder


@pytest.fixture
def q1(tmp_path: Path) -> Path:
    """Batches 0 to 3, and 4, which is a repartitioning that has left out its sink."""
    return repartition_by_hand(make(tmp_path / "q1"))


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    return write_sink(tmp_path / "sink")


def mend(sink: Path, checkpoint: Path, **others: Any) -> tuple[str, ...]:
    return Sink(sink).verify(repair=True, checkpoint=checkpoint, **others).repaired


def named(sink: Path) -> list[str]:
    return sorted(Sink(sink).files()["file_path"].to_pylist())


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("is_compact", [True, False])
def test_a_hole_is_mended_once(q1: Path, sink: Path, goes_on: bool, is_compact: bool) -> None:
    before = named(sink)
    if goes_on:
        write_offsets(q1, "x", [BATCH + 1])
        (q1 / "commits" / str(BATCH + 1)).write_text("v1\n{}")
        made.put(sink, made.name(BATCH + 1))
        write_list(sink, [line(f"file:{sink / made.name(BATCH + 1)}")], entry=str(BATCH + 1))
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
    assert bool(notes(q1)) is not goes_on, "only then it can be taken back"


def test_the_list_tells_its_interval(q1: Path, tmp_path: Path) -> None:
    """Whatever is given."""
    assert mend(write_sink(tmp_path / "a", BATCH - 1, 1, 3), q1)[0].endswith("/4")
    assert mend(write_sink(tmp_path / "b", BATCH - 1, 0, 1, 2, 3), q1)[0].endswith("/4.compact")
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
        write_offsets(q1, "x", [BATCH + 1])
        (q1 / "commits" / str(BATCH + 1)).write_text("v1\n{}")
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
    with refused("PSS_INVALID_OPTION", "a list of paths"):
        at(q1).repartition(1, sinks=str(sink))
    with refused("PSS_INVALID_OPTION", "a mapping"):
        Checkpoint(q1).fork(q1.parent / "fork", sinks=[sink])  # type: ignore[arg-type]
    assert contents(sink) == before


def test_obstacles_of_a_repartitioning_are_found_before(tmp_path: Path, sink: Path) -> None:
    q1 = make(tmp_path / "q1")
    for spoilt, identifier in ((tmp_path / "none", "PSS_NOT_A_SINK"), (write_sink(tmp_path / "s", 2), "")):
        before = contents(tmp_path)
        for dry_run in (True, False):
            with refused(identifier or "PSS_CANNOT_REPARTITION", "" if identifier else "not the sink of this query"):
                at(q1).repartition(5, sinks=[sink, spoilt], dry_run=dry_run)
        assert contents(tmp_path) == before
    done = at(q1).repartition(5, sinks=[sink], dry_run=True)
    assert (done.batch, done.sink_entries_count) == (BATCH, 1)


def test_the_same_call_again_writes_what_a_crash_has_left_out(q1: Path, sink: Path) -> None:
    assert at(q1).repartition(1, sinks=[sink], dry_run=True).sink_entries_count == 1
    done = at(q1).repartition(1, sinks=[sink])
    assert (done.batch, done.sink_entries_count) == (None, 1)
    assert lines_of(sink, str(BATCH)) == []
    assert at(q1).repartition(1, sinks=[sink]).sink_entries_count == 0


@pytest.mark.parametrize("is_compact", [True, False])
def test_it_is_taken_back_with_its_entry(tmp_path: Path, sink: Path, is_compact: bool) -> None:
    q1 = make(tmp_path / "q1")
    before = (_kept(q1), entries(sink))
    repartition_by_hand(q1)
    at(q1).repartition(1, sinks=[sink], compact_interval=INTERVAL if is_compact else None)
    (sink / "_spark_metadata" / f".{BATCH}{'.compact' * is_compact}.crc").write_bytes(b"crc\0 of what was there")
    there = contents(tmp_path)
    with refused("PSS_CANNOT_UNDO_REPARTITION", f"{sink}"):
        at(q1).undo_repartition()
    assert at(q1).undo_repartition(sinks=[sink], dry_run=True).sink_entries_count == 1
    assert contents(tmp_path) == there

    assert at(q1).undo_repartition(sinks=[Sink(sink)]).sink_entries_count == 1

    assert (_kept(q1), entries(sink)) == before
    assert not notes(q1)


def _kept(checkpoint: Path) -> set[str]:
    found = {name for name in contents(checkpoint) if "_merged" not in name and "_replaced" not in name}
    return {name for name in found if not name.endswith(".tmp")}  # which a process that dies leaves


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("published", "names files"),
        ("joined", "does not name what"),
        ("gone", "not there any more"),
        ("later", "goes on"),
    ],
)
def test_an_entry_that_names_something_is_not_taken_back(q1: Path, sink: Path, what: str, words: str) -> None:
    is_compact = what in ("joined", "gone")
    at(q1).repartition(1, sinks=[sink], compact_interval=INTERVAL if is_compact else None)
    if what == "published":
        write_list(sink, lines_of(sink, "3"), entry=str(BATCH))
    elif what == "joined":
        write_list(sink, lines_of(sink, f"{BATCH}.compact")[1:], entry=f"{BATCH}.compact")
    elif what == "gone":
        (sink / "_spark_metadata" / "2").unlink()
    else:
        write_list(sink, [], entry=str(BATCH + 1))
    before, logs = contents(sink), contents(q1)
    with refused("PSS_CANNOT_UNDO_REPARTITION", words):
        at(q1).undo_repartition(sinks=[sink])
    assert contents(sink) == before
    assert contents(q1) == logs


def dies_everywhere(
    breakage: Breakage,
    original: Path,
    folder: Path,
    verb: Callable[[Path], object],
    check: Callable[[Path], None],
    prepare: Callable[[Path], object] = lambda there: None,
) -> None:
    """Dies at operations; what is left has to pass the check, and once more the same call has to end it."""

    def copied(name: object) -> Path:
        there = Path(shutil.copytree(original, folder / str(name)))
        prepare(there)
        breakage.mended()
        return there

    whole = copied("whole")
    verb(whole)
    operations = list(breakage.operations)
    assert len(operations) > 20
    expected = (entries(whole / "sink"), _kept(whole / "q1"))
    for operation in sample_of_calls(operations):
        there = copied(operation)
        breakage.at, breakage.deadly, breakage.torn = operation, True, True
        try:
            verb(there)
        except DiedError:
            breakage.mended()
            check(there)
            for note in (there / "sink" / "_spark_metadata" / "_replaced").glob("*.json"):
                note.unlink()  # of a process that has died: after half an hour it counts no more
            verb(there)
        breakage.mended()
        check(there)
        left = {name for name in entries(there / "sink", temporary=True) if not name.startswith(".")}
        assert (left, _kept(there / "q1")) == expected


@pytest.mark.sweep
@pytest.mark.parametrize("is_compact", [True, False])
def test_a_crash_while_it_is_mended(tmp_path: Path, breakage: Breakage, is_compact: bool) -> None:
    original = tmp_path / "original"
    repartition_by_hand(make(original / "q1"))
    write_sink(original / "sink")
    name = f"{BATCH}.compact" if is_compact else str(BATCH)

    def verb(there: Path) -> None:
        mend(there / "sink", there / "q1", compact_interval=INTERVAL if is_compact else 10)

    def check(there: Path) -> None:
        entry = there / "sink" / "_spark_metadata" / name
        if entry.exists():
            assert len(lines_of(there / "sink", name)) == (BATCH if is_compact else 0)
            assert notes(there / "q1"), "the note is there before the entry"

    dies_everywhere(breakage, original, tmp_path, verb, check)


@pytest.mark.sweep
def test_a_crash_while_it_is_taken_back(tmp_path: Path, breakage: Breakage) -> None:
    original = tmp_path / "original"
    repartition_by_hand(make(original / "q1"))
    write_sink(original / "sink")

    def verb(there: Path) -> None:
        q1, sink = there / "q1", there / "sink"
        if (q1 / "offsets" / str(BATCH)).exists():
            at(q1).undo_repartition(sinks=[sink])

    def check(there: Path) -> None:
        entry = (there / "sink" / "_spark_metadata" / str(BATCH)).exists()
        offsets, commit = ((there / "q1" / log / str(BATCH)).exists() for log in ("offsets", "commits"))
        assert offsets or not entry, "the query would skip its own batch of this number"
        assert entry or not commit, "the query would leave a hole"
        assert notes(there / "q1") or not entry
        is_written = any(f"/{BATCH + 1}." in path for path in live_files(there / "q1"))
        assert is_written or not entry, "convert would let the query start without the repartitioning"

    # The note names the sink by its path, which is another one in each copy.
    dies_everywhere(breakage, original, tmp_path, verb, check, lambda there: mend(there / "sink", there / "q1"))
    assert not (tmp_path / "whole" / "q1" / "offsets" / str(BATCH)).exists()
    assert str(BATCH) not in entries(tmp_path / "whole" / "sink")


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
def test_what_is_no_sink_for_a_fork(tmp_path: Path, sink: Path, what: str) -> None:
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


def test_a_failure_leaves_neither_fork_nor_sink(tmp_path: Path, sink: Path, breakage: Breakage) -> None:
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


def test_the_command_line(tmp_path: Path, sink: Path) -> None:
    q1 = make(tmp_path / "q1")
    assert "sink_entries_count" in run("repartition", q1, "--partitions", 5, "--sink", sink, "--dry-run", "--force")
    made_fork = run("fork", q1, tmp_path / "fork", "--sink", sink, tmp_path / "to", "--output", "json")
    assert '"sinks_count": 1' in made_fork
    assert entries(tmp_path / "to") == {"0", "1", "2", "3"}
    twice = ("--sink", sink, tmp_path / "a", "--sink", sink, tmp_path / "b")
    assert "twice" in run("fork", q1, tmp_path / "fork2", *twice, status=2)
    repartition_by_hand(q1)
    repair = ("sink", "verify", sink, "--repair", "--checkpoint", q1)
    assert "To be written" in run(*repair, "--dry-run")
    assert str(BATCH) not in entries(sink)
    assert f"Written: file://{sink}/_spark_metadata/{BATCH}" in run(*repair)
    assert str(BATCH) in entries(sink)
    assert "PSS_INVALID_OPTION" in run("sink", "verify", sink, "--repair", status=1)
    assert "--sink" in run("undo-repartition", q1, "--force", status=1)
    run("undo-repartition", q1, "--force", "--sink", sink)
    assert str(BATCH) not in entries(sink)


def test_a_note_of_an_earlier_repartitioning_is_about_nothing(q1: Path, sink: Path) -> None:
    """The query has gone on, and the sink was given up since."""
    mend(sink, q1)
    with refused("PSS_CANNOT_UNDO_REPARTITION", "--sink"):
        Checkpoint(q1, closed_after=NOW).undo_repartition()
    shutil.rmtree(sink)
    with refused("PSS_NOT_A_SINK"):
        at(q1).undo_repartition(sinks=[sink])
    notes(q1)[0].unlink()  # as the message says
    at(q1).undo_repartition()


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_note_stays_as_long_as_its_repartitioning_can_be_taken_back(q1: Path, sink: Path, goes_on: bool) -> None:
    """Two of them may follow each other; the second is taken back first, and then the first with its entry."""
    mend(sink, q1)
    offsets, commits = q1 / "offsets", q1 / "commits"
    text = (offsets / str(BATCH)).read_text()
    next_text = "x" if goes_on else text.replace('shuffle.partitions": "1"', 'shuffle.partitions": "3"')
    if goes_on:
        write_offsets(q1, next_text, [BATCH + 1])
    else:
        (offsets / str(BATCH + 1)).write_text(next_text)
    (commits / str(BATCH + 1)).write_text("v1\n{}")
    SinksOfQuery(Directory(Location.of(q1)), ()).note(BATCH + 2, is_new=True)
    assert bool(notes(q1)) is not goes_on


def test_a_hole_is_mended_after_a_conversion_to_another_store(q1: Path, sink: Path) -> None:
    """Which writes the class of the other store into the newest entry, and that is the repartitioning's."""
    entry = q1 / "offsets" / str(BATCH)
    version, settings, *sources = entry.read_text().split("\n")
    said = json.loads(settings)
    said["conf"][PROVIDER_KEY] = MERGED_PROVIDERS["heap"]
    entry.write_text("\n".join([version, json.dumps(said), *sources]))
    assert mend(sink, q1) == (f"file://{sink}/_spark_metadata/{BATCH}",)
    assert Sink(sink).verify().is_clean


def test_the_same_call_again_has_to_name_the_sinks_that_the_first_has_named(q1: Path, sink: Path) -> None:
    """The first died when the repartitioning was committed, and the sink had no entry yet."""
    SinksOfQuery(Directory(Location.of(q1)), (Directory(Location.of(sink)),)).note(BATCH, is_new=True)
    with refused("PSS_CANNOT_REPARTITION", f"{sink}"):
        at(q1).repartition(1)
    assert at(q1).repartition(1, sinks=[sink]).sink_entries_count == 1


@pytest.mark.parametrize("is_compact", [True, False])
def test_a_fork_takes_the_repartitioning_of_its_source_back_with_the_entry_in_its_own_sink(
    q1: Path, sink: Path, tmp_path: Path, is_compact: bool
) -> None:
    """Its list has an entry for that batch, too, which the fork's query would skip."""
    at(q1).repartition(1, sinks=[sink], compact_interval=INTERVAL if is_compact else None)
    to, fork = tmp_path / "sink-of-fork", tmp_path / "fork"
    Checkpoint(q1).fork(fork, "copy", sinks={sink: to})
    assert f"{BATCH}{'.compact' * is_compact}" in entries(to)
    with refused("PSS_CANNOT_UNDO_REPARTITION", f"{to}"):
        at(fork).undo_repartition(force=True)
    assert at(fork).undo_repartition(sinks=[to], force=True).sink_entries_count == 1
    assert max(int(name.partition(".")[0]) for name in entries(to)) == BATCH - 1
    assert not notes(fork)
    assert Sink(to).verify().is_clean
