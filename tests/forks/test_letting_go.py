"""When a fork's pins go: not while it may need the files, whatever path leads to it, and little by little otherwise."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pytest

from pyspark_statestore import Checkpoint
from pyspark_statestore.log.merged_log import LogSnapshot
from pyspark_statestore.log.pins import Pin, read_pins
from pyspark_statestore.log.references import give_second_paths
from pyspark_statestore.maintenance.cleaning import clean
from pyspark_statestore.maintenance.orphans import remove_orphan_files
from pyspark_statestore.storage import Directory, FileInfo, Location
from tests.forks.harness import clean_up, go_on, merged_names, pins, restorable, state_of
from tests.inspect.builders import refused
from tests.maintenance.builders import contents, make
from tests.maintenance.faults import Breakage
from tests.maintenance.harness import grow_old, merged_log_of
from tests.maintenance.test_second_paths import all_of_it, delete_where, give, seconds_of

HOUR = datetime.timedelta(hours=1)


def remove_orphans(source: Path) -> list[str]:
    """Endings of what goes."""
    done = Checkpoint(source).maintenance.remove_orphan_files(HOUR, dry_run=False)
    return [Path(path).suffix for path in done.files["file_path"].to_pylist()]


def notes(source: Path) -> list[Path]:
    """What says that forks are away."""
    return list((source / "state" / "_merged").glob("*.away"))


def the_source_goes_on(source: Path) -> None:
    """Nothing that the fork needs lives there any more, and it is cleaned."""
    for number, version in enumerate((6, 8)):
        go_on(source, version, 50 + number)
        clean_up(source)


@pytest.fixture
def fork(source: Path, tmp_path: Path) -> Path:
    """One whose pin is two days old."""
    Checkpoint(source).fork(tmp_path / "fork")
    grow_old(source)
    return tmp_path / "fork"


def is_empty_for_now(fork: Path, away: Path) -> None:
    """A mount point."""
    fork.rename(away)
    fork.mkdir()


def is_not_there(fork: Path, away: Path) -> None:
    fork.rename(away)


def is_another_query(fork: Path, away: Path) -> None:
    """Somebody put another checkpoint in its place."""
    fork.rename(away)
    make(fork)


def is_another_fork(fork: Path, away: Path) -> None:
    """Of the same checkpoint; it needs nothing there any more."""
    fork.rename(away)
    source = fork.parent / "source"
    Checkpoint(source).fork(fork)
    go_on(fork, 6, 50)
    clean_up(fork)


@pytest.mark.parametrize("how", [is_not_there, is_empty_for_now, is_another_query, is_another_fork])
def test_a_fork_that_is_away_for_a_moment(source: Path, fork: Path, how: Callable[[Path, Path], None]) -> None:
    """However old its pin is."""
    state, away = state_of(fork), fork.parent / "away"
    [pin] = pins(source)
    how(fork, away)

    assert remove_orphans(source) == []
    assert pin in pins(source)
    assert [note.name for note in notes(source)] == [f"{pin.name}.away"]
    shutil.rmtree(fork, ignore_errors=True)
    away.rename(fork)
    the_source_goes_on(source)
    assert state_of(fork) == state
    assert remove_orphans(source) == []
    assert notes(source) == []
    assert Checkpoint(fork).maintenance.verify().is_clean


def test_a_fork_that_stays_away(source: Path, fork: Path) -> None:
    shutil.rmtree(fork)
    remove_orphans(source)
    assert remove_orphans(source) == [], "an hour has not passed"
    grow_old(source)

    assert Checkpoint(source).maintenance.remove_orphan_files(HOUR).removed_files_count == 1, "so says a dry run"
    assert remove_orphans(source) == [".fork"]
    assert pins(source) == ()
    assert notes(source) == []


def test_a_fork_that_comes_and_goes_is_not_gone(source: Path, fork: Path) -> None:
    """What counts is the absence that has not ended yet."""
    away = fork.parent / "away"
    for comes_back in (lambda: remove_orphans(source), lambda: clean_up(fork)):
        fork.rename(away)
        remove_orphans(source)
        grow_old(source)
        away.rename(fork)
        comes_back()
        fork.rename(away)
        assert remove_orphans(source) == []
        assert len(pins(source)) == 1
        away.rename(fork)
        remove_orphans(source)


@pytest.mark.parametrize("steps", [{"later": datetime.timedelta(days=9)}, {"later": -datetime.timedelta(days=9)}])
def test_two_clocks_have_to_agree(source: Path, fork: Path, steps: dict[str, datetime.timedelta]) -> None:
    shutil.rmtree(fork)
    for _ in range(2):
        remove_orphan_files(merged_log_of(source, **steps), HOUR, dry_run=False)
    if steps["later"] < datetime.timedelta(0):
        grow_old(source)
        remove_orphan_files(merged_log_of(source, **steps), HOUR, dry_run=False)
    assert len(pins(source)) == 1


def test_a_dry_run_leaves_no_note(source: Path, fork: Path) -> None:
    shutil.rmtree(fork)
    before = contents(source)
    assert Checkpoint(source).maintenance.remove_orphan_files(HOUR).removed_files_count == 0
    assert contents(source) == before


def test_a_note_whose_pin_is_gone_goes(source: Path, fork: Path) -> None:
    shutil.move(fork, fork.parent / "away")
    remove_orphans(source)
    assert len(notes(source)) == 1
    Checkpoint(source).maintenance.release_fork(fork)
    assert notes(source) == []
    (source / "state" / "_merged" / f"{1:013}-{2:016x}-1.fork.away").write_bytes(b"")
    remove_orphans(source)
    assert notes(source) == []


def test_a_claiming_fork_that_is_away(source: Path, tmp_path: Path) -> None:
    fork, away = tmp_path / "fork", tmp_path / "away"
    Checkpoint(source).fork(fork, "claim", force=True)
    grow_old(source)
    fork.rename(away)
    for _ in range(2):
        with refused("PSS_CLAIMED", str(fork)):
            remove_orphans(source)
    grow_old(source)
    assert remove_orphans(source) == [".fork"]


def test_a_fork_that_was_exported_may_come_back(source: Path, fork: Path) -> None:
    state = state_of(fork)
    Checkpoint(fork).export(force=True)
    assert remove_orphans(source) == []
    the_source_goes_on(source)
    Checkpoint(fork).convert("merged", force=True)
    assert state_of(fork) == state


def test_pins_of_early_builds(source: Path, fork: Path) -> None:
    """They say nothing of an id, and forks of these builds have none."""
    [origin] = (fork / "state" / "_merged").glob("*.origin")
    [pin] = (source / "state" / "_merged").glob("*.fork")
    for path in (origin, pin):
        said = json.loads(path.read_text())
        path.write_text(json.dumps({key: value for key, value in said.items() if key not in ("fork_id", "relative")}))
    grow_old(source)
    assert remove_orphans(source) == []
    fork.rename(fork.parent / "away")
    assert remove_orphans(source) == []
    assert len(pins(source)) == len(notes(source)) == 1
    (fork.parent / "away").rename(fork)
    go_on(fork, 6, 50)
    clean_up(fork)
    assert pins(source) == ()


# ---- other paths to the same files


def linked(path: Path) -> Path:
    link = path.parent / f"link-to-{path.name}"
    if not link.exists():
        link.symlink_to(path)
    return link


def test_by_way_of_a_link_the_fork_is_needed_all_the_same(source: Path, fork: Path) -> None:
    """Its reference file names the checkpoint by another path."""
    state = state_of(fork)
    assert remove_orphans(linked(source)) == []
    for there, those in ((linked(source), fork), (source, linked(fork)), (linked(source), linked(fork))):
        with refused("PSS_FORK_NEEDS", "16 segments"):
            Checkpoint(there).maintenance.release_fork(those)
    the_source_goes_on(linked(source))
    assert state_of(fork) == state


def test_a_fork_that_was_made_by_way_of_a_link(source: Path, tmp_path: Path) -> None:
    fork = tmp_path / "fork"
    Checkpoint(linked(source)).fork(fork)
    grow_old(source)
    state = state_of(fork)

    assert remove_orphans(source) == []
    the_source_goes_on(source)
    assert state_of(fork) == state


def test_both_are_mounted_elsewhere(source: Path, fork: Path, tmp_path: Path) -> None:
    """The pin finds the fork where it is, seen from there; so it is not away."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for each in (source, fork):
        each.rename(elsewhere / each.name)
    assert remove_orphans(elsewhere / "source") == []
    assert notes(elsewhere / "source") == []
    assert len(pins(elsewhere / "source")) == 1


