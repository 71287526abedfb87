"""Spark's RocksDB class, opened with the ends of its SSTs: what it answers, and what happens to it meanwhile."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.stores import open_store
from tests.jvm.harness import Checkpoint, begun, java_error, open_files, result_in_time, until
from tests.maintenance.harness import merged_log_of
from tests.maintenance.test_relocation import everything

pytestmark = [pytest.mark.spark, pytest.mark.since("4.3", "they drive the RocksDB class of Spark 4.3 step by step")]

ROWS = 1500
LENGTH = 100
VERSIONS = 3


@pytest.fixture
def holes(jvm: Any) -> Iterator[Any]:
    """Decides which files have holes, here all, and whether they are filled in the background, here not."""
    control = jvm.io.pyspark.statestore.tables.Lazily
    getattr(control, "from")(4096, 4096, 4096)
    control.pause(True)
    yield control
    assert control.partialFiles() == 0
    control.asEver()


@dataclass
class Written:
    """A checkpoint with a store, and how to open that in what is like another process each time.

    Attributes:
        checkpoint: Its merged files.
        scans: What a scan of each version gives.
    """

    checkpoint: Checkpoint
    scans: dict[int, str]

    @contextmanager
    def opened(self, version: int | None = VERSIONS, **how: Any) -> Iterator[Any]:
        """The store as another process loads it."""
        options = {"cache.sizeLimit": "0", "restore": "lazy", **how.pop("options", {})}
        settings = {"changelog": False, "compact": False, "scheme": self.checkpoint.scheme, **how}
        jvm = self.checkpoint.jvm
        with closing(open_store(jvm, self.checkpoint.directory, options=options, **settings)) as store:
            if version is not None:
                store.load(version)
            yield store

    @property
    def merged(self) -> list[Path]:
        """Its merged files."""
        return sorted(self.checkpoint.merged.glob("*.merged"))


@pytest.fixture
def written(new_checkpoint: Callable[..., Checkpoint], holes: Any) -> Callable[..., Written]:
    """Writes versions, each with an SST of its own; each replaces some rows of the one before."""

    def write(
        scheme: str = "file", versions: int = VERSIONS, apart: bool = False, name: str = "checkpoint", **how: Any
    ) -> Written:
        made = Written(new_checkpoint(scheme, name=name, cache__sizeLimit="0"), {})
        with made.opened(None, options={"restore": "eager"}, **how) as store:
            for version in range(versions):
                store.load(version)
                first = version * ROWS // 10
                store.putMany(first, first + ROWS, LENGTH, version)
                store.commit()
                if how.get("changelog"):
                    store.upload()
                made.scans[version + 1] = store.scan()
                if apart:
                    made.checkpoint.log.seal()
        made.checkpoint.log.seal()
        made.checkpoint.forget()
        return made

    return write


def whole_entries(cache: Path) -> int:
    """How many SSTs a host keeps; each has to have the bytes that its name says."""
    from pyspark_statestore.format.checksum import crc32c

    entries = [path for path in cache.glob("1/??/*") if path.is_file()]
    for entry in entries:
        _, crc, length = entry.name.rsplit("-", 2)
        data = entry.read_bytes()
        assert (f"{crc32c(data):08x}", len(data)) == (crc, int(length)), entry
    return len(entries)


def local_ssts(store: Any) -> list[Path]:
    return sorted(Path(store.local()).glob("workingDir*/*.sst"))


# ---- what it answers


@pytest.mark.parametrize("restore", ["lazy", "ondemand"])
def test_reads_fetch_what_they_need(written: Callable[..., Written], holes: Any, restore: str) -> None:
    made = written()
    with made.opened(options={"restore": restore}) as store:
        loaded = made.checkpoint.metrics()
        assert loaded["leftOutBytes"] > loaded["fetchedBytes"] > 0
        assert loaded["demandedBytes"] == 0
        assert store.has(5)
        assert not store.has(10 * ROWS)
        one = made.checkpoint.metrics()["demandedBytes"]
        assert 0 < one < loaded["leftOutBytes"] / 4
        assert store.scan("key-000100", "key-000200").startswith("100 rows")
        assert store.scan() == made.scans[VERSIONS]
        # What newer rows hide is read as well, but not what is behind the last data block.
        assert made.checkpoint.metrics()["demandedBytes"] == loaded["leftOutBytes"]
        assert holes.partialFiles() == 0


def test_what_nobody_asks_for_is_fetched_in_the_background(
    written: Callable[..., Written], holes: Any, tmp_path: Path
) -> None:
    made = written()
    cache = tmp_path / "cache"
    with made.opened(options={"cache.sizeLimit": "1g", "cache.dir": str(cache)}) as store:
        assert whole_entries(cache) == 0
        left_out = made.checkpoint.metrics()["leftOutBytes"]
        assert made.checkpoint.jvm.io.pyspark.statestore.tables.PartialFiles.missingInAll() == left_out
        holes.pause(False)
        until(lambda: holes.partialFiles() == 0, "all of the store")
        # A file is complete a moment before it is counted and kept on the host.
        until(lambda: made.checkpoint.metrics()["hydratedBytes"] == left_out, "all to be counted")
        until(lambda: whole_entries(cache) == VERSIONS, "all files on the host")
        assert store.scan() == made.scans[VERSIONS]
        assert made.checkpoint.metrics()["demandedBytes"] == 0
    made.checkpoint.forget()
    with made.opened(options={"cache.sizeLimit": "1g", "cache.dir": str(cache)}) as store:
        assert made.checkpoint.metrics()["fetchedBytes"] == 0
        assert store.scan() == made.scans[VERSIONS]


def test_on_demand_fetches_the_rest_only_of_what_was_half_read(written: Callable[..., Written], holes: Any) -> None:
    made = written()
    holes.pause(False)
    with made.opened(options={"restore": "ondemand"}) as store:
        left_out = made.checkpoint.metrics()["leftOutBytes"]
        assert store.has(5)
        assert store.has(ROWS - 5)
        time.sleep(1)
        assert made.checkpoint.metrics()["hydratedBytes"] == 0
        assert holes.partialFiles() == VERSIONS
        # More than half of the first file, and less of the last one, which begins later.
        store.scan("key-000000", f"key-{ROWS // 2:06}")
        until(lambda: holes.partialFiles() < VERSIONS, "the rest of a file")
        time.sleep(1)
        assert holes.partialFiles() > 0
        assert made.checkpoint.metrics()["hydratedBytes"] > 0
        store.scan("key-000000", f"key-{ROWS:06}")
        until(lambda: holes.partialFiles() == 0, "the rest of all files")

        def fetched() -> int:
            counted = made.checkpoint.metrics()
            return int(counted["demandedBytes"] + counted["hydratedBytes"])

        until(lambda: fetched() >= left_out, "all to be counted")
        counted = made.checkpoint.metrics()
        assert counted["hydratedBytes"] < left_out / 2
        assert counted["demandedBytes"] + counted["hydratedBytes"] == left_out
        assert store.scan() == made.scans[VERSIONS]


def test_the_background_keeps_to_its_rate(written: Callable[..., Written], holes: Any) -> None:
    made = written()
    with made.opened(options={"restore.maxBytesPerSecond": "100k"}):
        begin = time.monotonic()
        holes.pause(False)
        until(lambda: holes.partialFiles() == 0, "all of the store")
        left_out = made.checkpoint.metrics()["leftOutBytes"]
        assert time.monotonic() - begin > left_out / VERSIONS / 100_000


def test_the_background_lets_reads_go_first(written: Callable[..., Written], holes: Any) -> None:
    made = written()
    rate = 200_000
    with made.opened(options={"restore.maxBytesPerSecond": str(rate)}) as store:
        holes.readsGoFirstFor(3_600_000)
        assert store.has(5)
        begin = time.monotonic()
        holes.pause(False)
        until(lambda: made.checkpoint.metrics()["hydratedBytes"] > 0, "some of the store")
        time.sleep(2)
        hydrated = made.checkpoint.metrics()["hydratedBytes"]
        # Each of two threads begins with a part, of an eighth of a second at the full rate.
        assert hydrated <= ((time.monotonic() - begin) / 8 + 2 / 8) * rate
        holes.readsGoFirstFor(0)
        until(lambda: holes.partialFiles() == 0, "all of the store")


def test_changelogs_are_replayed_over_holes(written: Callable[..., Written], holes: Any) -> None:
    made = written(changelog=True)
    with made.opened(VERSIONS, changelog=True, options={"restore": "eager"}) as store:
        store.putMany(0, 50, LENGTH, 9)
        store.commit()
        scan, rows = store.scan(), store.rows()
    made.checkpoint.forget()
    with made.opened(VERSIONS + 1, changelog=True) as store:
        # Spark asks for the row before each put, to count.
        assert made.checkpoint.metrics()["demandedBytes"] > 0
        assert store.rows() == rows
        assert store.scan() == scan


def test_keys_that_no_snapshot_has_counted_are_counted_right(written: Callable[..., Written], holes: Any) -> None:
    made = written(counts=False)
    with made.opened() as store:
        assert store.rows() == ROWS + (VERSIONS - 1) * ROWS // 10
        assert holes.partialFiles() == 0


@pytest.mark.parametrize("changelog", [True, False])
def test_it_goes_on_as_a_whole_one(written: Callable[..., Written], holes: Any, changelog: bool) -> None:
    """Each version that follows, with a load of the one before in between, and then one in another process."""
    made = written(changelog=changelog)
    backup = made.checkpoint.directory.with_name("backup")
    shutil.copytree(made.checkpoint.directory, backup)
    scans = []
    for restore in ("eager", "ondemand"):
        shutil.rmtree(made.checkpoint.directory)
        shutil.copytree(backup, made.checkpoint.directory)
        made.checkpoint.forget()
        with made.opened(changelog=changelog, options={"restore": restore}) as store:
            for round_ in range(4):
                store.putMany(round_ * 40, round_ * 40 + 60, LENGTH, 100 + round_)
                if changelog:
                    store.commit()
                    store.upload()
                else:
                    # Changelogs of this store cannot say it.
                    store.deleteRange(f"key-{round_ * 100 + 500:06}", f"key-{round_ * 100 + 530:06}")
                    store.commit()
                scans.append(store.scan("key-000300", "key-000400"))
                if round_ == 1:
                    store.rollback()
                store.load(VERSIONS + round_ + 1)
            scans += [store.scan(), str(store.rows())]
        made.checkpoint.log.seal()
        made.checkpoint.forget()
        with made.opened(VERSIONS + 4, changelog=changelog, options={"restore": "eager"}) as store:
            scans.append(store.scan())
    assert scans[: len(scans) // 2] == scans[len(scans) // 2 :]


def test_files_that_a_later_load_uses_again_are_still_lazy(written: Callable[..., Written], holes: Any) -> None:
    made = written()
    with made.opened(2) as store:
        assert holes.partialFiles() == 2
        before = made.checkpoint.metrics()["leftOutBytes"]
        store.load(3)
        assert holes.partialFiles() == 3
        assert made.checkpoint.metrics()["leftOutBytes"] < 2 * before
        assert store.scan() == made.scans[3]
        store.load(1)
        assert holes.partialFiles() == 1
        assert store.scan() == made.scans[1]


# ---- compaction


def test_what_is_whole_is_compacted_by_rocksdb(written: Callable[..., Written], holes: Any, compactor: Any) -> None:
    """Four files in level 0 are what a compaction waits for."""
    made = written(versions=2)
    with made.opened(2) as store:
        holes.pause(False)
        until(lambda: holes.partialFiles() == 0, "all of the store")
        holes.pause(True)
        scan = store.scan("key-000200", "key-000210")
        before = compactor.compactions()
        for version in range(3, 6):
            store.putMany(0, 10, LENGTH, version)
            store.commit()
        until(lambda: store.property("rocksdb.num-files-at-level0") < 4, "a compaction")
        assert compactor.compactions() == before
        assert store.property("rocksdb.background-errors") == 0
        assert store.scan("key-000200", "key-000210") == scan


@pytest.fixture
def compactor(jvm: Any) -> Iterator[Any]:
    """Decides how long after it was opened a database is compacted: here at once."""
    control = jvm.io.pyspark.statestore.rocks.HoleyDatabase
    control.compactAfter(0)
    yield control
    control.compactAsEver()


@pytest.mark.parametrize("restore", ["lazy", "ondemand"])
def test_files_with_holes_are_compacted(
    written: Callable[..., Written], holes: Any, restore: str, compactor: Any
) -> None:
    """Level 0 would grow for ever with ondemand, and as long as the background has something to fetch with lazy."""
    made = written(versions=2)
    with made.opened(2, options={"restore": restore}) as store:
        assert holes.partialFiles() == 2
        for version in range(3, 9):
            store.putMany(0, 10, LENGTH, version)
            store.commit()
        until(lambda: is_compacted(store), "a compaction")
        assert store.property("rocksdb.background-errors") == 0
        scan = store.scan()
        store.putMany(0, 10, LENGTH, 9)
        store.commit()
        again = store.scan()
        assert scan != again
    made.checkpoint.forget()
    with made.opened(9, options={"restore": "eager"}) as store:
        assert store.scan() == again
        store.load(8)
        assert store.scan() == scan


def put_fifth(store: Any, version: int = 9) -> None:
    """Commits one more file of level 0, of which four are compacted."""
    store.putMany(0, 5, LENGTH, version)
    store.commit()


def is_compacted(store: Any) -> bool:
    """Whether level 0 is short. Each look is an operation that may begin a compaction.

    Which of the two compactions it was is open: ours fetches all of its files, and where nothing else has holes then,
    RocksDB may take them first.
    """
    assert store.get("key-000000")
    return bool(store.property("rocksdb.num-files-at-level0") < 4)


def test_a_first_batch_is_not_disturbed(written: Callable[..., Written], compactor: Any) -> None:
    """The first seconds after a store was opened are for its reads."""
    made = written()
    compactor.compactAfter(4)
    begin = time.monotonic()
    with made.opened() as store:
        put_fifth(store)
        is_early = False
        while time.monotonic() - begin < 3:
            is_early = is_compacted(store)
            time.sleep(0.05)
        assert not is_early or time.monotonic() - begin > 4
        until(lambda: is_compacted(store), "a compaction")


def test_a_store_that_is_never_open_for_long_is_compacted(written: Callable[..., Written], compactor: Any) -> None:
    """A timer starts a query that ends after each batch: level 0 would have one file more each time."""
    made = written()
    compactor.compactAfter(600)
    for version in range(VERSIONS, 3 * 4):
        with made.opened(version, options={"restore": "ondemand"}) as store:
            assert store.property("rocksdb.num-files-at-level0") == version
            put_fifth(store, version)
            scan = store.scan()
        made.checkpoint.forget()
    with made.opened(3 * 4, options={"restore": "ondemand"}) as store:
        until(lambda: is_compacted(store), "a compaction")
        assert store.scan() == scan


def test_all_stores_together_keep_to_the_rate(written: Callable[..., Written], compactor: Any) -> None:
    """The first compaction fetches far more than a second's bytes, so the other stores wait."""
    all_made = [written(name=f"checkpoint-{number}") for number in range(3)]
    with ExitStack() as stack:
        rate = {"restore.maxBytesPerSecond": "20000"}
        stores = [stack.enter_context(made.opened(options=rate)) for made in all_made]
        for store in stores:
            put_fifth(store)
        until(lambda: sum(is_compacted(store) for store in stores), "a compaction")
        end = time.monotonic() + 3
        while time.monotonic() < end:
            assert sum(is_compacted(store) for store in stores) == 1


