"""Executors are killed at chosen points of what they do, and the query goes on as if nothing had happened."""

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

POINTS = {
    "while a task runs": ("row", NOTHING, ""),
    "before the flush of a commit": ("flush.commit", NOTHING, ""),
    "in the flush of a commit": ("flush.commit", PART, ""),
    "after the flush of a commit, before anybody knows": ("flush.commit", ALL, ""),
    "before a snapshot is flushed": ("flush.snapshot", NOTHING, ""),
    "in the flush of a snapshot": ("flush.snapshot", PART, ""),
    "after the flush of a snapshot": ("flush.snapshot", ALL, ""),
    "before a relocation is announced": ("create.relocating", NOTHING, ""),
    "after a relocation is announced": ("create.relocating", ALL, ""),
    "before relocated segments are flushed": ("flush.relocation", NOTHING, ""),
    "in the flush of relocated segments": ("flush.relocation", PART, ""),
    "after relocated segments are flushed": ("flush.relocation", ALL, ""),
    "before the end of a relocation": ("delete.relocating", NOTHING, "flush.relocation"),
    "after the end of a relocation": ("delete.relocating", ALL, "flush.relocation"),
    "in a seal": ("flush.seal", PART, ""),
    "before a merged file is there": ("create.merged", NOTHING, ""),
    "with an empty merged file": ("create.merged", ALL, ""),
}

CLEANING = {
    "between relocation and unlink": ("delete.merged", NOTHING, "flush.relocation"),
    "after an unlink": ("delete.merged", ALL, ""),
    "in the flush of tombstones": ("flush.tombstones", PART, ""),
    "after the flush of tombstones": ("flush.tombstones", ALL, ""),
    "while it reads what others wrote": ("open.merged", NOTHING, ""),
}
"""What executors do only where there is no index service."""


@pytest.fixture(scope="module")
def app(jars: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """An application for all points: only its executors die."""
    with application(tmp_path_factory.mktemp("executors"), Setting(), jars) as made:
        made.feed(5)
        made.start()
        made.finish()
        yield made


@pytest.fixture(scope="module")
def app_without_service(jars: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """As ``app``, and each executor reads and cleans by itself."""
    with application(tmp_path_factory.mktemp("alone"), Setting(index_service=False), jars) as made:
        made.feed(5)
        made.start()
        made.finish()
        yield made


@pytest.mark.parametrize("point", sampled([*POINTS], 5, kind=lambda point: POINTS[point][0].partition(".")[0]))
def test_an_executor_dies(app: Application, graveyard: Graveyard, point: str) -> None:
    _kill(app, *POINTS[point])
    check(app, graveyard)


def _kill(app: Application, where: str, fraction: float, after: str) -> None:
    order = app.order(where, fraction=fraction, after=after, process="executor")
    app.feed_until_killed(order)
    app.finish()
    assert order.done["pids"] == f"[{order.done['by']}]"


def test_nothing_is_left_of_all_that(app: Application, graveyard: Graveyard) -> None:
    check_at_the_end(app, graveyard)


@pytest.mark.parametrize("point", sampled([*POINTS, *CLEANING], 1, kind=lambda point: ""))
def test_an_executor_without_index_service_dies(app_without_service: Application, point: str) -> None:
    graveyard = Graveyard(app_without_service.state)
    _kill(app_without_service, *{**POINTS, **CLEANING}[point])
    check(app_without_service, graveyard)


def test_nothing_is_left_without_index_service(app_without_service: Application) -> None:
    check_at_the_end(app_without_service, Graveyard(app_without_service.state))