def test_localized_by_way_of_a_link(source: Path, fork: Path) -> None:
    state = state_of(fork)
    Checkpoint(linked(fork)).maintenance.compact(localize=True)
    assert pins(source) == ()
    assert state_of(fork) == state


def test_no_fork_within_the_checkpoint_by_way_of_a_link(source: Path) -> None:
    with refused("PSS_BAD_PATH", "it is, contains or lies in the checkpoint that is forked"):
        Checkpoint(source).fork(linked(source) / "state" / "fork")


def test_a_fork_of_a_fork_reads_by_another_path(source: Path, tmp_path: Path) -> None:
    """A fork of a fork reads the first checkpoint by the path that was used then."""
    one, two = tmp_path / "one", tmp_path / "two"
    Checkpoint(linked(source)).fork(one)
    Checkpoint(one).fork(two)
    grow_old(source)
    state = state_of(two)
    Checkpoint(one).maintenance.compact(localize=True)
    remove_orphans(source)
    the_source_goes_on(source)
    assert state_of(two) == state


def test_a_fork_that_cannot_be_understood_is_not_released(source: Path, fork: Path) -> None:
    """Zeros in the place of its reference file say nothing of what it needs."""
    [reference] = merged_names(fork)
    path = fork / "state" / "_merged" / reference
    path.write_bytes(bytes(path.stat().st_size))
    with refused("PSS_READ_FAILED", "no readable group", "force=True"):
        Checkpoint(source).maintenance.release_fork(fork)
    assert remove_orphans(source) == []
    assert len(pins(source)) == 1
    assert Checkpoint(source).maintenance.release_fork(fork, force=True).released_pins_count == 1


