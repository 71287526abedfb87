"""The files of other checkpoints that a fork refers to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from pyspark_statestore.format import foreign_path, split_foreign_path
from pyspark_statestore.index import Entries
from pyspark_statestore.inspect.scan import MERGED, Scan
from pyspark_statestore.storage import Directory


def live_foreign(scan: Scan) -> dict[str, set[str]]:
    """What a checkpoint still reads elsewhere.

    Returns:
        Names of merged files, by the path of the checkpoint that they are in.
    """
    entries = scan.entries
    numbers = np.unique(entries.origin[scan.resolution.live])
    return _by_checkpoint([entries.foreign[number - 1] for number in numbers.tolist() if number])


def missing_foreign(directory: Directory, entries: Entries) -> frozenset[str]:
    """Paths of the files that are referred to and do not exist; one listing for each other checkpoint.

    Raises:
        StateStoreFilesError: One cannot be listed.
    """
    missing: set[str] = set()
    for checkpoint, names in _by_checkpoint(entries.foreign).items():
        there = Directory(directory.location.beside(checkpoint)).names(MERGED)
        missing.update(foreign_path(checkpoint, name) for name in names.difference(there))
    return frozenset(missing)


def _by_checkpoint(paths: Sequence[str]) -> dict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in paths:
        checkpoint, name = split_foreign_path(path)
        found[checkpoint].add(name)
    return dict(found)
