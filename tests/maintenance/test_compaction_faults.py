"""Whatever fails, and wherever the process dies: what is read stays the same, and a second run finishes the work."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from pyspark_statestore import StateStoreFilesError
from pyspark_statestore.maintenance.cleaning import clean
from pyspark_statestore.maintenance.compaction import compact
from pyspark_statestore.maintenance.compaction_plan import CompactionOptions, CompactionPlan
from pyspark_statestore.maintenance.relocation import Movable, relocate
from tests.inspect.builders import STAMP, add_index, merged_file
from tests.maintenance.faults import Breakage, DiedError
from tests.maintenance.harness import dead_files, grow_old, live_files, merged_log_of
from tests.sampling import sample_of_calls

pytestmark = [pytest.mark.slow, pytest.mark.sweep]

DAY = datetime.timedelta(days=1)
TARGET = 2500
"""So that several files are written."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small files and a large one, garbage, a dead file, one that may be written to, and one that speaks for others."""
    folder = tmp_path_factory.mktemp("faults") / "original"
    (folder / "offsets").mkdir(parents=True)
    for number in range(1, 5):
        with merged_file(folder, number) as file:
            for partition in range(3):
                file.put(f"0/{partition}/{number}.delta", bytes([number]) * 300, stamp=STAMP + number)
    with merged_file(folder, 10) as file:
        file.put("0/7/1.delta", b"large" * 500, stamp=STAMP + 10)
        file.put("0/7/2.delta", b"dead" * 500, stamp=STAMP + 10)
    with merged_file(folder, 20) as file:
        file.delete("0/7/2.delta", stamp=STAMP + 10, writer=7)
        for number in range(1, 4):
            file.delete(f"0/0/{number}.delta", stamp=STAMP + number, writer=7)
    add_index(folder)
    with merged_file(folder, 30, writer=8, seal=False) as file:
        file.put("0/9/1.delta", b"open", stamp=STAMP + 30)
    return folder


@pytest.fixture
def checkpoint(original: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(original, tmp_path / "checkpoint"))


def operations(breakage: Breakage, checkpoint: Path) -> list[str]:
    """Those of a run in which nothing goes wrong."""
    compact(merged_log_of(checkpoint), target_file_size=TARGET)
    done = breakage.operations
    breakage.mended()
    assert len(done) > 50
    return done


def leftovers(checkpoint: Path) -> list[str]:
    """What nobody needs; an index-only file is none."""
    announcements = [path.name for path in (checkpoint / "state" / "_merged").iterdir() if path.suffix != ".merged"]
    return [*announcements, *(name for name in dead_files(checkpoint) if ".index." not in name)]


@pytest.mark.parametrize(("deadly", "torn"), [(False, False), (True, False), (True, True)])
def test_every_operation(original: Path, tmp_path: Path, breakage: Breakage, deadly: bool, torn: bool) -> None:
    expected = live_files(original)
    steps = sample_of_calls(operations(breakage, Path(shutil.copytree(original, tmp_path / "whole"))))
    failed = harmless = 0
    for at in steps:
        checkpoint = Path(shutil.copytree(original, tmp_path / str(at)))
        breakage.mended()
        breakage.at, breakage.deadly, breakage.torn = at, deadly, torn
        try:
            compact(merged_log_of(checkpoint), target_file_size=TARGET)
        except (StateStoreFilesError, DiedError):
            failed += 1
        what = breakage.operations[at]
        breakage.mended()
        assert live_files(checkpoint) == expected, what

        # A day later somebody else has written something, so that what is left over is known to be that.
        grow_old(checkpoint)
        with merged_file(checkpoint, 2_000_000_000_000 - 1_700_000_000_000 + at) as file:
            file.put("0/8/1.delta", b"new" * 3000, stamp=STAMP + (1 << 50))
        compact(merged_log_of(checkpoint, 2 * DAY), target_file_size=TARGET)
        assert live_files(checkpoint) == {**expected, "0/8/1.delta": b"new" * 3000}, what
        assert leftovers(checkpoint) == [], what
        third = compact(merged_log_of(checkpoint, 2 * DAY), target_file_size=TARGET)
        assert (third.rewritten_files_count, third.added_files_count, third.removed_files_count) == (0, 0, 0), what
        shutil.rmtree(checkpoint)
        harmless += what.startswith("close") and not deadly
    assert failed + harmless >= len(steps), "closing a file that was read may fail"


@pytest.fixture
def with_a_tombstone_to_keep(tmp_path: Path) -> Path:
    """A dead file that has a tombstone of what another process has in an open file."""
    folder = tmp_path / "carries"
    (folder / "offsets").mkdir(parents=True)
    with merged_file(folder, 1) as file:
        file.put("0/0/1.delta", b"dead" * 1000, stamp=STAMP + 1)
        file.delete("0/0/1.delta", stamp=STAMP + 1, writer=7)
        file.delete("0/9/1.delta", stamp=STAMP + 30, writer=8)
    with merged_file(folder, 20) as file:
        file.put("0/1/1.delta", b"lives" * 100, stamp=STAMP + 20)
    with merged_file(folder, 30, writer=8, seal=False) as file:
        file.put("0/9/1.delta", b"killed", stamp=STAMP + 30)
        file.put("0/9/2.delta", b"open", stamp=STAMP + 31)
    return folder


def test_every_operation_where_a_tombstone_is_carried_over(
    with_a_tombstone_to_keep: Path, tmp_path: Path, breakage: Breakage
) -> None:
    """The file that has it goes only when it is elsewhere: else what it kills comes back."""
    original = with_a_tombstone_to_keep
    expected = live_files(original)
    whole = Path(shutil.copytree(original, tmp_path / "whole"))
    assert compact(merged_log_of(whole)).removed_files_count
    done = breakage.operations
    for at in sample_of_calls(done):
        checkpoint = Path(shutil.copytree(original, tmp_path / str(at)))
        breakage.mended()
        breakage.at, breakage.deadly = at, True
        with suppress(StateStoreFilesError, DiedError):
            compact(merged_log_of(checkpoint))
        breakage.mended()
        assert live_files(checkpoint) == expected, done[at]


def somebody_else(checkpoint: Path) -> Callable[[], object]:
    """An executor moves everything that lives, and cleans."""

    def move() -> None:
        log = merged_log_of(checkpoint)
        view = log.snapshot()
        names = [name for name in view.states if not name.endswith(".index.merged")]
        relocate(log, CompactionPlan.of(Movable(view), CompactionOptions(target_file_size=4000), names).bins)
        clean(log, view.closed_tombstones)

    return move


def test_somebody_else_moves_everything_between_any_two_operations(
    original: Path, tmp_path: Path, breakage: Breakage
) -> None:
    expected = live_files(original)
    steps = sample_of_calls(operations(breakage, Path(shutil.copytree(original, tmp_path / "whole"))), reading=4)
    for at in steps:
        checkpoint = Path(shutil.copytree(original, tmp_path / str(at)))
        breakage.mended()
        breakage.at, breakage.instead = at, somebody_else(checkpoint)
        compact(merged_log_of(checkpoint), target_file_size=TARGET)
        what = breakage.operations[at]
        breakage.mended()
        assert live_files(checkpoint) == expected, what
        compact(merged_log_of(checkpoint), target_file_size=TARGET)
        compact(merged_log_of(checkpoint), target_file_size=TARGET)
        assert live_files(checkpoint) == expected, what
        assert leftovers(checkpoint) == [], what
        shutil.rmtree(checkpoint)