# ---- little by little


def test_a_fork_lets_go_of_what_it_does_not_read_any_more(source: Path, fork: Path) -> None:
    """Whoever cleans it; a smaller pin comes first, and a listing that misses the old one has it."""
    files = merged_names(source)
    go_on(fork, 6, 50, spares=lambda path: path == "0/0/2.zip" or path.startswith("0/0/SSTs/"))
    needed = state_of(fork)
    [before] = pins(source)
    clean_up(fork)

    [pin] = pins(source)
    assert pin.files is not None
    assert pin.files < files
    assert pin.name > before.name
    assert replace(pin, name="", files=None, created_ms=0) == replace(before, name="", files=None, created_ms=0)
    the_source_goes_on(source)
    assert pin.files <= merged_names(source)
    assert not files - pin.files & merged_names(source)
    assert state_of(fork) == needed
    go_on(fork, 8, 51)
    Checkpoint(fork).maintenance.compact()
    assert pins(source) == ()
    assert restorable(fork) == {8}


@pytest.mark.parametrize("mode", ["no_claim", "copy"])
def test_a_fork_that_has_let_go_of_files_is_forked(source: Path, fork: Path, tmp_path: Path, mode: str) -> None:
    """What it does not read any more may be gone."""
    go_on(fork, 6, 61, spares=lambda path: path == "0/0/2.zip" or path.startswith("0/0/SSTs/"))
    grow_old(fork)
    clean_up(fork)
    before = merged_names(source)
    the_source_goes_on(source)
    assert before - merged_names(source)
    expected = state_of(fork)
    assert all(expected.values())

    Checkpoint(fork).fork(tmp_path / "further", mode)

    assert state_of(tmp_path / "further") == expected


