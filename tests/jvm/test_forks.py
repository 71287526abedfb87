"""A checkpoint whose state is in another one's merged files: read there, and never changed there."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.jvm.harness import STAMP, TESTING, Checkpoint, java_error, refer

pytestmark = pytest.mark.spark

LARGE = bytes(range(256)) * 20_000  # more than what is read at once


@pytest.fixture(params=["file", "objectstore"])
def both(request: pytest.FixtureRequest, new_checkpoint: Callable[..., Checkpoint]) -> tuple[Checkpoint, Checkpoint]:
    """A source, half of whose files are still open where that can be, and its fork."""
    source = new_checkpoint(request.param, name="source ü")
    source.write("0/0/1.changelog", b"one")
    source.write("0/0/2.changelog", b"two")
    source.write("0/1/1.zip", LARGE)
    source.log.seal()
    source.write("0/0/3.changelog", b"three")
    source.write("0/1/2.changelog", b"")
    source.delete("0/0/1.changelog")
    source.write("0/0/2.changelog", b"two, anew")
    fork = new_checkpoint(request.param, name="fork")
    refer(source, fork)
    return source, fork


def tree(checkpoint: Checkpoint) -> dict[str, bytes]:
    """What is on the disk."""
    return {str(p.relative_to(checkpoint.directory)): p.read_bytes() for p in checkpoint.directory.rglob("*.merged")}


def everything(checkpoint: Checkpoint) -> dict[str, bytes]:
    """What a process reads."""
    stores = [store for store in ("0/0", "0/1") if checkpoint.exists(store)]
    return {
        f"{store}/{name}": checkpoint.read(f"{store}/{name}") for store in stores for name in checkpoint.names(store)
    }


def test_it_is_read_where_it_is(both: tuple[Checkpoint, Checkpoint]) -> None:
    source, fork = both
    expected = source.contents()
    assert fork.contents() == expected

    assert everything(fork) == expected
    stream = fork.fs.open(fork.path("0/1/1.zip"))
    stream.seek(len(LARGE) - 256)
    assert bytes(stream.readAllBytes()) == LARGE[-256:]
    stream.close()
    totals = fork.log.index().totals()
    assert (totals.liveSegments(), totals.liveBytes()) == (4, 0)
    assert totals.physicalBytes() == sum(map(len, tree(fork).values())) < 2_000


def test_the_fork_goes_on_and_the_source_stays_as_it_is(both: tuple[Checkpoint, Checkpoint]) -> None:
    source, fork = both
    source.log.seal()
    before = tree(source)
    expected = everything(fork)

    fork.write("0/0/3.changelog", b"of the fork")
    fork.write("0/0/4.changelog", b"four")
    fork.delete("0/0/2.changelog")
    fork.log.seal()
    fork.clean()
    expected |= {"0/0/3.changelog": b"of the fork", "0/0/4.changelog": b"four"}
    del expected["0/0/2.changelog"]
    assert everything(fork) == expected
    assert fork.contents() == expected
    fork.forget()
    assert everything(fork) == expected
    assert tree(source) == before
    assert source.read("0/0/3.changelog") == b"three"


def test_rule_6_the_reference_file_goes_when_nothing_in_it_lives(both: tuple[Checkpoint, Checkpoint]) -> None:
    source, fork = both
    source.log.seal()
    before = tree(source)
    reference = fork.files()[0]
    paths = sorted(everything(fork))
    fork.write("0/0/9.changelog", b"nine")

    for path in paths[1:]:
        fork.delete(path)
    fork.log.seal()
    fork.clean()
    assert reference in fork.files()
    fork.delete(paths[0])
    fork.log.seal()
    fork.write("0/0/10.changelog", b"ten")
    fork.clean()

    assert reference not in fork.files()
    assert everything(fork) == {"0/0/9.changelog": b"nine", "0/0/10.changelog": b"ten"}
    assert tree(source) == before


def test_nothing_is_brought_home_and_it_is_no_garbage(new_checkpoint: Callable[..., Checkpoint], by_hand: None) -> None:
    source, fork = new_checkpoint(name="source"), new_checkpoint(name="fork")
    with source.foreign(1) as file:
        for number in range(400):
            file.put(f"0/0/{number}.changelog", bytes(100), stamp=STAMP + number)
    reference = refer(source, fork)
    fork.write("0/0/2000.changelog", bytes(1_000))  # serves the partition from now on
    for number in range(399):
        fork.delete(f"0/0/{number}.changelog")
    fork.log.seal()
    fork.write("0/0/2001.changelog", bytes(1_000))
    fork.log.seal()
    for _ in range(3):
        fork.clean()

    assert fork.view().live["0/0/399.changelog"][0] == reference
    assert fork.read("0/0/399.changelog") == bytes(100)


def test_what_was_brought_home_is_read_there(both: tuple[Checkpoint, Checkpoint]) -> None:
    source, fork = both
    expected = everything(fork)
    live = fork.view().live
    with fork.foreign(1, writer=7) as file:
        for path, (_, entry) in live.items():
            data = expected[path]
            file.put(path, data, stamp=entry.stamp, writer=entry.writer, generation=entry.generation + 1)
    shutil.rmtree(source.directory)

    assert everything(fork) == expected  # found out by looking again
    fork.write("0/0/9.changelog", b"nine")
    fork.log.seal()
    fork.clean()
    expected["0/0/9.changelog"] = b"nine"
    assert len(fork.files()) == 2
    assert everything(fork) == expected
    assert fork.log.index().totals().liveBytes() == sum(map(len, expected.values()))


@pytest.mark.parametrize("path", ["0/0/3.changelog", "0/1/1.zip"])
def test_a_foreign_file_that_is_gone(both: tuple[Checkpoint, Checkpoint], path: str) -> None:
    source, fork = both
    fork.exists("0/0")
    name = source.view().live[path][0]
    (source.merged / name).unlink()

    words = ("PSS_FOREIGN_FILE_MISSING", str(fork.directory), f"state/{path}", f"{source.merged}/{name}", "localize")
    with java_error(*words):
        fork.read(path)


def test_rule_9_a_wrong_byte_names_the_foreign_file(both: tuple[Checkpoint, Checkpoint]) -> None:
    source, fork = both
    name, entry = source.view().live["0/0/3.changelog"]
    data = bytearray((source.merged / name).read_bytes())
    data[entry.offset] ^= 1
    (source.merged / name).write_bytes(data)

    with java_error("PSS_CORRUPT_SEGMENT", str(fork.directory), f"{source.merged}/{name}"):
        fork.read("0/0/3.changelog")


def test_a_fork_of_a_fork(both: tuple[Checkpoint, Checkpoint], new_checkpoint: Callable[..., Checkpoint]) -> None:
    source, fork = both
    fork.write("0/0/4.changelog", b"four")
    second = new_checkpoint(source.scheme, name="second")
    refer(fork, second)

    assert everything(second) == everything(fork)
    shutil.rmtree(fork.directory)
    assert second.read("0/0/3.changelog") == b"three"


def test_stamps_go_on_above_those_of_the_source(new_checkpoint: Callable[..., Checkpoint]) -> None:
    ahead = STAMP << 1
    source, fork = new_checkpoint(name="source"), new_checkpoint(name="fork")
    with source.foreign(1) as file:
        file.put("0/0/1.changelog", b"from a clock that is ahead", stamp=ahead)
    refer(source, fork)

    fork.write("0/0/1.changelog", b"anew")

    assert fork.read("0/0/1.changelog") == b"anew"
    assert fork.view().live["0/0/1.changelog"][1].stamp > ahead


def calls(jvm: Any, root: str) -> Counter[str]:
    """Calls so far on merged files below a root, by operation."""
    counting = getattr(jvm, f"{TESTING}.CountingFileSystem")
    total: Counter[str] = Counter()
    for kinds in json.loads(counting.snapshotJson()).get(root, {}).values():
        total.update(kinds.get("merged", {}))
    return total


def test_each_foreign_file_is_opened_once(new_checkpoint: Callable[..., Checkpoint], jvm: Any, tmp_path: Path) -> None:
    source, fork = (new_checkpoint("counting", name=f"{tmp_path.name}-{name}") for name in ("source", "fork"))
    counting = getattr(jvm, f"{TESTING}.CountingFileSystem")
    for number in range(3):
        for version in range(20):
            source.write(f"0/{number}/{version}.changelog", b"%d" % version)
        source.log.seal()
    refer(source, fork)
    for checkpoint in (source, fork):
        counting.registerRoot(checkpoint.directory.name, str(checkpoint.directory))

    for number in range(3):
        for version in range(20):
            assert fork.read(f"0/{number}/{version}.changelog") == b"%d" % version

    assert calls(jvm, source.directory.name)["open"] == 3
    assert calls(jvm, fork.directory.name)["open"] == 1
