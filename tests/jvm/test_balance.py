"""Which partitions move where: the rule, over random executors and partitions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.spark

TOLERANCE = 0.2
EXECUTORS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 8), min_size=1, max_size=6)
UNITS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(0.1, 20)), min_size=1, max_size=60)
Units = Sequence[tuple[str, float]]


def moves(jvm: Any, executors: dict[str, int], units: Units, most: int, batches: int) -> list[dict[str, Any]]:
    asked = {"executors": list(executors.items()), "units": list(units), "most": most, "batches": batches}
    found: list[dict[str, Any]] = json.loads(jvm.io.pyspark.statestore.balance.Balances.moves(json.dumps(asked)))
    return found


def loads(executors: dict[str, int], units: Units) -> dict[str, float]:
    """What each has, in proportion to its slots."""
    sums = dict.fromkeys(executors, 0.0)
    for where, weight in units:
        sums[where] += weight / executors[where]
    return sums


@given(executors=EXECUTORS, units=UNITS, most=st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_moves(jvm: Any, executors: dict[str, int], units: list[tuple[str, float]], most: int) -> None:
    share = sum(weight for _, weight in units) / sum(executors.values())
    for number, batch in enumerate(moves(jvm, executors, units, most, 80)):
        moved = {int(unit): to for unit, to in batch["moves"].items()}
        homeless = {i for i, (where, _) in enumerate(units) if where not in executors}
        assert homeless <= moved.keys(), "who has lost its executor gets another one at once"
        assert number == 0 or not homeless
        assert len(moved.keys() - homeless) <= most
        assert set(moved.values()) <= executors.keys(), "never where no tasks are taken"
        assert all(units[unit][0] != to for unit, to in moved.items())
        before = units
        units = [(moved.get(i, where), weight) for i, (where, weight) in enumerate(units)]
        if not homeless:
            highest = max(loads(executors, before).values())
            assert max(loads(executors, units).values()) <= highest + 1e-9, "nobody has more than who had most"
            within = [abs(load / share - 1) <= TOLERANCE for load in loads(executors, before).values()]
            assert not (all(within) and moved), "what is even stays"
    assert batch["even"]
    assert not batch["moves"], "it comes to rest"
    for load in loads(executors, units).values():
        # Where it is not even, no partition of those that have too much would help.
        lightest = min((weight for _, weight in units), default=0)
        assert load <= share * (1 + TOLERANCE) + max(weight for _, weight in units)
        assert load >= share * (1 - TOLERANCE) - max(weight for _, weight in units) - lightest


@pytest.mark.parametrize("partitions", [4, 6, 8, 12, 50, 200, 1000])
def test_two_executors_become_four(jvm: Any, partitions: int) -> None:
    units = [("ab"[i % 2], 1.0) for i in range(partitions)]
    batches = moves(jvm, dict.fromkeys("abcd", 1), units, -(-partitions // 4), 3)
    moved = [int(unit) for batch in batches for unit in batch["moves"]]
    assert batches[-1]["even"]
    assert len(moved) == len(set(moved)), "none moves twice"
    counts = Counter(where for where, _ in units)
    for batch in batches:
        for unit, to in batch["moves"].items():
            counts[units[int(unit)][0]] -= 1
            counts[to] += 1
    assert all(abs(counts[each] / (partitions / 4) - 1) <= TOLERANCE or partitions < 8 for each in "abcd"), counts
    assert len(moved) <= partitions // 2 + 1, "the fewest"


def test_the_heavy_ones_are_spread(jvm: Any) -> None:
    """Counts are even, and one executor has all that is heavy."""
    units = [("a", 10.0)] * 4 + [("b", 1.0)] * 4
    batch = moves(jvm, {"a": 1, "b": 1}, units, 2, 1)[0]
    assert sorted(batch["moves"].values()) == ["b", "b"]
    assert batch["even"]


def test_an_executor_that_takes_no_more_keeps_what_it_has(jvm: Any) -> None:
    units = [("a", 1.0)] * 8 + [("b", 1.0)] * 2
    asked = {"executors": [("a", 1), ("b", 1, False), ("c", 1)], "units": units, "most": 9, "batches": 1}
    batch = json.loads(jvm.io.pyspark.statestore.balance.Balances.moves(json.dumps(asked)))[0]
    assert set(batch["moves"].values()) == {"c"}
    assert all(units[int(unit)][0] == "a" for unit in batch["moves"])


def test_shares_follow_slots(jvm: Any) -> None:
    units = [("a", 1.0)] * 12
    batches = moves(jvm, {"a": 1, "b": 3}, units, 12, 2)
    assert 7 <= len(batches[0]["moves"]) <= 9
    assert batches[1]["moves"] == {}
