"""Segments of a checkpoint's own files that have second paths: who keeps these files, and for how long."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pyspark_statestore import Checkpoint
from pyspark_statestore.log.deletion import delete_segments
from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog
from pyspark_statestore.log.pins import Pin
from pyspark_statestore.log.references import give_second_paths
from pyspark_statestore.maintenance.cleaning import clean
from tests.forks.harness import clean_up, merged_names, pins, restorable, state_of
from tests.forks.harness import go_on as go_on_with
from tests.inspect.builders import STAMP, merged_file, refused
from tests.maintenance.builders import PARTITIONS, contents, make
from tests.maintenance.faults import Breakage, DiedError
from tests.maintenance.harness import CLOSED_AFTER, grow_old, merged_log_of
from tests.sampling import sample_of_calls

NONE, HOUR = datetime.timedelta(0), datetime.timedelta(hours=1)


def second(path: str) -> str:
    """The second path of a file of an old partition."""
    operator, partition, rest = path.split("/", 2)
    return f"{operator}/{int(partition) + PARTITIONS}/{rest}"


def all_of_it(snapshot: LogSnapshot) -> tuple[np.ndarray, pa.StringArray]:
    """Everything of old partitions that has no second path yet."""
    rows = np.flatnonzero(snapshot.scan.resolution.live)
    paths = snapshot.scan.entries.path.take(pa.array(rows)).to_pylist()
    chosen = [n for n, p in enumerate(paths) if int(p.split("/")[1]) < PARTITIONS and second(p) not in paths]
    return rows[chosen], pa.array([second(paths[n]) for n in chosen], pa.string())


def give(checkpoint: Path, log: MergedLog | None = None) -> bool:
    return give_second_paths(log or merged_log_of(checkpoint), all_of_it)


def given(checkpoint: Path) -> dict[str, bytes | None]:
    """What is at second paths."""
    return {path: data for path, data in state_of(checkpoint).items() if int(path.split("/")[1]) >= PARTITIONS}


def seconds_of(state: dict[str, bytes | None]) -> dict[str, bytes | None]:
    return {second(path): data for path, data in state.items()}


def go_on(checkpoint: Path, version: int, number: int) -> None:
    """The old partitions go on, and delete what they had."""
    go_on_with(checkpoint, version, number, spares=is_second)


def delete_where(checkpoint: Path, is_wanted: Callable[[str], bool]) -> None:
    log = merged_log_of(checkpoint)
    now = log.snapshot()
    rows = np.flatnonzero(now.scan.resolution.live)
    paths = now.scan.entries.path.take(pa.array(rows)).to_pylist()
    delete_segments(log, now, rows[[n for n, path in enumerate(paths) if is_wanted(path)]])


def is_second(path: str) -> bool:
    return int(path.split("/")[1]) >= PARTITIONS


@pytest.fixture
def original(tmp_path: Path) -> Path:
    return make(tmp_path / "original")


def test_they_read_as_the_first(original: Path) -> None:
    before = state_of(original)
    files = merged_names(original)

    assert give(original)

    assert state_of(original) == {**before, **seconds_of(before)}
    assert [(pin.mode, pin.fork, pin.files) for pin in pins(original)] == [("own", "", frozenset(files))]
    assert give(original), "there is nothing left to do"
    assert len(pins(original)) == 1
    assert len(merged_names(original) - files) == 1
    tables = Checkpoint(original).inspect
    by_path = dict(
        zip(*(tables.segments()[name].to_pylist() for name in ("logical_path", "foreign_path")), strict=True)
    )
    assert by_path["0/0/4.zip"] is None
    assert by_path[second("0/0/4.zip")].startswith(f"file://{original}/state/_merged/")
    assert tables.summary()["fork_count"].to_pylist() == [0]
    assert Checkpoint(original).maintenance.verify().is_clean


def test_the_files_stay_until_nothing_is_left_at_the_second_paths(original: Path) -> None:
    expected = seconds_of(state_of(original))
    files = merged_names(original)
    give(original)
    named = pins(original)
    go_on(original, 6, 50)
    grow_old(original)

    assert not clean_up(original) & files
    assert given(original) == expected
    assert Checkpoint(original).maintenance.verify().is_clean
    assert pins(original) == named

    delete_where(original, lambda path: is_second(path) and "/SSTs/" not in path)
    grow_old(original)
    clean_up(original)
    assert len(pins(original)) == 1, "replaced by one that names less"
    (pin,) = pins(original)
    assert pin.files is not None
    assert pin.files < files
    assert given(original) == {path: data for path, data in expected.items() if "/SSTs/" in path}
    assert merged_names(original) & files == pin.files

    delete_where(original, is_second)
    assert not clean_up(original) & files, "the new pin is too young"
    grow_old(original)
    clean_up(original)
    assert pins(original) == ()
    assert not merged_names(original) & files
    assert restorable(original) == {6}


def test_a_dry_run_says_what_is_going_to_happen(original: Path) -> None:
    files = merged_names(original)
    give(original)
    go_on(original, 6, 50)
    delete_where(original, is_second)
    grow_old(original)
    log = merged_log_of(original)
    said = clean(log, log.snapshot().closed_tombstones, dry_run=True)
    assert len(pins(original)) == 1
    assert files <= set(said.files)
    assert clean_up(original) >= set(said.files)


@pytest.mark.parametrize("how", [shutil.move, shutil.copytree])
def test_another_place(original: Path, tmp_path: Path, how: Callable[[Path, Path], object]) -> None:
    """A checkpoint that was moved or copied needs nothing where it was."""
    give(original)
    expected = given(original)
    there = tmp_path / "there"
    how(original, there)
    shutil.rmtree(original, ignore_errors=True)
    go_on(there, 6, 50)
    grow_old(there)
    now = Checkpoint(there)
    now.maintenance.remove_orphan_files(NONE, dry_run=False, force=True)
    now.maintenance.compact()

    assert given(there) == expected
    assert now.maintenance.verify().is_clean


def leave(checkpoint: Path, data: bytes) -> str:
    """Leaves a pin of the checkpoint itself; returns its name."""
    name = merged_log_of(checkpoint).next_name(".own")
    (checkpoint / "state" / "_merged" / name).write_bytes(data)
    return name


def test_what_is_left_of_a_split_that_never_was(original: Path) -> None:
    files = merged_names(original)
    for pin in (Pin(""), Pin("", mode="own", files=frozenset(files))):
        leave(original, pin.encode())
    now = Checkpoint(original)
    assert now.maintenance.remove_orphan_files(HOUR, dry_run=False).removed_files_count == 0
    go_on(original, 6, 50)
    assert not clean_up(original) & files

    grow_old(original)
    assert now.maintenance.remove_orphan_files(HOUR, dry_run=False).removed_files_count >= 2

    assert pins(original) == ()
    assert clean_up(original) >= files


@pytest.mark.parametrize(("fork", "mode"), [("/f", "claim"), ("/f", "own"), ("", "no_claim")])
def test_in_doubt_a_pin_stays(original: Path, fork: str, mode: str) -> None:
    name = leave(original, json.dumps({"fork": fork, "mode": mode, "files": [], "created_ms": 1}).encode())
    go_on(original, 6, 50)
    grow_old(original)
    Checkpoint(original).maintenance.remove_orphan_files(HOUR, dry_run=False)
    assert not clean_up(original)
    assert [pin.name for pin in pins(original) if pin.damage] == [name]


def test_bytes_that_nobody_understands_keep_a_pin(original: Path) -> None:
    """They may be a group that says that a file is needed."""
    give(original)
    go_on(original, 6, 50)
    with merged_file(original, 60, seal=False) as out:
        out.put("0/0/6.changelog.crc", b"", stamp=STAMP + 6000)
    path = next((original / "state" / "_merged").glob("*-60.merged"))
    path.write_bytes(path.read_bytes() + b"torn")
    delete_where(original, is_second)
    grow_old(original)
    clean_up(original)
    assert len(pins(original)) == 1


def test_it_takes_too_long(original: Path, tmp_path: Path, breakage: Breakage) -> None:
    """At some operation it falls asleep. When it wakes, nobody heeds its pins any more, and others have cleaned."""
    before = state_of(original)
    whole = Path(shutil.copytree(original, tmp_path / "whole"))
    breakage.mended()
    give(whole)
    outcomes = []
    for at in sample_of_calls(breakage.operations, changing=1, reading=5):
        here = Path(shutil.copytree(original, tmp_path / f"{at}"))
        log = merged_log_of(here)
        on_time, late = log.clock, [NONE]
        log.clock = lambda on_time=on_time, late=late: on_time() + late[0]  # type: ignore[misc]

        def sleeps(here: Path = here, late: list[datetime.timedelta] = late) -> None:
            late[0] = CLOSED_AFTER
            go_on(here, 6, 50)
            grow_old(here)
            clean_up(here)

        breakage.mended()
        breakage.at, breakage.instead = at, sleeps
        try:
            outcomes.append(give(here, log))
        except FileNotFoundError:
            outcomes.append(False)
        breakage.mended()
        whatever = {second(path): None for path in state_of(here) if not is_second(path)}
        assert given(here) in ({}, seconds_of(before)) or given(here).keys() == whatever.keys(), at
        assert None not in given(here).values(), at
        assert bool(given(here)) is outcomes[-1]
        assert not [pin for pin in pins(here) if pin.is_begun]
    assert outcomes.count(False) > 3
    assert not give(original, merged_log_of(original, closed_after=NONE)), "where nobody waits, nothing can be kept"


def test_a_fork_of_it_pins_the_same_files(original: Path, tmp_path: Path) -> None:
    give(original)
    write_more_logs = state_of(original)
    fork = tmp_path / "fork"
    Checkpoint(original).fork(fork)
    needed = state_of(fork)
    assert needed.items() <= write_more_logs.items()
    go_on(original, 6, 50)
    delete_where(original, is_second)
    grow_old(original)
    clean_up(original)
    assert [pin.mode for pin in pins(original)] == ["no_claim"]
    assert state_of(fork) == needed
    Checkpoint(fork).maintenance.compact(localize=True)
    shutil.rmtree(original)
    assert state_of(fork) == needed


@pytest.mark.parametrize("mode", ["no_claim", "copy"])
def test_a_fork_when_nothing_is_left_at_them(original: Path, tmp_path: Path, mode: str) -> None:
    """The files that the second paths led to are gone by then; what named them is not."""
    before = merged_names(original)
    give(original)
    go_on(original, 6, 61)
    delete_where(original, is_second)
    for _ in range(2):
        grow_old(original)
        clean_up(original)
    assert not merged_names(original) & before
    assert not given(original)

    Checkpoint(original).fork(tmp_path / "fork", mode)

    assert state_of(tmp_path / "fork") == state_of(original)


def test_claimed_by_a_fork(original: Path, tmp_path: Path) -> None:
    """The fork owns the files, so the checkpoint's own pin keeps none of them."""
    give(original)
    grow_old(original)
    fork = tmp_path / "fork"
    Checkpoint(original).fork(fork, "claim", force=True)
    needed = state_of(fork)
    done = Checkpoint(fork).maintenance.compact(localize=True)
    assert done.removed_claimed_files_count
    assert state_of(fork) == needed
    assert not merged_names(original)


