"""Drivers and executors are killed around the compaction of a batch, while a reader reads all the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.application import Application, Setting, application
from tests.sampling import sampled
from tests.sink.manifest import ids, listed, reader

pytestmark = [pytest.mark.slow, pytest.mark.spark]

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


@pytest.mark.parametrize("point", sampled([*POINTS], 3, kind=lambda point: POINTS[point][0]))
def test_a_process_dies(app: Application, point: str) -> None:
    process, where, fraction, nth = POINTS[point]
    with reader(app.files, "pad", VALUES) as wrong:
        order = app.order(where, fraction=fraction, nth=nth, process=process)
        app.feed_until_killed(order)
        if process == "driver":
            app.await_death()
            app.start_again()
        app.finish()
    assert wrong == []
    assert ids(app.files, "pad") == expected(app)


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
