"""Checkpoints and their forks: what is in them, and what becomes of them when one side goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from pyspark_statestore import Checkpoint
from pyspark_statestore.log.pins import Pin, read_pins
from pyspark_statestore.log.scan import retry_if_gone, scan
from pyspark_statestore.log.state_files import StateFiles, plain_files
from pyspark_statestore.maintenance.cleaning import clean
from pyspark_statestore.storage import Directory, Location
from tests.inspect.builders import STAMP, merged_file
from tests.maintenance.builders import PARTITIONS, files_of_version, write_logs
from tests.maintenance.harness import merged_log_of


def state_of(checkpoint: Path | str, up_to: int = 1 << 30) -> dict[str, bytes | None]:
    """The bytes of each state file, wherever they are; of versions up to one."""
    directory = Directory(Location.of(checkpoint))

    def look() -> dict[str, bytes | None]:
        found = scan(directory)
        files = StateFiles.of(found, plain_files(directory, found))
        rows = np.arange(len(files.length))
        versions = files.stores().versions(rows)[0].to_pylist()
        data = files.read(directory, rows, lambda data: data)
        paths = files.path.to_pylist()
        return {p: d for p, d, v in zip(paths, data, versions, strict=True) if v is None or v <= up_to}

    return retry_if_gone(directory, look)


def pins(checkpoint: Path) -> tuple[Pin, ...]:
    """The pins in it."""
    return read_pins(Directory(Location.of(checkpoint)))


def merged_names(checkpoint: Path) -> set[str]:
    """The merged files on the disk."""
    return {path.name for path in (checkpoint / "state" / "_merged").glob("*.merged")}


def restorable(checkpoint: Path) -> set[int]:
    """Versions that every partition can be restored at."""
    rows = Checkpoint(checkpoint).inspect.versions().to_pylist()
    by_version: dict[int, list[bool]] = {}
    for row in rows:
        by_version.setdefault(row["version"], []).append(row["is_restorable"])
    return {version for version, all_of in by_version.items() if all_of == [True] * PARTITIONS}


def go_on(
    checkpoint: Path, version: int, number: int, writer: int = 9, spares: Callable[[str], bool] = lambda path: False
) -> None:
    """A query goes on: a batch leaves a version whose restore needs no earlier one, and all of these are deleted.

    Args:
        checkpoint: Its checkpoint.
        version: The version.
        number: Of the merged file that it writes.
        writer: That file's.
        spares: Tells which paths are not deleted.
    """
    directory = Directory(Location.of(checkpoint))
    entries = scan(directory).resolution.to_arrow().to_pylist()
    with merged_file(checkpoint, number, writer=writer, plain=True) as out:
        # Versions with even numbers have snapshots.
        for partition in range(PARTITIONS):
            for path, data in files_of_version(partition, version).items():
                out.put(path, data, stamp=STAMP + 100 * number)
        for entry in (entry for entry in entries if not spares(entry["path"])):
            out.delete(entry["path"], stamp=entry["stamp"], writer=entry["writer"])
    write_logs(checkpoint, [version - 2, version - 1])


def clean_up(checkpoint: Path) -> set[str]:
    """Unlinks what nobody needs; names of what went."""
    log = merged_log_of(checkpoint)
    return set(clean(log, log.snapshot().closed_tombstones).files)
