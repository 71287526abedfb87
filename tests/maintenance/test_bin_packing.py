"""Properties of packing."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from pyspark_statestore.maintenance.compaction_plan import pack

SIZES = st.dictionaries(st.text(max_size=3), st.integers(0, 120), max_size=40)
CAPACITY = st.integers(1, 100)


@given(SIZES, CAPACITY)
def test_each_item_is_in_one_bin(sizes: dict[str, int], capacity: int) -> None:
    assert sorted(item for each in pack(sizes, capacity) for item in each) == sorted(sizes)


@given(SIZES, CAPACITY)
def test_no_bin_is_too_full(sizes: dict[str, int], capacity: int) -> None:
    for each in pack(sizes, capacity):
        assert sum(sizes[item] for item in each) <= capacity or [sizes[item] > capacity for item in each] == [True]


@given(SIZES, CAPACITY, st.randoms())
def test_order_does_not_count(sizes: dict[str, int], capacity: int, random: object) -> None:
    items = list(sizes.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert pack(dict(items), capacity) == pack(sizes, capacity)


@given(SIZES, CAPACITY)
def test_no_two_bins_could_be_joined(sizes: dict[str, int], capacity: int) -> None:
    totals = [sum(sizes[item] for item in each) for each in pack(sizes, capacity)]
    assert all(a + b > capacity for a, b in combinations(totals, 2))


@given(SIZES, CAPACITY)
def test_bins_packed_again_stay_alone(sizes: dict[str, int], capacity: int) -> None:
    packed = {each: sum(sizes[item] for item in each) for each in pack(sizes, capacity)}
    assert [len(each) for each in pack(packed, capacity)] == [1] * len(packed)


def test_many_items_are_packed_quickly_and_well() -> None:
    sizes = {number: 1 + number * 7919 % 1000 for number in range(100_000)}
    bins = pack(sizes, 10_000)
    assert len(bins) <= 1.02 * sum(sizes.values()) / 10_000
