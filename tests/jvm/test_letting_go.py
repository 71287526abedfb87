"""A fork's own cleaner lets go of the files in its source in which nothing of the fork lives any more."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore.format import file_name
from pyspark_statestore.log.pins import Pin
from tests.jvm.harness import CREATED_MS, Checkpoint, refer, until
from tests.jvm.test_pins import dead_file, own_pin, pin, split

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("by_hand")]

PIN = file_name(CREATED_MS, 98, 2).replace(".merged", ".fork")
ID = "0123"


@dataclass
class Pair:
    """A source with three files, each with a segment, and its fork."""

    source: Checkpoint
    fork: Checkpoint
    files: list[str]

    def pin(self, name: str = PIN, **other: Any) -> Path:
        said = {"fork": str(self.fork.directory), "files": frozenset(self.files), "fork_id": ID, "relative": "../fork"}
        path = self.source.merged / name
        path.write_bytes(Pin(name, created_ms=CREATED_MS, **{**said, **other}).encode())
        return path

    @property
    def pins(self) -> list[Pin]:
        found = [Pin.decode(path.name, path.read_bytes()) for path in sorted(self.source.merged.glob("*.fork"))]
        assert not any(pin.damage for pin in found)
        return found

    def clean(self, times: int = 4) -> None:
        for _ in range(times):
            self.fork.write(f"0/0/{50 + len(self.fork.files())}.changelog", b"takes tombstones along")
            self.fork.log.seal()
            self.fork.clean()


@pytest.fixture
def make_pair(new_checkpoint: Callable[..., Checkpoint]) -> Callable[..., Pair]:
    def make(scheme: str = "file", **options: Any) -> Pair:
        source = new_checkpoint(scheme, name="source ü", **options)
        for number in (1, 2, 3):
            source.write(f"0/0/{number}.changelog", b"of the source %d" % number)
            source.log.seal()
        files = sorted(source.files())
        assert len(files) == 3
        fork = new_checkpoint(scheme, name="fork", **options)
        refer(source, fork)
        (fork.merged / file_name(CREATED_MS, 99, 2).replace(".merged", ".origin")).write_text(
            json.dumps({"source": str(source.directory), "fork_id": ID})
        )
        made = Pair(source, fork, files)
        made.pin()
        return made

    return make


@pytest.mark.parametrize("scheme", ["file", "objectstore"])
@pytest.mark.parametrize("for_all", [False, True])
def test_little_by_little(make_pair: Callable[..., Pair], jvm: Any, scheme: str, for_all: bool) -> None:
    pair = make_pair(scheme)
    [before] = pair.pins
    pair.fork.write("0/0/4.changelog", b"opens the log")
    if for_all:
        jvm.io.pyspark.statestore.log.Cleaning.cleansForAll(pair.fork.log)
    pair.clean()
    assert pair.pins == [before]

    pair.fork.delete("0/0/1.changelog")
    pair.clean()
    [pin] = pair.pins
    assert pin.files == frozenset(pair.files[1:])
    assert pin.name > before.name
    assert (pin.fork, pin.mode, pin.fork_id, pin.relative) == (
        before.fork,
        before.mode,
        before.fork_id,
        before.relative,
    )
    assert pair.fork.read("0/0/2.changelog") == b"of the source 2"

    pair.fork.delete("0/0/2.changelog")
    pair.fork.delete("0/0/3.changelog")
    pair.clean()
    assert pair.pins == []


def test_what_a_later_release_says_stays(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair()
    path = pair.source.merged / PIN
    path.write_text(json.dumps({**json.loads(path.read_text()), "later": [1]}))
    pair.fork.delete("0/0/1.changelog")
    pair.clean()
    [found] = pair.source.merged.glob("*.fork")
    assert json.loads(found.read_text())["later"] == [1]
    assert found.name != PIN


@pytest.mark.parametrize(
    "other",
    [
        {"fork": "/somewhere/else"},
        {"fork_id": "of a fork that was there before"},
        {"fork_id": ""},
        {"mode": "claim"},
    ],
)
def test_pins_of_others_stay(make_pair: Callable[..., Pair], other: dict[str, Any]) -> None:
    pair = make_pair()
    path = pair.pin(**other)
    for number in (1, 2, 3):
        pair.fork.delete(f"0/0/{number}.changelog")
    pair.clean()
    assert path.exists()


def test_a_damaged_pin_is_nobodys(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair()
    damaged = pair.source.merged / file_name(CREATED_MS, 98, 3).replace(".merged", ".fork")
    damaged.write_bytes(b"{")
    for number in (1, 2, 3):
        pair.fork.delete(f"0/0/{number}.changelog")
    pair.clean()
    assert [path.name for path in pair.source.merged.glob("*.fork")] == [damaged.name]


@pytest.mark.parametrize("kind", [".own", ".fork"])
def test_nothing_is_let_go_while_somebody_looks(make_pair: Callable[..., Pair], kind: str) -> None:
    """At the fork, to fork it or to split its partitions."""
    pair = make_pair()
    begun = pair.fork.merged / file_name(CREATED_MS, 98, 4).replace(".merged", kind)
    begun.write_bytes(b"")
    before = pair.pins
    pair.fork.delete("0/0/1.changelog")
    pair.clean()
    assert pair.pins == before
    begun.unlink()
    pair.clean()
    assert pair.pins != before


def test_a_deletion_that_nobody_else_knows_lets_nothing_go(make_pair: Callable[..., Pair], faulty: Any) -> None:
    pair = make_pair("faulty")
    before = pair.pins
    pair.clean(2)
    pair.fork.log.seal()
    for operation in ("create", "hflush"):
        faulty.addRule(operation, ".merged", 1, 1000, "ioexception")
    pair.fork.delete("0/0/1.changelog")
    for _ in range(4):
        pair.fork.clean()
    assert pair.pins == before
    pair.fork.forget()
    assert pair.fork.read("0/0/1.changelog") == b"of the source 1"


def test_bytes_that_nobody_understands_let_nothing_go(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair()
    (pair.fork.merged / file_name(CREATED_MS, 77, 1)).write_bytes(bytes(100))
    before = pair.pins
    pair.fork.delete("0/0/1.changelog")
    pair.clean()
    assert pair.pins == before


@pytest.mark.parametrize("operation", ["create", "write", "close", "delete"])
def test_who_may_not_write_there_cleans_the_fork_all_the_same(
    make_pair: Callable[..., Pair], faulty: Any, operation: str
) -> None:
    pair = make_pair("faulty")
    faulty.addRule(operation, ".fork", 1, 1000, "ioexception")
    with pair.fork.foreign(5, writer=5) as file:
        file.put("0/1/1.changelog", b"dead", stamp=1)
        file.delete("0/1/1.changelog", stamp=1, writer=5)
    dead = file_name(CREATED_MS, 5, 5)
    pair.fork.delete("0/0/1.changelog")
    pair.clean()
    assert faulty.fired() > 0
    assert dead not in pair.fork.files()
    kept = set().union(*(pin.files or () for pin in pair.pins))
    assert kept >= set(pair.files[1:])
    faulty.clear()
    pair.clean(8)
    assert set().union(*(pin.files or () for pin in pair.pins)) == set(pair.files[1:])
    assert len(pair.pins) == 1


@pytest.mark.parametrize("left", ["zeros", "a beginning"])
def test_what_is_left_of_a_reference_file_drops_no_own_pin(
    new_checkpoint: Callable[..., Checkpoint], left: str
) -> None:
    """It may be the file that says that something has second paths; so it stays, too."""
    checkpoint = new_checkpoint(closedAfter="5s")
    name, (path,) = split(checkpoint)
    [reference] = [found for found in checkpoint.merged.glob("*.merged") if "-0000000000000063-" in found.name]
    whole = reference.read_bytes()
    reference.write_bytes(bytes(len(whole)) if left == "zeros" else whole[:20])
    checkpoint.forget()
    other = own_pin(checkpoint, number=9)
    dead = dead_file(checkpoint, 7)
    pin(checkpoint)

    def has_expired() -> bool:
        checkpoint.clean()
        return dead not in checkpoint.files()

    until(has_expired, "pins that are as old to be old enough")
    for _ in range(3):
        checkpoint.write("0/0/9.changelog", b"served")
        checkpoint.log.seal()
        checkpoint.clean()
    assert name in checkpoint.files()
    assert other.exists()
    reference.write_bytes(whole)
    checkpoint.forget()
    assert checkpoint.read(path) == b"lives" * 100


def test_an_own_pin_that_was_emptied(new_checkpoint: Callable[..., Checkpoint]) -> None:
    """It looks like one that has expired. What lives at second paths says itself which files have to stay."""
    checkpoint = new_checkpoint(closedAfter="5s")
    name, (path,) = split(checkpoint)
    [own] = checkpoint.merged.glob("*.own")
    own.write_bytes(b"")
    dead = dead_file(checkpoint, 7)

    def has_expired() -> bool:
        checkpoint.clean()
        return dead not in checkpoint.files()

    until(has_expired, "the pin to be old enough")
    for _ in range(2):
        checkpoint.clean()
    assert name in checkpoint.files()
    assert checkpoint.read(path) == b"lives" * 100
