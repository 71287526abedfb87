"""What a fork needs stays: a pin against cleaners, at every moment of their round."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore.format import BytesSource, Entry, MergedFileWriter, file_name, read_segment
from tests.jvm.harness import CREATED_MS, STAMP, Checkpoint, java_error, until

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("by_hand")]

BEGUN, NAMED = (file_name(CREATED_MS, 98, number).replace(".merged", ".fork") for number in (1, 2))


def pin(checkpoint: Checkpoint, content: bytes | dict[str, Any] = b"", name: str = NAMED) -> Path:
    """Leaves a pin, as a whole."""
    path = checkpoint.merged / name
    path.with_suffix(".being-made").write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    path.with_suffix(".being-made").rename(path)
    return path


def content(*files: str, mode: str = "no_claim") -> dict[str, Any]:
    return {"fork": "/forks/one", "mode": mode, "files": list(files), "created_ms": CREATED_MS}


def dead_file(checkpoint: Checkpoint, number: int = 1) -> str:
    """A sealed file in which nothing lives."""
    checkpoint.write("0/0/9.changelog", b"lives")
    with checkpoint.foreign(number) as file:
        file.put(f"0/1/{number}.changelog", b"dead", stamp=STAMP)
        file.delete(f"0/1/{number}.changelog", stamp=STAMP, writer=77)
    return file_name(CREATED_MS, 77, number)


@pytest.mark.parametrize(
    "pinned",
    [
        b"",
        b"nonsense",
        b"\xff",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"fork":' * 5000 + b"1" + b"}" * 5000,
        b'{"fork": "/f", "mode": "no_claim", "files": ["',
        {"fork": 1, "mode": "no_claim", "files": []},
        {"fork": "/f", "mode": "another", "files": []},
        {"fork": "/f", "mode": "no_claim", "files": [1]},
        {"fork": "/f", "mode": "no_claim", "files": "all"},
        {"fork": "/f", "mode": "no_claim"},
    ],
    ids=lambda content: str(content)[:60],
)
def test_rule_8_what_cannot_be_understood_pins_every_file(checkpoint: Checkpoint, pinned: Any) -> None:
    dead = dead_file(checkpoint)
    path = pin(checkpoint, pinned)

    assert checkpoint.clean() == 0
    checkpoint.write("0/0/10.changelog", b"a query is not kept from writing")
    path.unlink()

    assert dead in checkpoint.files()
    assert checkpoint.clean() == 1
    assert dead not in checkpoint.files()


def test_a_pin_that_cannot_be_read_is_read_again(new_checkpoint: Callable[..., Checkpoint], faulty: Any) -> None:
    checkpoint = new_checkpoint("faulty")
    dead, other = dead_file(checkpoint), dead_file(checkpoint, 2)
    pin(checkpoint, content(other))
    faulty.addRule("open", ".fork", 1, "ioexception")

    assert checkpoint.clean() == 0
    assert faulty.fired() == 1
    assert checkpoint.clean() == 1
    assert dead not in checkpoint.files()
    assert other in checkpoint.files()


def test_the_files_that_it_names_stay(checkpoint: Checkpoint) -> None:
    dead = [dead_file(checkpoint, number) for number in range(4)]
    pins = [pin(checkpoint, content(dead[0], dead[1]), BEGUN), pin(checkpoint, content(dead[1]) | {"later": [1]})]

    assert checkpoint.clean() == 2
    assert set(dead) & set(checkpoint.files()) == set(dead[:2])
    pins[0].unlink()
    assert checkpoint.clean() == 1
    pins[1].unlink()
    assert checkpoint.clean() == 1


def test_pinned_files_do_not_use_up_what_a_round_may_unlink(checkpoint: Checkpoint) -> None:
    pinned = [dead_file(checkpoint, number) for number in range(300)]
    pin(checkpoint, content(*pinned))
    dead = dead_file(checkpoint, 999)

    assert checkpoint.clean() == 1
    assert dead not in checkpoint.files()


def test_an_empty_one_counts_for_closed_after(new_checkpoint: Callable[..., Checkpoint]) -> None:
    checkpoint = new_checkpoint(closedAfter="5s")
    dead = dead_file(checkpoint)
    pin(checkpoint)
    assert checkpoint.clean() == 0

    until(lambda: checkpoint.clean() > 0, "the pin to be given up")
    assert dead not in checkpoint.files()


def test_what_is_pinned_is_no_garbage_that_moving_could_remove(checkpoint: Checkpoint) -> None:
    checkpoint.write("0/0/7.changelog", b"served")
    with checkpoint.foreign(1, writer=5) as file:
        file.put("0/0/1.zip", bytes(50_000), stamp=STAMP)
        file.put("0/0/2.zip", b"lives" * 100, stamp=STAMP + 1)
        file.delete("0/0/1.zip", stamp=STAMP, writer=5)
    path = pin(checkpoint, content(file_name(CREATED_MS, 5, 1)))

    assert checkpoint.clean() == 0
    assert checkpoint.metrics()["relocatedSegments"] == 0
    path.unlink()
    assert checkpoint.clean() == 1
    assert checkpoint.metrics()["relocatedSegments"] == 1
    assert checkpoint.read("0/0/2.zip") == b"lives" * 100


@pytest.mark.parametrize("was_open", [True, False])
def test_a_claimed_checkpoint_is_not_written_to(checkpoint: Checkpoint, was_open: bool) -> None:
    checkpoint.write("0/0/1.changelog", b"one")
    if not was_open:
        checkpoint.log.seal()
        checkpoint.forget()
    path = pin(checkpoint, content(mode="claim"))
    if was_open:
        checkpoint.log.refresh()

    with java_error("PSS_CLAIMED", str(checkpoint.directory), "/forks/one", str(path)):
        checkpoint.write("0/0/2.changelog", b"two")
    assert checkpoint.read("0/0/1.changelog") == b"one"
    assert "0/0/2.changelog" not in checkpoint.contents()

    path.unlink()
    checkpoint.log.refresh()
    checkpoint.write("0/0/2.changelog", b"two")
    assert checkpoint.read("0/0/2.changelog") == b"two"


# ---- a fork is made while a round of cleaning goes on


@dataclass
class Fork:
    """The steps of a fork, as far as its source notices."""

    source: Checkpoint
    needed: dict[str, tuple[str, Entry]] = field(default_factory=dict)
    expected: dict[str, bytes] = field(default_factory=dict)

    def begin(self) -> None:
        pin(self.source, name=BEGUN)

    def look_and_name(self) -> None:
        view = self.source.view()
        self.needed = dict(view.live)
        self.expected = view.contents()
        pin(self.source, content(*{name for name, _ in self.needed.values()}))
        (self.source.merged / BEGUN).unlink()

    def read(self) -> dict[str, bytes]:
        """What the fork finds where it expects it."""
        found = {}
        for path, (name, entry) in self.needed.items():
            found[path] = read_segment(BytesSource((self.source.merged / name).read_bytes()), entry, name)
        return found

    def drop(self) -> None:
        (self.source.merged / NAMED).unlink()


def prepare(checkpoint: Checkpoint) -> None:
    """All that a round may find to do: files that are dead already, that die in it, that are moved out of."""
    for number in range(1, 5):
        checkpoint.write(f"0/0/{number}.changelog", b"own %d" % number)
        checkpoint.log.seal()
    with checkpoint.foreign(1, writer=5) as file:
        file.put("0/0/1.zip", bytes(50_000), stamp=STAMP)
        file.put("0/0/2.zip", b"lives" * 100, stamp=STAMP + 1)
        file.delete("0/0/1.zip", stamp=STAMP, writer=5)
    with checkpoint.foreign(2, writer=6) as file:
        file.put("0/0/3.zip", b"deleted by another", stamp=STAMP)
    checkpoint.log.refresh()
    checkpoint.delete("0/0/1.changelog")
    checkpoint.write("0/0/5.changelog", b"takes the tombstone along")
    checkpoint.log.seal()
    with checkpoint.foreign(3, writer=7) as file:
        file.delete("0/0/3.zip", stamp=STAMP, writer=6)
        file.put("0/0/6.changelog", b"of another", stamp=STAMP)
    checkpoint.delete("0/0/2.changelog")  # nobody else knows


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


class Round:
    """A round of cleaning that stops before the calls that a test chooses."""

    def __init__(self, gate: Any, background: ThreadPoolExecutor, checkpoint: Checkpoint) -> None:
        self._gate = gate
        self._work: Future[int] | None = None
        self._background = background
        self._checkpoint = checkpoint

    def to(self, calls: int) -> bool:
        """Goes on until so many calls later; whether the round has not ended before."""
        if self._work is None:
            self._gate.holdNth("_merged", calls)
            self._work = self._background.submit(self._checkpoint.clean)
        else:
            self._gate.goOnToNth("_merged", calls)
        while not self._gate.isHeld("nth", 5):
            if self._work.done():
                return False
        return True

    def end(self) -> int:
        self._gate.releaseAll()
        assert self._work is not None
        return self._work.result(60)


@pytest.mark.parametrize(
    ("scheme", "looks_later", "step", "for_all"),
    [
        ("gated", 0, 1, False),
        ("gated", 0, 1, True),
        ("gated", 4, 4, False),
        ("gatedstore", 0, 2, False),
        ("gatedstore", 7, 8, False),
    ],
)
def test_at_every_moment_of_a_round(
    new_checkpoint: Callable[..., Checkpoint],
    gate: Any,
    jvm: Any,
    background: ThreadPoolExecutor,
    scheme: str,
    looks_later: int,
    step: int,
    for_all: bool,
) -> None:
    """The first pin is made before the n-th call of a round, the fork looks some calls later.

    A process that cleans for all others looks at the pins in another way.
    """
    unlinked = 0
    for at in range(1, 100, step):
        source = new_checkpoint(scheme, name=f"source-{at}")
        prepare(source)
        if for_all:
            jvm.io.pyspark.statestore.log.Cleaning.cleansForAll(source.log)
        fork = Fork(source)
        cleaning = Round(gate, background, source)
        if not cleaning.to(at):
            cleaning.end()
            break
        fork.begin()
        if looks_later:
            cleaning.to(looks_later)
        fork.look_and_name()
        unlinked += cleaning.end()
        assert fork.read() == fork.expected, at
        source.log.seal()
        source.clean()
        assert fork.read() == fork.expected, at
        fork.drop()
        source.log.seal()
        source.clean()
        source.log.seal()
        source.clean()
        assert len(source.files()) <= 8, (at, source.files())
        source.forget()
    assert at > (20 if for_all else 30)
    assert unlinked > 0


# ---- pins of the checkpoint itself, for segments with second paths


def own_pin(checkpoint: Checkpoint, *files: str, number: int = 3, fork: str = "", mode: str = "own") -> Path:
    name = file_name(CREATED_MS, 98, number).replace(".merged", ".own")
    return pin(checkpoint, content(*files, mode=mode) | {"fork": fork}, name)


def second_paths(checkpoint: Checkpoint, name: str, number: int = 1) -> list[str]:
    """Gives all live segments of a file second paths, in partition 9; returns these."""
    entries = [entry for file, entry in checkpoint.view().live.values() if file == name]
    given = [replace(entry, path=f"0/9/{entry.path.split('/', 2)[2]}", stamp=STAMP + 9) for entry in entries]
    with (checkpoint.merged / file_name(CREATED_MS, 99, number)).open("wb") as out:
        file = MergedFileWriter(out, writer=99, created_ms=CREATED_MS, meta={"plain": False})
        file.seal_references({name: given}, group_stamp=STAMP + 9)
    checkpoint.log.refresh()
    return [entry.path for entry in given]


def split(checkpoint: Checkpoint) -> tuple[str, list[str]]:
    """A file of another process whose segment was given a second path, and deleted at the first one."""
    checkpoint.write("0/0/9.changelog", b"served")
    with checkpoint.foreign(1, writer=5) as file:
        file.put("0/1/1.zip", b"lives" * 100, stamp=STAMP)
    name = file_name(CREATED_MS, 5, 1)
    own_pin(checkpoint, name)
    given = second_paths(checkpoint, name)
    with checkpoint.foreign(2, writer=6) as file:
        file.delete("0/1/1.zip", stamp=STAMP, writer=5)
    checkpoint.log.refresh()
    return name, given


def test_a_second_path_is_read_where_its_segment_is(checkpoint: Checkpoint) -> None:
    name, (path,) = split(checkpoint)
    assert checkpoint.read(path) == b"lives" * 100
    checkpoint.forget()
    assert checkpoint.read(path) == b"lives" * 100
    assert sorted(checkpoint.contents()) == ["0/0/9.changelog", path]
    (checkpoint.merged / name).unlink()
    checkpoint.forget()
    with java_error("PSS_MISSING_SEGMENT", name, path):
        checkpoint.read(path)


@pytest.mark.parametrize("for_all", [False, True])
def test_its_file_stays_while_anything_lives_at_second_paths(
    new_checkpoint: Callable[..., Checkpoint], jvm: Any, for_all: bool
) -> None:
    checkpoint = new_checkpoint(closedAfter="5s")
    name, (path,) = split(checkpoint)
    if for_all:
        jvm.io.pyspark.statestore.log.Cleaning.cleansForAll(checkpoint.log)
    began = time.monotonic()

    def is_let_go() -> bool:
        checkpoint.clean()
        return name not in checkpoint.files()

    while time.monotonic() < began + 6:  # longer than closedAfter: it is no matter of time
        assert not is_let_go()
        time.sleep(0.2)
    checkpoint.delete(path)
    until(is_let_go, "the file to be unlinked")
    assert not list(checkpoint.merged.glob("*.own"))
    assert checkpoint.read("0/0/9.changelog") == b"served"


def test_a_young_pin_stays_though_nothing_needs_it(checkpoint: Checkpoint) -> None:
    """What it was made for may be about to come."""
    dead = dead_file(checkpoint)
    path = own_pin(checkpoint, dead)
    for _ in range(3):
        assert checkpoint.clean() == 0
    assert path.exists()


def test_a_pin_that_cannot_be_understood_stays(new_checkpoint: Callable[..., Checkpoint]) -> None:
    checkpoint = new_checkpoint(closedAfter="5s")
    dead = dead_file(checkpoint)
    own = own_pin(checkpoint)
    path = own_pin(checkpoint, number=4, mode="claim")

    def is_first_gone() -> bool:
        assert checkpoint.clean() == 0
        return not own.exists()

    until(is_first_gone, "the pin that names nothing to be dropped")
    assert path.exists()
    assert dead in checkpoint.files()


def test_a_deletion_that_nobody_else_knows_lets_no_file_go(
    new_checkpoint: Callable[..., Checkpoint], faulty: Any
) -> None:
    """If this process dies before the deletion is durable, what was deleted is there again."""
    checkpoint = new_checkpoint("faulty", closedAfter="5s")
    name, (path,) = split(checkpoint)
    own = own_pin(checkpoint, number=4)  # as old as the other, and nothing needs it

    def is_other_gone() -> bool:
        checkpoint.clean()
        return not own.exists()

    until(is_other_gone, "pins to be old enough")
    checkpoint.log.seal()
    for operation in ("create", "hflush"):
        faulty.addRule(operation, ".merged", 1, 1000, "ioexception")
    checkpoint.delete(path)
    for _ in range(3):
        checkpoint.clean()
    assert faulty.fired() > 0
    assert list(checkpoint.merged.glob("*.own"))
    checkpoint.forget()
    assert checkpoint.read(path) == b"lives" * 100
    assert name in checkpoint.files()
