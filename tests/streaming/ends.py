"""Queries that end, or do not, in this process and in drivers of their own, and who is asked about them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark_statestore import Checkpoint
from tests.inspect.builders import refused

SCRIPT = Path(__file__).with_name("ending_process.py")
ROOT = SCRIPT.parents[2]
PATIENCE_S = 60

VERBS: list[Callable[[Checkpoint], object]] = [
    lambda c: c.fork(f"{c.url}-fork", "claim", dry_run=True),
    lambda c: c.maintenance.expire(1, dry_run=False),
    lambda c: c.export(dry_run=True),
]


def put(root: Path, *numbers: int) -> None:
    """Writes a file of input."""
    folder = root / "input"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{len(list(folder.iterdir()))}.json"
    # Of a name that Spark overlooks: a query that goes on would read it under both names.
    unfinished = file.with_name(f".{file.name}")
    unfinished.write_text("".join(f'{{"n": {n}}}\n' for n in numbers))
    unfinished.rename(file)


def of_runs(root: Path, checkpoint: str = "q1") -> list[str]:
    """The endings of what runs say of themselves."""
    merged = root / checkpoint / "state" / "_merged"
    return sorted(file.suffix for file in merged.glob("*-*-*") if file.suffix in (".running", ".ended"))


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def has_committed(root: Path, batch: int) -> bool:
    return (root / "q1" / "commits" / str(batch)).exists()


def require_at_once(checkpoint: Path) -> None:
    for call in VERBS:
        call(Checkpoint(checkpoint))


def require_wait(checkpoint: Path, why: str = "only silence tells: wait") -> None:
    for call in VERBS:
        with refused("PSS_QUERY_RUNNING", why):
            call(Checkpoint(checkpoint))


def copy(root: Path) -> Path:
    """A copy of the checkpoint, of which this process's session knows nothing."""
    shutil.rmtree(root / "copy", ignore_errors=True)
    return shutil.copytree(root / "q1", root / "copy")


class Driver:
    """A driver in a process of its own."""

    def __init__(self, root: Path, how: str, mode: str, store: str, master: str) -> None:
        environment = {key: value for key, value in os.environ.items() if key != "PYSPARK_SUBMIT_ARGS"}
        environment |= {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": str(root)}
        environment |= {"SPARK_WORKER_DIR": str(root / "work"), "SPARK_LOCAL_IP": "127.0.0.1"}
        command = [sys.executable, str(SCRIPT), how, mode, store, master, str(root)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, cwd=root, env=environment, stdin=pipe, stdout=pipe, text=True, start_new_session=True
        )
        self.jvm = int(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("@"):
                return line[1:].strip()
        raise AssertionError("the driver has ended")

    def do(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        assert command == "exit" or self._answer() == command

    def kill_jvm(self) -> None:
        os.kill(self.jvm, signal.SIGKILL)

    def pause_jvm(self) -> None:
        os.kill(self.jvm, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.jvm, signal.SIGCONT)

    def end(self) -> None:
        """Ends what may be left."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def await_jvm(self) -> None:
        until(lambda: not Path(f"/proc/{self.jvm}").exists() or _is_zombie(self.jvm), "its JVM goes on")


def _is_zombie(pid: int) -> bool:
    try:
        return re.search(r"^State:\s+Z", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE) is not None
    except FileNotFoundError:
        return True


@contextmanager
def driver(
    root: Path, how: str = "configure", mode: str = "provider", store: str = "rocksdb", master: str = "local[2]"
) -> Iterator[Driver]:
    started = Driver(root, how, mode, store, master)
    try:
        yield started
    finally:
        started.end()


def begin(running: Driver, root: Path) -> None:
    """Starts a query that commits a batch, and waits for data then."""
    put(root, 1, 2, 3)
    running.do("start")
    until(lambda: has_committed(root, 0), "it commits no batch")
    until(lambda: of_runs(root) == [".running"], "it does not say that it runs")
