"""One attack, what is done afterwards, and what may not have come of it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pyspark_statestore import Checkpoint, StateStoreFilesError
from pyspark_statestore.log.scan import MERGED
from tests.damage import attacks, verbs
from tests.damage.attacks import Attack
from tests.damage.builders import Where, World, read, write_old
from tests.damage.verbs import READ, VERBS, Answer, Place, Verb, refusal

Right = tuple[Answer | None, frozenset[Where]]
"""What a verb answers where nothing is damaged, None where it refuses to; and what it deletes for good."""

OUTCOMES = ("read right", "refused", "like a crash", "silent", "foreign", "lost")
FAILURES = frozenset(OUTCOMES[3:])
"""``silent``: answered without an error, and not what was written last. ``foreign``: an error that is none of the
package's. ``lost``: readable before, and not afterwards, or not with the original put back."""


UNDAMAGED = Attack("none", "nothing was done", {}, {})


@dataclass(frozen=True)
class Finding:
    """What came of one verb after an attack."""

    number: int
    world: str
    attack: Attack
    verb: str
    outcome: str
    detail: str

    @property
    def kind(self) -> tuple[str, ...]:
        """Findings of one kind probably have one cause."""
        verb = "" if self.outcome == "silent" else self.verb
        return self.outcome, verb, self.attack.kind, self.detail.partition(":")[0]

    def __str__(self) -> str:
        text = f"{self.number}: {self.outcome}: {self.world}; {self.attack.what}; {self.verb}: {self.detail}"
        return text if len(text) < 500 else f"{text[:500]} …"


@dataclass
class Tally:
    """How often what came of which attack and verb."""

    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    failures: list[Finding] = field(default_factory=list)
    attacks: int = 0

    def add(self, findings: Iterable[Finding]) -> None:
        """Counts what came of one attack."""
        self.attacks += 1
        for found in findings:
            self.counts[found.attack.kind, found.verb, found.outcome] += 1
            if found.outcome in FAILURES:
                self.failures.append(found)

    def table(self, by: int) -> str:
        """Lines by attack (0) or by verb (1), and a column for each outcome."""
        sums: Counter[tuple[str, str]] = Counter()
        for key, count in self.counts.items():
            sums[key[by], key[2]] += count
            sums["all", key[2]] += count
        width = max(len(name) for name, _ in sums)
        lines = ["".join([f"{'':{width}}", *(f"{outcome:>14}" for outcome in OUTCOMES)])]
        for name in sorted({name for name, _ in sums}, key=lambda name: (name == "all", name)):
            lines.append("".join([f"{name:{width}}", *(f"{sums[name, outcome]:>14}" for outcome in OUTCOMES)]))
        return "\n".join(lines)

    def report(self, replay: str) -> str:
        """The tables, and the first failure of each kind.

        Args:
            replay: The command that repeats an attack, with ``{number}`` in it.
        """
        kinds: dict[tuple[str, ...], list[Finding]] = {}
        for found in self.failures:
            kinds.setdefault(found.kind, []).append(found)
        parts = [f"{self.attacks} attacks", self.table(0), self.table(1)]
        for some in sorted(kinds.values(), key=len, reverse=True):
            parts.append(f"{len(some)} x {some[0]}\n    {replay.format(number=some[0].number)}")
        return "\n\n".join(parts)


class AttackRunner:
    """Worlds, and the place where they are attacked.

    Args:
        worlds: See :func:`~tests.damage.builders.build_all`, which was given the same root.
        root: Where they are laid out, one after the other.
        seed: Of all choices.
    """

    def __init__(self, worlds: list[World], root: Path, seed: int) -> None:
        self.worlds, self.root, self.seed = worlds, root, seed
        self._right: dict[tuple[str, int, str], Right] = {}

    def trial(self, number: int) -> list[Finding]:
        """Makes the attack of a number."""
        choices = random.Random(f"{self.seed} {number}")
        world = choices.choice(self.worlds)
        attack = attacks.choose(choices, world.files, world.targets)
        steps: list[tuple[Verb, Place]] = []
        for _ in range(choices.choice([1, 1, 1, 2, 3])):
            name = choices.choice(world.checkpoints)
            steps.append((choices.choice(VERBS[1:]), Place(self.root, name, world.has_rows)))
            if steps[-1][0].last:
                break
        rights = [self.right(world, verb, place) for verb, place in steps]
        world.lay_out(self.root)
        attack.carry_out(self.root, write_old)
        return Trial(number, world, attack, self.root).run(steps, rights)

    def undamaged(self, world: World) -> list[Finding]:
        """What reading says of a world that was laid out."""
        trial = Trial(0, world, UNDAMAGED, self.root)
        trial.read(READ.name)
        return trial.findings

    def right(self, world: World, verb: Verb, place: Place) -> Right:
        """Tries a verb where nothing is damaged."""
        key = world.name, VERBS.index(verb), place.name
        if key not in self._right:
            world.lay_out(self.root)
            answer: Answer | None
            try:
                answer = verb.run(place)
            except Exception as error:
                if refusal(error) is None:
                    raise
                answer = None
            try:
                left = read(self.root, world.readers) if verb.changes else world.newest
            except StateStoreFilesError:  # its state belongs to another checkpoint now
                left = world.newest
            self._right[key] = answer, frozenset(world.newest.keys() - left.keys())
        return self._right[key]