def test_what_cannot_be_fetched_is_tried_less_and_less_often(
    written: Callable[..., Written], faulty: Any, compactor: Any
) -> None:
    """Each operation looks whether there is something to compact."""
    made = written("faulty")
    with made.opened(counts=False, options={"restore.maxBytesPerSecond": "0"}) as store:
        for operation in ("open", "read"):
            faulty.addRule(operation, ".merged", 1, 10**6, "ioexception")
        put_fifth(store)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            store.put("other", "x")
        assert 0 < faulty.fired() < 300
        faulty.clear()
        store.rollback()


def test_a_store_that_gets_no_answer_holds_no_other_up(
    written: Callable[..., Written], faulty: Any, compactor: Any
) -> None:
    """Nor does it when it is closed; what its compaction says then must not ask the closed database."""
    compactor.stuckAfter(1)
    other, made = written(name="other"), written("faulty")
    with other.opened() as beside, ExitStack() as stack:
        store = stack.enter_context(made.opened(counts=False))
        faulty.addRule("read", ".merged", 1, 1, "hang")
        put_fifth(store)
        until(lambda: store.put("x", "y") or faulty.fired(), "a request that hangs")
        put_fifth(beside)
        until(lambda: is_compacted(beside), "a compaction")
        result_in_time(begun(stack.close), "the end of the store", 40)
        faulty.clear()
        scan = beside.scan()
    other.checkpoint.forget()
    with other.opened(VERSIONS + 1, options={"restore": "eager"}) as store:
        assert store.scan() == scan


