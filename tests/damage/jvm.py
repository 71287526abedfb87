"""The same attacks on what executors read, write and clean."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from tests.damage import attacks
from tests.damage.attacks import Attack
from tests.damage.builders import LAST, REDONE, Builder, Where, World, build_all, write_old
from tests.damage.trial import UNDAMAGED, AttackRunner, Finding, Trial
from tests.damage.verbs import Answer, Place, RefusedError, Verb
from tests.jvm.harness import Checkpoint

NEW = "0/0/77.delta"
"""A path that was never written before."""

_SAID = re.compile(r"\[(PSS_\w+)\]|\b(FileNotFoundException)\b")


def said_by_us(error: str) -> str | None:
    """The id in a text of the JVM, or that something does not exist; None for an error that nobody can make use of."""
    said = _SAID.search(error)
    return said and (said[1] or said[2])


def in_java(action: Callable[..., Any], *arguments: Any) -> Any:
    """Calls the JVM.

    Raises:
        RefusedError: It said what is wrong, as it may.
    """
    try:
        return action(*arguments)
    except (Py4JJavaError, CapturedException) as error:
        said = said_by_us(str(error))
        if said is None:
            raise
        raise RefusedError(said) from error


def checkpoint_of(jvm: Any, path: Path) -> Checkpoint:
    """Executors that clean as soon as they may, and move what lives out of what is mostly dead."""
    return Checkpoint(jvm, path, maxSpaceAmplification="1.1", closedAfter="5s")


def written_by_the_jvm(jvm: Any, root: Path, scheme: str) -> World:
    """A process wrote two files, the second with a batch that was redone in its last group, and was killed."""
    make = Builder(root, "q", scheme, heap=True)
    checkpoint = Checkpoint(jvm, make.path, scheme, maxOpenFiles="1")

    def version(number: int, attempt: int = 0) -> None:
        for partition in (0, 1):
            for path, data in make.files_of(partition, number, attempt).items():
                checkpoint.write(path, data)
                make.written.setdefault(path, set()).add(data)

    for number in (1, 2, REDONE):
        version(number)
    checkpoint.log.seal()
    version(3)
    for partition in (0, 1):
        checkpoint.delete(f"0/{partition}/1.delta")
    version(REDONE, attempt=1)
    checkpoint.forget()
    make.commit(*range(LAST))
    # On an object store, too: a writer that gives a file up closes it, and a beginning of it appears.
    make.flushed = {str(path.relative_to(root)) for path in make.path.glob("state/_merged/*.merged")}
    return make.world(f"by the JVM on {scheme}")


def build_worlds(jvm: Any, root: Path) -> list[World]:
    """Those of Python, and those that executors have written."""
    worlds = build_all(root)
    for scheme in ("file", "objectstore"):
        shutil.rmtree(root)
        # As often as all others in the end.
        worlds += [written_by_the_jvm(jvm, root, scheme)] * (len(worlds) // 4)
    return worlds


class JvmAttackRunner(AttackRunner):
    """A runner whose readers and cleaners are executors."""

    def __init__(self, worlds: list[World], root: Path, seed: int, jvm: Any) -> None:
        super().__init__(worlds, root, seed)
        self.there = {name: checkpoint_of(jvm, root / name) for name in ("q", "fork")}

    def undamaged(self, world: World) -> list[Finding]:
        """What executors read in a world that was laid out."""
        trial = JvmTrial(0, world, UNDAMAGED, self.root, self.there)
        trial.read("read")
        return trial.findings

    def trial(self, number: int) -> list[Finding]:
        """Reads, cleans while a query writes on, and restarts."""
        choices = random.Random(f"{self.seed} {number}")
        world = choices.choice(self.worlds)
        attack = attacks.choose(choices, world.files, world.targets)
        place = Place(self.root, choices.choice(world.readers), world.has_rows)
        executors = self.there[place.name]
        trial = JvmTrial(number, world, attack, self.root, self.there)
        steps = [self.step(choices.choice(["write", "delete", "clean"]), trial, executors) for _ in range(3)]
        steps.append(self.step("clean", trial, executors))
        world.lay_out(self.root)
        attack.carry_out(self.root, write_old)
        try:
            return trial.run([(verb, place) for verb in steps], [(None, frozenset())] * len(steps))
        finally:
            for each in self.there.values():
                each.forget()

    def step(self, name: str, trial: JvmTrial, executors: Checkpoint) -> Verb:
        """One of the things that executors do."""

        def write(place: Place) -> Answer:
            in_java(executors.write, NEW, b"new")
            return {}

        def delete(place: Place) -> Answer:
            doomed = f"0/0/3.{'delta' if place.has_rows else 'changelog'}"
            trial.gone.add((place.name, doomed))
            in_java(executors.delete, doomed)
            return {}

        def clean(place: Place) -> Answer:
            for _ in range(3):
                in_java(executors.clean)
            return {}

        return Verb(name, True, {"write": write, "delete": delete, "clean": clean}[name])


class JvmTrial(Trial):
    """Read by executors that have just started."""

    def __init__(self, number: int, world: World, attack: Attack, root: Path, there: dict[str, Checkpoint]) -> None:
        super().__init__(number, world, attack, root)
        self.there = there

    def look(self, name: str) -> dict[Where, bytes | None]:
        """Every path that was ever written."""
        executors = self.there[name]
        executors.forget()
        found: dict[Where, bytes | None] = {}
        for path in self.world.written:
            try:
                found[name, path] = in_java(executors.read, path)
            except RefusedError:
                if (name, path) in self.world.newest:
                    found[name, path] = None
        return found
