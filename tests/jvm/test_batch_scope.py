"""With groupCommit.scope=batch, what tasks commit is durable when Spark enters their batch into the commit log."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.jvm.harness import Checkpoint, begun, in_time, open_files, result_in_time, until

pytestmark = pytest.mark.spark

PATIENT, HASTY = 30_000, 300
"""Milliseconds that a process has for writing."""


def path(partition: int, batch: int) -> str:
    return f"0/{partition}/{batch + 1}.changelog"


@pytest.fixture
def make_scope(jvm: Any, new_checkpoint: Callable[..., Checkpoint]) -> Iterator[Callable[..., Any]]:
    """Makes a query's processes, with a checkpoint of their own."""
    made: list[Any] = []

    def make(scheme: str = "file", **options: str) -> Any:
        checkpoint = new_checkpoint(scheme, name=f"checkpoint-{len(made)}", groupCommit__scope="batch", **options)
        state = jvm.org.apache.hadoop.fs.Path(f"{scheme}:{checkpoint.state}")
        conf = checkpoint.fs.getConf()
        scope = jvm.io.pyspark.statestore.log.BatchScope(state.getFileSystem(conf), state, conf)
        made.append((scope, checkpoint))
        return scope

    yield make
    for scope, _ in made:
        scope.close()


@pytest.fixture
def scope(make_scope: Callable[[], Any]) -> Any:
    return make_scope()


def test_tasks_end_before_their_commits_are_durable_and_the_batch_after(scope: Any) -> None:
    one, other = scope.start(), scope.start()
    for partition in range(4):
        assert scope.task(partition % 2, 0, path(partition, 0), b"%d" % partition) is None
    assert [scope.durable(path(partition, 0)) for partition in range(4)] == [None] * 4
    assert scope.endBatch(0, PATIENT) is None
    assert [scope.durable(path(partition, 0)) for partition in range(4)] == [b"0", b"1", b"2", b"3"]
    # A load of the next batch asks the driver.
    assert all(scope.isKnown(path(partition, 0)) for partition in range(4))
    assert (one, other) == (0, 1)


@pytest.mark.parametrize("is_heard_of", [True, False])
def test_batch_fails_with_an_executor_that_dies_before(scope: Any, is_heard_of: bool) -> None:
    scope.start(), scope.start()
    assert scope.task(0, 0, path(0, 0), b"here") is None
    assert scope.task(1, 0, path(1, 0), b"gone") is None
    scope.kill(1, is_heard_of)
    why = scope.endBatch(0, PATIENT if is_heard_of else HASTY)
    assert "PSS_BATCH_NOT_DURABLE" in why
    assert ("connection to the driver was lost" if is_heard_of else "did not write within") in why

    scope.restart("run-1")
    assert scope.task(0, 0, path(0, 0), b"again") is None
    assert scope.task(0, 0, path(1, 0), b"again, too") is None
    assert scope.endBatch(0, PATIENT) is None
    assert [scope.durable(path(0, 0)), scope.durable(path(1, 0))] == [b"again", b"again, too"]


def test_executor_that_dies_without_debts_fails_nothing(scope: Any) -> None:
    scope.start(), scope.start()
    assert scope.task(1, 0, path(1, 0), b"first") is None
    assert scope.endBatch(0, PATIENT) is None
    scope.kill(1, True)
    assert scope.task(0, 1, path(1, 1), b"second") is None
    assert scope.endBatch(1, PATIENT) is None


def test_log_that_is_opened_anew_fails_the_batch(scope: Any) -> None:
    scope.start()
    assert scope.task(0, 0, path(0, 0), b"forgotten") is None
    scope.reopen(0)
    assert scope.task(0, 0, path(1, 0), b"of the new log") is None
    assert "its log of the checkpoint was closed" in scope.endBatch(0, PATIENT)


def test_log_that_is_closed_says_so_when_it_is_called(scope: Any) -> None:
    """Though no thread could say so before: what it had is gone, and "nothing to write" is not "written"."""
    scope.start()
    assert scope.task(0, 0, path(0, 0), b"forgotten") is None
    scope.outOfThreads(True)
    scope.reopen(0)
    assert "its log of the checkpoint was closed" in in_time(scope.endBatch, 0, PATIENT)
    scope.outOfThreads(False)


