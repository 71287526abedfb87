"""The compact index says what a plain dictionary of all entries says."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

pytestmark = pytest.mark.spark

PUT, DELETE = 1, 2
BLOCK_ENTRY = 48 + 4
"""Bytes of an entry in an index block, without its path."""

UUIDS = ("6f3c1a2b-0d1e-4f5a-8b7c-9d0e1f2a3b4c", "00000000-0000-0000-ffff-ffffffffffff")
NAMES = (
    "1.changelog",
    "2.changelog",
    "12.zip",
    *(f"000042-{uuid}.sst" for uuid in UUIDS),
    f"7_{UUIDS[0]}.zip",
    f"{UUIDS[0]}{UUIDS[1]}",
    f"000042-{UUIDS[0].upper()}.sst",
    "überschüssig-€.log",
)
STORES = ("0/0", "0/0/SSTs", "0/0/left-keyToNumValues", "0/0-a/SSTs", "0/12", "0/120/SSTs", "10/3/x/y")
PATHS = (*(f"{store}/{name}" for store in STORES for name in NAMES), "0/schema", "0/12.log", "top")
DIRECTORIES = ("", "0", "10", "0/0-a", "0/120", "10/3", "10/3/x", "nowhere", *STORES)
FILES = tuple(f"1790000000000-7b5133a07a4d09ff-{n}.merged" for n in range(5))
REFERENCE_FILE = FILES[-1]


def partition_of(path: str) -> str:
    return "/".join(path.split("/")[:2])


@dataclass(frozen=True)
class Fact:
    kind: int
    type: int
    generation: int
    crc32c: int
    stamp: int
    writer: int
    offset: int
    length: int
    file_ref: int
    path: str

    @property
    def key(self) -> tuple[int, int]:
        return (self.stamp, self.writer)

    def text(self) -> str:
        return " ".join(str(value) for value in vars(self).values())


def size(fact: Fact) -> int:
    """Bytes of a path's two index entries."""
    return 2 * (BLOCK_ENTRY + len(fact.path))