def test_what_reads_fetch_does_not_hide_that_a_compaction_gets_no_answer(
    written: Callable[..., Written], faulty: Any, compactor: Any
) -> None:
    """The store's query reads another SST meanwhile, a part of it after the other."""
    compactor.stuckAfter(1)
    other, made = written(name="other"), written("faulty", versions=1)
    with made.opened(1, options={"restore": "eager"}) as store:
        store.putMany(100_000, 140_000, LENGTH, 1)
        store.flush()
        store.compact()
        store.commit()
        for version in range(2, 5):
            store.load(version)
            store.putMany(0, ROWS, LENGTH, version)
            store.commit()
    made.checkpoint.log.seal()
    made.checkpoint.forget()
    with other.opened() as beside, ExitStack() as stack:
        store = stack.enter_context(made.opened(5, counts=False, options={"restore": "ondemand"}))
        faulty.addRule("read", ".merged", 1, 1, "hang")
        put_fifth(store)
        until(lambda: store.put("x", "y") or faulty.fired(), "a request that hangs")
        put_fifth(beside)
        for part in range(50):
            assert store.get(f"key-{100_000 + 300 * part}")
            if is_compacted(beside):
                break
            time.sleep(0.3)
        assert is_compacted(beside)
        result_in_time(begun(stack.close), "the end of the store", 40)
        faulty.clear()