def test_brought_home(original: Path) -> None:
    """Copies of their own; then nothing keeps the old files."""
    give(original)
    expected = state_of(original)
    grow_old(original)

    Checkpoint(original).maintenance.compact(localize=True)

    assert state_of(original) == expected
    assert pins(original) == ()
    assert Checkpoint(original).inspect.segments()["foreign_path"].null_count == len(expected)
    assert Checkpoint(original).maintenance.verify().is_clean


def test_a_compaction_leaves_files_that_stay_anyway(original: Path) -> None:
    give(original)
    expected = state_of(original)
    grow_old(original)
    done = Checkpoint(original).maintenance.compact()
    assert done.rewritten_files_count == 0
    assert state_of(original) == expected


@pytest.mark.parametrize("first_lives", [False, True])
def test_a_compaction_takes_everything_out_of_a_file_that_is_mostly_dead(original: Path, first_lives: bool) -> None:
    """Also what lives at second paths; so the file can go."""
    files = merged_names(original)
    give(original)
    with merged_file(original, 40) as out:
        out.put("0/0/large", bytes(30_000), stamp=STAMP + 4000)
        out.put("0/0/lives", b"lives" * 100, stamp=STAMP + 4001)
        out.put("0/1/lives", b"lives" * 90, stamp=STAMP + 4002)
    large = next(name for name in merged_names(original) if name.endswith("-40.merged"))
    give(original)
    delete_where(original, lambda path: "large" in path or (not first_lives and path == "0/0/lives"))
    grow_old(original)
    expected = state_of(original)
    said = Checkpoint(original).maintenance.compact(dry_run=True)

    done = Checkpoint(original).maintenance.compact()

    assert state_of(original) == expected
    assert Checkpoint(original).maintenance.verify().is_clean
    assert large not in merged_names(original)
    assert files <= merged_names(original), "the others are left alone"
    assert {pin.files for pin in pins(original)} == {frozenset(files)}
    assert said.rewritten_files_count == done.rewritten_files_count
    assert said.rewritten_bytes_count == done.rewritten_bytes_count
    assert said.removed_files_count <= done.removed_files_count