def test_batch_fails_where_a_process_has_left_it_for_a_later_one(scope: Any) -> None:
    """Spark begins a batch when the one before is entered, so nobody counts on what such a batch still has."""
    scope.start()
    assert scope.task(0, 0, path(0, 0), b"given up") is None
    assert scope.task(0, 1, path(0, 1), b"later") is None
    assert "it has begun a later batch" in scope.endBatch(0, PATIENT)


def test_payloads_that_wait_on_the_local_disk_hold_no_file_open(scope: Any, jvm: Any) -> None:
    """A batch may have tens of thousands, and a process may open a few thousand files."""
    scope.start()
    payloads = {partition: b"%02d" % partition * 500_000 for partition in range(12)}
    for partition, payload in payloads.items():
        assert scope.task(0, 0, path(partition, 0), payload) is None
    assert scope.spilled() >= 4, "of 12 MB, 8 MiB stay in memory"
    assert [name for name in open_files(jvm) if ".spill" in name] == []
    assert scope.endBatch(0, PATIENT) is None
    assert {partition: scope.durable(path(partition, 0)) for partition in payloads} == payloads


def test_batch_waits_for_a_process_that_asks_late(scope: Any) -> None:
    scope.start()
    scope.asksLate(0)
    assert scope.task(0, 0, path(0, 0), b"here") is None
    assert scope.endBatch(0, PATIENT) is None
    assert scope.durable(path(0, 0)) == b"here"


def test_payment_that_does_not_arrive_fails_the_batch(scope: Any) -> None:
    scope.start()
    assert scope.task(0, 0, path(0, 0), b"written") is None
    scope.losePayments(0)
    assert "did not write within" in scope.endBatch(0, HASTY)


def test_commit_of_a_task_that_fails_does_not_count(scope: Any) -> None:
    """Whichever clock is ahead, and whoever writes last."""
    scope.start(), scope.start()
    assert scope.task(0, 0, path(0, 0), b"of the task that counts") is None
    scope.failingTask(1, 0, path(0, 0), b"of the one that failed")
    assert scope.endBatch(0, PATIENT) is None
    assert scope.durable(path(0, 0)) == b"of the task that counts"


def test_newer_attempt_wins_whoever_writes_last(scope: Any) -> None:
    scope.start(), scope.start()
    scope.asksLate(1)
    assert scope.task(1, 0, path(0, 0), b"of an attempt that nobody waited for") is None
    assert scope.task(0, 0, path(0, 0), b"of the attempt that counts") is None
    assert scope.endBatch(0, PATIENT) is None
    assert scope.durable(path(0, 0)) == b"of the attempt that counts"


def test_task_of_a_batch_that_has_ended_fails(scope: Any) -> None:
    scope.start(), scope.start()
    assert scope.task(0, 0, path(0, 0), b"counts") is None
    assert scope.endBatch(0, PATIENT) is None
    assert "has ended without this task" in scope.task(1, 0, path(0, 0), b"late")
    assert scope.task(0, 1, path(0, 1), b"next") is None
    assert scope.endBatch(1, PATIENT) is None
    assert scope.durable(path(0, 0)) == b"counts"


def test_task_of_a_batch_that_has_ended_without_any_fails(scope: Any) -> None:
    """A job that foreachBatch has begun in a thread, and not waited for."""
    scope.start()
    assert scope.endBatch(0, PATIENT) is None
    assert "has ended without this task" in scope.task(0, 0, path(0, 0), b"late")
    assert scope.task(0, 1, path(0, 1), b"next") is None
    assert scope.endBatch(1, PATIENT) is None
    assert scope.durable(path(0, 1)) == b"next"
    # Somebody reads the checkpoint meanwhile, or the query is started again: that changes nothing.
    scope.restart(f"run-{uuid.uuid4()}")
    assert "has ended without this task" in scope.task(0, 0, path(0, 0), b"later still")
    # Who goes back does so while the query is stopped.
    scope.goBack(0)
    scope.restart(f"run-{uuid.uuid4()}")
    assert scope.task(0, 0, path(0, 0), b"again") is None
    assert scope.endBatch(0, PATIENT) is None
    assert scope.durable(path(0, 0)) == b"again"


def test_snapshot_does_not_wait(scope: Any) -> None:
    scope.start()
    assert scope.task(0, 0, "0/0/1.snapshot", b"whole") is None
    assert scope.durable("0/0/1.snapshot") == b"whole"
    assert scope.endBatch(0, PATIENT) is None