def test_a_compaction_with_the_commit_fetches_all(written: Callable[..., Written], holes: Any) -> None:
    made = written()
    with made.opened(compact=True, options={"restore": "ondemand"}) as store:
        store.putMany(0, 10, LENGTH, 77)
        store.commit()
        assert holes.partialFiles() == 0
        assert len(local_ssts(store)) == 1
        scan = store.scan()
    made.checkpoint.forget()
    with made.opened(VERSIONS + 1, options={"restore": "eager"}) as store:
        assert store.scan() == scan


# ---- nothing that is not whole is trusted


def test_a_file_with_holes_is_completed_before_it_is_uploaded(written: Callable[..., Written], holes: Any) -> None:
    made = written()
    with made.opened(options={"restore": "ondemand"}) as store:
        (local, *_) = local_ssts(store)
        assert holes.isPartial(str(local))
        link = Path(store.local()) / "another-name.sst"
        os.link(local, link)
        hadoop = made.checkpoint.jvm.org.apache.hadoop.fs.Path
        target = "0/1/SSTs/000099-00000000-0000-0000-0000-000000000000.sst"
        made.checkpoint.fs.copyFromLocalFile(False, True, hadoop(f"file:{link}"), made.checkpoint.path(target))
        assert not holes.isPartial(str(local))
        assert holes.partialFiles() == VERSIONS - 1
        data = local.read_bytes()
        assert data == link.read_bytes()
        assert zlib.crc32(data) in {zlib.crc32(found) for found in made.checkpoint.contents().values()}


