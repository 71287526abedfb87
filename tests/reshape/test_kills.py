"""A process that dies, or a file system that fails, at each operation: the same call once more ends it."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pyspark_statestore import Checkpoint, StateStoreFilesError
from pyspark_statestore.log.merged_log import MergedLog
from pyspark_statestore.migration import split as splitting
from pyspark_statestore.migration.repartition import clear, make_directories
from pyspark_statestore.migration.spark_side import Rewrite, SparkSide, StoreName
from pyspark_statestore.session.doors import STOCK_PROVIDERS
from pyspark_statestore.storage import Directory, Location
from tests.copies import copy_stopped
from tests.faults.queries import CONF, MASTER, Query
from tests.maintenance.faults import Breakage, DiedError
from tests.maintenance.harness import CLOSED_AFTER, live_files
from tests.migration.builders import at, make
from tests.reshape.builders import repartition_by_hand
from tests.reshape.harness import SNAPSHOTS, everything, partitions_with_files, since
from tests.sampling import note, numbers
from tests.streaming.runs import session_conf

pytestmark = pytest.mark.sweep(1, files="reshape")

FAULTS = [
    ("create", "ioexception"),
    ("create", "success_but_error"),
    ("hflush", "torn"),
    ("close", "ioexception"),
    ("rename", "ioexception"),
    ("rename", "success_but_error"),
    ("mkdirs", "ioexception"),
    ("open", "ioexception"),
    ("listStatus", "ioexception"),
]
SHARE = 12
"""Of the calls, one in so many fails in a sample."""


def dies_at_each_operation(
    breakage: Breakage, original: Path, folder: Path, verb: Callable[[Path], object], is_done: Callable[[Path], None]
) -> None:
    """Dies at one operation after the other; the next call, whole, has to leave what one that never died leaves."""
    for operation in itertools.count():
        checkpoint = Path(shutil.copytree(original, folder / str(operation)))
        breakage.mended()
        breakage.at, breakage.deadly, breakage.torn = operation, True, True
        try:
            verb(checkpoint)
        except DiedError:
            breakage.mended()
            verb(checkpoint)
            is_done(checkpoint)
        else:
            break
    breakage.mended()
    is_done(checkpoint)
    assert operation > 10


def test_taking_back(tmp_path: Path, breakage: Breakage) -> None:
    original = make(tmp_path / "original", "mixed")
    before = everything(original)
    repartition_by_hand(original)
    assert len(everything(original)) == len(before) + 4, "two entries, a snapshot and its SST"

    def back(checkpoint: Path) -> None:
        try:
            at(checkpoint).undo_repartition()
        except StateStoreFilesError as error:  # all was done but for what nobody sees
            assert error.getErrorClass() == "PSS_CANNOT_UNDO_REPARTITION"

    def is_back(checkpoint: Path) -> None:
        assert everything(checkpoint) == before

    dies_at_each_operation(breakage, original, tmp_path, back, is_back)


def test_removing_old_partitions(tmp_path: Path, breakage: Breakage) -> None:
    original = repartition_by_hand(make(tmp_path / "original", "mixed"))
    assert partitions_with_files(original) == {0, 1}
    kept = {path: data for path, data in live_files(original).items() if path.startswith("0/0/")}

    def remove(checkpoint: Path) -> None:
        at(checkpoint).maintenance.remove_old_partitions(dry_run=False)

    def is_removed(checkpoint: Path) -> None:
        assert partitions_with_files(checkpoint) == {0}
        assert live_files(checkpoint) == kept

    dies_at_each_operation(breakage, original, tmp_path, remove, is_removed)


@pytest.fixture(scope="module")
def session(make_spark: Any) -> SparkSession:
    spark: SparkSession = make_spark(CONF, mode="path", master=MASTER)
    return spark


@dataclass
class Copied(Query):
    """A query on a copy of another one's checkpoint, with that one's input."""

    of: Query | None = None

    def __post_init__(self) -> None:
        assert self.of is not None
        self.rows = self.of.rows
        copy_stopped(self.of.checkpoint, self.checkpoint)

    @property
    def source(self) -> Path:
        assert self.of is not None
        return self.of.source


def asked_for(spark: SparkSession, query: Query, n: int, stores: Collection[StoreName] = ()) -> None:
    rewrite = Rewrite(1, STOCK_PROVIDERS["rocksdb"], STOCK_PROVIDERS["rocksdb"], 1, frozenset())
    side = SparkSide(spark, f"merged+faulty:{query.checkpoint}", 1)
    side.enter(rewrite, n)
    side.write(rewrite, n, stores)
    side.commit(rewrite, n)


@since
@pytest.mark.spark
@pytest.mark.sweep(3)
@pytest.mark.parametrize(("operation", "kind"), FAULTS)
@pytest.mark.parametrize("door", ["provider", "path"])
@pytest.mark.usefixtures("by_hand")
def test_a_file_system_that_fails(
    session: SparkSession, tmp_path: Path, faulty: Any, door: str, operation: str, kind: str
) -> None:
    """From one call on, every call of that operation fails, as where the process is gone; then the same call again."""
    original = Query(session, tmp_path / "original", door)
    original.feed(0, 1)
    original.run()
    original.feed(2)  # to go on with
    for n in numbers(SHARE, (door, operation, kind)):
        query = Copied(session, tmp_path / str(n), door, of=original)
        faulty.addRule(operation, str(query.checkpoint), n, 1_000_000, kind)
        try:
            asked_for(session, query, 3)
        except (StateStoreFilesError, Py4JJavaError) as error:
            assert "PSS_REPARTITION_FAILED" in str(error)
            ended = (query.checkpoint / "commits" / "2").exists()  # which a plan of the next call would see
        else:
            ended = True
        reached = faulty.fired() > 0
        faulty.clear()
        if not ended:
            asked_for(session, query, 3)
        assert not query.checkpoint.joinpath("offsets", "3").exists()
        query.run()
        query.assert_right()
        assert {path.split("/")[1] for path in live_files(query.checkpoint)} == {"0", "1", "2"}
        if not reached:
            break
    note(1 + n // SHARE, n)
    assert n > 1


@since
@pytest.mark.spark
@pytest.mark.sweep(3)
@pytest.mark.parametrize(("operation", "kind"), [fault for fault in FAULTS if fault[0] != "mkdirs"])
@pytest.mark.parametrize(("door", "place"), [("provider", "fork"), ("path", "fork"), ("provider", "own")])
@pytest.mark.usefixtures("by_hand")
def test_a_split_whose_file_system_fails(
    session: SparkSession,
    tmp_path: Path,
    faulty: Any,
    monkeypatch: pytest.MonkeyPatch,
    door: str,
    place: str,
    operation: str,
    kind: str,
) -> None:
    """As for a repartitioning; and the new partitions are still those of the old one, less the rows of the others."""
    monkeypatch.setattr(splitting, "SMALLEST_ROW", 0)
    original = Query(session, tmp_path / "original", door)
    original.feed(0, 1)
    with session_conf(session, SNAPSHOTS):
        original.run()
    fork = original
    if place == "fork":
        fork = Query(session, tmp_path / "fork", door, rows=list(original.rows))
        Checkpoint(original.checkpoint).fork(fork.checkpoint)
    fork.feed(2)  # to go on with
    for n in numbers(SHARE, (door, operation, kind)):
        query = Copied(session, tmp_path / str(n), door, of=fork)
        log = MergedLog(Directory(Location.of(query.checkpoint)), CLOSED_AFTER)
        make_directories(log.directory, 3)
        stores = splitting.split(log, 1, 1, 3, {(0, "default")})
        assert stores == {(0, "default")}
        faulty.addRule(operation, str(query.checkpoint), n, 1_000_000, kind)
        try:
            asked_for(session, query, 3, stores)
        except (StateStoreFilesError, Py4JJavaError) as error:
            assert "PSS_REPARTITION_FAILED" in str(error)
            ended = (query.checkpoint / "commits" / "2").exists()  # which a plan of the next call would see
        else:
            ended = True
        reached = faulty.fired() > 0
        faulty.clear()
        if not ended:
            clear(log, 1, "rocksdb", lambda: None)
            assert splitting.split(log, 1, 1, 3, stores) == stores
            asked_for(session, query, 3, stores)
        query.run()
        query.assert_right()
        segments = Checkpoint(query.checkpoint).inspect.segments()
        rows = zip(*(segments[name].to_pylist() for name in ("logical_path", "foreign_path")), strict=True)
        foreign = {path.split("/")[1] for path, where in rows if path.endswith(".sst") and where}
        assert foreign == ({"0", "1", "2"} if place == "fork" else {"1", "2"})
        assert bool(list((query.state / "_merged").glob("*.own"))) == (place == "own")
        if not reached:
            break
    note(1 + n // SHARE, n)
    assert n > 1


UNUSED = ("close", "rename", "mkdirs")
"""What a conversion need not call: merged files are closed later, and directories are made before it."""


def converted(spark: SparkSession, query: Query, version: int, store: str) -> None:
    """What a conversion does before the log names the other store, on the file system that fails."""
    rewrite = Rewrite(version - 1, STOCK_PROVIDERS[query.store], STOCK_PROVIDERS[store], 1, frozenset())
    SparkSide(spark, f"merged+faulty:{query.checkpoint}", 1).convert(rewrite)


@since
@pytest.mark.spark
@pytest.mark.sweep(3)
@pytest.mark.parametrize(("operation", "kind"), [fault for fault in FAULTS if fault[0] not in UNUSED])
@pytest.mark.parametrize(("door", "before", "after"), [("provider", "heap", "rocksdb"), ("path", "rocksdb", "heap")])
@pytest.mark.usefixtures("by_hand")
def test_a_conversion_whose_file_system_fails(
    session: SparkSession, tmp_path: Path, faulty: Any, door: str, before: str, after: str, operation: str, kind: str
) -> None:
    """What is left counts for nobody: not for the old store, which goes on, nor for the next conversion."""
    original = Query(session, tmp_path / "original", door, before)
    original.feed(0, 1)
    original.run()
    for n in numbers(SHARE, (door, operation, kind)):
        query = Copied(session, tmp_path / str(n), door, before, of=original)
        faulty.addRule(operation, str(query.checkpoint), n, 1_000_000, kind)
        try:
            converted(session, query, 2, after)
        except (StateStoreFilesError, Py4JJavaError) as error:
            assert "PSS_STORE_CONVERSION_FAILED" in str(error)
        reached = faulty.fired() > 0
        faulty.clear()
        if n % 2:
            original.feed(len(original.rows) // 21)
            query.run()
            query.assert_right()
        result = at(query.checkpoint).convert(store=after, spark=session, force=True)
        assert (result.store_before, result.store) == (before, after)
        query.store = after
        original.feed(len(original.rows) // 21)
        query.run()
        query.assert_right()
        if not reached:
            break
    note(1 + n // SHARE, n)
    assert n > 1
