"""Damaged checkpoints in Python's hands: nothing that was readable gets lost, and nothing wrong is answered."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.damage.attacks import KINDS, choose, torn
from tests.damage.builders import World, build_all
from tests.damage.settings import MUTATIONS, SEED, attack_all, short_path
from tests.damage.trial import AttackRunner


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    with short_path() as path:
        yield path


@pytest.fixture(scope="module")
def worlds(root: Path) -> list[World]:
    return build_all(root)


@pytest.mark.slow
def test_every_attack_is_answered_rightly_or_refused(worlds: list[World], root: Path) -> None:
    attack_all(MUTATIONS, AttackRunner(worlds, root, SEED).trial, __file__)


def test_undamaged_worlds_are_read_rightly(worlds: list[World], root: Path) -> None:
    runner = AttackRunner(worlds, root, SEED)
    for world in worlds:
        world.lay_out(root)
        findings = runner.undamaged(world)
        assert {found.outcome for found in findings} == {"read right"}, findings


def test_all_kinds_of_attack_are_made(worlds: list[World]) -> None:
    numbers = random.Random(SEED)
    made = {choose(numbers, world.files, world.targets).kind for world in worlds for _ in range(40)}
    assert made == set(KINDS)


@pytest.mark.parametrize(
    ("data", "flushed", "whole"),
    [
        (b"PSSMERG1\x14\0\0\0headPAYLO", True, False),
        (b"PSSMERG1\x14\0\0\0headPAYLO\0\0", True, False),
        (b"PSSMERG1\x14\0\0\0hea", True, True),
        (b"", True, True),
        (bytes(23), True, True),
        (b"PSSMERG1\x14\0\0\0headPAYLOAE", False, False),
        (b"PSSMERG1\x14\0\0\0headPAYLOAD+", False, False),
        (bytes(12) + b"headPAYLOAD", False, False),
    ],
)
def test_what_looks_like_a_crash(data: bytes, flushed: bool, whole: bool) -> None:
    """A beginning, and zeros; of a file that appears whole only what says nothing of that."""
    original = b"PSSMERG1\x14\0\0\0headPAYLOAD"
    assert torn(original, data, True) is flushed
    assert torn(original, data, False) is whole


def test_a_group_without_its_end_looks_torn(worlds: list[World]) -> None:
    """Whatever is missing of it; with its end, which is in a wrong place then, it does not."""
    world = next(world for world in worlds if world.name == "open, heap")
    original = world.files[world.targets[-1]]
    assert torn(original, original[:-100] + original[-63:], flushed=True)
    assert not torn(original, original[:-100] + original[-64:], flushed=True)
    assert not torn(original, original[:-100] + original[-63:], flushed=False)
    assert not torn(original, original[:500] + original[600:-63], flushed=True)