def test_a_store_that_is_closed_meanwhile_leaves_nothing_open(written: Callable[..., Written], holes: Any) -> None:
    made = written()

    def held() -> set[str]:
        return {name.removesuffix(" (deleted)") for name in open_files(made.checkpoint.jvm) if ".sst" in name}

    others = held()  # of stores of other tests, in the same process
    with made.opened(options={"restore.maxBytesPerSecond": "10k"}) as store:
        holes.pause(False)
        assert store.has(5)
        opened = held() - others
        assert opened
    assert holes.partialFiles() == 0
    until(lambda: not opened & held(), "files that are closed")


# ---- what happens to the source


def test_the_source_is_relocated(written: Callable[..., Written], holes: Any) -> None:
    made = written()
    with made.opened() as store:
        assert store.has(5)
        before = made.merged
        relocate_all(made)
        for path in before:
            path.unlink()
        assert store.scan() == made.scans[VERSIONS]


def relocate_all(made: Written) -> None:
    """Copies all that lives, as an offline compaction does."""
    from pyspark_statestore.maintenance.relocation import relocate

    assert relocate(merged_log_of(made.checkpoint.directory), everything).added


def test_the_source_is_lost_and_comes_back(written: Callable[..., Written], holes: Any, tmp_path: Path) -> None:
    made = written()
    with made.opened() as store:
        assert store.has(5)
        shutil.move(made.checkpoint.merged, tmp_path / "elsewhere")
        # An open file can be read after that.
        made.checkpoint.log.seal()
        with java_error("PSS_MISSING_SEGMENT", str(made.checkpoint.directory), ".merged"):
            store.scan()
        shutil.move(tmp_path / "elsewhere", made.checkpoint.merged)
        store.rollback()
        store.load(VERSIONS)
        assert store.scan() == made.scans[VERSIONS]