@pytest.mark.parametrize("stale", [3, 100])
def test_job_of_a_thread_that_has_another_batch_in_its_properties(scope: Any, stale: int) -> None:
    """A thread of a pool inherits the properties of the job in which it was made, and keeps them."""
    scope.start()
    assert scope.task(0, 6, path(0, 6), b"before") is None
    assert scope.endBatch(6, PATIENT) is None
    assert scope.task(0, 7, path(0, 7), b"of the query's thread") is None
    assert scope.task(0, stale, path(1, 7), b"of the pool's") is None
    assert scope.endBatch(7, PATIENT) is None
    assert scope.durable(path(0, 7)) == b"of the query's thread"
    assert scope.durable(path(1, 7)) == b"of the pool's"


def test_task_that_is_killed_while_its_batch_is_written_fails_no_other(
    make_scope: Callable[..., Any], gate: Any
) -> None:
    """As a second attempt is, when the first has ended, which ends the batch."""
    scope = make_scope("gated")
    scope.start(), scope.start()
    assert scope.task(0, 0, path(0, 0), b"of the attempt that counts") is None
    assert scope.task(1, 0, path(1, 0), b"of another partition") is None
    assert scope.task(1, 0, path(0, 0), b"of the attempt that is killed") is None
    # One writes before the other comes.
    scope.asksLate(0)
    gate.hold("before create", ".merged")
    ended = begun(scope.endBatch, 0, PATIENT)
    assert gate.awaitHeld("before create")
    scope.failLate(1)
    gate.release("before create")
    assert result_in_time(ended, "the end of the batch") is None
    assert scope.durable(path(1, 0)) == b"of another partition"
    assert scope.durable(path(0, 0)) is not None


def test_task_fails_where_no_thread_can_wait_for_its_batch(scope: Any) -> None:
    scope.start()
    scope.outOfThreads(True)
    assert "native thread" in in_time(scope.task, 0, 0, path(0, 0), b"not kept")
    scope.outOfThreads(False)
    assert in_time(scope.task, 0, 0, path(0, 0), b"of the next attempt") is None
    assert scope.endBatch(0, PATIENT) is None
    assert scope.durable(path(0, 0)) == b"of the next attempt"


def test_debts_of_an_earlier_run_do_not_count(scope: Any) -> None:
    """Whatever thread makes the entry: here it is none of Spark's."""
    scope.start(), scope.start()
    assert scope.task(1, 0, path(1, 0), b"of the earlier run") is None
    scope.kill(1, False)
    scope.restart(f"run-{uuid.uuid4()}")
    assert scope.task(0, 0, path(0, 0), b"counts") is None
    assert scope.endBatch(0, PATIENT) is None
    assert scope.durable(path(0, 0)) == b"counts"
    assert scope.durable(path(1, 0)) is None


def test_process_owes_to_several_batches_at_a_time(scope: Any) -> None:
    """A task that was not stopped in time still works for an earlier batch, and takes no debt away."""
    scope.start()
    assert scope.task(0, 5, path(0, 5), b"counts") is None
    assert scope.task(0, 4, path(0, 4), b"of a task that nobody waits for") is None
    assert scope.endBatch(5, PATIENT) is None
    assert scope.durable(path(0, 5)) == b"counts"


def test_task_of_an_earlier_run_takes_no_debt_away(scope: Any) -> None:
    scope.restart("an-earlier-run")
    scope.restart("this-run")
    scope.start()
    assert scope.task(0, 5, path(0, 5), b"counts") is None
    scope.ofRun("an-earlier-run")
    scope.failingTask(0, 5, path(1, 5), b"of a task that was not stopped in time")
    scope.ofRun("this-run")
    assert scope.endBatch(5, PATIENT) is None
    assert scope.durable(path(0, 5)) == b"counts"
    assert scope.durable(path(1, 5)) is None


@pytest.mark.parametrize("place", ["before create", "before hflush", "after hflush"])
def test_query_that_is_stopped_while_a_batch_becomes_durable(
    make_scope: Callable[..., Any], gate: Any, place: str
) -> None:
    """The entry is not made, and the next run is not disturbed by what is still being written."""
    scope = make_scope("gated")
    scope.start(), scope.start()
    for partition in range(2):
        assert scope.task(partition, 0, path(partition, 0), b"of the run that is stopped") is None
    gate.hold(place, ".merged")
    stopped = begun(scope.endBatchInterrupted, 0, 500)
    assert gate.awaitHeld(place)
    assert "Interrupted" in result_in_time(stopped, "the end of the batch")

    scope.restart(f"run-{uuid.uuid4()}")
    for partition in range(2):
        assert scope.task(partition, 0, path(1 - partition, 0), b"of the next run") is None
    gate.release(place)
    assert result_in_time(begun(scope.endBatch, 0, PATIENT), "the end of the batch") is None
    assert [scope.durable(path(partition, 0)) for partition in range(2)] == [b"of the next run"] * 2