class Trial:
    """One attack on one world, which was laid out and damaged."""

    def __init__(self, number: int, world: World, attack: Attack, root: Path) -> None:
        self.number, self.world, self.attack, self.root = number, world, attack, root
        self.gone: set[Where] = set()
        """What was deleted on purpose."""
        self.deleted: set[str] = set()
        """Damaged files that are not there any more."""
        self.findings: list[Finding] = []

    @cached_property
    def excused(self) -> bool:
        """Whether nobody can tell the damage from what a crash leaves."""
        return self.attack.looks_like_a_crash(self.world.flushed)

    @property
    def is_unexplained(self) -> bool:
        """Whether there are bytes that no readable group accounts for, and that no crash has left.

        Files that changed places are whole, but one that is called index-only and is not holds what others do not.
        """
        named_wrong = any(name.endswith(".index.merged") for name in self.attack.damaged)
        return not self.excused and (self.attack.kind != "swapped" or named_wrong)

    def run(self, steps: list[tuple[Verb, Place]], rights: list[Right]) -> list[Finding]:
        """Reads, does one thing after the other, and looks what has become of what there was."""
        before = damaged = self.read(READ.name)
        changed_at: set[str] = set()
        for (verb, place), (right, gone) in zip(steps, rights, strict=True):
            if verb.changes:
                self.gone |= gone
            self.do(verb, place, None if place.name in changed_at else right)
            if verb.changes and right is None:
                # Undamaged, it would have been refused: what comes after that here has no right answer.
                changed_at.add(place.name)
            if verb.changes:
                before = self.look_after(verb, before)
        changed = [verb.name for verb, _ in steps if verb.changes]
        if changed:
            wanted = {where: data for where, data in damaged.items() if where in self.newest}
            self.put_back(" then ".join(changed), steps[-1][0].name, wanted)
        return self.findings

    def read(self, verb: str) -> dict[Where, bytes]:
        """What a reader finds of all checkpoints that have to be readable."""
        found: dict[Where, bytes] = {}
        for name in self.world.readers:
            place = Place(self.root, name, self.world.has_rows)
            expected = {where: data for where, data in self.world.newest.items() if where[0] == name}
            answer = self.do(Verb(verb, False, lambda place: self.look(place.name)), place, expected)
            found.update({where: data for where, data in answer.items() if data is not None})
        return found

    def do(self, verb: Verb, place: Place, right: Answer | None) -> Answer:
        """Does one thing, and says what it has answered."""
        try:
            answer = verb.run(place)
        except Exception as error:
            if said := refusal(error):
                self.found(verb.name, "refused", said)
            else:
                self.found(verb.name, "foreign", f"{type(error).__name__}: {error}")
            return {}
        self.judge(verb.name, answer, right)
        return answer

    def judge(self, verb: str, answer: Answer, right: Answer | None) -> None:
        """Compares what was answered with what is right; None stands for bytes that were refused."""
        given = {key: value for key, value in answer.items() if value is not None}
        wrong = {} if right is None else self.differences(answer, right)
        if unwritten := [key for key, value in given.items() if not self.was_written(key, value)]:
            self.found(verb, "silent", f"never written: {unwritten}")
        elif some := [f"{what}: {sorted(map(str, keys))}" for what, keys in wrong.items() if keys]:
            self.found(verb, "like a crash" if self.excused else "silent", some[0])
        elif len(given) < len(answer):
            self.found(verb, "refused", "PSS_CORRUPT_SEGMENT")
        else:
            self.found(verb, "read right", "")

    def differences(self, answer: Answer, right: Answer) -> dict[str, list[object]]:
        """Keys by what is wrong with them."""
        expected = {key: value for key, value in right.items() if not self.is_gone(key)}
        given = {key: value for key, value in answer.items() if value is not None and not self.is_gone(key)}
        return {
            "older": [key for key in given.keys() & expected.keys() if given[key] != expected[key]],
            "deleted before": list(given.keys() - right.keys()),
            # That a version cannot be restored is no wrong answer where its bytes are damaged.
            "forgotten": [key for key in expected.keys() - answer.keys() if key[0] != "restorable"],
        }

    def is_gone(self, key: tuple[object, ...]) -> bool:
        """Whether a path was deleted on purpose, or a version may have been."""
        if key[0] in ("restorable", "change"):
            return bool(self.gone)
        return any(where[1] == key[1] for where in self.gone)

    def was_written(self, key: tuple[object, ...], value: object) -> bool:
        """Whether bytes are some that were written under that path, and rows some that a version had."""
        if isinstance(value, bytes):
            return value in self.world.written.get(str(key[1]), frozenset())
        if key[0] == "state":
            return value in verbs.attempts(int(str(key[1])), int(str(key[2])))
        return True

    def look_after(self, verb: Verb, before: dict[Where, bytes]) -> dict[Where, bytes]:
        """What was readable still is, but for what was deleted on purpose; and what may be of use is still there."""
        wanted = {where: data for where, data in before.items() if where in self.newest}
        lost, why = self.lost(wanted)
        if lost:
            self.found(verb.name, "lost", f"{why} afterwards: {lost}")
        deleted = {name for name in self.attack.originals if not (self.root / name).exists()} - self.deleted
        self.deleted |= deleted
        if deleted and self.is_unexplained and self.lost(self.newest)[0] and not self.is_plain():
            self.found(verb.name, "lost", f"a file that is damaged, not empty, was deleted: {sorted(deleted)}")
        return self.try_to_read()[0]

    @property
    def newest(self) -> dict[Where, bytes]:
        """What the undamaged world has, but for what was deleted on purpose."""
        return {where: data for where, data in self.world.newest.items() if where not in self.gone}

    def put_back(self, done: str, verb: str, damaged: Answer) -> None:
        """With the originals, all is readable that was before they were damaged.

        Unless it is there as plain files: then nothing can be put back, and what a crash has taken stays away.

        Args:
            done: What was done since, for people.
            verb: The last of it.
            damaged: What could be read after the damage.
        """
        if (self.is_plain() or self.exported()) and not self.lost(damaged if self.excused else self.newest)[0]:
            return
        self.attack.undo(self.root, write_old)
        lost, why = self.lost(self.newest)
        if lost:
            lost, why = self.go_back_to_merged() or (lost, why)
        if lost:
            self.found(verb, "lost", f"{why} with the original put back after {done}: {lost}")

    def go_back_to_merged(self) -> tuple[list[Where], str] | None:
        """What is lost when an export in place is taken back; None where none was made."""
        exported = self.exported()
        try:
            for name in exported:
                Checkpoint(self.root / name).convert("merged")
        except StateStoreFilesError as error:
            return self.lost(self.newest)[0], f"{error.getErrorClass()} on the way back"
        return self.lost(self.newest) if exported else None

    def exported(self) -> list[str]:
        """Checkpoints that were exported in place: plain files are read."""
        return [name for name in self.world.readers if any((self.root / name / MERGED).glob("*.exported"))]

    def is_plain(self) -> bool:
        """Whether a checkpoint has no merged files any more."""
        return not all((self.root / name / MERGED).is_dir() for name in self.world.readers)

    def lost(self, wanted: Answer) -> tuple[list[Where], str]:
        """What cannot be read (any more), and why."""
        found, why = self.try_to_read()
        return [where for where, data in wanted.items() if found.get(where) != data], why or "not there"

    def try_to_read(self) -> tuple[dict[Where, bytes], str]:
        """What can be read, and why not all of it; an export that failed is taken back first, as its error says."""
        found: dict[Where, bytes | None] = {}
        why = ""
        for name in self.world.readers:
            try:
                found.update(self.read_one(name))
            except StateStoreFilesError as error:
                why = error.getErrorClass()
            except Exception as error:
                why = f"{type(error).__name__} {error}"
        return {where: data for where, data in found.items() if data is not None}, why

    def read_one(self, name: str) -> dict[Where, bytes | None]:
        try:
            return self.look(name)
        except StateStoreFilesError as error:
            if error.getErrorClass() != "PSS_EXPORTED":
                raise
            Checkpoint(self.root / name).convert("merged")
            return self.look(name)

    def look(self, name: str) -> dict[Where, bytes | None]:
        """What a reader finds in one checkpoint; None where it refuses the bytes."""
        return read(self.root, (name,))

    def found(self, verb: str, outcome: str, detail: str) -> None:
        """One more result."""
        self.findings.append(Finding(self.number, self.world.name, self.attack, verb, outcome, detail))
