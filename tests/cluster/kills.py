"""Kills that are chosen by dice."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import dataclass

from tests import sampling
from tests.cluster.application import Application, processes, until

MINUTES = float(os.environ.get("SOAK_MINUTES", "0"))
"""For so long processes are killed; 0 for one short round, which makes the same choices in each run."""

SEED = int(os.environ.get("SOAK_SEED") or (random.SystemRandom().randrange(1 << 32) if MINUTES else sampling.SEED))

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
    """One kill, chosen before anything of it happens.

    Attributes:
        victim: ``self``, whoever gets there first; ``driver``, while that executor goes on; or ``all``.
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
        """Feeds until somebody is dead, and starts the application again where its driver is."""
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
        if self.victim != "self" or order.done.get("process") == "driver":
            app.await_death()
            app.start_again()

    def _at_once(self, app: Application) -> None:
        if self.victim == "self":
            executors = until(app.executors, "an executor")
            with suppress(ProcessLookupError):
                os.kill(executors[self.choice % len(executors)], signal.SIGKILL)
        else:
            app.kill()
