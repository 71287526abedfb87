"""Spark's RocksDB class, whose SSTs are uploaded as RocksDB makes them: what a snapshot writes, and what is left."""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_statestore.maintenance.orphans import remove_orphan_files
from pyspark_statestore.maintenance.relocation import relocate
from tests.cluster.stores import STORE, open_store
from tests.jvm.harness import Checkpoint, begun, java_error, result_in_time, until
from tests.maintenance.harness import merged_log_of
from tests.maintenance.test_relocation import everything
from tests.streaming.test_metrics import log_lines

pytestmark = [pytest.mark.spark, pytest.mark.since("4.3", "they drive the RocksDB class of Spark 4.3 step by step")]

ROWS = 1000
LENGTH = 100
NEVER = 10**9
UPLOADS = "io.pyspark.statestore.tables.EarlyUploads"


@pytest.fixture
def early(jvm: Any) -> Iterator[Any]:
    """Decides which files are uploaded early, here all at once."""
    control = jvm.io.pyspark.statestore.tables.Early
    getattr(control, "from")(1, 0)
    yield control
    control.asEver()


@dataclass
class Stores:
    """A checkpoint with a store, and how to open that in what is like another process each time.

    Attributes:
        checkpoint: Its merged files.
        early: Which files are uploaded early.
        scans: What a scan of each version gives.
    """

    checkpoint: Checkpoint
    early: Any
    scans: dict[int, str] = field(default_factory=dict)

    @contextmanager
    def opened(self, version: int | None = None, upload: str = "created", **how: Any) -> Iterator[Any]:
        """The store as another process loads it."""
        options = {"cache.sizeLimit": "0", "upload": upload, **how.pop("options", {})}
        settings = {"changelog": True, "compact": False, "scheme": self.checkpoint.scheme, **how}
        with closing(open_store(self.checkpoint.jvm, self.checkpoint.directory, options=options, **settings)) as store:
            if version is not None:
                store.load(version)
            yield store

    def wait(self, count: int = 1) -> list[str]:
        """Waits until so many files are uploaded that no snapshot names."""
        until(lambda: len(self.unpublished()) >= count, f"{count} early uploads")
        return self.unpublished()

    def unpublished(self) -> list[str]:
        """The files that are durable, and that no snapshot names."""
        directory = f"{self.checkpoint.scheme}:{self.checkpoint.state}"
        paths = list(self.early.unpublished(directory, STORE))
        return sorted(path for path in paths if path in self.live())

    def live(self) -> set[str]:
        """The SSTs that live in merged files, as Python reads them."""
        return {path for path in self.checkpoint.view().live if path.endswith(".sst")}

    def put(self, store: Any, version: int) -> None:
        """Commits the version after this one, with an SST of its own."""
        store.load(version)
        store.putMany(version * ROWS // 10, version * ROWS // 10 + ROWS, LENGTH, version)
        store.commit()
        self.scans[version + 1] = store.scan()

    def forget(self) -> None:
        """What is left when the process is killed."""
        self.checkpoint.forget()

    def check(self) -> None:
        """Each version is what it was, read in what is like another process."""
        self.forget()
        with self.opened(upload="commit") as store:
            for version, scan in self.scans.items():
                store.load(version)
                assert store.scan() == scan, version


@pytest.fixture
def stores(new_checkpoint: Callable[..., Checkpoint], early: Any) -> Callable[..., Stores]:
    """A new checkpoint."""
    return lambda scheme="file", **options: Stores(new_checkpoint(scheme, **options), early)


def written(stores: Stores) -> int:
    """Bytes that were written so far."""
    return stores.checkpoint.metrics()["writtenBytes"]


# ---- what is written


@pytest.mark.parametrize("scheme", ["file", "objectstore"])
def test_a_snapshot_is_its_zip(stores: Callable[..., Stores], scheme: str) -> None:
    by_snapshot = {}
    for upload in ("commit", "created"):
        made = stores(scheme, name=upload)
        by_snapshot[upload] = 0
        with made.opened(upload=upload) as store:
            for version in range(3):  # the fourth is what a compaction waits for
                made.put(store, version)
                if upload == "created":
                    made.wait()
                before = written(made)
                store.upload()
                by_snapshot[upload] += written(made) - before
                assert made.unpublished() == []
            figures = made.checkpoint.metrics()
        assert (figures["earlyBytes"] > 0) is (upload == "created")
        assert figures["wastedBytes"] == 0
        assert len(made.live()) == 3
        made.check()
    assert by_snapshot["created"] <= 0.1 * by_snapshot["commit"]


def test_an_upload_that_runs_out_of_memory_is_followed_by_another(stores: Callable[..., Stores], early: Any) -> None:
    made = stores()
    early.failing(1)
    with made.opened() as store:
        made.put(store, 0)
        until(lambda: early.failuresLeft() == 0, "the error")
        made.wait()
        store.upload()
    made.check()


def test_without_a_changelog_what_is_new_comes_with_the_commit(stores: Callable[..., Stores], early: Any) -> None:
    """Each commit flushes, takes its snapshot and uploads that. What a compaction has made before is there already."""
    made = stores()
    with made.opened(changelog=False) as store:
        for version in range(2):
            made.put(store, version)
        store.compact()
        (compacted,) = made.wait()
        before = written(made)
        made.put(store, 2)
        assert made.unpublished() == []
        assert compacted in made.live()
        own = written(made) - before
        assert own < made.checkpoint.view().live[compacted][1].length
    made.check()


def test_two_snapshots_that_wait_name_the_same_files(stores: Callable[..., Stores]) -> None:
    """Spark uploads the newer one only. Stock Spark uploads under a name of its own what the older one had, too."""
    made = stores()
    with made.opened() as store:
        made.put(store, 0)
        first = made.wait()
        made.put(store, 1)
        assert set(first) < set(made.wait(2))
        before = written(made)
        store.upload()
        assert written(made) - before < 20_000
        assert made.unpublished() == []
        assert len(made.live()) == 2
    made.check()


@contextmanager
def asked_anew(made: Stores, faulty: Any) -> Iterator[tuple[Any, str]]:
    """A store, and a file that a snapshot has published and for whose name Spark has asked anew for another snapshot.

    It takes what a snapshot has that waits for not uploaded, for ever if that is skipped.
    """
    with made.opened() as store:
        made.put(store, 0)
        (first,) = made.wait()
        faulty.addRule("hflush", str(made.checkpoint.merged), 1, "hang")
        uploading = begun(store.upload)
        until(lambda: faulty.fired() > 0, "the upload")
        made.put(store, 1)
        faulty.clear()
        result_in_time(uploading, "the upload")
        made.put(store, 2)
        made.wait(2)
        yield store, first


def test_what_is_published_keeps_its_name(stores: Callable[..., Stores], faulty: Any) -> None:
    made = stores("faulty")
    with asked_anew(made, faulty) as (store, first):
        before = written(made)
        store.upload()
        assert written(made) - before < 20_000
        assert first in made.live()
        assert len(made.live()) == 3
        assert made.unpublished() == []
    made.check()


def test_what_is_published_is_not_replaced(stores: Callable[..., Stores], faulty: Any) -> None:
    """Another file is in the place of the one that was uploaded."""
    made = stores("faulty")
    with asked_anew(made, faulty) as (store, first):
        data = made.checkpoint.contents()[first]
        found = [file for file in Path(store.local()).glob("checkpoint*/*.sst") if file.read_bytes() == data]
        assert found
        for file in found:
            file.unlink()
            file.write_bytes(data[::-1])
        with java_error("PSS_WRITE_FAILED", "another file than the one that was uploaded"):
            store.upload()
        assert made.checkpoint.contents()[first] == data
        made.put(store, 3)
        store.upload()
    del made.scans[3]
    made.check()


@pytest.mark.parametrize("uploads", [False, True])
def test_what_a_skipped_snapshot_has_comes_with_the_next(
    stores: Callable[..., Stores], early: Any, uploads: bool
) -> None:
    """Spark skips a snapshot where a newer one waits. It must not take the files of the older for uploaded."""
    getattr(early, "from")(1, 0 if uploads else NEVER)
    made = stores()
    with made.opened() as store:
        for version in range(2):
            made.put(store, version)
            if uploads:
                made.wait(version + 1)
        paths = set(made.unpublished())
        for path in paths:
            assert made.checkpoint.delete(path)
        store.upload()
        assert len(made.live()) == 2
        assert paths <= made.live()
    made.check()


def test_small_and_young_files_come_with_their_snapshot(stores: Callable[..., Stores], early: Any) -> None:
    made = stores()
    with made.opened() as store:
        for version, (smallest, grace_ms) in enumerate([(1 << 30, 0), (1, NEVER)]):
            getattr(early, "from")(smallest, grace_ms)
            made.put(store, version)
            store.upload()
        assert made.checkpoint.metrics()["earlyBytes"] == 0
        assert len(made.live()) == 2
    made.check()


@pytest.mark.parametrize(("files", "is_early"), [("2", False), ("3", True)])
def test_it_needs_a_file_that_no_commit_waits_for(stores: Callable[..., Stores], files: str, is_early: bool) -> None:
    made = stores()
    with made.opened(options={"maxOpenFiles": files}) as store, log_lines(made.checkpoint.jvm, UPLOADS) as lines:
        for version in range(2):
            made.put(store, version)
            if is_early:
                made.wait()
            else:
                until(lambda: any("maxOpenFiles" in line for line in lines()), "a warning")
            store.upload()
        assert (made.checkpoint.metrics()["earlyBytes"] > 0) is is_early
        assert len([line for line in lines() if "maxOpenFiles" in line]) == int(not is_early)
    made.check()


def test_the_background_keeps_to_its_rate(stores: Callable[..., Stores]) -> None:
    made = stores()
    with made.opened(options={"upload.maxBytesPerSecond": "50k"}) as store:
        begin = time.monotonic()
        made.put(store, 0)
        made.wait()
        made.put(store, 1)
        made.wait(2)
        assert time.monotonic() - begin > 2


def test_a_store_that_is_only_read_uploads_nothing(stores: Callable[..., Stores]) -> None:
    """Replaying changelogs makes an SST where there is much to replay; here the load before it has made one."""
    made = stores()
    with made.opened() as store:
        made.put(store, 0)
        store.upload()
    made.forget()
    with made.opened() as store:
        store.loadToRead(1)
        store.putMany(0, ROWS, LENGTH, 7)
        store.flush()
        time.sleep(0.5)
        assert made.checkpoint.metrics()["earlyBytes"] == 0
        assert len(made.live()) == 1


def test_a_store_that_is_written_uploads_before_its_first_snapshot(stores: Callable[..., Stores]) -> None:
    """With many changelogs between two snapshots it may come late, and the disk has to hold what is made until then."""
    made = stores()
    with made.opened() as store:
        made.put(store, 0)
        store.upload()
    made.forget()
    with made.opened(1) as store:
        store.putMany(0, ROWS, LENGTH, 7)
        store.flush()
        made.wait()


# ---- what lives

GRACE = 2
FILE = st.tuples(st.integers(1, 100), st.integers(0, 12), st.integers(1, 12))
"""Its bytes, when it is made after a snapshot, and how long it lives; it is named if it lives until the next one."""
HISTORIES = st.lists(st.tuples(st.integers(10, 14), st.lists(FILE, max_size=8)), max_size=6)
"""How long it is from one snapshot to the next, and what files there are."""


@given(HISTORIES)
def test_uploads_begin_so_long_before_a_snapshot_that_little_goes_again(
    jvm: Any, history: list[tuple[int, list[tuple[int, int, int]]]]
) -> None:
    """It is said at what time uploads begin after the last snapshot; Python looks what that would have wasted."""
    said = ["snapshot 100"]
    now = 100
    fates = []
    for interval, files in history:
        events = sorted((begin + life, size, begin) for size, begin, life in files if begin < interval)
        said += [f"deleted {size} {now + begin} {now + end}" for end, size, begin in events if end < interval]
        said += [f"snapshot {now + interval}"]
        said += [f"named {size} {now + begin}" for end, size, begin in events if end >= interval]
        fates += [(size, interval - begin, max(0, interval - end)) for end, size, begin in events]
        now += interval

    def wastes_little(lead: float) -> bool:
        uploaded = [(size, end) for size, begin, end in fates if end < min(lead, begin - GRACE)]
        return 10 * sum(size for size, end in uploaded if end) <= sum(size for size, _ in uploaded)

    times = [interval for interval, _ in history[-4:]]
    expected = now + sum(times) / len(times) if times else now
    leads = [lead for lead in range(20) if wastes_little(lead)]
    due = now if wastes_little(math.inf) else max(now, math.ceil(expected - max(leads)))
    found = jvm.io.pyspark.statestore.tables.Early.time(";".join(said), GRACE, now, now + 100)
    assert found == due


@pytest.mark.parametrize("files", [0, 1])
def test_snapshots_are_not_remembered_for_ever(jvm: Any, files: int) -> None:
    """Of a store whose new SSTs are too small to be uploaded, none has a file."""
    events = [event for at in range(1000) for event in [f"snapshot {at}", *[f"named 1 {at}"] * files]]
    assert jvm.io.pyspark.statestore.tables.Early.remembered(";".join(events)) <= 130


def test_a_snapshot_of_many_files_does_not_hide_what_was_wasted(jvm: Any) -> None:
    """Of a thousand files 800 are merged away a second before the snapshot, which names the others."""
    wasted = [f"deleted 10 {made} 9000" for made in range(0, 800)]
    named = [f"named 10 {made}" for made in range(200)]
    said = ";".join(["snapshot 0", *wasted, "snapshot 10000", *named])
    assert jvm.io.pyspark.statestore.tables.Early.time(said, GRACE, 10_000, 20_000) == 19_000


def test_what_does_not_live_is_uploaded_with_its_snapshot_only(stores: Callable[..., Stores], early: Any) -> None:
    """In each round two files are merged before the snapshot that is published; that names what they have become."""
    early.wasting(1.0)
    wasted, _, seconds = rounds(stores(name="wasting-all"))
    early.wasting(0.1)
    # The forecast is in real time: once more where the rounds were not alike, since the machine had more to do.
    for attempt in range(3):
        less, uploaded, _ = rounds(stores(name=f"wasting-less-{attempt}"), seconds)
        if wasted >= 2 * less and uploaded >= 3 * less:
            return
    raise AssertionError(f"{less} of {uploaded} bytes were wasted, and {wasted} where all may be")


def rounds(made: Stores, seconds: float = 0) -> tuple[int, int, float]:
    """Eight rounds, in which each step takes so long, or until something was uploaded where that is 0.

    Returns:
        Bytes that were wasted and that were uploaded early, and how long a step took at most.
    """
    longest = 0.0
    with made.opened() as store:
        made.put(store, 0)
        store.upload()
        for version in range(1, 9):
            store.load(version)
            for make in (partial(flush, store, version), partial(flush, store, version + 100), store.compact):
                before, begin = early_bytes(made), time.monotonic()
                make()
                if seconds:
                    time.sleep(max(0.0, seconds - time.monotonic() + begin))
                else:
                    until(partial(has_grown, made, before), "an upload")
                    longest = max(longest, time.monotonic() - begin)
            store.commit()
            made.scans[version + 1] = store.scan()
            store.upload()
    made.checkpoint.log.seal()
    wasted, uploaded = made.checkpoint.metrics()["wastedBytes"], early_bytes(made)
    made.check()
    return wasted, uploaded, longest


def flush(store: Any, version: int) -> None:
    """Makes an SST that no snapshot has named yet."""
    store.putMany(version * ROWS // 10, version * ROWS // 10 + ROWS, LENGTH, version)
    store.flush()


def early_bytes(stores: Stores) -> int:
    """Bytes that were uploaded before their snapshot."""
    return int(stores.checkpoint.metrics()["earlyBytes"])


def has_grown(stores: Stores, before: int) -> bool:
    return early_bytes(stores) > before


# ---- what nobody needs


def test_a_store_that_is_closed_leaves_nothing(stores: Callable[..., Stores]) -> None:
    made = stores()
    with made.opened() as store:
        made.put(store, 0)
        store.upload()
        made.put(store, 1)
        made.wait()
    made.checkpoint.log.seal()
    assert made.checkpoint.metrics()["wastedBytes"] > 0
    assert len(made.live()) == 1
    made.check()


def test_a_file_that_is_compacted_away_is_deleted(stores: Callable[..., Stores]) -> None:
    """It belongs to a snapshot that Spark skips. The next zip might be of one before it, the one after that is not."""
    made = stores()
    with made.opened() as store:
        made.put(store, 0)
        made.put(store, 1)
        gone = made.wait(2)
        store.compact()
        made.put(store, 2)
        made.wait(4)
        store.upload()
        assert made.unpublished() == gone
        made.put(store, 3)
        store.upload()
        assert made.unpublished() == []
        made.checkpoint.log.seal()
        assert set(gone).isdisjoint(made.live())
        assert made.checkpoint.metrics()["wastedBytes"] > 0
    made.check()


def test_a_file_that_no_snapshot_has_asked_for_goes_with_rocksdbs(stores: Callable[..., Stores]) -> None:
    made = stores()
    with made.opened() as store:
        made.put(store, 0)
        made.put(store, 1)
        store.upload()
        store.compact()
        (unnamed,) = made.wait()
        store.putMany(0, ROWS, LENGTH, 77)
        store.flush()
        store.compact()
        until(lambda: unnamed not in made.unpublished(), "its deletion")
        made.checkpoint.log.seal()
        assert unnamed not in made.live()
        assert made.checkpoint.metrics()["wastedBytes"] > 0
    made.check()


def test_a_version_is_loaded_again_and_file_numbers_are_used_again(stores: Callable[..., Stores]) -> None:
    """The names on the local disk are the same, the files are others."""
    made = stores()
    with made.opened() as store:
        made.put(store, 0)
        made.wait()
        store.upload()
        for seed in range(3):
            store.load(1)
            store.putMany(0, ROWS, LENGTH, 50 + seed)
            store.commit()
            made.wait()
            scan = store.scan()
            if seed < 2:
                store.rollback()
        store.upload()
        made.scans[2] = scan
    made.check()


# ---- what happens to it meanwhile


def test_a_segment_that_was_relocated_is_published_all_the_same(stores: Callable[..., Stores]) -> None:
    """Its bytes are elsewhere than where they were written."""
    made = stores()
    with made.opened() as store:
        made.put(store, 0)
        (path,) = made.wait()
        before = made.checkpoint.view().live[path]
        made.checkpoint.log.seal()
        assert relocate(merged_log_of(made.checkpoint.directory), everything).added
        assert made.checkpoint.view().live[path][0] != before[0]
        made.checkpoint.log.refresh()
        bytes_before = written(made)
        store.upload()
        assert written(made) - bytes_before < 20_000
        assert made.checkpoint.view().live[path][1].key == before[1].key
    made.check()


def test_the_removal_of_orphans_leaves_it_alone(stores: Callable[..., Stores]) -> None:
    """The newest snapshot is younger than the segment, and was taken before the file was made."""
    made = stores()
    with made.opened() as store:
        made.put(store, 0)
        store.upload()
        made.put(store, 1)
        paths = made.wait()
        log = merged_log_of(made.checkpoint.directory, later=datetime.timedelta(hours=20))
        assert remove_orphan_files(log, datetime.timedelta(0), dry_run=False, force=True).removed_files_count == 0
        store.upload()
        assert set(paths) < made.live()
    made.check()


# ---- what goes wrong


def test_a_segment_that_is_gone_is_written_again(stores: Callable[..., Stores]) -> None:
    made = stores()
    with made.opened() as store:
        made.put(store, 0)
        (path,) = made.wait()
        assert made.checkpoint.delete(path)
        store.upload()
        assert path in made.live()
    made.check()


def test_a_file_with_the_name_of_another_is_written(stores: Callable[..., Stores]) -> None:
    """What is uploaded is not what Spark hands over: the bytes on the local disk are others, of the same length."""
    made = stores()
    with made.opened() as store:
        made.put(store, 0)
        (path,) = made.wait()
        (local,) = Path(store.local()).glob("checkpoint*/*.sst")
        data = local.read_bytes()
        local.unlink()
        local.write_bytes(data)
        before = written(made)
        store.upload()
        assert written(made) - before > len(data), "another file on the disk, whatever is in it"
        assert made.checkpoint.contents()[path] == data
        assert made.unpublished() == []
    made.checkpoint.log.seal()
    assert path in made.live()
    made.check()


@pytest.mark.parametrize("kind", ["ioexception", "torn", "success_but_error"])
def test_an_upload_that_fails_comes_with_the_snapshot(
    jvm: Any, stores: Callable[..., Stores], faulty: Any, kind: str
) -> None:
    made = stores("faulty")
    with made.opened() as store:
        getattr(made.early, "from")(1, NEVER)
        made.put(store, 0)
        faulty.addRule("hflush", str(made.checkpoint.merged), 1, kind)
        getattr(made.early, "from")(1, 0)
        until(lambda: faulty.fired() > 0, "the failure")
        faulty.clear()
        store.upload()
        assert made.unpublished() == []
        assert made.checkpoint.metrics()["failedGroups"] == 1
    made.check()


def test_a_snapshot_that_fails_keeps_what_was_uploaded(stores: Callable[..., Stores], faulty: Any) -> None:
    made = stores("faulty")
    with made.opened() as store:
        made.put(store, 0)
        paths = made.wait()
        faulty.addRule("hflush", str(made.checkpoint.merged), 1, "torn")
        with java_error("PSS_WRITE_FAILED"):
            store.upload()
        faulty.clear()
        assert made.unpublished() == paths
        made.put(store, 1)
        made.wait(2)
        before = written(made)
        store.upload()
        assert written(made) - before < 20_000
        assert set(paths) < made.live()
    made.check()


@pytest.mark.parametrize("then", ["closed", "compacted", "compacted, and closed at once"])
@pytest.mark.parametrize("kind", ["success_but_error", "torn"])
def test_a_snapshot_of_which_nobody_knows_keeps_its_files(
    stores: Callable[..., Stores], faulty: Any, kind: str, then: str
) -> None:
    """Spark was told that it failed, but its zip is in the checkpoint: the next load takes it."""
    made = stores("faulty")
    with made.opened() as store:
        made.put(store, 0)
        store.upload()
        made.put(store, 1)
        paths = made.wait()
        faulty.addRule("hflush", str(made.checkpoint.merged), 1, kind)
        with java_error("PSS_WRITE_FAILED"):
            store.upload()
        faulty.clear()
        if "compacted" in then:
            store.compact()
        if then == "compacted":
            for version in range(2, 5):
                made.put(store, version)
                store.upload()
    made.checkpoint.log.seal()
    is_there = "0/0/2.zip" in made.checkpoint.view().live
    assert is_there or kind == "torn"
    assert not is_there or set(paths) <= made.live()
    made.check()


def test_a_task_is_killed_while_its_snapshot_is_reported(stores: Callable[..., Stores], faulty: Any) -> None:
    """As a speculative copy that has lost: the zip is durable, and Spark does not know it."""
    made = stores("faulty")
    with made.opened(changelog=False) as store:
        made.put(store, 0)
        store.load(1)
        flush(store, 1)
        paths = set(made.wait())
        faulty.addRule("hflush", str(made.checkpoint.merged), 1, "success_but_error")
        with java_error("PSS_WRITE_FAILED"):
            store.commit()
        faulty.clear()
    made.checkpoint.log.seal()
    assert "0/0/2.zip" in made.checkpoint.view().live
    assert paths <= made.live()
    made.forget()
    with made.opened(2, upload="commit", changelog=False) as store:
        assert store.scan().startswith(f"{ROWS + ROWS // 10} rows")


def test_what_a_killed_process_leaves_is_an_orphan(stores: Callable[..., Stores], early: Any) -> None:
    """Spark's own cleaning does not see what its process has not published. To another process it is an orphan."""
    made = stores()
    with ExitStack() as old:
        store = old.enter_context(made.opened())
        made.put(store, 0)
        store.upload()
        made.put(store, 1)
        (orphan,) = made.wait()
        assert Path(orphan).name not in made.checkpoint.names("0/0/SSTs")
        early.forgetAll()
        made.forget()
        assert orphan in made.live()
        assert Path(orphan).name in made.checkpoint.names("0/0/SSTs")
        made.forget()
        version = 1
        with made.opened() as store:
            while orphan in made.live():
                assert version < 20, "Spark's cleaning leaves it"
                made.put(store, version)
                store.upload()
                store.cleanUp()
                made.checkpoint.log.seal()
                version += 1
        made.scans = {version: made.scans[version]}
        made.check()
