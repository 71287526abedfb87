"""Processes are killed at random points, one after the other, for as long as one likes.

``make soak SOAK_MINUTES=240`` goes on for that long; ``SOAK_SEED=…`` repeats the choices of a run, which it prints.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.cluster.application import Application, Setting, application, processes, until
from tests.cluster.checks import Graveyard, check, check_nothing_left, check_replays

pytestmark = [pytest.mark.slow, pytest.mark.spark]

MINUTES = float(os.environ.get("SOAK_MINUTES", "0"))
SEED = int(os.environ.get("SOAK_SEED", str(random.SystemRandom().randrange(1 << 32))))

KILLS = 12
"""Of a round; the first of its driver."""

SETTINGS = [
    Setting("aggregation", store="rocksdb", changelog=False),
    Setting("join", door="path", store="rocksdb", changelog=True),
    Setting("aggregation", store="heap"),
    Setting("join", store="rocksdb", changelog=False),
    Setting("aggregation", door="path", store="rocksdb", changelog=True),
    Setting("join", door="path", store="heap"),
]
"""Of the rounds, in turn."""

POINTS = {
    "row": 1,
    "flush.commit": 4,
    "flush.snapshot": 3,
    "flush.relocation": 3,
    "flush.tombstones": 1,
    "flush.seal": 2,
    "create.merged": 1,
    "delete.merged": 3,
    "create.relocating": 1,
    "delete.relocating": 1,
    "open.merged": 2,
}
"""By how often each is chosen."""


def _order_something(app: Application, generator: random.Random, victim: str) -> str:
    point = generator.choices([*POINTS], [*POINTS.values()])[0]
    fraction = generator.choice([0.0, round(generator.random(), 2), 1.0])
    nth = generator.choice([1, 1, 2, 5])
    app.order(point, fraction=fraction, nth=nth, victim=victim)
    return f"{victim} at {point} number {nth}, {fraction}"


def _await_death(app: Application, generator: random.Random, victim: str) -> None:
    """Feeds until the ordered kill has happened; where nobody comes to its point, at a moment of its own."""
    order = app.last_order
    for _ in range(generator.randrange(1, 4)):
        app.feed()
        until(lambda: order.done or app.committed >= app.fed or not app.driver_runs, "a batch or a kill")
        if order.done or not app.driver_runs:
            break
    if order.withdraw():
        app.feed()
        time.sleep(generator.random() / 2)
        if victim == "self":
            executors = app.executors()
            if executors:
                os.kill(generator.choice(executors), signal.SIGKILL)
        else:
            app.kill()
    else:
        until(lambda: order.done, "the end of a kill")
        until(lambda: not processes().keys() & set(order.dead), f"the death of {order.done}")
    app.kills += 1


def _round(app: Application, generator: random.Random) -> None:
    graveyard = Graveyard(app.state)
    app.feed(3)
    app.start()
    app.finish()
    for number in range(KILLS):
        victim = generator.choice(["driver", "all"]) if number == 0 else "self"
        print(f"batch {app.fed}: {_order_something(app, generator, victim)}", flush=True)
        _await_death(app, generator, victim)
        graveyard.visit()
        if victim != "self":
            app.await_death()
            graveyard.visit()
            app.start()
        if generator.random() < 0.25:
            app.finish()
            check(app, graveyard)
    app.feed(2)
    app.finish()
    check(app, graveyard)
    check_replays(app)
    assert app.batch_result() == app.given_out()
    check_nothing_left(app, graveyard)
    app.stop()


def test_soak(jars: tuple[Path, Path], tmp_path: Path) -> None:
    print(f"SOAK_SEED={SEED}")
    generator = random.Random(SEED)
    end = time.monotonic() + 60 * MINUTES
    kills = 0
    rounds = 0
    while rounds < 3 or time.monotonic() < end:
        setting = SETTINGS[rounds % len(SETTINGS)]
        print(f"round {rounds}: {setting}", flush=True)
        with application(tmp_path / str(rounds), setting, jars) as app:
            _round(app, generator)
        kills += app.kills
        rounds += 1
        app.delete()
    print(f"{kills} kills in {rounds} rounds")
    assert kills >= 30
