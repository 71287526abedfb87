"""A query goes on while another process compacts, consolidates and removes orphans; both sides are killed at random.

``SOAK_MINUTES=240`` goes on for that long; ``SOAK_SEED=…`` repeats the choices of a run, which it prints.
"""

from __future__ import annotations

import datetime
import os
import random
import time
from pathlib import Path

import pytest

from pyspark_statestore.checkpoint import Checkpoint
from tests.cluster.application import PATIENCE, Application, Setting, application, until
from tests.cluster.checks import Graveyard, check, check_replays, names_in
from tests.cluster.kills import MINUTES, SEED, Kill
from tests.cluster.maintainer import Maintainer, Story

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.sweep(0, files="clusters")]

KILLS = 5 if MINUTES else 1
"""Of executors, in a round."""

COMPACTIONS = 8 if MINUTES else 1
"""That moved something, in a round; half as many end in the middle."""

CLOSED_AFTER = 10.0
"""Seconds, of the query and of maintenance; a look may take half of that."""

SETTINGS = [
    Setting("aggregation", store="rocksdb", changelog=True),
    Setting("join", door="path", store="rocksdb", changelog=True),
    Setting("aggregation", store="rocksdb", changelog=False),
    Setting("aggregation", store="heap"),
]
"""Of the rounds, in turn."""

MOST_AMPLIFICATION = 1.2


def test_a_query_beside_maintenance(jars: tuple[Path, Path], tmp_path: Path) -> None:
    print(f"SOAK_SEED={SEED}")
    end = time.monotonic() + 60 * MINUTES
    rounds = 0
    while not rounds or time.monotonic() < end:
        setting = SETTINGS[rounds % len(SETTINGS)]
        print(f"round {rounds}: {setting}", flush=True)
        with application(tmp_path / str(rounds), setting, jars) as app:
            _round(app, SEED + rounds)
        app.delete()
        rounds += 1


def _round(app: Application, seed: int) -> None:
    generator = random.Random(seed)
    kills = [Kill.chosen(generator, ["self"]) for _ in range(KILLS)]
    maintainer = Maintainer(app.checkpoint, app.root / "maintainer", CLOSED_AFTER, seed)
    app.feed(3)
    app.start(options={"closed_after": f"{CLOSED_AFTER:.0f}s"})
    app.finish()
    leftovers = plant_leftovers(app.state)
    with Graveyard(app.state).watched() as graveyard:
        with maintainer.running():
            for kill in kills:
                print(f"batch {app.fed}: {kill}", flush=True)
                kill.carry_out(app)
                app.feed(2)
                if kill.wait:
                    app.finish()
                    check(app, graveyard)
            app.finish()
            while not _is_enough(maintainer.story()):
                app.feed()
                app.finish()
        story = maintainer.story()
        print(story, flush=True)
        assert not story.errors, story.errors
        assert not [path for path in leftovers if path.exists()]
        check(app, graveyard)
        check_replays(app)
        assert app.batch_result() == app.given_out()
        app.stop()
        assert_small_and_sound(app, graveyard)
    if MINUTES:  # tests/maintenance/test_restores.py restarts what was compacted
        _goes_on(app)


def plant_leftovers(state: Path) -> list[Path]:
    """What a stock query that crashed long ago has left: a temporary file, and an SST of a snapshot without a zip."""
    names = (".7.delta.0f2b9c64-4d0e-4b0c-9d52-0c6a4f0b8a11.TID12.tmp", "SSTs/000007-7f1d.sst")
    found = [state / "0" / "0" / name for name in names]
    for path in found:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"of no use")
        os.utime(path, (time.time() - 3600,) * 2)
    return found


def _is_enough(story: Story) -> bool:
    changed, interrupted = story.changed, story.interrupted
    if not changed["consolidate_index"] or not changed["remove_orphan_files"]:
        return False
    return changed["compact"] >= COMPACTIONS and interrupted["compact"] >= COMPACTIONS / 2


def assert_small_and_sound(app: Application, graveyard: Graveyard) -> None:
    """What a stopped query leaves can be cleaned up, and is whole."""
    closed_after = datetime.timedelta(seconds=CLOSED_AFTER)
    checkpoint = Checkpoint(app.checkpoint, closed_after=closed_after)
    maintenance = checkpoint.maintenance
    assert maintenance.verify().is_clean, maintenance.verify().damages

    def is_small() -> bool:
        maintenance.remove_orphan_files(closed_after, force=True, dry_run=False)
        # Files of killed executors count as closed when they are old enough.
        maintenance.compact(max_space_amplification=1.1, abandoned_after=closed_after)
        graveyard.visit()
        return len(names_in(app.state)) == 1

    until(is_small, f"one merged file in {app.state}", PATIENCE)
    (summary,) = checkpoint.inspect.summary().to_pylist()
    print(f"in the end: {summary}", flush=True)
    assert summary["space_amplification"] <= MOST_AMPLIFICATION, summary
    found = maintenance.verify()
    assert found.is_clean, found.damages


def _goes_on(app: Application) -> None:
    app.feed()
    app.start()
    app.finish()
    with Graveyard(app.state).watched() as graveyard:
        check(app, graveyard)
    app.stop()
