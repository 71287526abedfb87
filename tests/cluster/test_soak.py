"""Processes are killed at random points, one after the other, for as long as one likes.

``make soak SOAK_MINUTES=240`` goes on for that long; ``SOAK_SEED=…`` repeats the choices of a run, which it prints.
"""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.application import Application, Setting, application, processes, until
from tests.cluster.checks import Graveyard, check, check_at_the_end

pytestmark = [pytest.mark.slow, pytest.mark.spark]

MINUTES = float(os.environ.get("SOAK_MINUTES", "0"))
SEED = int(os.environ.get("SOAK_SEED", str(random.SystemRandom().randrange(1 << 32))))

KILLS = 10
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


@dataclass(frozen=True)
class Kill:
    """One kill of the soak, chosen before anything of it happens.

    Attributes:
        victim: ``self``, an executor; ``driver``; or ``all``.
        point: Where.
        fraction: How much of the call there is done.
        nth: Which call of the process.
        batches: For how many batches to wait until a process gets there.
        delay: Where none does, the executor with the number ``choice`` is killed so many seconds after the next batch.
        choice: See there.
        wait: Whether to let the query recover, and to check it, before the next kill.
    """

    victim: str
    point: str
    fraction: float
    nth: int
    batches: int
    delay: float
    choice: int
    wait: bool

    @classmethod
    def chosen(cls, generator: random.Random, victims: list[str]) -> Kill:
        """Throws the dice, always so many times."""
        return cls(
            generator.choice(victims),
            generator.choices([*POINTS], [*POINTS.values()])[0],
            generator.choice([0.0, round(generator.random(), 2), 1.0]),
            generator.choice([1, 1, 2, 5]),
            generator.randrange(1, 4),
            round(generator.random() / 2, 3),
            generator.randrange(2),
            generator.random() < 0.25,
        )

    def carry_out(self, app: Application) -> None:
        """Feeds until somebody is dead."""
        order = app.order(self.point, fraction=self.fraction, nth=self.nth, victim=self.victim)
        for _ in range(self.batches):
            app.feed()
            until(lambda: order.done or app.committed >= app.fed or not app.driver_runs, "a batch or a kill")
            if order.done or not app.driver_runs:
                break
        if order.withdraw():
            app.feed()
            time.sleep(self.delay)
            self._at_once(app)
        else:
            until(lambda: order.done, "the end of a kill")
            until(lambda: not processes().keys() & set(order.dead), f"the death of {order.done}")
        app.kills += 1

    def _at_once(self, app: Application) -> None:
        if self.victim == "self":
            executors = until(app.executors, "an executor")
            with suppress(ProcessLookupError):
                os.kill(executors[self.choice % len(executors)], signal.SIGKILL)
        else:
            app.kill()


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
        if kill.victim != "self":
            app.await_death()
            app.start()
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
