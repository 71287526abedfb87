"""Copies that take longer than anybody waits for them."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from fsspec.callbacks import Callback

from pyspark_statestore import Checkpoint
from pyspark_statestore.format import Kind, read_merged_file
from pyspark_statestore.format.reader import BytesSource
from pyspark_statestore.maintenance.cleaning import clean
from pyspark_statestore.maintenance.compaction_plan import CompactionOptions, CompactionPlan
from pyspark_statestore.maintenance.relocation import Bin, Movable, relocate
from tests.inspect.builders import STAMP, merged_file, merged_paths, refused
from tests.maintenance.faults import Breakage, Trouble, troubled_files
from tests.maintenance.harness import grow_old, live_files, merged_log_of


class Meanwhile(Callback):
    """While the first bytes are copied, something else happens, and an hour passes."""

    def __init__(self, happens: Callable[[], object]) -> None:
        super().__init__()
        self.now = 0.0
        self._happens = happens

    def relative_update(self, inc: int = 1) -> None:
        if not self.now:
            self._happens()
        self.now = 3600


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Two files, of two segments each."""
    for number in (1, 2):
        with merged_file(tmp_path, number) as file:
            for partition in range(2):
                file.put(f"0/{partition}/{number}.delta", os.urandom(500), stamp=STAMP + number)
    return tmp_path


def everything(movable: Movable) -> tuple[Bin, ...]:
    """All that lives, in one file."""
    return CompactionPlan.of(movable, CompactionOptions(), list(movable.snapshot.states)).bins


def paths_in(file: Path) -> list[str]:
    return [entry.path for entry in read_merged_file(BytesSource(file.read_bytes()))]


@pytest.mark.parametrize("deleted", [["0/0/1.delta"], [f"0/{p}/{n}.delta" for n in (1, 2) for p in (0, 1)]])
def test_what_died_while_it_was_copied_is_not_brought_back(
    checkpoint: Path, breakage: Breakage, deleted: list[str]
) -> None:
    before = live_files(checkpoint)

    def delete() -> None:
        with merged_file(checkpoint, 9) as file:
            for path in deleted:
                file.delete(path, stamp=STAMP + int(path[4]), writer=7)

    meanwhile = Meanwhile(delete)
    done = relocate(merged_log_of(checkpoint), everything, meanwhile, clock=lambda: meanwhile.now)

    left = sorted(set(before) - set(deleted))
    assert sorted(live_files(checkpoint)) == left
    assert [sorted(paths_in(checkpoint / "state" / "_merged" / new.name)) for new in done.added] == [left][: len(left)]
    assert len(merged_paths(checkpoint)) == 3 + len(done.added)
    announced = [what for what in breakage.operations if what.startswith("create") and what.endswith(".relocating")]
    assert len(announced) == 2
    assert list(checkpoint.glob("state/_merged/*.relocating")) == []


def test_copies_are_the_same_facts_a_generation_later(checkpoint: Path) -> None:
    def facts() -> list[tuple[object, ...]]:
        table = Checkpoint(checkpoint).inspect.segments().to_pylist()
        names = ("logical_path", "written_at", "crc32c", "length", "type", "generation")
        return sorted(tuple(row[name] for name in names) for row in table if row["status"] == "live")

    def keys() -> set[tuple[str, tuple[int, int]]]:
        files = [read_merged_file(BytesSource(path.read_bytes())) for path in merged_paths(checkpoint)]
        return {(entry.path, entry.key) for file in files for entry in file}

    before, keys_before = facts(), keys()
    relocate(merged_log_of(checkpoint), everything)
    assert facts() == [(*fact[:-1], 1) for fact in before]
    assert keys() == keys_before


def test_look_that_takes_too_long(checkpoint: Path) -> None:
    before = merged_paths(checkpoint)
    hours = count(0, 3600)
    with refused("PSS_WRITE_FAILED", "closedAfter"):
        relocate(merged_log_of(checkpoint), everything, clock=lambda: float(next(hours)))
    assert merged_paths(checkpoint) == before
    assert list(checkpoint.glob("state/_merged/*.relocating")) == []


def test_plan_is_the_same_for_the_same_files(checkpoint: Path) -> None:
    first = CompactionPlan.of(Movable(merged_log_of(checkpoint).snapshot()), CompactionOptions(2.0, 4000))
    assert first == CompactionPlan.of(Movable(merged_log_of(checkpoint).snapshot()), CompactionOptions(2.0, 4000))
    assert first.bins