def test_an_export_needs_no_pin(original: Path) -> None:
    give(original)
    expected = state_of(original)
    grow_old(original)
    now = Checkpoint(original)
    now.export(force=True)
    assert {str(path.relative_to(original / "state")) for path in (original / "state").rglob("*.zip")} == {
        path for path in expected if path.endswith(".zip")
    }
    now.drop_merged(dry_run=False)
    assert not list((original / "state" / "_merged").glob("*"))


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("deadly", [False, True])
def test_whatever_fails_all_are_there_or_none(original: Path, tmp_path: Path, breakage: Breakage, deadly: bool) -> None:
    before = state_of(original)
    whole = Path(shutil.copytree(original, tmp_path / "whole"))
    breakage.mended()
    give(whole)
    files = merged_names(original)
    outcomes = set()
    for at in sample_of_calls(breakage.operations, changing=1, reading=3):
        here = Path(shutil.copytree(original, tmp_path / f"{at}"))
        breakage.mended()
        breakage.at, breakage.deadly, breakage.torn = at, deadly, at % 2 == 1
        with suppress(DiedError if deadly else Exception):
            give(here)
        breakage.mended()
        assert given(here) in ({}, seconds_of(before)), at
        outcomes.add(bool(given(here)))
        is_whole = bool(given(here))
        go_on(here, 6, 50)
        grow_old(here)
        Checkpoint(here).maintenance.remove_orphan_files(HOUR, dry_run=False)
        clean_up(here)
        assert given(here) == (seconds_of(before) if is_whole else {}), at
        if not is_whole:
            assert pins(here) == ()
            assert not merged_names(here) & files
        assert give(here), "once more"
        assert set(seconds_of({p: d for p, d in state_of(here).items() if not is_second(p)})) <= set(given(here))
    assert outcomes == {False, True}


