"""The checkpoints that `inspect_tables.py` reads, written by the package's own writer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark_statestore.format import MergedFileWriter, file_name

CREATED_MS = 1_700_000_000_000
_META: dict[str, str | bool] = {"app_id": "app-1", "query_run_id": "run-1", "shim": "benchmark", "plain": False}


@dataclass(frozen=True)
class Shape:
    """The size of a checkpoint.

    Attributes:
        segments: The number of segments in all files.
        files: The number of merged files.
        partitions: State partitions, each with as many changelogs.
        segment_bytes: The length of each segment.
        deleted: Every n-th segment is deleted by a tombstone in a later file, where this is n.
    """

    segments: int
    files: int
    partitions: int = 200
    segment_bytes: int = 16
    deleted: int = 4


def write_checkpoint(directory: Path, shape: Shape) -> None:
    """Writes sealed merged files with changelogs of all partitions, version by version.

    Args:
        directory: The checkpoint's directory.
        shape: How much to write.
    """
    merged = directory / "state" / "_merged"
    merged.mkdir(parents=True)
    (directory / "offsets").mkdir()
    data = b"x" * shape.segment_bytes
    paths = _paths(shape)
    before: list[tuple[str, int, int]] = []
    for number in range(shape.files):
        writer = 1 + number % 10
        share = shape.segments * (number + 1) // shape.files - shape.segments * number // shape.files
        created = CREATED_MS + number
        with (merged / file_name(created, writer, number)).open("wb") as out:
            meta = {**_META, "executor_id": str(writer)}
            file = MergedFileWriter(out, writer=writer, created_ms=created, meta=meta)
            for path, stamp, of_writer in before[:: shape.deleted]:
                file.delete(path, stamp=stamp, writer=of_writer)
            before = []
            for i in range(share):
                path, stamp = next(paths), (created << 16) + i
                file.put(path, data, stamp=stamp)
                before.append((path, stamp, writer))
            file.seal()


def _paths(shape: Shape) -> Iterator[str]:
    version = 0
    while True:
        version += 1
        for partition in range(shape.partitions):
            yield f"0/{partition}/{version}.changelog"
