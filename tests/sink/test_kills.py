"""Drivers and executors are killed around the compaction of a batch, while a reader reads all the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_statestore import Sink
from tests.cluster.application import Application, Setting, application
from tests.sampling import sampled
from tests.sink.manifest import ids, listed, reader

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.sweep(0, files="clusters")]

VALUES = 3
"""Of the partition column."""

POINTS = {
    "an executor, before a task writes": ("executor", "create.staged", 0.0, 3),
    "an executor, after a task wrote": ("executor", "create.staged", 1.0, 5),
    "an executor, before it reads what is to be joined": ("executor", "open.staged", 0.0, 4),
    "an executor, before it writes what it joins": ("executor", "create.joined", 0.0, 1),
    "an executor, after it began to write what it joins": ("executor", "create.joined", 1.0, 2),
    "the driver, before it publishes": ("driver", "rename.published", 0.0, 1),
    "the driver, while it publishes": ("driver", "rename.published", 1.0, 2),
    "the driver, before the list names the files": ("driver", "rename.sinklog", 0.0, 1),
    "the driver, after the list names the files": ("driver", "rename.sinklog", 1.0, 1),
    "the driver, before it deletes what was staged": ("driver", "delete.staged", 0.0, 1),
}

WAITING_POINTS = {
    "an executor, after it began to write what is to wait": ("executor", "create.waiting", 1.0, 1),
    "the driver, before it says what waits": ("driver", "create.waiting", 0.0, 1),
    "the driver, after it said what waits": ("driver", "create.waiting", 1.0, 2),
    "the driver, before the list names what waits": ("driver", "rename.sinklog", 0.0, 2),
    "the driver, after the list names what waits": ("driver", "rename.sinklog", 1.0, 2),
    "the driver, while it publishes what waited": ("driver", "rename.published", 1.0, 2),
    "the driver, before it deletes what waited": ("driver", "delete.waiting", 0.0, 1),
    "the driver, after it deleted some of what waited": ("driver", "delete.waiting", 1.0, 2),
}
WAITING = {"sink_max_delay": "10h", "sink_target_file_size": "6k"}
"""Some batches wait for the next ones."""


@pytest.fixture(scope="module")
def app(jars: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """An application for all points: what is on the disk stays."""
    with application(tmp_path_factory.mktemp("sink"), Setting(sink="parquet"), jars) as made:
        made.feed(2)
        made.start()
        made.finish()
        yield made


def expected(app: Application) -> Counter[str]:
    """The rows that are fed, by their pad."""
    return Counter(row[3] for row in app.rows())


@pytest.mark.parametrize("point", sampled([*POINTS], 2, kind=lambda point: POINTS[point][0]))
def test_a_process_dies(app: Application, point: str) -> None:
    wrong = die(app, POINTS[point])
    assert wrong == []
    assert ids(app.files, "pad") == expected(app)


def die(app: Application, point: tuple[str, str, float, int], most_files: int = VALUES) -> list[str]:
    """Lets a process die at a point and the query go on; what a reader found wrong meanwhile."""
    process, where, fraction, nth = point
    with reader(app.files, "pad", most_files) as wrong:
        order = app.order(where, fraction=fraction, nth=nth, process=process)
        app.feed_until_killed(order)
        if process == "driver":
            app.await_death()
            app.start_again()
        app.finish()
    return wrong


def test_what_is_left_of_all_that_is_in_staging(app: Application) -> None:
    app.feed()
    app.finish()
    named = {file for files in listed(app.files).values() for file in files}
    present = {path for path in app.files.rglob("part-*") if "_staging" not in path.parts}

    assert named <= present
    # A driver that died while it published has left files that no list names, as stock Spark does.
    assert len(present - named) <= VALUES * app.kills
    assert ids(app.files, "pad") == expected(app)
    app.stop()


@pytest.fixture(scope="module")
def waiting(jars: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """The same, where rows wait."""
    with application(tmp_path_factory.mktemp("waiting"), Setting(sink="parquet"), jars) as made:
        made.feed(2)
        made.start(options=WAITING)
        made.finish()
        yield made


@pytest.mark.parametrize("point", sampled([*WAITING_POINTS], 1))
def test_a_process_dies_while_rows_wait(waiting: Application, point: str) -> None:
    wrong = die(waiting, WAITING_POINTS[point], 2 * VALUES)

    assert wrong == []
    assert ids(waiting.files, "pad") <= expected(waiting)
    assert Sink(waiting.files).verify().is_clean


def test_in_the_end_nothing_waits(waiting: Application) -> None:
    assert ids(waiting.files, "pad")
    while not Sink(waiting.files).waiting().num_rows:
        waiting.feed()
        waiting.finish()
    waiting.stop()
    waiting.start()
    waiting.feed()
    waiting.finish()

    assert ids(waiting.files, "pad") == expected(waiting)
    assert Sink(waiting.files).waiting().num_rows == 0
    waiting.stop()