def test_no_listing_misses_both(source: Path, fork: Path, breakage: Breakage) -> None:
    """At every operation, some pin keeps what is needed."""
    go_on(fork, 6, 50, spares=lambda path: path == "0/0/2.zip" or path.startswith("0/0/SSTs/"))
    grow_old(fork)
    needed: set[str] = set()
    for each in Checkpoint(fork).inspect.segments().to_pylist():
        needed |= {Path(each["foreign_path"]).name} if each["foreign_path"] and each["status"] == "live" else set()
    seen = []
    for at in range(200):
        breakage.mended()

        def look() -> None:
            kept = set().union(*(pin.files or merged_names(source) for pin in pins(source)))
            assert needed <= kept
            seen.append(len(pins(source)))

        breakage.at, breakage.instead = at, look
        here, there = (Path(shutil.copytree(each, each.parent / f"{each.name}-{at}")) for each in (source, fork))
        clean_up(fork)
        if len(breakage.operations) <= at:
            break
        for each, copy in ((source, here), (fork, there)):
            shutil.rmtree(each)
            copy.rename(each)
    assert {1, 2} <= set(seen)


@pytest.mark.parametrize("kind", [".own", ".fork"])
def test_nothing_is_let_go_while_somebody_looks(source: Path, fork: Path, kind: str) -> None:
    """Somebody who makes a split or a fork of the fork may have seen that a file is needed, before it was deleted."""
    (fork / "state" / "_merged" / merged_log_of(fork).next_name(kind)).write_bytes(b"")
    before = pins(source)
    go_on(fork, 6, 50)
    clean_up(fork)
    assert pins(source) == before
    grow_old(fork)
    clean_up(fork)
    assert pins(source) == ()


def test_bytes_that_nobody_understands_let_nothing_go(source: Path, fork: Path) -> None:
    go_on(fork, 6, 50)
    path = fork / "state" / "_merged" / f"{1_600_000_000_000}-{0:016x}-1.merged"
    path.write_bytes(bytes(100))
    before = pins(source)
    clean_up(fork)
    assert pins(source) == before


def test_a_source_that_cannot_be_written_to(
    source: Path, fork: Path, breakage: Breakage, caplog: pytest.LogCaptureFixture
) -> None:
    """The fork is cleaned all the same, and the pins keep too much."""
    go_on(fork, 6, 50)
    before = pins(source)
    [reference] = merged_names(fork) - {name for name in merged_names(fork) if name.endswith("-50.merged")}
    log = merged_log_of(fork)
    known = log.snapshot().closed_tombstones
    breakage.refuses = lambda what: what == f"delete {before[0].name}"
    done = clean(log, known)
    breakage.mended()
    assert reference in done.files
    assert pins(source) == before
    assert "stay as they are" in caplog.text
    assert remove_orphans(source) == [".fork"]


def test_a_pin_of_somebody_else_stays(source: Path, fork: Path, tmp_path: Path) -> None:
    """Of a second fork, of one that was in the same place before, and of one that was copied from the fork."""
    other, copy = tmp_path / "other", tmp_path / "copy"
    Checkpoint(source).fork(other)
    shutil.copytree(fork, copy)
    for each in (other, copy):
        go_on(each, 6, 50)
        clean_up(each)
    [pin] = pins(source)
    assert pin.fork == str(fork)
    fork.rename(tmp_path / "away")
    Checkpoint(source).fork(fork)
    go_on(fork, 6, 50)
    clean_up(fork)
    assert pins(source) == (pin,)


