"""The rules of the index (§5), by their numbers, with other processes' files written by Python."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from typing import Any

import pytest

from pyspark_statestore import StateStoreFilesError
from pyspark_statestore.format import Kind, MergedFileWriter, file_name
from tests.jvm.harness import CREATED_MS, STAMP, Checkpoint, java_error, until

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("by_hand")]

P = "0/0/1.changelog"
KEEP = "0/0/9.changelog"
NEWER = "0/1/1.changelog"
"""Written so that no other file has the highest stamp."""

LARGE = bytes(70_000)
"""A segment that fills a file of maxFileSize=64k, so that it is sealed."""


def tombstones(checkpoint: Checkpoint) -> list[str]:
    """The paths that a tombstone names, once for each."""
    return [entry.path for file in checkpoint.view().files.values() for entry in file if entry.kind is Kind.DELETE]


def test_rule_3_the_newest_write_wins(checkpoint: Checkpoint) -> None:
    with checkpoint.foreign(1, writer=5) as file:
        file.put(P, b"old", stamp=STAMP)
        file.put("0/0/2.changelog", b"by 5", stamp=STAMP)
    with checkpoint.foreign(2, writer=6, seal=False) as file:
        file.put("0/0/2.changelog", b"by 6", stamp=STAMP)
        file.put(P, b"new", stamp=STAMP + 1)
    with checkpoint.foreign(3, writer=7) as file:
        file.put(P, b"oldest", stamp=STAMP - 1)

    assert checkpoint.read(P) == b"new"
    assert checkpoint.read("0/0/2.changelog") == b"by 6"
    assert checkpoint.contents() == {P: b"new", "0/0/2.changelog": b"by 6"}

    checkpoint.write(P, b"newest")
    assert checkpoint.read(P) == b"newest"


def test_rule_3_stamps_are_above_those_that_were_seen(checkpoint: Checkpoint) -> None:
    in_a_year = STAMP + (10 * 365 * 86_400_000 << 16)
    with checkpoint.foreign(1, writer=2**63 - 1) as file:
        file.put(P, b"by a clock that is ahead", stamp=in_a_year)
    assert checkpoint.read(P) == b"by a clock that is ahead"

    checkpoint.write(P, b"later")

    assert checkpoint.read(P) == b"later"
    assert checkpoint.contents() == {P: b"later"}


def test_rule_4_a_tombstone_kills_what_it_saw_and_nothing_newer(checkpoint: Checkpoint) -> None:
    with checkpoint.foreign(1) as file:
        file.put(P, b"seen", stamp=STAMP, writer=5)
        file.put(KEEP, b"seen", stamp=STAMP, writer=5)
    assert checkpoint.read(P) == b"seen"
    # Its new owner writes it anew, and this process has not looked since.
    with checkpoint.foreign(2) as file:
        file.put(P, b"new", stamp=STAMP + 1, writer=6)

    assert checkpoint.log.delete(P)
    assert checkpoint.log.delete(KEEP)
    assert checkpoint.log.find(P) is None
    checkpoint.log.seal()

    assert checkpoint.contents() == {P: b"new"}
    assert checkpoint.read(P) == b"new"
    assert not checkpoint.exists(KEEP)
    assert checkpoint.clean() >= 1
    assert checkpoint.contents() == {P: b"new"}


def test_rule_4_of_equal_stamps_the_writer_decides(checkpoint: Checkpoint) -> None:
    with checkpoint.foreign(1) as file:
        file.put(P, b"5", stamp=STAMP, writer=5)
        file.put("0/0/2.delta", b"7", stamp=STAMP, writer=7)
        file.delete(P, stamp=STAMP, writer=6)
        file.delete("0/0/2.delta", stamp=STAMP, writer=6)

    assert checkpoint.names("0/0") == ["2.delta"]
    assert checkpoint.view().live.keys() == {"0/0/2.delta"}


def test_rule_5_of_equal_keys_the_highest_generation_is_read(checkpoint: Checkpoint) -> None:
    for generation in (1, 0, 2):
        with checkpoint.foreign(generation, writer=9 - generation) as file:
            file.put(P, b"x", stamp=STAMP, writer=5, generation=generation)

    assert checkpoint.exists(P)
    assert checkpoint.log.find(P).file().name() == checkpoint.view().live[P][0] == file_name(CREATED_MS, 7, 2)
    checkpoint.write(KEEP)  # so that none of the files has the highest stamp, which is kept
    assert checkpoint.clean() == 2
    assert checkpoint.read(P) == b"x"


@pytest.mark.parametrize("kind", ["small", "large"])
def test_rule_5_a_missing_file_means_to_look_again_once(checkpoint: Checkpoint, kind: str) -> None:
    data = b"x" if kind == "small" else bytes(5 << 20)
    for generation in (0, 1):
        with checkpoint.foreign(generation, writer=7 + generation) as file:
            file.put(P, data, stamp=STAMP, writer=5, generation=generation)
    assert checkpoint.exists(P)
    stale = checkpoint.log.find(P)
    (checkpoint.merged / stale.file().name()).unlink()

    assert bytes(checkpoint.log.open(stale).readAllBytes()) == data
    fresh = checkpoint.log.find(P)
    assert fresh.file().name() == file_name(CREATED_MS, 7, 0)

    checkpoint.forget()
    assert checkpoint.exists(P)
    gone = checkpoint.log.find(P)
    (checkpoint.merged / gone.file().name()).unlink()
    with java_error("PSS_MISSING_SEGMENT", str(checkpoint.directory), f"state/{P}", gone.file().name(), "offset"):
        checkpoint.log.open(gone).readAllBytes()
    with java_error("FileNotFoundException", P):
        checkpoint.read(P)


def test_rule_6_tombstones_are_carried_over(checkpoint: Checkpoint) -> None:
    with checkpoint.foreign(1, writer=5) as file:
        file.put(P, b"old", stamp=STAMP)
        file.put(KEEP, b"keep", stamp=STAMP)
    with checkpoint.foreign(2, writer=6) as file:
        file.put(P, b"new", stamp=STAMP + 1)
        file.delete(P, stamp=STAMP + 1, writer=6)
        file.delete("0/0/never.changelog", stamp=STAMP + 1, writer=6)
    assert not checkpoint.exists(P)
    checkpoint.write(NEWER, b"newer")

    assert checkpoint.clean() == 1

    assert not (checkpoint.merged / file_name(CREATED_MS, 6, 2)).exists()
    assert checkpoint.contents() == {KEEP: b"keep", NEWER: b"newer"}
    assert tombstones(checkpoint) == [P]
    entries = [entry for file in checkpoint.view().files.values() for entry in file if entry.kind is Kind.DELETE]
    assert [entry.generation for entry in entries] == [1]
    checkpoint.forget()
    assert checkpoint.names("0/0") == ["9.changelog"]


def test_rule_6_the_highest_stamp_is_kept(checkpoint: Checkpoint) -> None:
    """A clock that was ahead must not be forgotten: its stamps are still in others' memory."""
    ahead = STAMP + (1 << 62)
    with checkpoint.foreign(1, writer=5) as file:
        file.put(P, b"x", stamp=ahead)
        file.delete(P, stamp=ahead, writer=5)
    assert not checkpoint.exists(P)

    assert checkpoint.clean() == 0
    checkpoint.forget()
    checkpoint.write(P, b"again")

    assert checkpoint.view().live[P][1].stamp > ahead
    assert checkpoint.clean() == 1


