"""Maintenance beside a query, in a process without Spark that is killed again and again.

``python -m tests.cluster.maintainer <spec>`` forks one life after the other. Each does one thing after the other to the
checkpoint, until it is killed by SIGKILL: at a call to the file system that was chosen when it began, or from outside
after a while. What is chosen depends on the seed only.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import register_implementation

from pyspark_statestore import StateStoreFilesError
from pyspark_statestore.checkpoint import Checkpoint
from pyspark_statestore.maintenance import compaction, consolidation, orphans
from pyspark_statestore.maintenance.verify import verification
from tests.cluster.application import ROOT, until

_IMPORTED = (compaction, consolidation, orphans, verification)
"""Before the first life begins, so that none spends its time on it."""

_CALLS = 40
"""A life that dies at a call that changes something dies at one of so many."""

_SECONDS = 1.5
"""A life that dies from outside does so within so many seconds."""

_CHOICES = (4, 1, 1, 1)
"""By how often each verb is chosen."""

_PAUSE = 0.2
"""At most so many seconds are between two things: the query needs the processors, too."""


@dataclass(frozen=True)
class Life:
    """What a life does and when it ends, chosen before it begins.

    Attributes:
        number: Of the life.
        seed: Of what it does.
        call: The call that changes something at which it dies, from 1; 0 for none.
        fraction: How much of that call is done.
        seconds: After how long it is killed, in any case.
    """

    number: int
    seed: str
    call: int
    fraction: float
    seconds: float

    @classmethod
    def chosen(cls, seed: int, number: int) -> Life:
        """Throws the dice."""
        generator = random.Random(f"{seed}/{number}")
        call = generator.randrange(1, _CALLS) if generator.random() < 0.6 else 0
        fraction = generator.choice([0.0, round(generator.random(), 2), 1.0])
        seconds = 4 * _SECONDS if call else round(generator.uniform(0.05, _SECONDS), 3)
        return cls(number, f"{seed}/{number}/verbs", call, fraction, seconds)


class _Death:
    """Counts the calls that change something, and ends the process at one of them."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._calls = 0

    def at(self, call: Callable[[], Any], part: Callable[[float], Any] | None = None) -> Any:
        """Does a call, or dies before it, in the middle of it, or after it.

        Args:
            call: Does it.
            part: Does so much of it, where that can be.
        """
        self._calls += 1
        if self._calls != self._life.call:
            return call()
        if self._life.fraction == 1:
            call()
        elif part is not None:
            part(self._life.fraction)
        _die()


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed processes do not go on")


def _deadly_file_system(death: _Death) -> type[LocalFileSystem]:
    class Deadly(LocalFileSystem):
        def _open(self, path: str, mode: str = "rb", *arguments: Any, **options: Any) -> Any:
            def opened() -> Any:
                return super(Deadly, self)._open(path, mode, *arguments, **options)

            return _DeadlyFile(death.at(opened), death) if "w" in mode else opened()

        def rm_file(self, path: str) -> None:
            death.at(lambda: super(Deadly, self).rm_file(path))

    return Deadly


class _DeadlyFile:
    """What was written is on the disk when the process dies after it."""

    def __init__(self, file: Any, death: _Death) -> None:
        self._file, self._death = file, death

    def write(self, data: bytes, /) -> int:
        def write(part: float = 1.0) -> int:
            written = int(self._file.write(memoryview(data)[: int(len(data) * part)]))
            self._file.flush()
            return written

        return int(self._death.at(write, write))

    def close(self) -> None:
        self._death.at(self._file.close)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _live(life: Life, checkpoint: Path, closed_after: float, log: int) -> NoReturn:
    register_implementation("file", _deadly_file_system(_Death(life)), clobber=True)
    maintenance = Checkpoint(checkpoint, closed_after=datetime.timedelta(seconds=closed_after)).maintenance
    generator = random.Random(life.seed)
    verbs: dict[str, Callable[[], Any]] = {
        "compact": lambda: maintenance.compact(
            max_space_amplification=generator.choice([1.1, 1.5, 3.0]),
            target_file_size=generator.choice([64 << 10, 256 << 10, 128 << 20]),
        ),
        "consolidate_index": maintenance.consolidate_index,
        "remove_orphan_files": lambda: maintenance.remove_orphan_files(
            datetime.timedelta(seconds=closed_after), force=True, dry_run=False
        ),
        "verify": maintenance.verify,
    }
    while True:
        verb = generator.choices([*verbs], _CHOICES)[0]
        begun = time.monotonic()
        done: dict[str, Any] = {"life": life.number, "verb": verb}
        _note(log, done)
        try:
            result = verbs[verb]()
            done["did"] = {name: value for name, value in vars(result).items() if isinstance(value, (int, str))}
            if verb == "verify" and not result.is_clean:
                done["error"] = f"{result.damages}"
        except StateStoreFilesError as error:
            done["error"] = f"{error}"
        except Exception as error:
            done["error"] = f"{type(error).__name__}: {error}"
        done["seconds"] = round(time.monotonic() - begun, 3)
        _note(log, done)
        time.sleep(generator.random() * _PAUSE)