def test_second_paths_in_a_fork_keep_the_pin(source: Path, fork: Path) -> None:
    before = state_of(fork)
    assert give(fork)
    delete_where(fork, lambda path: path in before)
    grow_old(fork)
    clean_up(fork)
    assert state_of(fork) == seconds_of(before)
    the_source_goes_on(source)
    assert state_of(fork) == seconds_of(before)


def test_second_paths_in_a_fork_that_come_too_late(source: Path, fork: Path) -> None:
    """Nobody heeds the pin of a split that is that old, so what it has looked at may have been let go."""
    log = merged_log_of(fork)
    late = [datetime.timedelta(0)]
    on_time = log.clock
    log.clock = lambda: on_time() + late[0]
    before = state_of(fork)

    def choose(snapshot: LogSnapshot) -> tuple[np.ndarray, pa.StringArray]:
        late[0] = log.closed_after
        return all_of_it(snapshot)

    assert not give_second_paths(log, choose)
    assert state_of(fork) == before


def test_pins_say_what_they_said(source: Path, fork: Path) -> None:
    [pin] = pins(source)
    assert Pin.decode(pin.name, pin.encode()) == pin
    assert pin.fork_id
    assert pin.relative == "../fork"


def test_a_pin_that_is_replaced_while_others_list(source: Path, fork: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local disk lists in no order: it may pass the new pin's place too early, and the old one's too late."""
    directory, files = Directory(Location.of(source)), Directory.files
    listings: list[str] = []

    def without_pins(self: Directory, relative: str) -> list[FileInfo]:
        listings.append(relative)
        return [info for info in files(self, relative) if len(listings) > 1 or not info.name.endswith(".fork")]

    monkeypatch.setattr(Directory, "files", without_pins)
    assert [pin.fork for pin in read_pins(directory)] == [str(fork)]


def test_a_pin_that_goes_while_another_process_lists_stops_nothing(source: Path, fork: Path, with_pin: WithPin) -> None:
    """A fork that lets go of files replaces its pin, beside whatever maintains the source."""
    maintenance = Checkpoint(source).maintenance
    for act in (
        maintenance.compact,
        maintenance.consolidate_index,
        lambda: maintenance.expire(1, dry_run=False, force=True),
        lambda: maintenance.remove_orphan_files(dry_run=False),
        maintenance.verify,
        Checkpoint(source).inspect.summary,
    ):
        with_pin()
        act()
    assert [pin.fork for pin in pins(source)] == [str(fork)]


def test_a_claim_that_takes_the_place_of_what_went_is_seen(source: Path, tmp_path: Path, with_pin: WithPin) -> None:
    Checkpoint(source).fork(tmp_path / "claiming", "claim", force=True)
    with_pin(instead_of_others=True)
    with refused("PSS_CLAIMED", str(source), str(tmp_path / "claiming")):
        Checkpoint(source).maintenance.compact()


GONE = "1795675829624-34a7dcc98df76a9c-2.fork"


class WithPin(Protocol):
    def __call__(self, *, instead_of_others: bool = False) -> None: ...


@pytest.fixture
def with_pin(monkeypatch: pytest.MonkeyPatch) -> WithPin:
    """Has the next listing of merged files name a pin that is not there any more."""
    files, is_next, others = Directory.files, [False], [False]

    def listed(self: Directory, relative: str) -> list[FileInfo]:
        found = files(self, relative)
        if not is_next[0] or not relative.endswith("_merged"):
            return found
        is_next[0] = False
        others_too = [info for info in found if not (others[0] and info.name.endswith(".fork"))]
        return [*others_too, replace(found[0], name=GONE, size=200)]

    def give(*, instead_of_others: bool = False) -> None:
        is_next[0], others[0] = True, instead_of_others

    monkeypatch.setattr(Directory, "files", listed)
    return give
