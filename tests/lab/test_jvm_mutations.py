"""Damaged checkpoints in executors' hands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.jvm import JvmLab, build_worlds
from tests.lab.settings import JVM_MUTATIONS, SEED, attack_all, short_path

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("by_hand")]


@pytest.fixture(scope="module")
def lab(jvm: Any) -> Iterator[JvmLab]:
    with short_path() as root:
        yield JvmLab(build_worlds(jvm, root), root, SEED, jvm)


def test_undamaged_worlds_are_read_rightly(lab: JvmLab) -> None:
    for world in lab.worlds:
        world.lay_out(lab.root)
        findings = lab.undamaged(world)
        assert {found.outcome for found in findings} == {"read right"}, [str(found) for found in findings]


@pytest.mark.slow
def test_every_attack_is_answered_rightly_or_refused(lab: JvmLab) -> None:
    attack_all(JVM_MUTATIONS, lab.trial, __file__)
