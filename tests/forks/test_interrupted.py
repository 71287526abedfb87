"""Making a fork fails, and so does taking back what was made: the pins stay for as long as the fork may be whole."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint
from pyspark_statestore.forks.fork import fork_checkpoint
from pyspark_statestore.storage import Location
from tests.forks.harness import clean_up, go_on, merged_names, pins, state_of
from tests.maintenance.faults import Breakage
from tests.maintenance.harness import merged_log_of
from tests.sampling import sample_of_calls


def interrupt() -> None:
    raise KeyboardInterrupt("on purpose")


def make_fork(source: Path, fork: Path, afterwards: Callable[[], object] = interrupt) -> None:
    """What is done with it afterwards does not work out."""
    with pytest.raises((KeyboardInterrupt, OSError), match="on purpose"):
        fork_checkpoint(merged_log_of(source), Location.of(fork), afterwards=afterwards)


def go_on_and_look(source: Path, fork: Path, state: dict[str, bytes | None]) -> str:
    """The source goes on; whatever is left of the fork finds what it refers to."""
    for number, version in enumerate((6, 8)):
        go_on(source, version, 50 + number)
        clean_up(source)
    if not merged_names(fork):
        return "nothing"
    assert pins(source)
    assert state_of(fork) == state
    return "whole" if (fork / "metadata").exists() else "no checkpoint"


@pytest.mark.sweep
def test_interrupted_again_while_it_is_taken_back(source: Path, tmp_path: Path, breakage: Breakage) -> None:
    state = state_of(source)
    outcomes = set()
    whole, whole_fork = Path(shutil.copytree(source, tmp_path / "whole")), tmp_path / "whole-fork"
    breakage.mended()
    first: list[int] = []

    def fails() -> None:
        first.append(len(breakage.operations))
        interrupt()

    make_fork(whole, whole_fork, fails)
    assert go_on_and_look(whole, whole_fork, state) == "nothing"
    done = list(breakage.operations)
    for at in [first[0] + n for n in sample_of_calls(done[first[0] :], changing=1, reading=1)]:
        here, fork = Path(shutil.copytree(source, tmp_path / f"{at}")), tmp_path / f"{at}-fork"
        breakage.mended()
        breakage.at, breakage.instead = at, interrupt
        make_fork(here, fork)
        breakage.mended()
        outcomes.add(go_on_and_look(here, fork, state))
        # Whoever cleans up later finds what is left.
        shutil.rmtree(fork, ignore_errors=True)
        shutil.rmtree(here)
    assert outcomes == {"nothing", "whole", "no checkpoint"}


REFUSED: dict[str, Callable[[str], bool]] = {
    "some": lambda what: what.startswith("delete ") and not what.endswith(".fork"),
    "all": lambda what: what.startswith(("delete ", "remove ")) and not what.endswith(".fork"),
    "a look": lambda what: what.startswith("list "),
}
"""Not the deletion of pins in the source."""


@pytest.mark.parametrize(("refused", "left"), [("some", "nothing"), ("all", "whole"), ("a look", "whole")])
def test_deletions_fail(source: Path, tmp_path: Path, breakage: Breakage, refused: str, left: str) -> None:
    state, fork = state_of(source), tmp_path / "fork"

    def fails() -> None:
        breakage.refuses = REFUSED[refused]
        raise OSError("on purpose")

    make_fork(source, fork, fails)
    breakage.mended()
    assert go_on_and_look(source, fork, state) == left


def test_the_pins_cannot_be_dropped_either(source: Path, tmp_path: Path, breakage: Breakage) -> None:
    """They go like those of a fork that is gone."""

    def fails() -> None:
        breakage.refuses = lambda what: what.startswith("delete ") and what.endswith(".fork")
        interrupt()

    make_fork(source, tmp_path / "fork", fails)
    breakage.mended()
    assert len(pins(source)) == 1
    Checkpoint(source).maintenance.release_fork(tmp_path / "fork")
    assert pins(source) == ()


def test_somebody_else_makes_a_fork_in_the_same_place(source: Path, tmp_path: Path, breakage: Breakage) -> None:
    """Of two at the same time one fails; it takes away what it has written itself, and drops no pin of the other."""
    state, fork = state_of(source), tmp_path / "fork"

    breakage.mended()
    Checkpoint(source).fork(fork)
    shutil.rmtree(fork)
    Checkpoint(source).maintenance.release_fork(fork)
    last, count = "create metadata", breakage.operations.count("create metadata")  # operators have metadata, too

    def both() -> None:
        merged = fork / "state" / "_merged"
        mine = {path.name for path in merged.iterdir()}
        # The other one has looked for a moment when nothing was there.
        aside = tmp_path / "aside"
        fork.rename(aside)
        Checkpoint(source).fork(fork)
        for path in (aside / "state" / "_merged").iterdir():
            path.rename(merged / path.name)
        assert mine < {path.name for path in merged.iterdir()}
        interrupt()

    breakage.mended()
    breakage.at = lambda done: done[-1] == last and done.count(last) == count
    breakage.instead = both
    with pytest.raises(KeyboardInterrupt):
        fork_checkpoint(merged_log_of(source), Location.of(fork))
    breakage.mended()
    assert len(pins(source)) == 1
    assert len(merged_names(fork)) == 1
    assert go_on_and_look(source, fork, state) == "whole"