def test_rule_6_a_tombstone_that_another_file_repeats_is_carried_over_once(checkpoint: Checkpoint) -> None:
    with checkpoint.foreign(1, writer=5) as file:
        file.put(P, b"old", stamp=STAMP)
        file.put(KEEP, b"keep", stamp=STAMP)
    for number in (2, 3):
        with checkpoint.foreign(number, writer=6) as file:
            file.delete(P, stamp=STAMP + number, writer=6)
    checkpoint.write(NEWER, b"newer")

    # The other one holds nothing but what would have to be written again.
    assert checkpoint.clean() == 1

    assert checkpoint.contents() == {KEEP: b"keep", NEWER: b"newer"}
    assert tombstones(checkpoint) == [P]


def test_rule_6_files_of_needed_tombstones_are_joined_when_there_are_several(checkpoint: Checkpoint) -> None:
    paths = [f"0/{partition}/1.changelog" for partition in range(2, 7)]
    with checkpoint.foreign(1, writer=5) as file:
        for path in (*paths, KEEP):
            file.put(path, b"x" * 200, stamp=STAMP)
    for number, path in enumerate(paths[:3], start=2):
        with checkpoint.foreign(number, writer=6) as file:
            file.delete(path, stamp=STAMP, writer=5)
    checkpoint.write(NEWER, b"newer")
    assert checkpoint.clean() == 0
    for number, path in enumerate(paths[3:], start=5):
        with checkpoint.foreign(number, writer=6) as file:
            file.delete(path, stamp=STAMP, writer=5)

    assert checkpoint.clean() == 5

    assert tombstones(checkpoint) == sorted(paths)
    assert sorted(checkpoint.contents()) == sorted([KEEP, NEWER])
    assert checkpoint.clean() == 0


