"""How many attacks there are, and what it repeats.

``PSS_DAMAGE_MUTATIONS``, ``PSS_DAMAGE_JVM_MUTATIONS`` and ``PSS_DAMAGE_RESTARTS`` say how many attacks there are,
``PSS_DAMAGE_SEED`` which ones, and ``PSS_DAMAGE_ONLY=17`` makes that one alone.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.damage.trial import Finding, Tally

SEED = int(os.environ.get("PSS_DAMAGE_SEED", "1"))
ONLY = os.environ.get("PSS_DAMAGE_ONLY")
MUTATIONS = int(os.environ.get("PSS_DAMAGE_MUTATIONS", "60"))
JVM_MUTATIONS = int(os.environ.get("PSS_DAMAGE_JVM_MUTATIONS", "5"))
RESTARTS = int(os.environ.get("PSS_DAMAGE_RESTARTS", "2"))


def attack_all(count: int, trial: Callable[[int], Iterable[Finding]], test: str) -> None:
    """Makes all attacks and prints what came of them; fails where one has shown a defect."""
    tally = Tally()
    for number in [int(ONLY)] if ONLY else range(count):
        tally.add(trial(number))
    report = tally.report(f"PSS_DAMAGE_SEED={SEED} PSS_DAMAGE_ONLY={{number}} python -m pytest -s {test}")
    print(f"\nPSS_DAMAGE_SEED={SEED}\n{report}")
    assert not tally.failures, f"{len(tally.failures)} findings\n\n{report}"


@contextmanager
def short_path() -> Iterator[Path]:
    """A directory whose path is as long in each run: pins and references have it in them."""
    with tempfile.TemporaryDirectory(prefix="dmg-") as path:
        yield Path(path).resolve() / "world"
