"""Puts things of different sizes into as few bins as is quickly found; knows nothing of what they are."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import Any, TypeVar

Item = TypeVar("Item", bound=Any)


def pack(sizes: Mapping[Item, int], capacity: int) -> list[tuple[Item, ...]]:
    """Packs by best fit, the largest first.

    Depends on nothing but the arguments, not even on the order of the mapping. No two bins could be joined: an item
    only begins a bin where it fits into none. So packing the bins themselves again leaves each alone.

    Args:
        sizes: Of each item; items can be put in order.
        capacity: Of a bin. An item that is larger has one for itself.

    Returns:
        The items of each bin in order, the bins in the order of their first items.
    """
    bins: list[list[Item]] = []
    room: list[tuple[int, int]] = []
    for item in sorted(sizes, key=lambda item: (-sizes[item], item)):
        at = bisect_left(room, (sizes[item], 0))
        if at < len(room):
            left, number = room.pop(at)
        else:
            left, number = capacity, len(bins)
            bins.append([])
        bins[number].append(item)
        insort(room, (left - sizes[item], number))
    return sorted(tuple(sorted(each)) for each in bins)
