"""Counts the files and bytes of a checkpoint on the disk, and how many of them are live."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

METADATA_DIRECTORIES = {"_metadata", "_stateSchema"}


def usage(checkpoint: Path) -> dict[str, int]:
    """Counts the files of a checkpoint.

    Args:
        checkpoint: The checkpoint's local directory.

    Returns:
        Files and bytes under `state/` without Spark's own metadata, directories under `state/`, files of all else.
    """
    files = size = directories = other = 0
    stack = [checkpoint / "state"]
    while stack:
        try:
            entries = list(os.scandir(stack.pop()))
        except FileNotFoundError:
            continue
        for entry in entries:
            if entry.is_dir():
                directories += 1
                if entry.name not in METADATA_DIRECTORIES:
                    stack.append(Path(entry.path))
                continue
            try:
                size += entry.stat().st_size
                files += 1
            except FileNotFoundError:
                pass
    for name in ("offsets", "commits", "sources"):
        other += sum(len(names) for _, _, names in os.walk(checkpoint / name))
    return {"files": files, "bytes": size, "directories": directories, "other_files": other}


@dataclass(frozen=True)
class Space:
    """The physical and the live bytes of merged files.

    Attributes:
        physical_bytes: All bytes under `state/_merged`, open files included.
        live_bytes: Bytes of the segments that some path still refers to.
        segments: The number of these segments.
    """

    physical_bytes: int
    live_bytes: int
    segments: int

    @property
    def amplification(self) -> float | None:
        """Physical bytes per live byte; None where nothing lives."""
        return self.physical_bytes / self.live_bytes if self.live_bytes else None


def merged_space(checkpoint: Path) -> Space:
    """Reads the index of every merged file and lets the newest write of each path win.

    It resolves the entries itself, without the package's own index, so that a mistake there cannot hide here.

    Args:
        checkpoint: The checkpoint's local directory.

    Returns:
        The checkpoint's space.
    """
    while True:
        # A file may be unlinked meanwhile: what lived in it is elsewhere then.
        with contextlib.suppress(FileNotFoundError):
            return _merged_space(checkpoint)


def _merged_space(checkpoint: Path) -> Space:
    from pyspark_statestore.format import BytesSource, Kind, read_merged_file

    puts: dict[str, tuple[tuple[int, int, int], int]] = {}
    deleted: dict[str, tuple[int, int]] = {}
    physical = 0
    for file in sorted((checkpoint / "state" / "_merged").glob("*.merged")):
        data = file.read_bytes()
        physical += len(data)
        for entry in read_merged_file(BytesSource(data), file.name):
            if entry.file_ref:
                continue  # an index-only file repeats what other files say themselves
            if entry.kind == Kind.DELETE:
                deleted[entry.path] = max(deleted.get(entry.path, entry.key), entry.key)
            else:
                rank = (*entry.key, entry.generation)
                if entry.path not in puts or rank > puts[entry.path][0]:
                    puts[entry.path] = (rank, entry.length)
    live = [length for path, (rank, length) in puts.items() if path not in deleted or rank[:2] > deleted[path]]
    return Space(physical, sum(live), len(live))