@dataclass
class Naive:
    """All entries as they came, looked through for every question."""

    files: dict[str, list[Fact]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    highest: dict[str, tuple[int, int]] = field(default_factory=dict)
    idle_since: dict[tuple[str, Fact], int] = field(default_factory=dict)
    unneeded: set[tuple[str, Fact]] = field(default_factory=set)
    grown: set[str] = field(default_factory=set)

    def apply(self, name: str, facts: Iterable[Fact]) -> None:
        held = self.files[name]
        for fact in facts:
            same = [f for f in held if f.kind == fact.kind and f.path == fact.path and f.key == fact.key]
            tells_apart = "offset" if fact.kind == PUT else "generation"
            if not any(getattr(f, tells_apart) == getattr(fact, tells_apart) for f in same):
                held.append(fact)
                self.grown.add(partition_of(fact.path))
            if fact.kind == DELETE:
                self.highest[fact.path] = max(self.highest.get(fact.path, (-1, -1)), fact.key)

    def all(self, path: str) -> Iterator[tuple[str, Fact]]:
        return ((name, fact) for name, held in self.files.items() for fact in held if fact.path == path)

    def find(self, path: str) -> tuple[str, Fact] | None:
        puts = [
            (fact.key, fact.generation, name, fact.offset, fact) for name, fact in self.all(path) if fact.kind == PUT
        ]
        if not puts or self.highest.get(path, (-1, -1)) >= max(puts)[0]:
            return None
        best = max(puts)
        return best[2], best[4]

    def delete(self, path: str) -> bool:
        found = self.find(path)
        if found is not None:
            self.highest[path] = max(self.highest.get(path, (-1, -1)), found[1].key)
        return found is not None

    def drop(self, keeps: Any) -> None:
        for name, held in self.files.items():
            self.files[name] = [fact for fact in held if keeps(fact)]
        self.settle()

    def settle(self) -> None:
        """Forgets paths of which no file has anything."""
        self.highest = {path: key for path, key in self.highest.items() if any(True for _ in self.all(path))}
        known = {(name, fact) for name, held in self.files.items() for fact in held}
        self.unneeded &= known
        self.idle_since = {of: since for of, since in self.idle_since.items() if of in known}

    def victims(self, name: str, tombstone: Fact) -> set[str]:
        return {
            other
            for other, fact in self.all(tombstone.path)
            if other != name and fact.kind == PUT and fact.key <= tombstone.key
        }

    def prove(self, refresh: int, no_relocation: bool) -> None:
        for name, held in self.files.items():
            for fact in held:
                if fact.kind == PUT or (name, fact) in self.unneeded:
                    continue
                if self.victims(name, fact):
                    self.idle_since.pop((name, fact), None)
                else:
                    self.idle_since.setdefault((name, fact), refresh)
                    if no_relocation:
                        self.unneeded.add((name, fact))

    def use(self, name: str) -> dict[str, list[str]]:
        holding, idle, hit = [], [], set()
        for fact in (f for f in self.files[name] if f.kind == DELETE):
            order = (fact.key, fact.generation, name)
            others = ((f.key, f.generation, n) for n, f in self.all(fact.path) if f.kind == DELETE and n != name)
            if any(other > order for other in others):
                continue
            found = self.victims(name, fact)
            hit |= found
            if found:
                holding.append(fact.text())
            elif (name, fact) not in self.unneeded:
                idle.append(fact.text())
        return {"holding": sorted(holding), "idle": sorted(idle), "victims": sorted(hit)}

    def says(self) -> dict[str, Any]:
        live = {path: found for path in PATHS if (found := self.find(path)) is not None}
        lines = {path: f"{name} {fact.text()}" for path, (name, fact) in live.items()}
        own = {path: 0 if name == REFERENCE_FILE else fact.length for path, (name, fact) in live.items()}
        files = {}
        for name in self.files:
            mine = [path for path, (of, _) in live.items() if of == name]
            dead = self.sizes[name] - sum(own[path] + size(live[path][1]) for path in mine)
            files[name] = {
                "references": len(mine),
                "live": sorted(lines[path] for path in mine),
                "garbage": 0 if name == REFERENCE_FILE else dead,
                **self.use(name),
            }
        below = {d: [path for path in live if not d or path.startswith(d + "/")] for d in DIRECTORIES}
        partitions: dict[str, dict[str, list[str]]] = {}
        for name, held in self.files.items():
            for fact in held:
                partitions.setdefault(partition_of(fact.path), {}).setdefault(name, []).append(fact.text())
        return {
            "find": {path: lines.get(path) for path in PATHS},
            "list": {d: sorted(lines[p] for p in live if p.rpartition("/")[0] == d) for d in DIRECTORIES},
            "below": {d: sorted(lines[path] for path in below[d]) for d in DIRECTORIES},
            "subdirectories": {
                d: sorted({rest.split("/")[0] for path in below[d] if "/" in (rest := path[len(d) + 1 if d else 0 :])})
                for d in DIRECTORIES
            },
            "isDirectory": {d: bool(below[d]) for d in DIRECTORIES},
            "files": files,
            "garbage": sum(file["garbage"] for file in files.values()),
            "totals": [len(files), sum(self.sizes.values()), len(live), sum(own.values())],
            "partitions": {p: {n: sorted(facts) for n, facts in found.items()} for p, found in partitions.items()},
        }


class Both:
    """A compact and a naive index, of which the same is asked."""

    def __init__(self, jvm: Any) -> None:
        self.jvm = jvm
        self.java = jvm.io.pyspark.statestore.index.IndexView()
        self.naive = Naive()
        self.revisions: dict[str, int] = {}
        self.last_revision = 0

    def add(self, name: str) -> None:
        self.java.add(name)
        if name == REFERENCE_FILE:
            self.java.refer(name)
        self.naive.files.setdefault(name, [])
        self.naive.sizes.setdefault(name, 0)

    def grow(self, name: str, by: int) -> None:
        self.naive.sizes[name] += by
        self.java.grow(name, self.naive.sizes[name])

    def apply(self, name: str, facts: list[Fact]) -> None:
        self.java.apply(name, "\n".join(fact.text() for fact in facts))
        self.naive.apply(name, facts)

    def remove(self, name: str) -> None:
        self.java.remove(name)
        del self.naive.files[name], self.naive.sizes[name]
        self.naive.settle()

    def delete(self, path: str) -> None:
        assert bool(self.java.delete(path)) == self.naive.delete(path)

    def prove(self, refresh: int, no_relocation: bool) -> None:
        self.java.prove(refresh, no_relocation)
        self.naive.prove(refresh, no_relocation)

    def forget(self, partition: str) -> None:
        self.java.forget(partition)
        self.naive.drop(lambda fact: partition_of(fact.path) != partition)
        assert self.java.revision(partition) == 0
        self.revisions.pop(partition, None)
        self.naive.grown.discard(partition)

    def agree(self) -> None:
        said = said_by(self.java)
        revisions = {name: found.pop("revision") for name, found in said["partitions"].items()}
        said["partitions"] = {name: found["entries"] for name, found in said["partitions"].items()}
        assert said == self.naive.says()
        for partition, revision in revisions.items():
            if partition in self.naive.grown:
                assert revision > self.last_revision
            else:
                assert revision == self.revisions[partition]
        assert len(set(revisions.values())) == len(revisions)
        self.last_revision = max([self.last_revision, *revisions.values()])
        self.revisions = revisions
        self.naive.grown = set()
        for name, held in self.naive.files.items():
            visited = self.java.visited(name).splitlines()
            assert sorted(visited) == sorted({f"{fact.kind} {fact.path}" for fact in held})

    def repeated(self) -> None:
        """Another index to which all is applied says the same, but for what is in no file."""
        other = Both(self.jvm)
        entries = said_by(self.java)["partitions"]
        for name, bytes_count in self.naive.sizes.items():
            other.add(name)
            other.grow(name, bytes_count)
        for found in entries.values():
            for name, lines in found["entries"].items():
                other.java.apply(name, "\n".join(lines))
        for name, held in self.naive.files.items():
            other.naive.apply(name, held)
        other.agree()


def said_by(java: Any) -> dict[str, Any]:
    def in_order(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: in_order(found) for key, found in value.items()}
        return sorted(value) if isinstance(value, list) and value and isinstance(value[0], str) else value

    found: dict[str, Any] = in_order(json.loads(java.says("\n".join(PATHS), "\n".join(DIRECTORIES))))
    return found


def some_fact(chance: random.Random, name: str) -> Fact:
    path = chance.choice(PATHS)
    stamp, writer = chance.randrange(1, 6) << chance.choice((4, 40)), chance.choice((1, 2**63 - 1))
    generation = chance.choice((0, 0, 1, 0xFFFF))
    if chance.random() < 0.35:
        # As an executor reads it back: what a tombstone does not need is not kept.
        return Fact(DELETE, type_of(path), generation, 0, stamp, writer, 0, 0, 0, path)
    offset = chance.choice((0, 64, 2**14, 2**33, 2**60))
    length = chance.choice((0, 5, 100_000, 2**40))
    reference = chance.choice((1, 200)) if name == REFERENCE_FILE else 0
    return Fact(
        PUT, chance.choice((0, 6, 255)), generation, chance.randrange(-(2**31), 2**31), stamp, writer, offset, length,
        reference, path,
    )  # fmt: skip


def type_of(path: str) -> int:
    endings = {".sst": 1, ".changelog": 2, ".zip": 3, ".log": 6}
    return next((number for ending, number in endings.items() if path.endswith(ending)), 0)


@pytest.mark.parametrize("seed", range(12))
def test_random_histories(jvm: Any, seed: int) -> None:
    chance = random.Random(seed)
    both = Both(jvm)
    for step in range(1, 121):
        known = list(both.naive.files)
        action = chance.random()
        if not known or action < 0.15:
            both.add(chance.choice(FILES))
        elif action < 0.55:
            name = chance.choice(known)
            facts = [some_fact(chance, name) for _ in range(chance.choice((1, 5, 60)))]
            both.apply(name, facts + chance.sample(facts, len(facts) // 2))
            both.grow(name, chance.randrange(1_000_000))
        elif action < 0.7:
            both.delete(chance.choice(PATHS))
        elif action < 0.8:
            both.remove(chance.choice(known))
        elif action < 0.9:
            both.prove(step, chance.random() < 0.5)
        else:
            both.forget(partition_of(chance.choice(PATHS)))
        if step % 5 == 0:
            both.agree()
        if step % 40 == 0:
            both.repeated()


def test_a_table_that_grows_and_shrinks(jvm: Any) -> None:
    """Thousands of entries of one store: the table and the lists grow, and a walk takes many steps."""
    both = Both(jvm)
    java = both.java
    facts = [
        Fact(PUT, 2, 0, version, version << 16, 7, 64 + 10 * version, 10, 0, f"0/5/{version}.changelog")
        for version in range(1, 3_001)
    ]
    old, new = FILES[:2]
    for name in (old, new):
        both.add(name)
    java.apply(old, "\n".join(fact.text() for fact in facts))
    copies = [replace(fact, generation=1, offset=fact.offset + 1) for fact in facts[1_000:]]
    java.apply(new, "\n".join(fact.text() for fact in copies))
    tombstones = [Fact(DELETE, 2, 0, 0, fact.stamp, 7, 0, 0, 0, fact.path) for fact in facts[:2_000]]
    java.apply(new, "\n".join(fact.text() for fact in tombstones))

    def counted() -> list[int]:
        files = said_by(java)["files"]
        return [files[name]["references"] for name in sorted(files)]

    assert counted() == [0, 1_000]
    assert len(said_by(java)["files"][new]["holding"]) == 2_000
    java.remove(old)
    assert counted() == [1_000]
    java.prove(1, True)
    assert said_by(java)["files"][new]["idle"] == []
    assert said_by(java)["below"]["0"] == sorted(f"{new} {fact.text()}" for fact in copies[1_000:])
    java.remove(new)
    assert said_by(java)["partitions"] == {}
    assert said_by(java)["totals"] == [0, 0, 0, 0]


@pytest.mark.parametrize("seed", range(3))
def test_threads_that_add_remove_and_walk(jvm: Any, seed: int) -> None:
    assert list(jvm.io.pyspark.statestore.index.IndexView.race(seed * 100)) == []