def spoil(made: Written) -> None:
    """Changes a byte in the middle of each SST."""
    for name, entry in made.checkpoint.view().live.values():
        if entry.path.endswith(".sst"):
            with (made.checkpoint.merged / name).open("r+b") as file:
                file.seek(entry.offset + entry.length // 2)
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte[0] ^ 1]))


def test_the_source_is_damaged_where_a_read_comes(written: Callable[..., Written], holes: Any) -> None:
    made = written()
    spoil(made)
    with made.opened(options={"restore": "ondemand"}) as store:
        with java_error("PSS_CORRUPT_SEGMENT", str(made.checkpoint.directory), ".merged", "offset"):
            store.scan()
        store.rollback()
        # Now the load says it: Spark may take an older snapshot then.
        with java_error("PSS_CORRUPT_SEGMENT"):
            store.load(VERSIONS)


def test_the_source_is_damaged_where_nothing_reads(written: Callable[..., Written], holes: Any) -> None:
    """As a load that is not lazy, it fails before anything is built on it."""
    made = written()
    spoil(made)
    with made.opened() as store:
        assert store.has(5)
        holes.pause(False)
        with java_error("PSS_CORRUPT_SEGMENT"):
            until(lambda: not store.has(5), "the damage to be noticed")
        with java_error("PSS_CORRUPT_SEGMENT"):
            store.commit()


