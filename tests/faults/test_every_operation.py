"""Every single call to the file system goes wrong once, in every way, and nothing that was acknowledged is lost."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.faults.scripts import CLEAN, LIFE, OPTIONS, SEAL, Model, Step, changelog, leftovers, paths_of, read
from tests.jvm.harness import PREFIX, TESTING, View, file_system_conf, in_time
from tests.sampling import EXHAUSTIVE, note, numbers

pytestmark = [pytest.mark.spark, pytest.mark.sweep, pytest.mark.sweep(1, files="calls that fail")]

OPERATIONS = ["create", "write", "hflush", "hsync", "close", "open", "read", "listStatus", "delete"]
ERRORS = ["ioexception", "torn", "fs_error", "success_but_error"]
KILLS = ["killed", "killed_unnoticed", "killed_late"]
SHARE = 14
"""Of the calls, one in so many goes wrong in a sample: another one for each operation and kind of fault."""


def settings(*schemes: str) -> dict[str, str]:
    return file_system_conf(*schemes) | {PREFIX + name: value for name, value in OPTIONS.items()}


def chosen_calls(share: int, *case: Any) -> list[int]:
    """Numbers of the calls that go wrong, far beyond those that there are."""
    return list(itertools.takewhile(lambda n: n < 1000, numbers(share, case)))


def run_all(jvm: Any, directory: Path, script: list[Step], *, share: int = 1, **fault: Any) -> list[dict[str, Any]]:
    """One run for each n, or for one in ``share`` of them, the last without a fault."""
    told = {"contains": "state/_merged", "conf": settings(fault["scheme"]), **fault}
    told["numbers"] = chosen_calls(share, *map(str, fault.values()))
    program = getattr(jvm, f"{TESTING}.FaultScript")
    done = in_time(program.runAll, str(directory), json.dumps(told), json.dumps(script), seconds=300)
    runs: list[dict[str, Any]] = json.loads(done)
    return runs


def check(jvm: Any, checkpoint: Path, script: list[Step], run: dict[str, Any], *, blind: bool = False) -> list[str]:
    """What is wrong with a run, its files, or with what a process makes of them that comes afterwards."""
    model = Model(blind)
    problems = list(model.follow(script, run["steps"]))
    state = checkpoint / "state"
    problems += [f"afterwards {problem}" for problem in model.compare(View.of(state).contents())]
    later = [*read(*paths_of(script)), changelog(3, 9, 1), CLEAN, CLEAN, SEAL, *read(*paths_of(script))]
    program = getattr(jvm, f"{TESTING}.FaultScript")
    told = program.runHealthy(str(checkpoint), "faulty", json.dumps(settings("faulty")), json.dumps(later))
    problems += [f"later {problem}" for problem in model.follow(later, json.loads(told)["steps"])]
    problems += [f"in the end {problem}" for problem in model.compare(View.of(state).contents())]
    return problems


def assert_all_right(jvm: Any, directory: Path, script: list[Step], *, blind: bool = False, **fault: Any) -> None:
    runs = run_all(jvm, directory, script, share=SHARE, **fault)
    note(1 + runs[-1]["n"] // SHARE, runs[-1]["n"])
    assert [run["fired"] > 0 for run in runs] == [True] * (len(runs) - 1) + [False]
    problems = [
        f"n = {run['n']}: {problem}"
        for run in runs
        for problem in check(jvm, directory / str(run["n"]), script, run, blind=blind)
    ]
    assert not problems, f"{len(problems)} problems\n" + "\n".join(problems)


@pytest.mark.parametrize("kind", [*ERRORS, *KILLS])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_on_a_disk(jvm: Any, tmp_path: Path, operation: str, kind: str) -> None:
    assert_all_right(jvm, tmp_path, LIFE, scheme="faulty", operation=operation, kind=kind)


@pytest.mark.parametrize("kind", ["ioexception", "success_but_error", *KILLS])
@pytest.mark.parametrize("operation", [each for each in OPERATIONS if each not in ("hflush", "hsync")])
def test_on_an_object_store(jvm: Any, tmp_path: Path, operation: str, kind: str) -> None:
    assert_all_right(jvm, tmp_path, LIFE, scheme="faultystore", operation=operation, kind=kind)


@pytest.mark.parametrize("scheme", ["faulty", "faultystore"])
def test_a_listing_that_lies(jvm: Any, tmp_path: Path, scheme: str) -> None:
    assert_all_right(jvm, tmp_path, LIFE, scheme=scheme, operation="listStatus", kind="short", blind=True)


@pytest.mark.parametrize("kind", ["no_space", "fs_error"])
@pytest.mark.parametrize("scheme", ["faulty", "faultystore"])
def test_a_full_disk(jvm: Any, tmp_path: Path, scheme: str, kind: str) -> None:
    """Nothing can be written from the n-th time on, until there is space again."""
    script = [*LIFE, changelog(4, 1, 30), CLEAN, SEAL]
    assert_all_right(jvm, tmp_path, script, scheme=scheme, operation="write", kind=kind, times=1000)


@pytest.mark.parametrize("scheme", ["faulty", "faultystore"])
def test_nothing_is_left_for_ever(jvm: Any, tmp_path: Path, scheme: str) -> None:
    """What a fault has left, files that could not be deleted above all, goes when the process cleans later."""
    conf = settings(scheme) | {PREFIX + "closedAfter": "5s"}
    faults = [
        {
            "scheme": scheme,
            "conf": conf,
            "contains": "state/_merged",
            "operation": operation,
            "kind": kind,
            "numbers": chosen_calls(4, scheme, operation, kind),
        }
        for operation in ("create", "write", "close", "read", "listStatus", "delete")
        for kind in ("ioexception", "success_but_error")
    ]
    program = getattr(jvm, f"{TESTING}.FaultScript")
    in_time(program.runAllAndWait, str(tmp_path), json.dumps(faults), json.dumps(LIFE), 6_000, 4, seconds=300)

    states = sorted(tmp_path.glob("*/*/state"))
    assert len(states) > (100 if EXHAUSTIVE else 30)
    note(len(states) // (4 if EXHAUSTIVE else 1), len(states) * (1 if EXHAUSTIVE else 4))
    left = {str(state): leftovers(View.of(state)) for state in states}
    assert {state: files for state, files in left.items() if files} == {}
    assert list(tmp_path.rglob("*.relocating")) == []


@pytest.mark.parametrize("kind", ["ioexception", "permission", "success_but_error"])
def test_deletes_that_fail_are_counted(jvm: Any, tmp_path: Path, kind: str) -> None:
    runs = run_all(jvm, tmp_path, LIFE, scheme="faulty", operation="delete", kind=kind)
    assert [run["metrics"]["failedDeletes"] for run in runs] == [1] * (len(runs) - 1) + [0]


@pytest.mark.sweep(18)
@pytest.mark.parametrize("interrupts", [False, True], ids=["released", "killed"])
@pytest.mark.parametrize("scheme", ["faulty", "faultystore"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_that_hangs(jvm: Any, tmp_path: Path, scheme: str, operation: str, interrupts: bool) -> None:
    assert_all_right(jvm, tmp_path, LIFE, scheme=scheme, operation=operation, kind="hang", interrupts=interrupts)
