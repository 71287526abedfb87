"""What the tasks of a batch commit becomes durable when the batch ends: on several executors, which are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.application import Application, Setting, application, until
from tests.cluster.checks import Graveyard, check, check_at_the_end

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.sweep(0, files="clusters")]

SCOPE = {"group_commit_scope": "batch"}


@pytest.fixture(scope="module")
def app(jars: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """An application whose executors and driver die, one after the other."""
    with application(tmp_path_factory.mktemp("batches"), Setting("join", store="heap"), jars) as made:
        made.feed(3)
        made.start(options=SCOPE)
        made.finish()
        yield made


def test_an_executor_dies_at_the_end_of_a_batch(app: Application, graveyard: Graveyard) -> None:
    """Its tasks have ended, what they have committed is gone, and the query fails: nothing else is right."""
    before = app.committed
    order = app.order("flush.commit", process="executor")
    app.feed()
    app.await_death()
    assert order.done
    assert "PSS_BATCH_NOT_DURABLE" in (app.root / "driver.log").read_text()
    assert app.committed == before, "a batch was entered into the commit log that is not durable"
    app.start(options=SCOPE)
    app.finish()
    check(app, graveyard)


def test_an_executor_dies_in_a_task(app: Application, graveyard: Graveyard) -> None:
    """Whether the batch fails depends on what other tasks of the executor have committed in it."""
    order = app.order("row", nth=5, process="executor")
    app.feed(2)
    until(lambda: order.done and (app.committed >= app.fed or not app.driver_runs), "a kill and what comes of it")
    if not app.driver_runs:
        app.await_death()
        app.start(options=SCOPE)
    app.finish()
    check(app, graveyard)


def test_all_die_and_the_query_goes_on(app: Application, graveyard: Graveyard) -> None:
    order = app.order("flush.commit", fraction=1.0, victim="all")
    app.feed()
    app.await_death()
    assert order.done
    app.start(options=SCOPE)
    check_at_the_end(app, graveyard)