@pytest.mark.parametrize("changelog", [True, False])
def test_the_source_is_damaged_and_the_next_batch_only_writes(
    written: Callable[..., Written], holes: Any, changelog: bool
) -> None:
    made = written(changelog=changelog)
    spoil(made)
    with made.opened(changelog=changelog) as store:
        holes.pause(False)
        until(lambda: made.checkpoint.metrics()["lostFiles"], "the damage to be noticed")
        with java_error("PSS_CORRUPT_SEGMENT", str(made.checkpoint.directory)):
            store.commit()


def lose(made: Written, how: str) -> Callable[[], None]:
    """Loses the merged files that there are; returns what brings them back."""
    kept = {path: path.with_suffix(".kept") for path in made.merged}
    for path, copy in kept.items():
        shutil.copyfile(path, copy)
        if how == "cut":
            os.truncate(path, path.stat().st_size // 10)
        else:
            path.unlink()
    made.checkpoint.log.seal()  # an open file can be read after that

    def restore() -> None:
        for path, copy in kept.items():
            shutil.copyfile(copy, path)

    return restore


ERRORS = {"gone": "PSS_MISSING_SEGMENT", "cut": "PSS_CORRUPT_SEGMENT"}


@pytest.mark.parametrize("changelog", [True, False])
@pytest.mark.parametrize("how", ERRORS)
def test_a_base_that_is_gone_for_long_fails_its_store(
    written: Callable[..., Written], holes: Any, how: str, changelog: bool
) -> None:
    """Nothing reads of it: batches would go on for ever on what no load finds again."""
    made = written(changelog=changelog)
    with made.opened(changelog=changelog) as store:
        bring_back = lose(made, how)
        holes.lostAfter(700)
        holes.pause(False)
        until(lambda: made.checkpoint.metrics()["lostFiles"], "the loss to be noticed")
        assert made.checkpoint.metrics()["failedFetches"] > 0
        for _ in range(2):
            with java_error(ERRORS[how], str(made.checkpoint.directory), ".merged"):
                store.commit()
        with java_error(ERRORS[how]):
            store.has(5)
        with java_error(ERRORS[how]):
            store.scan()
        bring_back()
        store.rollback()
        store.load(VERSIONS)
        assert store.scan() == made.scans[VERSIONS]
        store.putMany(0, 10, LENGTH, 7)
        store.commit()


@pytest.mark.parametrize("how", ERRORS)
def test_a_base_that_comes_back_in_time_is_completed(written: Callable[..., Written], holes: Any, how: str) -> None:
    made = written()
    with made.opened() as store:
        bring_back = lose(made, how)
        holes.pause(False)
        until(lambda: made.checkpoint.metrics()["failedFetches"] > VERSIONS, "each file to be tried again")
        assert holes.partialFiles() == VERSIONS
        bring_back()
        until(lambda: holes.partialFiles() == 0, "all of the store")
        assert made.checkpoint.metrics()["lostFiles"] == 0
        store.putMany(0, 10, LENGTH, 7)
        store.commit()


def test_two_looks_that_are_far_apart_are_no_long_absence(written: Callable[..., Written], holes: Any) -> None:
    """With ondemand nobody looks in between, when it may have been there."""
    made = written()
    with made.opened(options={"restore": "ondemand"}) as store:
        bring_back = lose(made, "gone")
        holes.lostAfter(300)
        holes.farApart(300)
        for _ in range(2):
            with java_error(ERRORS["gone"]):
                store.has(5)
            time.sleep(0.4)
        bring_back()
        assert store.has(5)
        assert made.checkpoint.metrics()["lostFiles"] == 0


def test_what_can_be_completed_does_not_wait_for_what_cannot(written: Callable[..., Written], holes: Any) -> None:
    made = written(apart=True)
    assert len(made.merged) >= VERSIONS
    with made.opened() as store:
        assert store.has(5)
        made.merged[0].rename(made.merged[0].with_suffix(".kept"))
        made.checkpoint.log.seal()
        holes.pause(False)
        until(lambda: holes.partialFiles() == 1, "all others")


def test_the_source_is_unreachable_for_a_while(written: Callable[..., Written], holes: Any, faulty: Any) -> None:
    made = written("faulty")
    with made.opened() as store:
        for operation in ("read", "open"):
            faulty.addRule(operation, ".merged", 1, 1000, "ioexception")
        with java_error("injected fault"):
            store.scan()
        holes.pause(False)
        time.sleep(1.2)
        assert holes.partialFiles() == VERSIONS
        faulty.clear()
        assert store.scan() == made.scans[VERSIONS]
        until(lambda: holes.partialFiles() == 0, "all of the store")


def test_an_error_ends_no_thread_of_the_background(written: Callable[..., Written], holes: Any, faulty: Any) -> None:
    """Hadoop's local disk throws an Error where it is full; a process may run out of memory for a moment."""
    made = written("faulty")
    with made.opened():
        made.checkpoint.log.seal()
        faulty.addRule("open", ".merged", 1, 4, "fs_error")
        holes.pause(False)
        until(lambda: faulty.fired() == 4, "an error for each thread, twice")
        until(lambda: holes.partialFiles() == 0, "all of the store")


# ---- others beside it


def test_two_stores_of_a_host_fetch_the_same_files(written: Callable[..., Written], holes: Any, tmp_path: Path) -> None:
    made = written()
    cache = tmp_path / "cache"
    kept = {"cache.sizeLimit": "1g", "cache.dir": str(cache)}
    holes.pause(False)
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        stores = [stack.enter_context(made.opened(options=kept)) for _ in range(2)]
        found = list(pool.map(lambda store: store.scan(), stores))
        assert found == [made.scans[VERSIONS]] * 2
        until(lambda: holes.partialFiles() == 0, "all of both stores")
        until(lambda: whole_entries(cache) == VERSIONS, "all files on the host")
    assert whole_entries(cache) == VERSIONS


def test_several_reads_at_a_time_fetch_each_part_once(written: Callable[..., Written], holes: Any) -> None:
    made = written(versions=1)

    def read_all(store: Any) -> bool:
        return all(store.has(row) for row in range(0, ROWS, 10))

    with made.opened(1, options={"restore": "ondemand"}) as store:
        reads = [begun(read_all, store) for _ in range(3)]
        assert all(result_in_time(read, "the reads") for read in reads)
        counted = made.checkpoint.metrics()
        assert counted["demandedBytes"] == counted["leftOutBytes"]


# ---- the local disk


@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk is mounted for it")
def test_the_local_disk_is_full(written: Callable[..., Written], holes: Any, tmp_path: Path) -> None:
    made = written()
    disk = tmp_path / "small"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)], check=True)
    try:
        with made.opened(options={"restore": "ondemand"}, local=str(disk)) as store:
            with java_error("No space left on device"):
                store.scan()
            assert store.has(5)
            assert holes.partialFiles() > 0
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
            assert store.scan() == made.scans[VERSIONS]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk is mounted for it")
def test_a_store_becomes_whole_on_a_full_disk(written: Callable[..., Written], tmp_path: Path) -> None:
    """RocksDB takes back its option to compact, and cannot write that down: no reason to fail a task that reads."""
    made = written()
    disk = tmp_path / "small"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(disk)], check=True)
    try:
        with made.opened(options={"restore": "ondemand"}, local=str(disk)) as store:
            assert store.scan() == made.scans[VERSIONS]
            with pytest.raises(OSError, match="No space left"):
                (disk / "filler").write_bytes(bytes(64 << 20))
            assert store.has(5)
            assert store.scan() == made.scans[VERSIONS]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