def test_rule_6_what_an_unwritten_tombstone_killed_is_not_dead_yet(new_checkpoint: Callable[..., Checkpoint]) -> None:
    checkpoint = new_checkpoint(maxFileSize="64k", compaction__enabled="false")
    with checkpoint.foreign(1, writer=5) as file:
        file.put(P, b"old", stamp=STAMP)
        file.put(KEEP, b"keep", stamp=STAMP)
    checkpoint.write(P, LARGE)
    assert checkpoint.sealed(checkpoint.files()[-1])
    checkpoint.write(NEWER)
    assert checkpoint.log.delete(P)

    checkpoint.clean()
    checkpoint.forget()

    # Deleted, or still what it was; never the older write that it replaced.
    assert checkpoint.contents().get(P, LARGE) == LARGE
    assert checkpoint.read(KEEP) == b"keep"


def test_rules_6_and_7_only_closed_files_are_unlinked(new_checkpoint: Callable[..., Checkpoint]) -> None:
    checkpoint = new_checkpoint(closedAfter="5s", compaction__enabled="false")
    checkpoint.write(P)
    own = checkpoint.files()[0]
    with checkpoint.foreign(1, writer=5) as file:
        file.put(P, b"dead", stamp=STAMP)
    assert checkpoint.clean() == 1
    now = time.time_ns() // 1_000_000
    with checkpoint.foreign(2, writer=6, seal=False, created_ms=now) as file:
        file.put(P, b"dead", stamp=STAMP)
    unsealed = file_name(now, 6, 2)
    assert checkpoint.files() == [own, unsealed]
    # Its writer may come back to it any moment, for as long as closedAfter.
    assert checkpoint.clean() == 0
    until(lambda: checkpoint.clean() >= 0 and checkpoint.files() == [own], "the unsealed file to count as closed")
    assert checkpoint.read(P) == b"some bytes"


def test_rule_6_an_own_file_goes_when_it_is_sealed_and_dead(new_checkpoint: Callable[..., Checkpoint]) -> None:
    checkpoint = new_checkpoint(maxFileSize="64k")
    checkpoint.write(P, b"small")
    assert checkpoint.clean() == 0
    checkpoint.write(P, LARGE)
    checkpoint.write(P, LARGE)
    checkpoint.write(P, b"small again")

    assert checkpoint.clean() == 2

    assert checkpoint.contents() == {P: b"small again"}
    assert checkpoint.metrics()["unlinkedFiles"] == 2


def test_rule_8_in_doubt_nothing_is_deleted(checkpoint: Checkpoint) -> None:
    with checkpoint.foreign(1) as file:
        file.put(P, b"dead", stamp=STAMP)
        file.delete(P, stamp=STAMP, writer=77)
    assert not checkpoint.exists(P)
    doubtful = checkpoint.merged / file_name(CREATED_MS, 5, 2)
    doubtful.write_bytes(b"PSSMERG1 and then nonsense, for long enough that it is not just cut off")
    before = checkpoint.files()

    assert int(checkpoint.log.clean()) == 0

    assert checkpoint.files() == before
    doubtful.unlink()
    checkpoint.write(NEWER)
    assert checkpoint.clean() == 1


@pytest.mark.parametrize("seed", range(6))
def test_the_order_in_which_files_are_seen_does_not_matter(
    new_checkpoint: Callable[..., Checkpoint], seed: int
) -> None:
    chance = random.Random(seed)
    checkpoint = new_checkpoint()
    checkpoint.merged.mkdir(parents=True)
    paths = [f"0/{n % 2}/{n}.changelog" for n in range(6)]
    facts: list[tuple[str, int, int]] = []
    grown = []
    for writer in (3, 1, 4, 2):
        out = (checkpoint.merged / file_name(CREATED_MS, writer, writer)).open("wb", buffering=0)
        grown.append(MergedFileWriter(out, writer=writer, created_ms=CREATED_MS, meta={"plain": False}))
    for _ in range(25):
        file = chance.choice(grown)
        for _ in range(chance.randint(1, 3)):
            path = chance.choice(paths)
            if facts and chance.random() < 0.4:
                path, stamp, writer = chance.choice(facts)
                if chance.random() < 0.7:
                    file.delete(path, stamp=stamp, writer=writer)
                else:
                    data = f"{path} {stamp} {writer}".encode()
                    file.put(path, data, stamp=stamp, writer=writer, generation=chance.randint(1, 3))
            else:
                stamp = STAMP + chance.randint(0, 9)
                facts.append((path, stamp, file.writer))
                file.put(path, f"{path} {stamp} {file.writer}".encode(), stamp=stamp)
        file.end_group()
        if chance.random() < 0.5:
            assert_same_as_python(checkpoint, paths)
    for file in grown:
        file.seal()
    assert_same_as_python(checkpoint, paths)

    before = checkpoint.contents()
    checkpoint.clean()
    assert checkpoint.contents() == before
    checkpoint.forget()
    assert_same_as_python(checkpoint, paths)


