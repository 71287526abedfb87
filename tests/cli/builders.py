"""Checkpoints as queries leave them, written without Spark."""

from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path

from pyspark_statestore.format import Entry, MergedFileWriter, file_name

WRITER = 0xA1B2C3D4E5F60718
WRITER_63 = WRITER >> 1
CREATED_MS = 1_760_000_000_000
META: dict[str, str | bool] = {"app_id": "app-1", "executor_id": "3", "query_run_id": "run-1", "plain": False}
TORN = b"half of a group"


def name(number: int, *, index_only: bool = False) -> str:
    """The name of one of the checkpoint's files."""
    return file_name(CREATED_MS + number, WRITER_63, number, index_only=index_only)


def stamp(second: int) -> int:
    """A stamp so many seconds after the first file was begun."""
    return (CREATED_MS + 1000 * second) << 16


def write_sink(folder: Path) -> None:
    """Writes a file sink of four batches, each of two files for each of two days; the list is repeated in the third."""
    log = folder / "_spark_metadata"
    log.mkdir(parents=True)
    lines: list[list[str]] = []
    for batch in range(4):
        lines.append([])
        for day, task in ((day, task) for day in (1, 2) for task in range(2)):
            unique = f"7f6c0000-0000-4000-8000-{16 * batch + 4 * day + task:012}"
            file = folder / f"day={day}" / f"part-{task:05}-{unique}.c000.snappy.parquet"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(bytes(208))
            status = {"path": file.as_uri(), "size": 208, "isDir": False, "modificationTime": CREATED_MS + batch}
            lines[-1].append(json.dumps({**status, "blockReplication": 1, "blockSize": 128 << 20, "action": "add"}))
    listed = {"1": lines[1], "2.compact": [line for batch in lines[:3] for line in batch], "3": lines[3]}
    for name, named in listed.items():
        (log / name).write_text("\n".join(["v1", *named]))


def write_checkpoint(folder: Path, *, partitions: int = 3, versions: int = 4) -> Path:
    """Writes a checkpoint of an aggregation that keeps changelogs: a sealed file, an open one, and a torn one.

    Version 1 of each partition is deleted; the last version of partition 0 was written a second time.

    Args:
        folder: Where to.
        partitions: State partitions; of each, a changelog a version, the greater the higher the partition.
        versions: All but the last are in the first file.
    """
    merged = folder / "state" / "_merged"
    merged.mkdir(parents=True)
    for made in ("offsets", "commits"):
        (folder / made).mkdir()
    (folder / "metadata").write_text('{"id":"x"}')
    sealed, first = _begin(1)
    puts: dict[tuple[int, int], Entry] = {}
    for version in range(1, versions):
        for partition in range(partitions):
            puts[partition, version] = _put(first, partition, version)
        first.end_group()
    first.seal()
    (merged / name(1)).write_bytes(sealed.getvalue())
    open_, second = _begin(2)
    for partition in range(partitions):
        _put(second, partition, versions)
        dead = puts[partition, 1]
        second.delete(dead.path, stamp=dead.stamp, writer=dead.writer)
    second.end_group()
    second.put(f"0/0/{versions}.changelog", b"again", stamp=stamp(versions + 1))
    second.end_group()
    (merged / name(2)).write_bytes(open_.getvalue())
    torn, third = _begin(3, fronts=True)
    begin = third.position
    third.put("0/0/9.changelog", b"half of a group", stamp=stamp(9))
    third.end_group()
    (merged / name(3)).write_bytes(torn.getvalue()[: begin + len(TORN)])
    return folder


def write_index_only(checkpoint: Path) -> Path:
    """Adds an index-only file that speaks for the first file; returns it."""
    from pyspark_statestore.format import BytesSource, read_merged_file

    merged = checkpoint / "state" / "_merged"
    entries = list(read_merged_file(BytesSource((merged / name(1)).read_bytes())))
    data, writer = _begin(4)
    writer.seal_index_only({name(1): entries})
    path = merged / name(4, index_only=True)
    path.write_bytes(data.getvalue())
    return path


def age(path: Path, minutes: float) -> None:
    """Makes a file look as if nothing had been appended for so long."""
    then = time.time() - 60 * minutes
    os.utime(path, (then, then))


def _begin(number: int, *, fronts: bool = False) -> tuple[io.BytesIO, MergedFileWriter]:
    data = io.BytesIO()
    meta = {**META, "fronts": True} if fronts else META
    return data, MergedFileWriter(data, writer=WRITER_63, created_ms=CREATED_MS + number, meta=meta)


def _put(writer: MergedFileWriter, partition: int, version: int) -> Entry:
    data = bytes([version]) * (1000 * (partition + 1))
    return writer.put(f"0/{partition}/{version}.changelog", data, stamp=stamp(version))