def test_nothing_is_left_of_runs_that_have_ended(make_scope: Callable[..., Any]) -> None:
    """Each ends with a batch that was computed and not entered, as when it is stopped."""
    scopes = []
    for _ in range(6):
        scope = make_scope()
        scopes.append(scope)
        before = scope.remembered()
        for _ in range(5):
            run = f"run-{uuid.uuid4()}"
            scope.goBack(0)
            scope.restart(run)
            executor = scope.start()
            assert scope.task(executor, 0, path(0, 0), b"first") is None
            assert scope.endBatch(0, PATIENT) is None
            assert scope.task(executor, 1, path(0, 1), b"second") is None
            scope.runEnded(run)
            assert scope.remembered() == before
            assert "has ended without this task" in scope.task(executor, 2, path(0, 2), b"of a task that goes on")
            assert scope.remembered() == before
    until(lambda: sum(scope.busyThreads() for scope in scopes) == 0, "threads that wait for these batches to end")


class Batches(RuleBasedStateMachine):
    """Tasks, failures and deaths in any order: a batch that Spark enters into its commit log is durable."""

    make: Callable[[], Any]
    PARTITIONS = 3

    @initialize(executors=st.integers(1, 3))
    def begin(self, executors: int) -> None:
        self.scope = type(self).make()
        self.numbers = itertools.count()
        self.run = 0
        self.batch = 0
        self.alive = [self.scope.start() for _ in range(executors)]
        self.counting: dict[int, bytes] = {}
        self.durable: dict[str, bytes] = {}
        self.may_fail = False

    def _write(self, partition: int, action: Callable[..., Any], executor: int) -> tuple[bytes, Any]:
        data = b"%d" % next(self.numbers)
        return data, action(executor, self.batch, path(partition, self.batch), data)

    @rule(partition=st.integers(0, PARTITIONS - 1), executor=st.integers(0, 9))
    def task(self, partition: int, executor: int) -> None:
        """One that counts, and, if there is one already, replaces it: the first was lost or speculative."""
        data, failure = self._write(partition, self.scope.task, self.alive[executor % len(self.alive)])
        assert failure is None
        self.counting[partition] = data

    @rule(partition=st.integers(0, PARTITIONS - 1), executor=st.integers(0, 9))
    def failing_task(self, partition: int, executor: int) -> None:
        self._write(partition, self.scope.failingTask, self.alive[executor % len(self.alive)])

    @rule(executor=st.integers(0, 9))
    def reopen(self, executor: int) -> None:
        self.scope.reopen(self.alive[executor % len(self.alive)])
        self.may_fail = True

    @rule(executor=st.integers(0, 9), is_heard_of=st.booleans())
    def die(self, executor: int, is_heard_of: bool) -> None:
        self.scope.kill(self.alive.pop(executor % len(self.alive)), is_heard_of)
        self.alive.append(self.scope.start())
        self.may_fail = True

    @rule()
    def restart(self) -> None:
        """The query fails for another reason, and computes the batch again."""
        self.run += 1
        self.scope.restart(f"run-{self.run}")
        self.counting = {}
        self.may_fail = False

    @rule()
    def end_batch(self) -> None:
        failure = self.scope.endBatch(self.batch, HASTY if self.may_fail else PATIENT)
        if failure is not None:
            assert self.may_fail
            assert "PSS_BATCH_NOT_DURABLE" in failure
            self.restart()
            return
        for partition, data in self.counting.items():
            self.durable[path(partition, self.batch)] = data
        self.counting = {}
        self.may_fail = False
        self.batch += 1
        for name, data in self.durable.items():
            assert self.scope.durable(name) == data
            assert self.scope.isKnown(name)

    def teardown(self) -> None:
        if hasattr(self, "scope"):
            self.scope.close()


def test_any_history(make_scope: Callable[[], Any]) -> None:
    machine = type("AnyBatches", (Batches,), {"make": staticmethod(make_scope)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=25,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
        ),
    )
