"""What ``versions`` calls restorable Spark can read, and what it does not Spark cannot; whatever is missing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from pyspark_statestore import merged_path
from pyspark_statestore.checkpoint import Checkpoint
from pyspark_statestore.sparkfiles import files_named
from tests import class_data
from tests.conftest import MakeSpark
from tests.inspect.builders import refused
from tests.inspect.faults import broken_copy, contents, state_files
from tests.sampling import sample, sampled
from tests.streaming.runs import (
    STATE_STORE,
    Run,
    Setting,
    assert_state_is_merged,
    plain_state_files,
    session_conf,
    unload_stores,
)
from tests.streaming.workloads import WORKLOADS, write_batches

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(1, files="compared with Spark")]

# Maintenance is part of each task, so the versions that have snapshots are the same in every run.
CONF = {
    f"{STATE_STORE}unloadOnCommit": "true",
    f"{STATE_STORE}minDeltasForSnapshot": "2",
    "spark.sql.shuffle.partitions": "2",
}
BATCHES = 5
CODECS = ("zstd", "snappy", "lzf")
CASES = [
    (Setting("provider", "rocksdb", 1, changelog=True), "aggregation", "lz4"),
    (Setting("provider", "rocksdb", 1, changelog=True), "outer_join", "lz4"),
    (Setting("path", "rocksdb", 1, changelog=False), "aggregation", "lz4"),
    (Setting("path", "rocksdb", 2, changelog=True, checksums=True), "aggregation", "lz4"),
    (Setting("path", "heap"), "aggregation", "lz4"),
    (Setting("provider", "heap"), "outer_join", "lz4"),
    (Setting("stock", "rocksdb", 1, changelog=True), "aggregation", "lz4"),
    (Setting("stock", "rocksdb", 2, changelog=True), "aggregation", "lz4"),
    (Setting("stock", "heap"), "aggregation", "lz4"),
    *((Setting("stock", "rocksdb", 2, changelog=True), "aggregation", codec) for codec in CODECS),
    (Setting("path", "rocksdb", 2, changelog=True), "aggregation", "zstd"),
]


def case_id(value: object) -> str:
    return str(value)


def do(make_spark: MakeSpark, folder: Path, setting: Setting, workload: str, codec: str) -> Run:
    """A query that has read all batches."""
    door = "path" if setting.door == "stock" else setting.door
    codecs = {"spark.io.compression.codec": codec, f"{STATE_STORE}compression.codec": codec}
    spark = make_spark({**CONF, **codecs}, mode=door, store=setting.store)
    unload_stores(spark)
    run = Run(spark, workload, setting, folder / "query")
    write_batches(run.input, range(BATCHES))
    run.run()
    if setting.door == "stock":
        assert plain_state_files(run.checkpoint)
    else:
        assert_state_is_merged(run)
    return run


def last_version(run: Run) -> int:
    """Of the last batch; Spark adds one without data where the watermark moves."""
    return max(run.rows) + 1


def readable(run: Run, checkpoint: Path) -> dict[int, bool]:
    """Which versions Spark reads the whole of."""
    found = {}
    location = merged_path(checkpoint) if run.setting.door == "path" else str(checkpoint)
    with session_conf(run.spark, run.setting.conf):
        for version in range(1, last_version(run) + 1):
            try:
                for part in WORKLOADS[run.workload].state_parts:
                    reader = run.spark.read.format("statestore").options(**part).option("batchId", version - 1)
                    reader.load(location).collect()
                found[version] = True
            except (PySparkException, Py4JJavaError) as error:
                # Anything else would be a mistake of this test, such as a wrong option.
                assert re.search(r"CANNOT_LOAD_STATE_STORE|FileNotFound|does not exist|EOFException", str(error)), error
                found[version] = False
    return found


def needs_repair(what: str, how: str) -> bool:
    """Whether a damage leaves a snapshot that Spark finds and cannot load."""
    return what.startswith("sst") or (how == "cut" and what in ("zip", "snapshot"))


def restorable(run: Run, checkpoint: Path) -> dict[int, bool]:
    """Which versions ``versions`` calls restorable in every store."""
    rows = Checkpoint(checkpoint).inspect.versions().to_pylist()
    stores = {(row["operator_id"], row["partition_id"], row["store_name"]) for row in rows}
    found = {
        (row["operator_id"], row["partition_id"], row["store_name"], row["version"])
        for row in rows
        if row["is_restorable"]
    }
    return {v: all((*store, v) in found for store in stores) for v in range(1, last_version(run) + 1)}


def restores(checkpoint: Path) -> dict[tuple[str, int], tuple[int, int, int]]:
    """(base, replayed, bytes) by (store's folder, version), counted file by file in a whole checkpoint."""
    everything = contents(checkpoint)
    files = {(file.folder, file.version, file.kind): file for file in state_files(checkpoint)}
    found = {}
    for folder, version in {(file.folder, file.version) for file in files.values()}:
        size = replayed = 0
        at = version
        while at:
            snapshot = files.get((folder, at, "zip")) or files.get((folder, at, "snapshot"))
            if snapshot is not None:
                named = files_named(snapshot.data) if snapshot.kind == "zip" else {}
                assert named is not None
                assert {name: len(everything[f"{folder}/{name}"]) for name in named} == named
                size += len(snapshot.data) + sum(named.values())
                break
            change = files.get((folder, at, "changelog")) or files[folder, at, "delta"]
            size, replayed, at = size + len(change.data), replayed + 1, at - 1
        found[folder, version] = (at, replayed, size)
    return found


def needed(checkpoint: Path) -> dict[str, list[str]]:
    """What to take away from one store: a file of each kind, a whole version, a snapshot and what could replace it."""
    files = [file for file in state_files(checkpoint) if file.folder.startswith("0/1")]
    mine = [file for file in files if file.folder == files[0].folder]
    by_distance = sorted(mine, key=lambda file: (abs(file.version - BATCHES // 2 - 1), file.version))
    found: dict[str, list[str]] = {}
    for file in by_distance:
        found.setdefault(file.kind, [file.path])
    middle = by_distance[0].version
    found["version"] = [file.path for file in mine if file.version == middle]
    changes = [file.path for file in mine if file.kind in ("changelog", "delta") and file.version <= middle]
    for file in by_distance:
        ssts = sorted(name for name in files_named(file.data) or () if name.startswith("SSTs/"))
        if ssts and file.version <= middle:
            found["sst"] = [f"{file.folder}/{ssts[-1]}"]
            found["sst and changelogs"] = [*found["sst"], *changes]
            found["zip and changelogs"] = [file.path, *changes]
            break
    return found


@pytest.mark.parametrize(
    ("setting", "workload", "codec"),
    sampled(CASES, 3, kind=lambda case: (case[0].door == "stock", case[0].store)),
    ids=case_id,
)
def test_restorable_is_what_spark_can_read(
    make_spark: MakeSpark, tmp_path: Path, setting: Setting, workload: str, codec: str
) -> None:
    run = do(make_spark, tmp_path, setting, workload, codec)
    rows = Checkpoint(run.location).inspect.versions().to_pylist()
    store_count = 2 * (4 if workload == "outer_join" else 1)
    assert len(rows) == store_count * last_version(run)
    assert all(row["is_restorable"] for row in rows)
    assert {row["state_store_checkpoint_id"] is None for row in rows} == {setting.format_version == 1}
    counted = {
        (
            f"{row['operator_id']}/{row['partition_id']}"
            + ("" if row["store_name"] == "default" else f"/{row['store_name']}"),
            row["version"],
        ): (row["base_snapshot_version"], row["replay_count"], row["restore_bytes"])
        for row in rows
    }
    assert counted == restores(run.checkpoint)
    whole = dict.fromkeys(range(1, last_version(run) + 1), True)
    assert readable(run, run.checkpoint) == restorable(run, run.checkpoint) == whole

    damages = [
        (what, how, paths)
        for what, paths in needed(run.checkpoint).items()
        for how in (("delete", "cut") if setting.door == "stock" else ("delete", "unlink"))
        if how != "unlink" or what == "version"
    ]
    # What a join adds is that a version needs all of its stores, whatever it is that is missing.
    is_join = workload == "outer_join"
    broke = set()
    for what, how, paths in sample(damages, 3 * is_join, kind=lambda d: d[0] == "version" if is_join else d[0]):
        copy = broken_copy(run.checkpoint, paths, how)
        expected = readable(run, copy)
        found = restorable(run, copy)
        if needs_repair(what, how) and class_data.MINOR in ("4.0", "4.1"):
            # Only from 4.2 on does Spark go around a snapshot that is there and broken, to an older one.
            assert all(found[version] for version in expected if expected[version]), (what, paths, how)
        else:
            assert found == expected, (what, paths, how)
        broke |= {what for is_readable in expected.values() if not is_readable}
    assert "version" in broke
    if setting.store == "rocksdb" and workload == "aggregation":
        assert {"sst and changelogs", "zip and changelogs"} & broke


@pytest.mark.parametrize("door", sampled(["provider", "path"], 1))
def test_running_query(make_spark: MakeSpark, tmp_path: Path, door: str) -> None:
    spark = make_spark(CONF, mode=door)
    unload_stores(spark)
    run = Run(spark, "aggregation", Setting(door, "rocksdb"), tmp_path / "a query")
    write_batches(run.input, range(2))
    query = run.start(available_now=False)
    try:
        query.processAllAvailable()
        asked = Checkpoint.of(query)
        assert asked.url == Checkpoint(run.location).url == f"file://{run.checkpoint}"
        assert asked.inspect.summary()["max_version"].to_pylist() == [last_version(run)]
        write_batches(run.input, range(2, 4))
        query.processAllAvailable()
        summary = asked.inspect.summary().to_pylist()[0]
        assert (summary["max_version"], summary["plain_file_count"]) == (last_version(run), 0)
        files = asked.inspect.files().to_pylist()
        assert {row["is_closed"] for row in files} <= {True, False}
        assert {row["app_id"] for row in files} == {spark.sparkContext.applicationId}
        assert {str(query.runId)} == {row["query_run_id"] for row in files}
        live = {row["logical_path"] for row in asked.inspect.segments().to_pylist() if row["status"] == "live"}
        assert live == set(contents(run.checkpoint))
        assert len([path for path in live if re.fullmatch(r"0/\d/4\.changelog", path)]) == 2
    finally:
        query.stop()
    assert Checkpoint.of(query).inspect.summary()["max_version"].to_pylist() == [last_version(run)]


def test_query_that_does_not_tell_where_it_is(make_spark: MakeSpark) -> None:
    spark = make_spark(CONF, mode="path")

    class Broken:
        _jsq: Any = spark.sparkContext._jvm.java.lang.Object()

    with refused("PSS_UNKNOWN_LOCATION", "checkpointLocation"):
        Checkpoint.of(Broken())
