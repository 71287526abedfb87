"""Samples of sweeps over every operation, failure and setting: ``make test`` runs some cases of each kind, soak all.

A parametrized test carries ``@pytest.mark.sweep(8)``: a sample has eight of its cases, with each value of a parameter.
Of tests that carry ``@pytest.mark.sweep(2, group="examples")`` it has two; of files whose tests carry
``@pytest.mark.sweep(2, files="clusters")`` it has two, or none where that says 0. ``PSS_REST=1`` runs the other files
of such groups, and nothing else: ``make test-rest``. With ``PSS_REST_SECONDS=900`` none of these tests begins later
than that, and the output counts those that did not; which files come last depends on ``PSS_REST_ORDER``. Continuous
integration, which is ended after 90 minutes, so tells a slow machine from a test that hangs, and each commit leaves out
other files. A run that is given files or folders has all that these name.
Where other things make kinds, it takes ``@pytest.mark.parametrize(names, sampled(cases, 8, kind=...))``. A test that
loops takes ``sample(cases, 8, kind=...)`` and ``@pytest.mark.sweep``. The choice depends on ``PSS_SAMPLE_SEED`` alone,
which a failure shows. ``PSS_EXHAUSTIVE=1`` runs everything, and lists what a sample leaves out.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pytest

EXHAUSTIVE = os.environ.get("PSS_EXHAUSTIVE") == "1"
REST = os.environ.get("PSS_REST") == "1"
REST_SECONDS = float(os.environ["PSS_REST_SECONDS"]) if REST and "PSS_REST_SECONDS" in os.environ else None
SEED = int(os.environ.get("PSS_SAMPLE_SEED", "13"))

NOT_BEGUN = "there was no time for it in this run: `make test-rest` without PSS_REST_SECONDS runs it"

_BEGUN = time.monotonic()

LOOPS: dict[str, tuple[int, int]] = {}
"""By test: how many cases of its loops a sample has, and how many there are."""

T = TypeVar("T")
_Kind = Callable[[Any], Hashable]


def _nothing(case: object) -> Hashable:
    return None


def chosen(cases: Collection[T], count: int, kind: _Kind = _nothing) -> list[T]:
    """A sample of cases in their order: at least one of each kind, and ``count`` in all where the kinds allow that."""
    everything = list(cases)
    order = list(range(len(everything)))
    random.Random(f"{SEED} {len(order)}").shuffle(order)
    first: dict[Hashable, int] = {}
    for at in order:
        first.setdefault(kind(everything[at]), at)
    taken = set(first.values())
    taken.update([at for at in order if at not in taken][: max(0, count - len(taken))])
    return [everything[at] for at in sorted(taken)]


def sampled(cases: Sequence[Any], count: int, kind: _Kind = _nothing) -> list[Any]:
    """Parameters of a test, of which ``make test`` runs a sample; see :func:`chosen`.

    Args:
        cases: Values, or tuples of them where the test has several parameters.
        count: How many are in the sample.
        kind: What a case is an example of.
    """
    taken = set(chosen(range(len(cases)), count, lambda at: kind(cases[at])))
    positions = iter(range(len(cases)))
    return marked(cases, lambda _: next(positions) in taken)


def marked(cases: Sequence[Any], in_sample: Callable[[Any], bool]) -> list[Any]:
    """Parameters of a test that chooses its sample in another way."""
    parameters = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        marks = [pytest.mark.sweep] if in_sample(case) else [pytest.mark.sweep, pytest.mark.left_out]
        parameters.append(pytest.param(*values, marks=marks))
    return parameters


def left_out(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The tests that are not in the sample, by the marks that they carry."""
    left = [item for item in items if item.get_closest_marker("left_out")]
    by_test: dict[tuple[str, int], list[pytest.Function]] = {}
    groups: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        mark = next((mark for mark in item.iter_markers("sweep") if "files" not in mark.kwargs), None)
        if mark is not None and "group" in mark.kwargs:
            groups.setdefault((mark.kwargs["group"], mark.args[0]), []).append(item)
        elif mark is not None and mark.args and isinstance(item, pytest.Function):
            by_test.setdefault((item.nodeid.partition("[")[0], mark.args[0]), []).append(item)
    for (name, count), cases in by_test.items():
        # One object each, which all cases with it share; its index is another one in each case.
        values = [{(parameter, id(value)) for parameter, value in case.callspec.params.items()} for case in cases]
        taken = _with_each_value(values, count, name)
        left += [case for at, case in enumerate(cases) if at not in taken]
    for (_, count), tests in groups.items():
        left += [test for test in tests if test not in chosen(tests, count)]
    return left


