"""Damaged checkpoints in executors' hands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.damage.jvm import JvmAttackRunner, build_worlds
from tests.damage.settings import JVM_MUTATIONS, SEED, attack_all, short_path

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("by_hand")]


@pytest.fixture(scope="module")
def runner(jvm: Any) -> Iterator[JvmAttackRunner]:
    with short_path() as root:
        yield JvmAttackRunner(build_worlds(jvm, root), root, SEED, jvm)


def test_undamaged_worlds_are_read_rightly(runner: JvmAttackRunner) -> None:
    for world in runner.worlds:
        world.lay_out(runner.root)
        findings = runner.undamaged(world)
        assert {found.outcome for found in findings} == {"read right"}, [str(found) for found in findings]


@pytest.mark.slow
def test_every_attack_is_answered_rightly_or_refused(runner: JvmAttackRunner) -> None:
    attack_all(JVM_MUTATIONS, runner.trial, __file__)
