"""Processes are killed at random points, one after the other, for as long as one likes.

``make soak SOAK_MINUTES=240`` goes on for that long; ``SOAK_SEED=…`` repeats the choices of a run, which it prints.
``SOAK_BATCHES=1000`` goes on until there were so many batches, too, and leaves up to 20 of them between kills, so that
processes live longer. ``SOAK_ONLY=remote`` runs the settings only that have that in their names.
"""

from __future__ import annotations

import os
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

BATCHES = int(os.environ.get("SOAK_BATCHES", "0"))
"""Of all rounds together, at least."""

BETWEEN_KILLS = 20 if BATCHES else 0
"""At most so many batches, besides those that wait for a kill."""

_ALL_SETTINGS = [
    Setting("aggregation", store="rocksdb", changelog=False),
    Setting("join", door="path", store="rocksdb", changelog=True),
    Setting("aggregation", store="heap"),
    Setting("join", store="rocksdb", changelog=False),
    Setting("aggregation", door="path", store="rocksdb", changelog=True),
    Setting("join", door="path", store="heap"),
    Setting("aggregation", store="rocksdb", changelog=True, is_remote=True),
    Setting("aggregation", store="rocksdb", changelog=False, is_remote=True),
]
SETTINGS = [setting for setting in _ALL_SETTINGS if os.environ.get("SOAK_ONLY", "") in str(setting)]
"""Of the rounds, in turn; the seed says which is the first."""


def _round(app: Application, generator: random.Random) -> None:
    kills = [Kill.chosen(generator, ["self"] if number else ["driver", "all"]) for number in range(KILLS)]
    pauses = [generator.randint(0, BETWEEN_KILLS) for _ in kills]
    with Graveyard(app.state).watched() as graveyard:
        _kill_all(app, kills, pauses, graveyard)


def _kill_all(app: Application, kills: list[Kill], pauses: list[int], graveyard: Graveyard) -> None:
    app.feed(3)
    app.start()
    app.finish()
    for kill, pause in zip(kills, pauses, strict=True):
        app.feed(pause)
        app.finish()
        print(f"batch {app.fed}: {kill}", flush=True)
        kill.carry_out(app)
        if kill.wait:
            app.finish()
            check(app, graveyard)
    check_at_the_end(app, graveyard)


def test_soak(jars: tuple[Path, Path], tmp_path: Path) -> None:
    assert SETTINGS, "no setting has SOAK_ONLY in its name"
    print(f"SOAK_SEED={SEED}")
    generator = random.Random(SEED)
    end = time.monotonic() + 60 * MINUTES
    kills = batches = rounds = 0
    while rounds < ROUNDS or batches < BATCHES or time.monotonic() < end:
        setting = SETTINGS[(SEED + rounds) % len(SETTINGS)]
        print(f"round {rounds}: {setting}", flush=True)
        with application(tmp_path / str(rounds), setting, jars) as app:
            _round(app, generator)
        if setting.is_remote:
            assert app.gone_from_disks() > 0
        kills += app.kills
        batches += app.fed
        rounds += 1
        app.delete()
    print(f"{kills} kills in {batches} batches and {rounds} rounds")
    assert kills >= ROUNDS * KILLS