def file_of(test: pytest.Item | pytest.TestReport) -> str:
    """The file that a test is in."""
    return test.nodeid.partition("::")[0]


def files_left_out(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The tests of the files that are not in the sample of their group of files."""
    groups: dict[tuple[str, int], dict[str, list[pytest.Item]]] = {}
    for item in items:
        for mark in item.iter_markers("sweep"):
            if "files" in mark.kwargs:
                files = groups.setdefault((mark.kwargs["files"], mark.args[0]), {})
                files.setdefault(file_of(item), []).append(item)
    left = []
    for (_, count), files in groups.items():
        taken = chosen(sorted(files), count) if count else []
        left += [item for file, tests in files.items() if file not in taken for item in tests]
    return left


def time_is_up() -> bool:
    """Whether this run has a limit of time, and no test may begin any more."""
    return REST_SECONDS is not None and time.monotonic() - _BEGUN >= REST_SECONDS


def order_of_rest(files: Iterable[str]) -> dict[str, int]:
    """Where each file of the rest stands: each has its turn to be among the last, for which there may be no time."""
    order = sorted(set(files))
    random.Random(os.environ.get("PSS_REST_ORDER", "")).shuffle(order)
    return {file: place for place, file in enumerate(order)}


def _with_each_value(cases: Sequence[set[Any]], count: int, name: str) -> set[int]:
    order = list(range(len(cases)))
    random.Random(f"{SEED} {name}").shuffle(order)
    missing = set().union(*cases)
    taken: list[int] = []
    while missing or (len(taken) < count and len(taken) < len(cases)):
        best = max((at for at in order if at not in taken), key=lambda at: len(cases[at] & missing))
        taken.append(best)
        missing -= cases[best]
    return set(taken)


def sample(cases: Collection[T], count: int, kind: _Kind = _nothing) -> list[T]:
    """Cases that a test goes through by itself, of which ``make test`` runs a sample; see :func:`chosen`."""
    taken = chosen(cases, count, kind)
    note(len(taken), len(cases))
    return list(cases) if EXHAUSTIVE else taken


_CHANGING = ("create", "write", "delete", "rename", "mkdirs")


def sample_of_calls(calls: Sequence[str | tuple[str, str]], changing: int = 2, reading: int = 8) -> list[int]:
    """Numbers of calls to a file system at which a sweep lets something happen: those that change something above all.

    The first and the last are always among them: of what happens early or late only, there may be no kind of call.
    Where threads work, calls come in another order each time, and so do those that a seed chooses.

    Args:
        calls: Each as its operation and the file's name.
        changing: One in so many of those that change something is in the sample, and each kind of them.
        reading: One in so many of the others, and each kind of them.
    """
    split = [call if isinstance(call, tuple) else (call.partition(" ")[0], call.partition(" ")[2]) for call in calls]
    kinds = [(operation, name.rpartition(".")[2] if "." in name else "") for operation, name in split]
    taken: set[int] = {0, len(calls) - 1} if calls else set()
    for changes, share in ((True, changing), (False, reading)):
        numbers = [at for at, (operation, _) in enumerate(kinds) if (operation in _CHANGING) == changes]
        taken.update(chosen(numbers, -(-len(numbers) // share), lambda at: kinds[at]))
    note(len(taken), len(calls))
    return list(range(len(calls))) if EXHAUSTIVE else sorted(taken)


def numbers(share: int, case: Hashable) -> Iterator[int]:
    """1, and then every number that leaves a certain rest when divided by ``share``; the case decides which rest.

    For sweeps that find out how many calls there are only when they come to the end of them. Of an operation that fails
    in several ways, other calls fail in each way.
    """
    yield 1
    if EXHAUSTIVE:
        yield from itertools.count(2)
    start = random.Random(f"{SEED} {case!r}").randrange(2, 2 + share)
    yield from itertools.count(start, share)


def note(taken: int, of: int) -> None:
    """Counts the cases of a test that chooses them in another way."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    before = LOOPS.get(test, (0, 0))
    LOOPS[test] = before[0] + taken, before[1] + of
