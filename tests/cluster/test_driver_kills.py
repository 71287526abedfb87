"""Drivers are killed at chosen points, with or without their executors, and the query is started again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.application import Application, Setting, application
from tests.cluster.checks import Graveyard, check, check_at_the_end
from tests.sampling import sampled

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.sweep(0, files="clusters")]

NOTHING, PART, ALL = 0.0, 0.6, 1.0
"""How much of the call is done when the process dies."""

LOCAL, CLUSTER = "local[2]", "local-cluster[2,1,1024]"
POINTS = {
    "while a task runs": (LOCAL, "self", "row", NOTHING, ""),
    "in the flush of a commit": (LOCAL, "self", "flush.commit", PART, ""),
    "in the flush of a snapshot": (LOCAL, "self", "flush.snapshot", PART, ""),
    "in the flush of relocated segments": (LOCAL, "self", "flush.relocation", PART, ""),
    "between relocation and unlink": (LOCAL, "self", "delete.merged", NOTHING, "flush.relocation"),
    "while an executor flushes a commit": (CLUSTER, "driver", "flush.commit", PART, ""),
    "while an executor relocates": (CLUSTER, "driver", "flush.relocation", NOTHING, ""),
    "with its executors, while one flushes a snapshot": (CLUSTER, "all", "flush.snapshot", PART, ""),
    "while it reads for its executors": (CLUSTER, "self", "open.merged", NOTHING, ""),
    "before it unlinks for its executors": (CLUSTER, "self", "delete.merged", NOTHING, ""),
    "after it has unlinked for its executors": (CLUSTER, "self", "delete.merged", ALL, ""),
    "in the flush of tombstones for its executors": (CLUSTER, "self", "flush.tombstones", PART, ""),
}


@pytest.fixture(scope="module")
def app(jars: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """An application for all points: what is on the disk stays."""
    with application(tmp_path_factory.mktemp("drivers"), Setting(master=LOCAL), jars) as made:
        made.feed(5)
        yield made


@pytest.mark.parametrize("point", sampled([*POINTS], 2, kind=lambda point: POINTS[point][0]))
def test_a_driver_dies(app: Application, graveyard: Graveyard, point: str) -> None:
    master, victim, where, fraction, after = POINTS[point]
    app.start(master)
    app.finish()
    check(app, graveyard)  # of the death before

    # An executor kills its driver, or the driver itself gets to where only it does something.
    process = "driver" if victim == "self" else "executor"
    app.feed_until_killed(app.order(where, fraction=fraction, after=after, victim=victim, process=process))
    app.await_death()


def test_nothing_is_left_of_all_that(app: Application, graveyard: Graveyard) -> None:
    app.start()
    check_at_the_end(app, graveyard)
