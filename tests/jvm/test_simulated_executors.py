"""What executors ask of a file system with an index service and without one, counted call by call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from benchmarks.simulated_executors import Simulation

pytestmark = pytest.mark.spark

EXECUTORS, PARTITIONS = 50, 200
LARGE = 20_000
"""Bytes of a commit of which four fill a file."""


@pytest.fixture
def simulate(jvm: Any, tmp_path: Path) -> Iterator[Callable[..., Simulation]]:
    """Makes simulations: ``simulate(executors, partitions, served=True)``."""
    with ExitStack() as made:

        def make(executors: int, partitions: int, *, served: bool, **more: Any) -> Simulation:
            directory = tmp_path / f"{executors}-{partitions}-{served}"
            return made.enter_context(Simulation(jvm, directory, executors, partitions, served, **more))

        yield make


def test_executors_ask_the_file_system_for_nothing_but_data(simulate: Callable[..., Simulation]) -> None:
    query = simulate(EXECUTORS, PARTITIONS, served=True)
    first = query.step("batch")
    # The directory, and whether stock Spark has left anything.
    assert (first.driver, first.executors, first.reading) == ({"listStatus": 2}, {}, {})
    assert first.writing == {"create": EXECUTORS, "addBlock": EXECUTORS}

    assert query.step("batch", "batchThatLoads").total == 0

    snapshots = query.step("maintain")
    assert (snapshots.driver, snapshots.executors, snapshots.reading) == ({}, {}, {})
    assert snapshots.writing == {"create": EXECUTORS, "addBlock": EXECUTORS}

    query.java.move(PARTITIONS // 10)
    moved = query.step("batch")
    assert (moved.driver, moved.executors, moved.writing) == ({}, {}, {})
    # The new owner of a partition reads its snapshot. Each file is opened once by each executor that reads in it.
    assert moved.reading == {"open": PARTITIONS // 10}
    assert query.step("batchThatLoads").total == 0


@pytest.mark.parametrize("executors", [10, EXECUTORS])
def test_a_cold_start_reads_each_index_once_whatever_the_number_of_executors(
    simulate: Callable[..., Simulation], executors: int
) -> None:
    query = simulate(executors, PARTITIONS, served=True, commit_bytes=200)
    query.step("batch", "batch", "maintain", "batch")
    files = query.files
    assert files == 2 * executors

    query.java.killAll()
    cold = query.step("batch")

    assert cold.driver == {"listStatus": 1, "open": files}
    assert cold.executors == {}
    # Each executor opens the two files that the one before it has left.
    assert cold.reading == {"open": files}
    assert sum(cold.driver.values()) + sum(cold.reading.values()) <= 2 * files + 20
    assert query.step("batchThatLoads").total == 0


def test_a_lost_executor_costs_the_driver_its_files_ends(simulate: Callable[..., Simulation]) -> None:
    query = simulate(EXECUTORS, PARTITIONS, served=True)
    query.step("batch", "maintain")
    query.java.killExecutor(3)

    again = query.step("batch")
    assert (again.driver, again.executors, again.reading) == ({}, {}, {"open": 1})
    # A pass reads what the dead executor may have written and not reported.
    assert query.step("clean").by("driver") == {"listStatus": 1, "open": 2}


def test_the_driver_lists_once_in_a_maintenance_interval(simulate: Callable[..., Simulation]) -> None:
    query = simulate(EXECUTORS, PARTITIONS, served=True, commit_bytes=LARGE)
    query.step("batch")
    assert query.files == EXECUTORS
    first = query.step("clean")
    # Each executor has sealed a file by now: an index-only file repeats them.
    assert first.driver == {"listStatus": 1, "create": 1, "addBlock": 1, "complete": 1}

    query.step("maintain", "batch", "maintain", "batch")
    before = query.files
    unlinked = query.step("clean")
    written = unlinked.driver.get("create", 0)
    gone = before + written - query.files
    assert gone >= EXECUTORS
    assert {**unlinked.driver, "create": 0, "addBlock": 0, "complete": 0} == {
        **{"listStatus": 1, "delete": gone},
        **{"create": 0, "addBlock": 0, "complete": 0},
    }
    # An index-only file, and the driver's own for deletions that outlive their files.
    assert written <= 2
    assert (first.executors, unlinked.executors, unlinked.reading) == ({}, {}, {})
    assert query.step("clean").driver["listStatus"] == 1


def test_a_cold_driver_opens_an_index_only_file_for_all_that_are_sealed(simulate: Callable[..., Simulation]) -> None:
    query = simulate(EXECUTORS, PARTITIONS, served=True, commit_bytes=LARGE)
    query.step("batch", "clean")
    query.java.killAll()

    cold = query.step("batch")
    assert (cold.driver, cold.executors) == ({"listStatus": 1, "open": 1}, {})


@pytest.mark.parametrize("executors", [3, 6])
def test_without_a_service_calls_grow_with_the_square_of_the_executors(
    simulate: Callable[..., Simulation], executors: int
) -> None:
    query = simulate(executors, 12, served=False)
    query.step("batch")

    assert query.step("batch").total == 0
    # Each executor takes over a partition, and reads the ends of all others' files for it.
    query.java.move(executors)
    moved = query.step("batch")
    assert moved.executors == {"listStatus": executors, "open": executors * (executors - 1)}
    assert (moved.driver, moved.writing, moved.reading) == ({}, {}, {"open": executors})

    query.java.killAll()
    cold = query.step("batch")
    # Executors find those files, too, that others of this life have begun before them.
    begun = executors * (executors - 1) // 2
    assert cold.executors == {"listStatus": executors, "open": executors * executors + begun}