@pytest.mark.slow
@pytest.mark.sweep
def test_somebody_cleans_at_every_operation(original: Path, tmp_path: Path, breakage: Breakage) -> None:
    """Meanwhile a query that was not stopped goes on, and what was there is deleted and unlinked."""
    whole = Path(shutil.copytree(original, tmp_path / "whole"))
    breakage.mended()
    give(whole)
    for at in sample_of_calls(breakage.operations, changing=1, reading=2):
        here = Path(shutil.copytree(original, tmp_path / f"{at}"))

        def goes_on(here: Path = here) -> None:
            go_on(here, 6, 50)
            clean_up(here)

        breakage.mended()
        breakage.at, breakage.instead = at, goes_on
        with suppress(FileNotFoundError):
            give(here)
        breakage.mended()
        clean_up(here)
        grow_old(here)
        clean_up(here)
        assert None not in state_of(here).values(), at
        assert Checkpoint(here).maintenance.verify().is_clean, at


@pytest.mark.slow
@pytest.mark.sweep
def test_they_are_given_at_every_operation_of_a_cleaning(tmp_path: Path, breakage: Breakage) -> None:
    original = make(tmp_path / "original")
    go_on(original, 6, 50)
    whole = Path(shutil.copytree(original, tmp_path / "whole"))
    breakage.mended()
    clean_up(whole)
    for at in sample_of_calls(breakage.operations, changing=1, reading=3):
        here = Path(shutil.copytree(original, tmp_path / f"{at}"))
        log = merged_log_of(here)
        view = log.snapshot()

        def give_and_go_on(here: Path = here) -> None:
            give(here)
            go_on(here, 8, 51)

        breakage.mended()
        breakage.at, breakage.instead = at, give_and_go_on
        clean(log, view.closed_tombstones)
        breakage.mended()
        grow_old(here)
        clean_up(here)
        assert None not in state_of(here).values(), at
        assert Checkpoint(here).maintenance.verify().is_clean, at


