"""SSTs that wait for the zip that names them, and zips that name what is nowhere."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.stores import fill, open_store
from tests.jvm.harness import TESTING, Checkpoint, java_error, snapshot_zip, until

pytestmark = pytest.mark.spark

SST = "0/0/SSTs/000008-a.sst"
ZIP = "0/0/3.zip"
LATER = "0/0/4.zip"
QUICK = {"closedAfter": "5s"}


def names(*paths: str) -> bytes:
    """A zip that names these."""
    return snapshot_zip(*(Path(path).name for path in paths))


def with_plain_state(checkpoint: Checkpoint) -> Checkpoint:
    """What stock Spark began."""
    store = checkpoint.state / "0" / "0"
    (store / "SSTs").mkdir(parents=True)
    (store / "1.changelog").write_bytes(b"of stock Spark")
    return checkpoint


def manager(checkpoint: Checkpoint) -> Any:
    """What a loaded RocksDB store has."""
    kind = checkpoint.jvm.io.pyspark.statestore.fs.MergedCheckpointFileManager
    return kind(checkpoint.path("0/0"), checkpoint.fs.getConf())


@contextmanager
def zip_failing(checkpoint: Checkpoint, faulty: Any) -> Iterator[None]:
    """What is committed fails."""
    faulty.addRule("hflush", str(checkpoint.merged), 1, "torn")
    with java_error("PSS_WRITE_FAILED"):
        yield
    faulty.clear()


def local_files(checkpoint: Checkpoint) -> int:
    """How many files of this checkpoint wait on the local disk."""
    root = Path(checkpoint.jvm.java.lang.System.getProperty("java.io.tmpdir"))
    return sum(1 for path in root.glob("**/merged-log*/*-0000*.sst") if checkpoint.directory.parent.name in path.name)


def sst(checkpoint: Checkpoint, number: int) -> str:
    """A name that is this test's own."""
    return f"0/0/SSTs/{number:06d}-{checkpoint.directory.parent.name}.sst"


# ---- as long as the store is loaded


@pytest.mark.slow  # 11 s: twice closedAfter
def test_what_a_loaded_store_has_staged_waits_for_ever(new_checkpoint: Callable[..., Checkpoint], faulty: Any) -> None:
    """Spark counts it as uploaded; where no such store is loaded nothing will name it."""
    loaded, closed = (new_checkpoint("faulty", name=name, **QUICK) for name in ("loaded", "closed"))
    managers = [manager(loaded), manager(closed)]
    for checkpoint in (loaded, closed):
        checkpoint.stage(SST, b"eight")
        with zip_failing(checkpoint, faulty):
            checkpoint.write(ZIP, names(SST))
    managers[1].close()
    time.sleep(10.5)

    for checkpoint in (loaded, closed):
        checkpoint.write(LATER, b"no zip: takes whatever there is")

    assert set(loaded.contents()) == {SST, LATER}
    assert set(closed.contents()) == {LATER}
    managers[0].close()


def test_what_is_staged_goes_with_the_last_manager_of_its_store(checkpoint: Checkpoint) -> None:
    first, second = manager(checkpoint), manager(checkpoint)
    checkpoint.stage(sst(checkpoint, 8), b"eight")
    first.close()
    assert local_files(checkpoint) == 1

    second.close()

    assert local_files(checkpoint) == 0


@pytest.mark.slow  # 11 s: twice closedAfter
def test_what_is_staged_goes_with_a_manager_that_nobody_closes(
    new_checkpoint: Callable[..., Checkpoint], jvm: Any
) -> None:
    """Spark does not close what it has wrapped to write checksum files."""
    checkpoint = new_checkpoint(**QUICK)
    manager(checkpoint)
    checkpoint.stage(sst(checkpoint, 8), b"eight")

    def dropped() -> bool:
        jvm.java.lang.System.gc()
        return local_files(checkpoint) == 0

    until(dropped, "the staged file to go")