def test_two_copies_of_the_same_bins_do_no_harm(checkpoint: Path) -> None:
    before = live_files(checkpoint)
    bins = everything(Movable(merged_log_of(checkpoint).snapshot()))

    class Twice(Callback):
        """The same task runs a second time before the first has ended."""

        def relative_update(self, inc: int = 1) -> None:
            if len(list(checkpoint.glob("state/_merged/*.merged*"))) == 3:
                relocate(merged_log_of(checkpoint), bins)

    relocate(merged_log_of(checkpoint), bins, Twice())
    assert len(merged_paths(checkpoint)) == 4
    assert live_files(checkpoint) == before
    relocate(merged_log_of(checkpoint), bins)
    assert len(merged_paths(checkpoint)) == 4, "a third time finds nothing to do"


# ---- copies that become visible late


@pytest.fixture
def trouble() -> Iterator[Trouble]:
    """What happens when a file is closed."""
    with troubled_files() as trouble:
        yield trouble


def at_the_end_of_a_copy(trouble: Trouble, happens: Callable[[], object]) -> None:
    """Before the file of copies is closed and gets its name, once."""

    def before(operation: str, path: str) -> None:
        if operation == "close" and path.endswith(".tmp"):
            trouble.before = lambda operation, path: None
            happens()

    trouble.before = before


def tombstones(checkpoint: Path) -> list[str]:
    files = [read_merged_file(BytesSource(path.read_bytes())) for path in merged_paths(checkpoint)]
    return [entry.path for file in files for entry in file if entry.kind is Kind.DELETE]


def test_what_was_deleted_while_a_copy_took_its_time_stays_deleted(checkpoint: Path, trouble: Trouble) -> None:
    """Whoever cleans waits for a relocation whose process lives, however long it takes."""
    closed_after = datetime.timedelta(seconds=4)
    with merged_file(checkpoint, 5) as file:
        file.put("0/1/9.delta", b"newer than the deletions", stamp=STAMP + 100)
    deleted = ["0/0/1.delta", "0/1/1.delta"]

    def others_delete_and_clean() -> None:
        with merged_file(checkpoint, 9) as file:
            for path in deleted:
                file.delete(path, stamp=STAMP + 1, writer=7)
        end = time.monotonic() + 1.6 * closed_after.total_seconds()
        other = merged_log_of(checkpoint, closed_after=closed_after)
        while time.monotonic() < end and tombstones(checkpoint):
            os.utime(merged_paths(checkpoint)[-1])  # the query goes on
            clean(other, other.snapshot().closed_tombstones)

    at_the_end_of_a_copy(trouble, others_delete_and_clean)
    expected = {path: data for path, data in live_files(checkpoint).items() if path not in deleted}
    relocate(merged_log_of(checkpoint, closed_after=closed_after), everything)

    assert live_files(checkpoint) == expected
    assert list(checkpoint.glob("state/_merged/*.relocating")) == []


@pytest.mark.parametrize("clock", ["that does not jump", "wall"])
def test_copies_that_nobody_may_have_waited_for(checkpoint: Path, trouble: Trouble, clock: str) -> None:
    """As when the process was stopped while it wrote: nothing may be concluded from them."""
    before = live_files(checkpoint)
    times = {"that does not jump": 0.0, "wall": 0.0}
    at_the_end_of_a_copy(trouble, lambda: times.update({clock: 3600.0}))
    log = merged_log_of(checkpoint)
    log.clock = lambda: datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=times["wall"])
    with refused("PSS_WRITE_FAILED", "closedAfter", "relocation marker"):
        relocate(log, everything, clock=lambda: times["that does not jump"])

    assert live_files(checkpoint) == before
    assert len(list(checkpoint.glob("state/_merged/*.relocating"))) == 1


# ---- announcements that others have left


def announce(checkpoint: Path, minutes_ago: float) -> str:
    path = checkpoint / "state" / "_merged" / "1700000000000-0000000000000009-1.relocating"
    path.touch()
    os.utime(path, (time.time() - 60 * minutes_ago,) * 2)
    return path.name


def test_a_clock_that_is_ahead_gives_no_announcement_up(checkpoint: Path) -> None:
    name = announce(checkpoint, 1)
    assert merged_log_of(checkpoint, datetime.timedelta(days=30)).snapshot().relocation_markers == {name}


def test_a_file_system_clock_that_is_ahead_gives_no_announcement_up(checkpoint: Path) -> None:
    name = announce(checkpoint, 1)
    os.utime(merged_paths(checkpoint)[0], (time.time() + 86_400,) * 2)
    assert merged_log_of(checkpoint).snapshot().relocation_markers == {name}


def test_what_is_old_by_both_clocks_is_given_up(checkpoint: Path) -> None:
    grow_old(checkpoint)
    announce(checkpoint, 11)
    assert merged_log_of(checkpoint).snapshot().relocation_markers == set()
    assert list(checkpoint.glob("state/.clock*")) == []
