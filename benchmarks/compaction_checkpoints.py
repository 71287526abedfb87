"""The checkpoints that `compaction.py` compacts, written by the package's own writer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from pyspark_statestore.format import Kind, MergedFileWriter, SegmentType, file_name
from pyspark_statestore.format.checksum import crc32c
from pyspark_statestore.format.index_block import ENTRY_TYPE

CREATED_MS = 1_700_000_000_000
PARTITIONS = 200
MB = 1 << 20
_META: dict[str, str | bool] = {"app_id": "app-1", "query_run_id": "run-1", "shim": "benchmark", "plain": False}
_PART = 8 * MB


@dataclass(frozen=True)
class HalfDead:
    """Merged files of which every second version was deleted.

    Attributes:
        live_bytes: The live bytes in all files.
        segment_bytes: The length of each segment.
        file_bytes: The approximate size of a merged file.
        is_sst: Whether the segments are SSTs, or else changelogs.
    """

    live_bytes: int
    segment_bytes: int
    file_bytes: int
    is_sst: bool

    def write(self, checkpoint: Path) -> None:
        """Writes the files, and one with the tombstones.

        Spark deletes versions, so what is dead lies together: a segment of each partition. Of large segments one in two
        is.
        """
        run = 1 if self.is_sst else PARTITIONS
        in_file = max(2 * run, self.file_bytes // self.segment_bytes // (2 * run) * (2 * run))
        count = max(in_file, 2 * self.live_bytes // self.segment_bytes // in_file * in_file)
        numbers = np.arange(count)
        paths = _sst_paths(count) if self.is_sst else _changelog_paths(count)
        for number, rows in enumerate(np.split(numbers, count // in_file)):
            _write_file(checkpoint, number, paths[rows[0] : rows[-1] + 1], [self.segment_bytes] * len(rows))
        dead = np.flatnonzero(numbers // run % 2)
        _write_tombstones(checkpoint, count // in_file, paths.take(pa.array(dead)), dead % in_file, dead // in_file)


def write_one_file(checkpoint: Path, size: int, segment_bytes: int, live: float = 0.75) -> None:
    """Writes one large merged file with segments of one size, and one with tombstones for those that must not live.

    Args:
        checkpoint: The directory.
        size: The approximate size of the file.
        segment_bytes: The length of each segment. If it is more than what may live, only one segment is dead.
        live: The share of the file that lives.
    """
    if segment_bytes > size // 2:
        lengths = [segment_bytes, size - segment_bytes]
        dead = np.array([1])
    else:
        lengths = [segment_bytes] * (size // segment_bytes)
        dead = np.flatnonzero(np.arange(len(lengths)) % 64 >= 64 * live)
    paths = _sst_paths(len(lengths))
    _write_file(checkpoint, 0, paths, lengths)
    _write_tombstones(checkpoint, 1, paths.take(pa.array(dead)), dead, np.zeros(len(dead), "i8"))


def write_group_files(checkpoint: Path, files: int, segments: int, segment_bytes: int) -> None:
    """Writes what an object store is left with: a sealed file for each group of changelogs; all of it lives."""
    paths = _changelog_paths(files * segments)
    for number in range(files):
        _write_file(checkpoint, number, paths[number * segments : (number + 1) * segments], [segment_bytes] * segments)


def _sst_paths(count: int) -> pa.StringArray:
    names = (f"0/{i % PARTITIONS}/SSTs/{i // PARTITIONS:06}-2f6b1c9e-7d7a-4c0e-9a51-{i:012x}.sst" for i in range(count))
    return pa.array(names, pa.string())


def _changelog_paths(count: int) -> pa.StringArray:
    return pa.array((f"0/{i % PARTITIONS}/{1 + i // PARTITIONS}.changelog" for i in range(count)), pa.string())


def _stamps(number: np.ndarray | int, at: np.ndarray) -> np.ndarray:
    """Of the segments of a file."""
    stamps: np.ndarray = ((CREATED_MS + np.asarray(number, "i8")) << 16) + at
    return stamps


@contextmanager
def _merged_file(checkpoint: Path, number: int) -> Iterator[MergedFileWriter]:
    merged = checkpoint / "state" / "_merged"
    merged.mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets").mkdir(exist_ok=True)
    writer, created = _writer_of(number), CREATED_MS + number
    with (merged / file_name(created, writer, number)).open("wb") as out:
        file = MergedFileWriter(out, writer=writer, created_ms=created, meta={**_META, "executor_id": str(writer)})
        yield file
        file.seal()


def _writer_of(number: int) -> int:
    return 1 + number % 10


def _write_file(checkpoint: Path, number: int, paths: pa.StringArray, lengths: list[int]) -> None:
    with _merged_file(checkpoint, number) as file:
        records: np.ndarray = np.zeros(len(lengths), ENTRY_TYPE)
        records["kind"] = Kind.PUT
        records["type"] = SegmentType.of(paths[0].as_py())
        records["length"] = lengths
        records["offset"] = file.position + np.cumsum(lengths) - lengths
        records["stamp"] = _stamps(number, np.arange(len(lengths)))
        records["writer"] = _writer_of(number)
        records["crc32c"] = [_append(file, length) for length in lengths]
        file.add_columns(records, paths)


_BYTES = memoryview(os.urandom(2 * _PART))
"""No zeros: a copy would leave holes for them."""


def _append(file: MergedFileWriter, length: int) -> int:
    """Writes a segment of bytes that differ from the last one's; its checksum."""
    found = 0
    for start in range(0, length, _PART):
        shift = (file.position * 31) % _PART
        data = bytes(_BYTES[shift : shift + min(_PART, length - start)])
        found = crc32c(data, found)
        file.append(data)
    return found


def _write_tombstones(
    checkpoint: Path, number: int, paths: pa.StringArray, at: np.ndarray, of_file: np.ndarray
) -> None:
    with _merged_file(checkpoint, number) as file:
        records: np.ndarray = np.zeros(len(paths), ENTRY_TYPE)
        records["kind"] = Kind.DELETE
        records["type"] = SegmentType.of(paths[0].as_py())
        records["stamp"] = _stamps(of_file, at)
        records["writer"] = 1 + of_file % 10
        file.add_columns(records, paths)


def hard_links(checkpoint: Path, target: Path) -> None:
    """Makes a checkpoint of hard links to the same files, so that they may be unlinked there."""
    for file in checkpoint.rglob("*"):
        copy = target / file.relative_to(checkpoint)
        if file.is_dir():
            copy.mkdir(parents=True)
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            os.link(file, copy)