def test_failed_snapshots_do_not_pile_up(new_checkpoint: Callable[..., Checkpoint], faulty: Any) -> None:
    """What only an earlier snapshot has named is gone from its store; what the newest names, and others' wait on."""
    checkpoint = new_checkpoint("faulty")
    opened = manager(checkpoint)
    for version in range(3, 9):
        checkpoint.stage(sst(checkpoint, version), b"new in each")
        with zip_failing(checkpoint, faulty):
            checkpoint.write(f"0/0/{version}.zip", names(sst(checkpoint, 3), sst(checkpoint, version)))
        assert local_files(checkpoint) == min(version - 2, 2)
    checkpoint.stage(sst(checkpoint, 9), b"of an upload that has not come to its zip")

    wanted = [sst(checkpoint, 3), sst(checkpoint, 8)]
    checkpoint.write("0/0/8.zip", names(*wanted))

    assert set(checkpoint.contents()) == {*wanted, "0/0/8.zip"}
    assert local_files(checkpoint) == 1
    opened.close()


@pytest.mark.parametrize("plain", [False, True], ids=["born merged", "converted"])
@pytest.mark.parametrize("reopened", [False, True], ids=["loaded", "reopened"])
def test_a_store_goes_on_after_a_zip_has_failed(
    jvm: Any, new_checkpoint: Callable[..., Checkpoint], faulty: Any, plain: bool, reopened: bool
) -> None:
    """Spark's own class: what it counts as uploaded is there; loaded anew it has forgotten that, and uploads anew."""
    checkpoint = new_checkpoint("faulty")
    if plain:
        with_plain_state(checkpoint)
    options: dict[str, Any] = {"compact": False, "scheme": "faulty"}
    store = open_store(jvm, checkpoint.directory, **options)
    fill(store, 1, one="1")
    store.upload()
    fill(store, 2, two="2")
    with zip_failing(checkpoint, faulty):
        store.upload()
    if reopened:
        store.close()
        store = open_store(jvm, checkpoint.directory, **options)
    fill(store, 3, three="3")
    store.upload()
    store.close()

    shown = checkpoint.contents()
    assert "0/0/3.zip" in shown
    checkpoint.delete("0/0/2.changelog")
    with closing(open_store(jvm, checkpoint.directory, **options)) as after:
        after.load(3)
        assert [after.get(key) for key in ("one", "two", "three")] == ["1", "2", "3"]


# ---- what is nowhere


def test_a_zip_that_names_what_is_nowhere_is_refused_in_a_converted_checkpoint(
    new_checkpoint: Callable[..., Checkpoint],
) -> None:
    checkpoint = with_plain_state(new_checkpoint())
    (checkpoint.state / "0/0/SSTs/000001-p.sst").write_bytes(b"of stock Spark")
    checkpoint.stage(SST, b"eight")

    with java_error("PSS_STALE_SNAPSHOT", "000009-c.sst"):
        checkpoint.write(ZIP, names(SST, "000001-p.sst", "000009-c.sst"))
    assert checkpoint.contents() == {}

    checkpoint.write(LATER, names(SST, "000001-p.sst"))
    assert set(checkpoint.contents()) == {SST, LATER}


def test_a_snapshot_asks_for_plain_files_only_where_it_needs_some(
    new_checkpoint: Callable[..., Checkpoint], jvm: Any, tmp_path: Path
) -> None:
    checkpoint = with_plain_state(new_checkpoint("counting", name=tmp_path.name))
    plain = [f"{number:06d}-p.sst" for number in range(50)]
    for name in plain:
        (checkpoint.state / "0/0/SSTs" / name).write_bytes(b"of stock Spark")
    counting = getattr(jvm, f"{TESTING}.CountingFileSystem")
    counting.registerRoot(tmp_path.name, str(checkpoint.directory))

    def calls() -> dict[str, int]:
        counted: dict[str, int] = {}
        for categories in json.loads(counting.snapshotJson()).get(tmp_path.name, {}).values():
            for operations in categories.values():
                for operation in ("listStatus", "getFileStatus", "open"):
                    counted[operation] = counted.get(operation, 0) + operations.get(operation, 0)
        return counted

    checkpoint.stage(SST, b"eight")
    checkpoint.write(ZIP, names(SST))
    before = calls()
    checkpoint.stage("0/0/SSTs/000009-a.sst", b"nine")
    checkpoint.write(LATER, names(SST, "000009-a.sst"))
    assert calls() == before

    checkpoint.write("0/0/5.zip", names(SST, *plain))
    assert calls() == before | {"listStatus": before["listStatus"] + 1}
