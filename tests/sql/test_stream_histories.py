"""A stream gives every write out once, however files are written, moved and unlinked meanwhile."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark_checkpoint_files import stream_limited

from tests.sampling import sampled
from tests.sql.histories import Follower, World

pytestmark = pytest.mark.sweep(1, files="a table as a stream")

STEPS = 120


@pytest.mark.parametrize("group_is_file", [False, True], ids=["appended", "group_is_file"])
@pytest.mark.parametrize("seed", sampled(range(15), 3))
def test_each_write_comes_once_in_any_history(tmp_path: Path, seed: int, group_is_file: bool) -> None:
    world = World(tmp_path, seed, group_is_file=group_is_file)
    follower = Follower(tmp_path)
    for _ in range(STEPS):
        world.step()
        if world.random.random() < 0.3:
            end = follower.plan()
            world.looked()
            if end != follower.offset:
                # The files are moved while the batch is read, and it is read again after a restart.
                if world.random.random() < 0.5:
                    first = follower.read(end)
                    world.relocate()
                    follower.restart()
                    assert set(follower.read(end)) == set(first)
                follower.take(end)
        if world.random.random() < 0.1:
            follower.restart()
        if world.random.random() < 0.1:
            follower.batch(at_most=world.random.randint(1, 5))
            world.looked(took_all=False)
    while any(file.held for file in world.files.values()):
        world.flush()
    while follower.batch(at_most=7):
        pass

    assert [path for path, times in Counter(follower.rows).items() if times > 1] == []
    there = {write.path for write in world.writes if write.places}
    assert there - set(follower.rows) == set()
    assert len(json.dumps(follower.offset)) < 1500


@pytest.mark.parametrize("seed", range(5))
def test_what_was_moved_while_nobody_looked_comes_once(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    follower = Follower(tmp_path)
    for _ in range(30):
        world.write()
    follower.batch()
    world.looked()
    for _ in range(30):
        world.write()
    for _ in range(40):
        world.seal()
    before = set(world.files)
    for _ in range(60):
        world.relocate()
        world.unlink()
    assert len(before & set(world.files)) < len(before)

    follower.restart()
    follower.batch()

    assert sorted(follower.rows) == sorted(write.path for write in world.writes)


def test_available_now_waits_for_commits_that_others_would_overtake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, 0, created_ms=int(time.time() * 1000) - 1000)
    slow: list[str] = []
    while not slow:
        world.hold()
        world.write()
        slow = [write.path for write in world.writes if not write.places]
    follower = Follower(tmp_path, settledAfter="2s")
    waited: list[float] = []

    def arrive_meanwhile(seconds: float) -> None:
        waited.append(seconds)
        world.flush()

    # Of this module only: py4j has a thread that sleeps, too.
    monkeypatch.setattr(stream_limited, "time", SimpleNamespace(sleep=arrive_meanwhile))
    follower.reader.prepareForTriggerAvailableNow()
    monkeypatch.undo()
    world.write()
    rows = follower.batch()

    assert waited == [2.0]
    assert rows == [write.path for write in world.writes if write.path in rows]
    assert set(slow) <= set(rows)
    assert follower.batch() == []


@pytest.mark.parametrize("seed", range(3))
def test_the_offset_stays_small_however_many_files_there_were(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    follower = Follower(tmp_path)
    for _ in range(60):
        world.write()
        world.seal()
        follower.batch(at_most=5)
    while follower.batch():
        pass

    assert len(world.files) > 30
    assert len(json.dumps(follower.offset)) < 400
