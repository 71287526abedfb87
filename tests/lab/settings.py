"""How much the lab does, and what it repeats.

``PSS_LAB_MUTATIONS``, ``PSS_LAB_JVM_MUTATIONS`` and ``PSS_LAB_RESTARTS`` say how many attacks there are,
``PSS_LAB_SEED`` which ones, and ``PSS_LAB_ONLY=17`` makes that one alone.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.trial import Finding, Tally

SEED = int(os.environ.get("PSS_LAB_SEED", "1"))
ONLY = os.environ.get("PSS_LAB_ONLY")
MUTATIONS = int(os.environ.get("PSS_LAB_MUTATIONS", "100"))
JVM_MUTATIONS = int(os.environ.get("PSS_LAB_JVM_MUTATIONS", "16"))
RESTARTS = int(os.environ.get("PSS_LAB_RESTARTS", "2"))


def attack_all(count: int, trial: Callable[[int], Iterable[Finding]], test: str) -> None:
    """Makes all attacks and prints what came of them; fails where one has shown a defect."""
    tally = Tally()
    for number in [int(ONLY)] if ONLY else range(count):
        tally.add(trial(number))
    report = tally.report(f"PSS_LAB_SEED={SEED} PSS_LAB_ONLY={{number}} python -m pytest -s {test}")
    print(f"\nPSS_LAB_SEED={SEED}\n{report}")
    assert not tally.failures, f"{len(tally.failures)} findings\n\n{report}"


@contextmanager
def short_path() -> Iterator[Path]:
    """A directory whose path is as long in each run: pins and references have it in them."""
    with tempfile.TemporaryDirectory(prefix="lab-") as path:
        yield Path(path).resolve() / "world"
