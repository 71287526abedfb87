"""Processes are killed at random points, one after the other, for as long as one likes.

``make soak SOAK_MINUTES=240`` goes on for that long; ``SOAK_SEED=…`` repeats the choices of a run, which it prints.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.cluster.application import Application, Setting, application
from tests.cluster.checks import Graveyard, check, check_at_the_end
from tests.cluster.kills import MINUTES, SEED, Kill

# Without minutes, this kills where the tests of drivers and executors do.
pytestmark = [pytest.mark.slow, pytest.mark.spark, *([] if MINUTES else [pytest.mark.sweep, pytest.mark.left_out])]

KILLS = 10 if MINUTES else 2
"""Of a round; the first of its driver."""

ROUNDS = 3 if MINUTES else 1
"""At least."""

SETTINGS = [
    Setting("aggregation", store="rocksdb", changelog=False),
    Setting("join", door="path", store="rocksdb", changelog=True),
    Setting("aggregation", store="heap"),
    Setting("join", store="rocksdb", changelog=False),
    Setting("aggregation", door="path", store="rocksdb", changelog=True),
    Setting("join", door="path", store="heap"),
    Setting("aggregation", store="rocksdb", changelog=True, is_remote=True),
    Setting("aggregation", store="rocksdb", changelog=False, is_remote=True),
]
"""Of the rounds, in turn; the seed says which is the first."""


def _round(app: Application, generator: random.Random) -> None:
    kills = [Kill.chosen(generator, ["self"] if number else ["driver", "all"]) for number in range(KILLS)]
    with Graveyard(app.state).watched() as graveyard:
        _kill_all(app, kills, graveyard)


def _kill_all(app: Application, kills: list[Kill], graveyard: Graveyard) -> None:
    app.feed(3)
    app.start()
    app.finish()
    for kill in kills:
        print(f"batch {app.fed}: {kill}", flush=True)
        kill.carry_out(app)
        if kill.wait:
            app.finish()
            check(app, graveyard)
    check_at_the_end(app, graveyard)


def test_soak(jars: tuple[Path, Path], tmp_path: Path) -> None:
    print(f"SOAK_SEED={SEED}")
    generator = random.Random(SEED)
    end = time.monotonic() + 60 * MINUTES
    kills = 0
    rounds = 0
    while rounds < ROUNDS or time.monotonic() < end:
        setting = SETTINGS[(SEED + rounds) % len(SETTINGS)]
        print(f"round {rounds}: {setting}", flush=True)
        with application(tmp_path / str(rounds), setting, jars) as app:
            _round(app, generator)
        if setting.is_remote:
            assert app.gone_from_disks() > 0
        kills += app.kills
        rounds += 1
        app.delete()
    print(f"{kills} kills in {rounds} rounds")
    assert kills >= ROUNDS * KILLS
