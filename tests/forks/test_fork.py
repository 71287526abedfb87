"""A fork is a checkpoint of its own: it has the state of its source, and each of them goes on without the other."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import pyspark_statestore
from pyspark_statestore import Checkpoint
from tests.forks.harness import clean_up, go_on, merged_names, pins, restorable, state_of
from tests.inspect.builders import STAMP, add_index, merged_file
from tests.maintenance.builders import KINDS, contents, make, write_logs
from tests.maintenance.faults import Breakage
from tests.state.small_stores import write_store


@pytest.mark.parametrize("mode", ["no_claim", "copy"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_has_the_state_of_its_source(tmp_path: Path, kind: str, mode: str) -> None:
    source, fork = make(tmp_path / "source", kind), tmp_path / "fork"
    before = dict(contents(source))

    made = Checkpoint(source).fork(fork, mode)

    assert made.version == 4
    assert state_of(fork) == state_of(source)
    assert Checkpoint(fork).inspect.versions().equals(Checkpoint(source).inspect.versions())
    assert Checkpoint(fork).maintenance.verify().is_clean
    own = {path for path in contents(source) if not path.endswith(".fork")}
    assert {path: data for path, data in contents(source).items() if path in own} == before
    assert {path.name for path in (fork / "commits").iterdir()} == {"0", "1", "2", "3"}
    assert json.loads((fork / "metadata").read_text()) == {"id": made.query_id}


def test_bytes_of_merged_files_stay_where_they_are(source: Path, tmp_path: Path) -> None:
    made = pyspark_statestore.fork(source, tmp_path / "fork")

    assert (made.referenced_files_count, made.referenced_segments_count) == (4, 16)
    assert made.referenced_bytes_count == sum(len(data or b"") for data in state_of(source).values())
    assert made.copied_files_count == made.copied_bytes_count == 0
    [pin] = pins(source)
    assert (pin.fork, pin.mode, pin.files) == (str(tmp_path / "fork"), "no_claim", frozenset(merged_names(source)))


def test_copies_need_no_source(source: Path, tmp_path: Path) -> None:
    state = state_of(source)
    made = Checkpoint(source).fork(tmp_path / "fork", "copy")
    assert pins(source) == ()
    source.rename(tmp_path / "elsewhere")

    assert state_of(tmp_path / "fork") == state
    assert (made.copied_segments_count, made.referenced_segments_count) == (16, 0)


@pytest.mark.parametrize("version", [2, 3])
def test_an_older_version(source: Path, tmp_path: Path, version: int) -> None:
    made = Checkpoint(source).fork(tmp_path / "fork", version=version)

    assert made.version == version
    expected = state_of(source, version)
    assert state_of(tmp_path / "fork") == expected
    assert restorable(tmp_path / "fork") == set(range(1, version + 1))
    assert {path.name for path in (tmp_path / "fork" / "offsets").iterdir()} == {str(b) for b in range(version)}


def test_tables_tell_what_is_elsewhere(source: Path, tmp_path: Path) -> None:
    fork = tmp_path / "fork"
    made = Checkpoint(source).fork(fork)
    inspect = Checkpoint(fork).inspect

    [row] = inspect.files().to_pylist()
    assert (row["foreign_file_count"], row["live_bytes"], row["live_segment_count"]) == (4, 0, 16)
    assert row["foreign_live_bytes"] == made.referenced_bytes_count
    there = {each["foreign_path"] for each in inspect.segments().to_pylist()}
    assert there == {f"file://{source}/state/_merged/{name}" for name in merged_names(source)}
    [whole] = inspect.summary().to_pylist()
    assert whole["forked_from"] == f"file://{source}"
    assert (whole["foreign_file_count"], whole["foreign_live_bytes"]) == (4, made.referenced_bytes_count)
    assert Checkpoint(source).inspect.summary()["fork_count"].to_pylist() == [1]
    assert Checkpoint(source).inspect.segments()["foreign_path"].null_count == 16


def test_a_fork_costs_as_much_whatever_the_size(tmp_path: Path, breakage: Breakage) -> None:
    def cost(name: str, segments: int, files: int) -> int:
        source = tmp_path / name
        write_logs(source, range(3))
        for number in range(files):
            with merged_file(source, number) as out:
                for version in range(1, 4) if number == files - 1 else ():
                    for partition in range(2):
                        out.put(f"0/{partition}/{version}.delta", b"", stamp=STAMP)
                for at in range(segments):
                    out.put(f"0/0/SSTs/{number}-{at}.sst", bytes(100), stamp=STAMP + 1)
        add_index(source)
        breakage.mended()
        Checkpoint(source).fork(tmp_path / f"fork-{name}")
        # A larger index is read in more parts of an open file.
        return sum(what.startswith(("list", "open", "create", "mkdirs", "delete")) for what in breakage.operations)

    small, many, large = cost("small", 1, 4), cost("many", 1, 40), cost("large", 2000, 4)

    assert small == many == large <= 72, breakage.operations


def test_the_source_goes_on_and_cleans_up_without_disturbing_the_fork(source: Path, tmp_path: Path) -> None:
    fork = tmp_path / "fork"
    Checkpoint(source).fork(fork)
    state = state_of(fork)
    pinned = merged_names(source)

    go_on(source, 6, 50)
    go_on(source, 8, 51)
    gone = clean_up(source)
    Checkpoint(source).maintenance.compact(max_space_amplification=1.0)
    Checkpoint(source).maintenance.expire(1, dry_run=False, force=True)

    assert pinned <= merged_names(source)
    assert gone == set() or gone.isdisjoint(pinned)
    assert state_of(fork) == state
    assert Checkpoint(fork).maintenance.verify().is_clean
    assert restorable(source) == {8}


def test_the_fork_goes_on_and_cleans_up_without_disturbing_the_source(source: Path, tmp_path: Path) -> None:
    fork = tmp_path / "fork"
    Checkpoint(source).fork(fork)
    before = contents(source)
    [reference] = merged_names(fork)

    go_on(fork, 6, 50)
    clean_up(fork)
    Checkpoint(fork).maintenance.compact(max_space_amplification=1.0)

    assert contents(source) == {path: data for path, data in before.items() if not path.endswith(".fork")}
    assert reference not in merged_names(fork)
    assert restorable(fork) == {6}
    assert Checkpoint(fork).maintenance.verify().is_clean


def test_compaction_brings_nothing_home_by_itself(source: Path, tmp_path: Path) -> None:
    fork = tmp_path / "fork"
    Checkpoint(source).fork(fork)

    done = Checkpoint(fork).maintenance.compact(max_space_amplification=1.0)
    Checkpoint(fork).maintenance.consolidate_index()

    assert done.rewritten_files_count == 0
    assert len(set(Checkpoint(fork).inspect.segments()["foreign_path"].to_pylist())) == 4


def test_localize_brings_everything_home_and_releases_the_source(source: Path, tmp_path: Path) -> None:
    fork = tmp_path / "fork"
    Checkpoint(source).fork(fork)
    state = state_of(fork)
    planned = Checkpoint(fork).maintenance.compact(localize=True, dry_run=True)

    done = Checkpoint(fork).maintenance.compact(localize=True)

    assert (
        planned.rewritten_bytes_count == done.rewritten_bytes_count == sum(len(each or b"") for each in state.values())
    )
    assert pins(source) == ()
    go_on(source, 6, 50)
    assert len(clean_up(source)) == 4
    source.rename(tmp_path / "elsewhere")
    assert state_of(fork) == state
    assert Checkpoint(fork).maintenance.verify().is_clean
    assert Checkpoint(fork).inspect.summary()["foreign_file_count"].to_pylist() == [0]


def test_two_forks_and_their_source(source: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    Checkpoint(source).fork(one)
    go_on(source, 6, 50)
    Checkpoint(source).fork(two)
    states = {one: state_of(one), two: state_of(two)}
    go_on(source, 8, 51)
    clean_up(source)

    assert {each: state_of(each) for each in states} == states
    Checkpoint(one).maintenance.compact(localize=True)
    gone = clean_up(source)
    assert gone
    assert {each: state_of(each) for each in states} == states
    go_on(two, 10, 60)
    clean_up(two)
    assert restorable(two) == {10}
    assert restorable(source) == {8}
    assert state_of(one) == states[one]


def test_a_fork_of_a_fork_reads_the_first_source_and_pins_both(source: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    Checkpoint(source).fork(one)
    Checkpoint(one).fork(two)
    state = state_of(two)

    assert {pin.fork for pin in pins(source)} == {str(one), str(two)}
    assert pins(one) == ()
    Checkpoint(one).maintenance.compact(localize=True)
    go_on(source, 6, 50)
    clean_up(source)

    assert {pin.fork for pin in pins(source)} == {str(two)}
    assert state_of(two) == state
    assert Checkpoint(two).maintenance.verify().is_clean


@pytest.mark.parametrize("merged", [True, False])
def test_state_and_changes_are_told_without_a_jvm(tmp_path: Path, merged: bool) -> None:
    source = write_store(tmp_path / "source", merged=merged)
    for batch in range(3):
        log = source / "offsets" / str(batch)
        log.parent.mkdir(exist_ok=True)
        if not log.exists():
            log.write_text('v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}\n{}')
    fork, older = tmp_path / "fork", tmp_path / "older"
    Checkpoint(source).fork(fork)
    Checkpoint(source).fork(older, version=2)

    assert Checkpoint(fork).state().num_rows
    assert Checkpoint(fork).state().equals(Checkpoint(source).state())
    assert Checkpoint(fork).state_changes(1, 3).equals(Checkpoint(source).state_changes(1, 3))
    assert Checkpoint(older).state().equals(Checkpoint(source).state(version=2))


def test_every_verb_respects_a_fork_that_is_being_made(source: Path, tmp_path: Path) -> None:
    go_on(source, 6, 50)
    add_index(source, 60)
    torn = source / "state" / "_merged" / f"{1_600_000_000_000}-{0:016x}-1.merged"
    torn.write_bytes(b"")
    pin = source / "state" / "_merged" / f"{1_700_000_000_100}-{9:016x}-1.fork"
    pin.write_bytes(b"")
    for path in (source / "state" / "_merged").iterdir():
        os.utime(path, (1_600_000_000, 1_600_000_000) if path != pin else None)
    before = merged_names(source)
    maintenance = Checkpoint(source).maintenance

    planned = maintenance.compact(max_space_amplification=1.0, dry_run=True)
    maintenance.compact(max_space_amplification=1.0)
    maintenance.consolidate_index()
    maintenance.remove_orphan_files(dry_run=False)
    maintenance.expire(1, dry_run=False, force=True)

    assert before <= merged_names(source)
    assert planned.removed_files_count == 0
    assert pin.exists()
    # It is given up when it has not changed for long, as far as the file system's clock tells.
    os.utime(pin, (1_600_000_000, 1_600_000_000))
    maintenance.compact()
    assert not pin.exists()
    assert not before & merged_names(source) - {torn.name}
    maintenance.remove_orphan_files(dry_run=False)
    assert torn.name not in merged_names(source)


def test_localize_releases_the_source_also_where_nothing_is_referred_to_any_more(source: Path, tmp_path: Path) -> None:
    """The reference file went by itself, while nobody who cleaned the fork could write to the source."""
    fork = tmp_path / "fork"
    version = Checkpoint(source).fork(fork).version
    [pin] = (source / "state" / "_merged").glob("*.fork")
    said = pin.read_bytes()
    go_on(fork, version + 2, 50)
    for _ in range(3):
        clean_up(fork)
    assert Checkpoint(fork).inspect.summary().to_pylist()[0]["foreign_file_count"] == 0
    pin.write_bytes(said)
    Checkpoint(fork).maintenance.compact(localize=True)
    assert pins(source) == ()
