"""Which version each version's changelog is applied to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.inspect.state_files import StateFiles
from pyspark_statestore.sparkfiles import lineage_of
from pyspark_statestore.storage.directory import Directory

EMPTY = -2
"""Stands for the empty state, which is what version 1 follows."""
NOTHING = -1
"""Stands for what is not there."""

_LINEAGE_BYTES = 64 * 1024

_MANY = 2
"""Versions that a changelog answers for, so that it pays to read one alone."""

_Key = tuple[int, int, str]
"""Store, version, checkpoint id."""


@dataclass(frozen=True)
class Past:
    """What each version follows.

    Attributes:
        parent: Row of the version that its changelog is applied to, or :data:`EMPTY`, or :data:`NOTHING`.
        begins: Whether what a later changelog names begins at it, as it does at a snapshot.
    """

    parent: np.ndarray
    begins: np.ndarray


def pasts(
    files: StateFiles,
    directory: Directory,
    store: np.ndarray,
    version: np.ndarray,
    checkpoint_id: pa.Array,
    changes: np.ndarray,
) -> Past:
    """Finds the past of versions; with Spark's checkpoint format 2 from their changelogs.

    Args:
        files: Of the state.
        directory: Of the checkpoint, to read changelogs from.
        store: Of each version, a number; stores, versions and ids are in ascending order.
        version: Its number.
        checkpoint_id: Its id, "" with format 1.
        changes: Row of its changelog in the files, or -1.
    """
    parent: np.ndarray = np.full(len(version), NOTHING, "i8")
    begins: np.ndarray = np.zeros(len(version), bool)
    has_id = np.array(pc.not_equal(checkpoint_id, ""), bool)
    bare = np.flatnonzero(~has_id)
    is_next = (np.diff(store[bare]) == 0) & (np.diff(version[bare]) == 1)
    parent[bare[1:][is_next]] = bare[:-1][is_next]
    parent[version == 1] = EMPTY
    rows = np.flatnonzero(has_id)
    if len(rows):
        keys = zip(
            store[rows].tolist(), version[rows].tolist(), checkpoint_id.take(pa.array(rows)).to_pylist(), strict=True
        )
        _follow_all(files, directory, changes, dict(zip(keys, rows.tolist(), strict=True)), Past(parent, begins))
    return Past(parent, begins)


def _follow_all(
    files: StateFiles, directory: Directory, changes: np.ndarray, row_of: Mapping[_Key, int], past: Past
) -> None:
    unknown: dict[int, list[_Key]] = {}
    for key, row in row_of.items():
        if changes[row] >= 0 and past.parent[row] == NOTHING:
            unknown.setdefault(key[0], []).append(key)
    # A changelog names all attempts since the last snapshot, so the newest of a store answers for many before it. Where
    # it does not, more and more of them are read at once.
    times = 1
    while unknown:
        newest = [keys.pop() for keys in unknown.values() for _ in range(min(times, len(keys)))]
        rows = changes[[row_of[key] for key in newest]]
        lineages = files.read(directory, rows, lambda start: lineage_of(start or b"") or {}, _LINEAGE_BYTES)
        for key, lineage in zip(newest, lineages, strict=True):
            _follow(key, lineage, row_of, past)
        answered = sum(_drop_answered(keys, row_of, past) for keys in unknown.values())
        times = 1 if answered >= _MANY * len(newest) else 2 * times
        unknown = {store: keys for store, keys in unknown.items() if keys}


def _drop_answered(keys: list[_Key], row_of: Mapping[_Key, int], past: Past) -> int:
    """Takes the newest keys away of which is known what they follow; tells how many."""
    before = len(keys)
    while keys and past.parent[row_of[keys[-1]]] != NOTHING:
        keys.pop()
    return before - len(keys)


def _follow(key: _Key, lineage: Mapping[int, str], row_of: Mapping[_Key, int], past: Past) -> None:
    """Notes whom a version, and those that it names, follow."""
    store, newest, _ = key
    child: int | None = row_of[key]
    for version in range(newest - 1, 0, -1):
        if version not in lineage:
            if child is not None and version + 1 < newest:
                past.begins[child] = True
            return
        before = row_of.get((store, version, lineage[version]))
        if child is not None and before is not None and past.parent[child] == NOTHING:
            past.parent[child] = before
        child = before
