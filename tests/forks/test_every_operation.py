"""Whatever fails while a fork is made, and whatever the source does meanwhile: both sides have what they need."""

from __future__ import annotations

import datetime
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint, StateStoreFilesError
from pyspark_statestore.forks.fork import fork_checkpoint
from pyspark_statestore.maintenance.cleaning import clean
from pyspark_statestore.storage import Location
from tests.forks.harness import clean_up, go_on, merged_names, pins, restorable, state_of
from tests.maintenance.builders import contents, make
from tests.maintenance.faults import Breakage, DiedError
from tests.maintenance.harness import merged_log_of
from tests.sampling import sample_of_calls

pytestmark = [pytest.mark.slow, pytest.mark.sweep]

MODES = pytest.mark.parametrize("mode", ["no_claim", "copy"])


_OURS = (".merged", ".fork", ".origin", "metadata")
"""What Spark's own logs have is one like the other."""


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """Three versions, the first of which stock Spark has written, so that there is something of everything."""
    return make(tmp_path / "original", "mixed")


def operations(breakage: Breakage, source: Path, fork: Path, mode: str) -> list[int]:
    """Numbers of those in a fork in which nothing goes wrong that change something or list; of reads each fifth."""
    breakage.mended()
    Checkpoint(source).fork(fork, mode)
    done = breakage.operations
    breakage.mended()
    kinds = [what.partition(" ") for what in done]
    chosen = [
        at
        for at, (kind, _, name) in enumerate(kinds)
        if at % 20 == 0 or kind in ("list", "create", "delete") or (kind in ("write", "close") and name.endswith(_OURS))
    ]
    # Copies are made by what makes references, but for their bytes.
    of_mode = chosen if mode == "no_claim" else chosen[::3]
    return [of_mode[at] for at in sample_of_calls([done[at] for at in of_mode], changing=3)]


@MODES
def test_a_failure_leaves_nothing(original: Path, tmp_path: Path, breakage: Breakage, mode: str) -> None:
    source, fork = original, tmp_path / "fork"
    before = contents(source)
    steps = operations(breakage, Path(shutil.copytree(source, tmp_path / "whole")), tmp_path / "other", mode)
    harmless = []
    for at in steps:
        breakage.mended()
        breakage.at = at
        try:
            Checkpoint(source).fork(fork, mode)
        except StateStoreFilesError as error:
            assert "broken on purpose" in str(error)
        else:
            harmless.append(breakage.operations[at])
            Checkpoint(source).maintenance.release_fork(fork, force=True)
            shutil.rmtree(fork)
        left = {path for path in contents(source) if path not in before}
        assert not left or (harmless[-1].startswith("delete") and all(path.endswith(".fork") for path in left))
        for path in left:
            (source / path).unlink()
        assert contents(source) == before, (at, breakage.operations)
        assert not list(fork.glob("*")), (at, breakage.operations)
    # What was read was read.
    assert {what.partition(" ")[0] for what in harmless} <= {"close", "delete"}, harmless
    breakage.mended()
    Checkpoint(source).fork(fork, mode)
    assert state_of(fork) == state_of(source)


@MODES
def test_a_death_leaves_no_fork_and_a_whole_source(
    original: Path, tmp_path: Path, breakage: Breakage, mode: str
) -> None:
    state = state_of(original)
    steps = operations(breakage, Path(shutil.copytree(original, tmp_path / "whole")), tmp_path / "other", mode)
    made = 0
    for at in steps:
        source, fork = Path(shutil.copytree(original, tmp_path / f"{at}")), tmp_path / f"{at}-fork"
        breakage.mended()
        breakage.at, breakage.deadly, breakage.torn = at, True, at % 2 == 1
        with suppress(DiedError):  # closing what was read is none
            Checkpoint(source).fork(fork, mode)
        breakage.mended()
        if (fork / "metadata").exists() and (fork / "metadata").stat().st_size:
            made += 1
            assert state_of(fork) == state
            assert Checkpoint(fork).maintenance.verify().is_clean
        else:
            shutil.rmtree(fork, ignore_errors=True)
        assert state_of(source) == state
        # Whoever cleans gets rid of what is left, but not of what a fork needs.
        go_on(source, 6, 50)
        now = Checkpoint(source, closed_after=datetime.timedelta(0))
        now.maintenance.remove_orphan_files(datetime.timedelta(0), dry_run=False, force=True)
        clean_up(source)
        if (fork / "metadata").exists():
            assert state_of(fork) == state
        else:
            assert pins(source) == ()
            assert not (merged_names(source) & merged_names(original))
        shutil.rmtree(source)
    assert made < 8


@MODES
def test_the_source_cleans_up_at_every_operation_of_a_fork(
    original: Path, tmp_path: Path, breakage: Breakage, mode: str
) -> None:
    steps = operations(breakage, Path(shutil.copytree(original, tmp_path / "whole")), tmp_path / "other", mode)
    outcomes = set()
    for at in steps:
        source, fork = Path(shutil.copytree(original, tmp_path / f"{at}")), tmp_path / f"{at}-fork"

        def goes_on(source: Path = source) -> None:
            go_on(source, 6, 50)
            go_on(source, 8, 51)
            clean_up(source)

        breakage.mended()
        breakage.at, breakage.instead = at, goes_on
        try:
            made = Checkpoint(source).fork(fork, mode)
        except StateStoreFilesError as error:
            assert error.getErrorClass() in ("PSS_VERSION_NOT_RESTORABLE", "PSS_READ_FAILED"), error
            assert pins(source) == ()
            assert not list(fork.glob("*"))
            outcomes.add("refused")
            continue
        breakage.mended()
        assert made.version in restorable(fork), (at, breakage.operations)
        # Commits of batches whose state is gone are there on both sides.
        assert {each.kind for each in Checkpoint(fork).maintenance.verify().damages} <= {"unrestorable_version"}
        outcomes.add(str(made.version))
        clean_up(source)
        assert None not in state_of(fork).values()
    assert {"4", "8"} <= outcomes


def test_a_fork_is_made_at_every_operation_of_a_cleaning(tmp_path: Path, breakage: Breakage) -> None:
    original = make(tmp_path / "original")
    go_on(original, 6, 50)
    whole = Path(shutil.copytree(original, tmp_path / "whole"))
    breakage.mended()
    clean_up(whole)
    for at in sample_of_calls(breakage.operations, changing=1, reading=3):
        source, fork = Path(shutil.copytree(original, tmp_path / f"{at}")), tmp_path / f"{at}-fork"
        log = merged_log_of(source)
        view = log.snapshot()

        def fork_and_go_on(source: Path = source, fork: Path = fork) -> None:
            fork_checkpoint(merged_log_of(source), Location.of(fork))
            go_on(source, 8, 51)
            go_on(source, 10, 52)

        breakage.mended()
        breakage.at, breakage.instead = at, fork_and_go_on
        clean(log, view.closed_tombstones)
        breakage.mended()
        assert fork.exists() or at >= len(breakage.operations)
        if fork.exists():
            assert restorable(fork) == {6}, at
            assert Checkpoint(fork).maintenance.verify().is_clean
        assert restorable(source) >= {10} or not fork.exists()