def test_a_damaged_file_keeps_the_pin(original: Path) -> None:
    """What cannot be read may say that something is needed."""
    files = merged_names(original)
    give(original)
    (reference,) = merged_names(original) - files
    go_on(original, 6, 50)
    path = original / "state" / "_merged" / reference
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    grow_old(original)
    with refused("PSS_CORRUPT_INDEX"):
        clean_up(original)
    assert len(pins(original)) == 1
    path.write_bytes(whole)
    assert files <= merged_names(original)


@pytest.mark.parametrize("length", [1, 83])
def test_the_beginning_of_a_header_keeps_the_pin(original: Path, length: int) -> None:
    """It may be what is left of a reference file; so it stays itself, too, until verify has looked."""
    files = merged_names(original)
    give(original)
    expected = given(original)
    (reference,) = merged_names(original) - files
    path = original / "state" / "_merged" / reference
    whole = path.read_bytes()
    path.write_bytes(whole[:length])
    go_on(original, 6, 50)
    for _ in range(3):
        grow_old(original)
        Checkpoint(original).maintenance.compact()
        Checkpoint(original).maintenance.remove_orphan_files(HOUR, dry_run=False)
    assert path.exists()
    assert files <= merged_names(original)
    path.write_bytes(whole)
    assert given(original) == expected


def test_a_pin_that_was_emptied(original: Path) -> None:
    """It looks like one that has expired. What lives at second paths says itself which files have to stay."""
    expected = seconds_of(state_of(original))
    give(original)
    go_on(original, 6, 50)
    (pin,) = (original / "state" / "_merged").glob("*.own")
    pin.write_bytes(b"")
    grow_old(original)
    log = merged_log_of(original)
    assert clean(log, {}, dry_run=True).files == ()
    for _ in range(2):
        clean_up(original)
        Checkpoint(original).maintenance.compact()
    assert given(original) == expected


def test_a_file_that_is_gone(original: Path) -> None:
    give(original)
    (pin,) = pins(original)
    assert pin.files is not None
    name = max(pin.files)
    (original / "state" / "_merged" / name).unlink()
    found = Checkpoint(original).maintenance.verify()
    assert {each.path for each in found.damages if each.kind == "missing_file"} == {
        f"file://{original}/state/_merged/{name}"
    }
    with refused("PSS_MISSING_SEGMENT", name, "state/0/"):
        Checkpoint(original).fork(original.parent / "fork")
    before = contents(original)
    for dry_run in (True, False):
        with refused("PSS_MISSING_SEGMENT", name, "state/0/"):
            Checkpoint(original).maintenance.compact(dry_run=dry_run)
    assert contents(original) == before
