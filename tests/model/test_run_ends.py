"""A query that ended says so: whatever drivers do to one checkpoint, nobody is believed to have ended who has not."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.model.run_drivers import Checkpoint, Driver, RunRules

WHO = st.integers(0, 2)
AT_ONCE = st.sampled_from([True, True, False])


class Machine(RuleBasedStateMachine):
    """Three drivers, of which the third is of a build that says nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.checkpoint = Checkpoint(self.root / "q1", RunRules())
        self.started = 0
        self.drivers = [self._new(who) for who in range(3)]

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def _new(self, who: int) -> Driver:
        self.started += 1
        return Driver(self.checkpoint, self.started, knows_marks=who < 2)

    @rule(who=WHO, at_once=AT_ONCE, ends=st.sampled_from([False, False, True]))
    def go_on(self, who: int, at_once: bool, ends: bool) -> None:
        driver = self.drivers[who]
        if driver.is_dead or driver.has_ended:
            driver = self.drivers[who] = self._new(who)
        if not driver.is_busy:
            if not driver.has_begun:
                driver.do(driver.begin())
            elif ends:
                driver.do(driver.end())
            elif driver.batch is None:
                driver.do(driver.plan())
            elif not driver.has_written:
                driver.do(driver.work())
            else:
                driver.do(driver.commit())
        if at_once:
            driver.finish()
        else:
            driver.step()

    @rule(who=WHO)
    @precondition(lambda self: self.started < 8)
    def kill(self, who: int) -> None:
        self.drivers[who].kill()

    @invariant()
    def nobody_is_taken_for_ended_who_runs(self) -> None:
        why = self.checkpoint.must_not_be_believed()
        assert not why or not self.checkpoint.is_believed(), why


TestRunEnds = Machine.TestCase
TestRunEnds.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


class Play:
    """Drivers on a directory, and the stage directions for them."""

    def __init__(self, path: Path, rules: RunRules) -> None:
        self.checkpoint = Checkpoint(path, rules)
        self.started = 0

    def start(self, *, knows_marks: bool = True, steps: int | None = None) -> Driver:
        self.started += 1
        driver = Driver(self.checkpoint, self.started, knows_marks=knows_marks)
        self.do(driver, driver.begin(), steps)
        return driver

    def do(self, driver: Driver, steps: object, count: int | None = None) -> None:
        driver.do(steps)  # type: ignore[arg-type]
        while driver.is_busy and count != 0:
            driver.step()
            count = None if count is None else count - 1
        self.check()

    def batch(self, driver: Driver) -> None:
        for steps in (driver.plan, driver.work, driver.commit):
            self.do(driver, steps())

    def check(self) -> None:
        why = self.checkpoint.must_not_be_believed()
        assert not why or not self.checkpoint.is_believed(), why


def ended(play: Play) -> None:
    """A query ends after a batch."""
    driver = play.start()
    play.batch(driver)
    play.do(driver, driver.end())
    assert play.checkpoint.is_believed()


def started_again(play: Play) -> None:
    """A query is started again, and waits for data."""
    ended(play)
    play.start()


def stopped_while_it_ends(play: Play) -> None:
    """A driver is stopped for a while (SIGSTOP) right before it says that the query has ended; another one begins."""
    first = play.start()
    play.batch(first)
    play.do(first, first.end(), 2)
    play.start()
    first.finish()
    play.check()


def killed_and_started_again(play: Play) -> None:
    """Nothing tells that a killed query has ended, but the end of the next run does."""
    first = play.start()
    play.batch(first)
    first.kill()
    assert not play.checkpoint.is_believed()
    second = play.start()
    play.do(second, second.end())
    assert play.checkpoint.is_believed()


def stopped_while_it_begins(play: Play) -> None:
    """A driver is stopped for a while right after it has said that it runs; another one begins, and ends."""
    first = play.start(steps=2)
    second = play.start()
    play.do(second, second.end())
    first.finish()
    play.check()


def lost_its_batch(play: Play) -> None:
    """Another driver has entered the next batch, so the query fails in this one."""
    first = play.start()
    play.batch(first)
    second = play.start(knows_marks=False)
    play.do(second, second.plan())
    play.do(first, first.fail())


def stopped_in_a_batch(play: Play) -> None:
    """The query was stopped in the middle of a batch, whose task goes on."""
    first = play.start()
    play.do(first, first.plan())
    play.do(first, first.end())


def goes_on_silently(play: Play) -> None:
    """A build that says nothing goes on."""
    ended(play)
    second = play.start(knows_marks=False)
    play.do(second, second.plan())


def does_a_batch_again(play: Play) -> None:
    """As before, with a batch that was entered by the run that ended in it: only what is written for it is new."""
    first = play.start()
    play.batch(first)
    play.do(first, first.plan())
    play.do(first, first.end())
    assert play.checkpoint.is_believed()
    second = play.start(knows_marks=False)
    play.do(second, second.plan())
    play.do(second, second.work())


HISTORIES: dict[str, tuple[Callable[[Play], None], ...]] = {
    "begins_with_a_word": (started_again,),
    "takes_away_runs": (killed_and_started_again,),
    "says_it_again": (stopped_while_it_begins,),
    "names_only_its_own": (lost_its_batch,),
    "waits_for_tasks": (stopped_in_a_batch,),
    "runs_count": (stopped_while_it_ends,),
    "batches_count": (goes_on_silently,),
    "groups_count": (does_a_batch_again,),
}
"""Of each rule, histories that go wrong without it."""


def test_each_rule_has_a_history() -> None:
    assert set(HISTORIES) == {field.name for field in fields(RunRules)}


@pytest.mark.parametrize(("name", "history"), [(name, each) for name, all_ in HISTORIES.items() for each in all_])
def test_each_rule_is_needed(tmp_path: Path, name: str, history: Callable[[Play], None]) -> None:
    history(Play(tmp_path / "right", RunRules()))
    with pytest.raises(AssertionError):
        history(Play(tmp_path / "wrong", replace(RunRules(), **{name: False})))
