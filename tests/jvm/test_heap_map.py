"""The heap store's map against full copies of a ``java.util.HashMap``, over many versions that share their rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.since("4.2", "the heap store's maps can be replaced from Spark 4.2 on")

GROUPS = st.one_of(st.none(), st.integers(0, 3))
NAMES = st.integers(0, 40).map(lambda number: f"name{number}" * (1 + number % 3))
LENGTHS = st.one_of(st.integers(0, 80), st.sampled_from([0, 700, 5000]))
VERSIONS = st.integers(0, 6)


@dataclasses.dataclass(frozen=True)
class Step:
    """One call of the model."""

    name: str
    arguments: tuple[Any, ...]


def step(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(*arguments).map(lambda chosen: Step(name, chosen))


PUT = step("put", VERSIONS, GROUPS, NAMES, LENGTHS, st.integers(0, 1 << 20))
STEPS = st.lists(
    st.one_of(
        PUT,
        PUT,
        PUT,
        step("remove", VERSIONS, GROUPS, NAMES),
        step("remove", VERSIONS, GROUPS, NAMES),
        step("putMany", VERSIONS, GROUPS, st.integers(0, 60), st.integers(1, 60), st.integers(0, 60)),
        step("removeMany", VERSIONS, GROUPS, st.integers(0, 60), st.integers(1, 60)),
        step("get", VERSIONS, GROUPS, NAMES),
        step("scan", VERSIONS, GROUPS),
        step("iterate", VERSIONS),
        step("hold", VERSIONS, GROUPS, st.integers(0, 5)),
        step("branch", VERSIONS),
        step("drop", VERSIONS),
    ),
    min_size=10,
    max_size=120,
)


@pytest.fixture(scope="module")
def package(_sessions: Any) -> Any:
    from pyspark import SparkContext

    return SparkContext._jvm.io.pyspark.statestore.heap


@given(steps=STEPS, has_prefix=st.booleans(), checksums=st.booleans(), hash_bits=st.sampled_from([0, 3, 11, 32]))
@settings(max_examples=300, suppress_health_check=list(HealthCheck))
def test_any_history(package: Any, steps: Sequence[Step], has_prefix: bool, checksums: bool, hash_bits: int) -> None:
    """Branch, put, remove, get, prefix scan, iterate, hold an iterator over writes, and drop, in any order."""
    model = package.HeapModel(has_prefix, checksums, hash_bits)
    for one in steps:
        if one.name != "scan" or has_prefix:
            getattr(model, one.name)(*one.arguments)
    model.checkAll()


@pytest.mark.parametrize("has_prefix", [False, True])
@pytest.mark.parametrize("hash_bits", [2, 32])
def test_grows_and_shrinks(package: Any, has_prefix: bool, hash_bits: int) -> None:
    """Thousands of rows come and go; what is left of the trie in the end is as small as it was in the beginning."""
    model = package.HeapModel(has_prefix, False, hash_bits)
    rows = 3000 if hash_bits == 32 else 300
    for number in range(rows):
        model.put(0, number % 5, f"key{number}", number % 50, number)
    full = model.branch(0)
    for number in range(rows):
        model.remove(full, number % 5, f"key{number}")
    model.checkAll()
    assert model.nodes(full) == 1
    assert hash_bits < 32 or model.nodes(0) > 4


def test_shared_rows_count_once(package: Any) -> None:
    """What ten versions say that they need together is what going through them counts."""
    model = package.HeapModel(False, False, 32)
    for number in range(2000):
        model.put(0, number % 5, f"key{number}", 24, number)
    one = model.heap()[0]
    for version in range(1, 10):
        assert model.branch(version - 1) == version
        for number in range(20):
            model.put(version, number % 5, f"key{(version * 97 + number) % 2100}", 24, version)
            model.remove(version, number % 5, f"key{(version * 31 + number) % 2100}")
    model.checkAll()
    counted, said = model.heap()
    assert said == counted
    assert model.tellsItsSize(9)
    assert one < counted < 3 * one  # ten copies would be ten times as much


@pytest.mark.parametrize("has_prefix", [False, True])
def test_readers_of_older_versions(package: Any, has_prefix: bool) -> None:
    """A task writes while maintenance reads older versions, and second attempts branch them."""
    assert package.HeapRace.run(has_prefix, 60, 120, 3) >= 30


def test_wrong_checksums_are_noticed(package: Any) -> None:
    """Rows are checked whichever way they are read, also in versions that have them from others."""
    assert list(package.HeapModel.noticingWrongChecksums()) == ["get", "iterator", "prefixScan", "entryIterator"]