def assert_same_as_python(checkpoint: Checkpoint, paths: list[str]) -> None:
    expected = checkpoint.view()
    checkpoint.exists("0/0")
    checkpoint.log.refresh()
    found = {path: segment for path in paths if (segment := checkpoint.log.find(path)) is not None}
    assert {path: (segment.file().name(), segment.entry().stamp()) for path, segment in found.items()} == {
        path: (name, entry.stamp) for path, (name, entry) in expected.live.items()
    }
    assert {path: checkpoint.read(path) for path in found} == expected.contents()
    counts = {file.name(): checkpoint.log.index().referenceCount(file) for file in checkpoint.log.index().files()}
    assert counts == {name: sum(live == name for live, _ in expected.live.values()) for name in expected.files}


@pytest.mark.parametrize("tail", [0, 1, 5_000, 40_000, 70_000])
@pytest.mark.parametrize("entries", [5, 400, 900, 3000])
def test_files_that_grow_are_read_on_from_where_they_were(checkpoint: Checkpoint, entries: int, tail: int) -> None:
    """With indexes around the 64 KiB that are read at once, and another process's unfinished write behind them."""
    checkpoint.merged.mkdir(parents=True)
    path = checkpoint.merged / file_name(CREATED_MS, 5, 1)
    with path.open("wb", buffering=0) as out:
        file = MergedFileWriter(out, writer=5, created_ms=CREATED_MS, meta={"plain": False})
        for group in range(3):
            for partition in range(entries if group else 3):
                file.put(f"0/{partition}/{group}.delta", b"x", stamp=STAMP + group)
            file.end_group()
            end = out.tell()
            out.write(bytes(tail))
            assert len(checkpoint.names("0/2")) == group + 1
            assert checkpoint.exists(f"0/{entries - 1}/{group}.delta") or not group
            out.truncate(end)
            out.seek(end)


@pytest.mark.parametrize("how", ["removed", "deleted", "deleted above"])
def test_a_checkpoint_that_was_deleted_and_is_begun_again(checkpoint: Checkpoint, how: str) -> None:
    """Under an open log. Before a store's first commit Spark asks for its directory and makes it, and no more."""
    checkpoint.write(P, b"of the first life")
    checkpoint.write("0/0/1.zip", b"of the first life")
    checkpoint.delete("0/0/1.zip")
    if how == "removed":
        shutil.rmtree(checkpoint.directory)
    else:
        above = "/.." * (1 if how == "deleted" else 2)
        target = (checkpoint.state / above.strip("/")).resolve()
        assert checkpoint.fs.delete(checkpoint.jvm.org.apache.hadoop.fs.Path(f"merged+file:{target}"), True)
    assert not checkpoint.directory.exists()

    assert not checkpoint.exists("0/0")
    checkpoint.fs.mkdirs(checkpoint.path("0/0"))
    checkpoint.write("0/0/2.changelog", b"of the second")

    assert checkpoint.contents() == {"0/0/2.changelog": b"of the second"}
    assert checkpoint.names("0/0") == ["2.changelog"]
    assert checkpoint.read("0/0/2.changelog") == b"of the second"


def test_logs_of_several_checkpoints_do_not_touch_each_other(
    new_checkpoint: Callable[..., Checkpoint], jvm: Any
) -> None:
    one, other = new_checkpoint(name="q"), new_checkpoint(name="q2")
    one.write(P, b"one")
    other.write(P, b"other")

    one.forget()

    assert other.log is not None
    assert one.log is None
    assert (one.read(P), other.read(P)) == (b"one", b"other")
    one.delete(P)
    assert other.exists(P)


# ---- relocation


