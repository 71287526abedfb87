"""Copies that become visible late, or not to the disk: nothing comes back by them, and nothing is lost."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore.format import Kind, file_name
from tests.jvm.harness import CREATED_MS, STAMP, Checkpoint, until

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("by_hand")]

MOVED, ALSO_MOVED = "0/0/2.zip", "0/0/3.zip"
CLOSED_AFTER_S = 5


def sparse(checkpoint: Checkpoint) -> str:
    """A file in which little lives, of a partition that this process serves."""
    checkpoint.write("0/0/7.changelog", b"served")
    with checkpoint.foreign(1, writer=5) as file:
        file.put("0/0/1.zip", bytes(50_000), stamp=STAMP)
        file.put(MOVED, b"lives" * 100, stamp=STAMP + 1)
        file.put(ALSO_MOVED, b"lives, too", stamp=STAMP + 2)
        file.delete("0/0/1.zip", stamp=STAMP, writer=5)
    return file_name(CREATED_MS, 5, 1)


class Relocator:
    """A process whose relocation hangs while the file system takes its file."""

    def __init__(self, checkpoint: Checkpoint, gate: Any, background: ThreadPoolExecutor) -> None:
        self._gate = gate
        self.original = sparse(checkpoint)
        gate.hold("before close", ".merged")
        self._work: Future[int] = background.submit(checkpoint.clean)
        assert gate.awaitHeld("before close")

    def goes_on(self) -> int:
        """How many files it unlinks."""
        self._gate.release("before close")
        return self._work.result(30)


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def tombstones(checkpoint: Checkpoint) -> set[str]:
    view = checkpoint.view()
    return {entry.path for file in view.files.values() for entry in file if entry.kind is Kind.DELETE}


def markers(checkpoint: Checkpoint) -> list[str]:
    return [path.name for path in checkpoint.merged.glob("*.relocating")]


@pytest.mark.slow
def test_rule_5_what_was_deleted_meanwhile_stays_deleted(
    new_checkpoint: Callable[..., Checkpoint], gate: Any, background: ThreadPoolExecutor
) -> None:
    """However long it takes: whoever cleans waits for a relocation whose process lives."""
    options = {"closedAfter": f"{CLOSED_AFTER_S}s"}
    other = new_checkpoint("objectstore", **options)
    relocator = Relocator(new_checkpoint("gatedstore", **options), gate, background)
    begun = time.monotonic()
    assert other.delete(MOVED)
    assert other.delete(ALSO_MOVED)
    other.log.seal()
    other.write("0/1/2.changelog")
    expected = other.contents()

    def original_is_forgotten() -> bool:
        other.clean()
        other.write("0/1/2.changelog")  # newer than the tombstones, since the newest file is kept
        return relocator.original not in other.files() and not tombstones(other)

    until(lambda: original_is_forgotten() or time.monotonic() - begun > 1.6 * CLOSED_AFTER_S, "nobody waits any more")
    relocator.goes_on()

    assert other.contents() == expected
    assert MOVED not in expected
    assert not other.exists(MOVED)
    until(original_is_forgotten, "the tombstones to go, now that the relocation has ended")
    assert markers(other) == []
    assert other.contents() == expected


def test_rule_5_nothing_is_unlinked_on_copies_that_nobody_may_have_waited_for(
    new_checkpoint: Callable[..., Checkpoint], gate: Any, background: ThreadPoolExecutor, jvm: Any
) -> None:
    """As when the process was stopped, or could not renew its marker."""
    checkpoint = new_checkpoint("gatedstore")
    relocator = Relocator(checkpoint, gate, background)
    before = checkpoint.contents()
    jvm.io.pyspark.statestore.files.WallClock.ahead(3_600_000)
    try:
        assert relocator.goes_on() == 0
    finally:
        jvm.io.pyspark.statestore.files.WallClock.right()

    assert relocator.original in checkpoint.files()
    assert len(markers(checkpoint)) == 1
    assert checkpoint.contents() == before


@pytest.fixture
def system_calls(jvm: Any, tmp_path: Path) -> Iterator[Callable[[], list[tuple[str, str]]]]:
    """Ends watching, and says what this JVM has asked the system to sync and to unlink: the calls and their paths."""
    if shutil.which("strace") is None:
        pytest.skip("there is no strace on this machine")
    log = tmp_path / "calls"
    pid = str(jvm.java.lang.ProcessHandle.current().pid())
    what = ["-e", "trace=fsync,unlink", "-e", "signal=none"]
    strace = subprocess.Popen(["strace", "-f", "-y", "-o", log, *what, "-p", pid], stderr=subprocess.PIPE, text=True)
    assert strace.stderr is not None
    if "attached" not in strace.stderr.readline():
        pytest.skip("strace may not look at processes here")

    def end() -> list[tuple[str, str]]:
        strace.terminate()
        strace.wait(30)
        return re.findall(r"(fsync|unlink)\((?:\d+<|\")([^>\"]+)", log.read_text())

    yield end
    strace.kill()


def test_copies_and_their_names_are_on_the_disk_before_the_original_goes(
    checkpoint: Checkpoint, system_calls: Callable[[], list[tuple[str, str]]]
) -> None:
    original = sparse(checkpoint)

    assert checkpoint.clean() == 1

    calls = system_calls()
    gone = calls.index(("unlink", str(checkpoint.merged / original)))
    copy = str(checkpoint.merged / checkpoint.view().live[MOVED][0])
    assert calls.index(("fsync", copy)) < calls.index(("fsync", str(checkpoint.merged))) < gone
