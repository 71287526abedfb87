"""The files of other checkpoints that a fork refers to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from pyspark_statestore.format import foreign_path, split_foreign_path
from pyspark_statestore.index import Entries
from pyspark_statestore.inspect.scan import MERGED, Scan
from pyspark_statestore.storage import Directory


def live_foreign(scan: Scan) -> dict[str, frozenset[str]]:
    """What a checkpoint still reads elsewhere, as :func:`by_checkpoint` has it."""
    return foreign_of(scan.entries, scan.resolution.live)


def foreign_of(entries: Entries, rows: np.ndarray) -> dict[str, frozenset[str]]:
    """What some rows, or those of a mask, are read of elsewhere, as :func:`by_checkpoint` has it."""
    numbers = np.unique(entries.origin[rows])
    return by_checkpoint(entries.foreign[number - 1] for number in numbers.tolist() if number)


def missing_foreign(directory: Directory, entries: Entries) -> frozenset[str]:
    """Paths of the files that are referred to and do not exist; one listing for each other checkpoint.

    Raises:
        StateStoreFilesError: One cannot be listed.
    """
    missing: set[str] = set()
    for checkpoint, names in by_checkpoint(entries.foreign).items():
        there = Directory(directory.location.beside(checkpoint)).names(MERGED)
        missing.update(foreign_path(checkpoint, name) for name in names.difference(there))
    return frozenset(missing)


def by_checkpoint(paths: Iterable[str]) -> dict[str, frozenset[str]]:
    """Names of merged files, by the path of the checkpoint that they are in."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in paths:
        checkpoint, name = split_foreign_path(path)
        found[checkpoint].add(name)
    return {checkpoint: frozenset(names) for checkpoint, names in found.items()}