def sparse(checkpoint: Checkpoint, partition: int = 0) -> str:
    """Another process's sealed file in which little lives, in a partition that this process serves."""
    checkpoint.write(f"0/{partition}/7.changelog", b"served")
    with checkpoint.foreign(1, writer=5) as file:
        file.put(f"0/{partition}/1.zip", bytes(50_000), stamp=STAMP)
        file.put(f"0/{partition}/2.zip", b"lives" * 100, stamp=STAMP + 1)
        file.put(f"0/{partition}/3.zip", b"lives, too", stamp=STAMP + 2, writer=6, generation=4)
        file.delete(f"0/{partition}/1.zip", stamp=STAMP, writer=5)
    return file_name(CREATED_MS, 5, 1)


def test_rule_5_relocation_copies_facts(checkpoint: Checkpoint) -> None:
    name = sparse(checkpoint)
    before = checkpoint.contents()
    facts = {path: entry for path, (_, entry) in checkpoint.view().live.items()}

    assert checkpoint.clean() == 1

    assert name not in checkpoint.files()
    assert checkpoint.contents() == before
    assert {path: checkpoint.read(path) for path in before} == before
    for path, (_, entry) in checkpoint.view().live.items():
        moved = path.endswith(".zip")
        assert (entry.key, entry.crc32c) == (facts[path].key, facts[path].crc32c)
        assert entry.generation == facts[path].generation + moved
    checkpoint.delete("0/0/2.zip")
    checkpoint.log.seal()
    checkpoint.forget()
    assert checkpoint.contents() == {path: data for path, data in before.items() if path != "0/0/2.zip"}


def test_relocation_comes_to_rest(checkpoint: Checkpoint, jvm: Any) -> None:
    """Small segments have indexes about as large as they are. These are no garbage that moving them could remove."""
    storm = jvm.io.pyspark.statestore.testing.Storm
    assert list(storm.commit(checkpoint.fs, f"merged+file:{checkpoint.state}", 8, 200)) == []
    for partition in range(5):
        checkpoint.fs.delete(checkpoint.path(f"0/{partition}"), True)
    for _ in range(2):
        checkpoint.log.seal()
        checkpoint.clean()
    checkpoint.log.seal()
    files = checkpoint.files()
    assert checkpoint.metrics()["relocatedSegments"] == 600

    for _ in range(3):
        checkpoint.clean()
        checkpoint.log.seal()

    assert checkpoint.files() == files
    assert len(checkpoint.contents()) == 600


def test_only_what_this_process_serves_is_moved(new_checkpoint: Callable[..., Checkpoint]) -> None:
    others = new_checkpoint(name="others")
    name = sparse(others)
    others.forget()
    others.write("0/1/1.changelog", b"of another partition")
    off = new_checkpoint(name="off", compaction__enabled="false")
    sparse(off)

    assert others.clean() == off.clean() == 0

    assert name in others.files()
    assert name in off.files()


def test_rule_9_relocation_does_not_make_a_wrong_byte_right(checkpoint: Checkpoint) -> None:
    name = sparse(checkpoint)
    entry = checkpoint.view().live["0/0/2.zip"][1]
    data = bytearray((checkpoint.merged / name).read_bytes())
    data[entry.offset] ^= 1
    (checkpoint.merged / name).write_bytes(data)

    checkpoint.clean()

    with pytest.raises(StateStoreFilesError, match="PSS_CORRUPT_SEGMENT"):
        checkpoint.contents()
    assert name in checkpoint.files()


def test_a_relocation_that_fails_changes_nothing(new_checkpoint: Callable[..., Checkpoint], jvm: Any) -> None:
    checkpoint = new_checkpoint("faulty", closedAfter="10s")
    name = sparse(checkpoint)
    before = checkpoint.contents()
    checkpoint.log.seal()  # or the file that is idle is sealed meanwhile, which flushes it, too
    faulty = jvm.io.pyspark.statestore.testing.FaultyFileSystem
    faulty.addRule("hsync", str(checkpoint.merged), 1, "torn")  # the original is unlinked on the strength of it
    try:
        assert int(checkpoint.log.clean()) == 0
        assert faulty.fired() == 1
    finally:
        faulty.clear()
    assert name in checkpoint.files()
    assert checkpoint.contents() == before

    # Copies of the failed round may still appear, so tombstones in the file are kept, which takes a little longer.
    until(lambda: checkpoint.clean() >= 0 and name not in checkpoint.files(), "the file to go")
    assert checkpoint.contents() == before
    until(lambda: checkpoint.clean() >= 0 and not list(checkpoint.merged.glob("*.relocating")), "the marker to go")