def _note(log: int, what: dict[str, Any]) -> None:
    os.write(log, (json.dumps(what) + "\n").encode())


def main() -> None:
    """Forks lives until it is told to stop, or its parent is gone."""
    spec = json.loads(sys.argv[1])
    log = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    parent = os.getppid()

    def is_told() -> bool:
        return Path(spec["stop"]).exists() or os.getppid() != parent

    # Only forked processes use threads, so nothing is held when one is forked.
    for number in itertools.count():
        if is_told():
            break
        life = Life.chosen(spec["seed"], number)
        _note(log, asdict(life))
        child = os.fork()
        if not child:
            _live(life, Path(spec["checkpoint"]), spec["closed_after"], log)
        _bury(child, life.seconds, is_told)


def _bury(child: int, seconds: float, is_told: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() >= end or is_told():
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
        time.sleep(0.01)


@dataclass
class Maintainer:
    """The process, from outside.

    Attributes:
        checkpoint: On the local disk.
        folder: For its log.
        closed_after: The query's, in seconds.
        seed: Of all that it chooses.
    """

    checkpoint: Path
    folder: Path
    closed_after: float
    seed: int

    @contextmanager
    def running(self) -> Iterator[None]:
        """It runs in the block, and ends by a last kill."""
        self.folder.mkdir(parents=True, exist_ok=True)
        spec = {
            "checkpoint": str(self.checkpoint),
            "closed_after": self.closed_after,
            "seed": self.seed,
            "log": str(self._log),
            "stop": str(self.folder / "stop"),
        }
        with (self.folder / "errors.log").open("w") as errors:
            command = [sys.executable, "-m", "tests.cluster.maintainer", json.dumps(spec)]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            process = subprocess.Popen(command, cwd=self.folder, env=environment, stderr=errors)
        try:
            until(lambda: self._log.exists() or process.poll() is not None, "the first life")
            yield
            assert process.poll() is None, (self.folder / "errors.log").read_text()
        finally:
            (self.folder / "stop").touch()
            process.wait(30)

    @property
    def _log(self) -> Path:
        return self.folder / "maintainer.jsonl"

    def story(self) -> Story:
        """What it has said so far."""
        return Story([json.loads(line) for line in self._log.read_text().splitlines()])


@dataclass
class Story:
    """All lives that began, all that they began, did and failed to do, in order."""

    lines: list[dict[str, Any]]

    @property
    def lives(self) -> int:
        """How many began."""
        return sum("call" in line for line in self.lines)

    @property
    def errors(self) -> list[dict[str, Any]]:
        """What failed; nothing should, but for what a machine that is too slow for so short a time refuses."""
        return [line for line in self.lines if "half of closedAfter" not in line.get("error", "half of closedAfter")]

    @property
    def changed(self) -> Counter[str]:
        """How often each verb has changed something."""
        return Counter(line["verb"] for line in self.lines if _has_changed(line.get("did", {})))

    @property
    def interrupted(self) -> Counter[str]:
        """How often each verb was at work when its life ended."""
        lasts = (line for line, after in pairwise(self.lines) if "call" in after)
        return Counter(line["verb"] for line in lasts if "verb" in line and "seconds" not in line)

    def __str__(self) -> str:
        changed, interrupted = dict(self.changed), dict(self.interrupted)
        return f"{self.lives} lives; changed something: {changed}; ended in: {interrupted}"


def _has_changed(did: dict[str, Any]) -> bool:
    return any(did.get(name) for name in ("rewritten_files_count", "removed_files_count", "index_file"))


if __name__ == "__main__":
    main()
