"""Which versions of the state have to be restorable, as far as Spark's own logs tell.

The rule, from what Spark 4.3 does:

* Batch ``b`` leaves version ``b + 1`` of every store behind; with checkpoint format 2 the attempt whose id its entry in
  ``commits/`` names.
* **The last committed batch** has to be restorable: a restart begins there.
* **An earlier batch** has to be, if its entry is still there and is not one of the oldest three, unless nothing was
  ever purged. When batch ``x`` begins, Spark purges the entries before ``x - minBatchesToRetain``, and maintenance
  keeps the versions from ``x - minBatchesToRetain + 2`` on; it purges in a thread of its own, which may be late.
* A store none of whose files is as old as a version was cleaned up to there, by Spark or by ``expire``; that is how
  the beginning of a store ends, and no damage.
* Versions after the last committed batch are attempts of a batch that will be done again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark_statestore.inspect.logical_paths import DEFAULT_STORE
from pyspark_statestore.inspect.state_files import STATE
from pyspark_statestore.storage.directory import Directory, in_parallel

COMMITS = "commits"

_LATE = 3
"""Entries that Spark may not have purged yet though the state is cleaned up to there."""

Store = tuple[int, int, str]
"""Operator, partition, name."""


@dataclass(frozen=True)
class Batches:
    """What the log of commits says.

    Attributes:
        committed: Batches, in ascending order.
        ids: With checkpoint format 2, of each batch: by operator, of each partition, the ids of its stores.
    """

    committed: tuple[int, ...] = ()
    ids: dict[int, dict[int, list[list[str]]]] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The last committed batch, or -1."""
        return self.committed[-1] if self.committed else -1

    def needed(self, later: Sequence[int]) -> list[int]:
        """Those that Spark would still allow to go back to.

        Args:
            later: What is committed when all else has been read.
        """
        if not later:
            return []
        first = min(later)
        begin = first if first == 0 else first + _LATE
        return [b for b in self.committed if b in later and (b >= begin or b == max(later))]


def committed(directory: Directory) -> list[int]:
    """Batches that have an entry, in ascending order."""
    return sorted(int(info.name) for info in directory.files(COMMITS) if info.name.isdigit())


def read_batches(directory: Directory, *, with_ids: bool) -> Batches:
    """Reads the log of commits.

    Args:
        directory: Of the checkpoint.
        with_ids: Whether the entries may name checkpoint ids; else they need not be opened.

    Raises:
        StateStoreFilesError: It cannot be read.
    """
    infos = {int(info.name): info for info in directory.files(COMMITS) if info.name.isdigit()}
    found = tuple(sorted(infos))
    if not with_ids:
        return Batches(found)

    def read(batch: int) -> dict[int, list[list[str]]]:
        try:
            return _ids(directory.read(f"{COMMITS}/{batch}", infos[batch].size))
        except FileNotFoundError:  # purged meanwhile
            return {}

    return Batches(found, dict(zip(found, in_parallel(read, found), strict=True)))


def stores_of_operator(directory: Directory, operator: int) -> list[Store] | None:
    """The stores that an operator has by its own metadata; None where there is none that can be read.

    Raises:
        StateStoreFilesError: It cannot be read.
    """
    folder = f"{STATE}/{operator}/_metadata"
    newer = [info for info in directory.files(f"{folder}/v2") if info.name.isdigit()]
    if newer:
        info = max(newer, key=lambda info: int(info.name))
        path = f"{folder}/v2/{info.name}"
    else:
        older = [info for info in directory.files(folder) if info.name == "metadata"]
        if not older:
            return None
        info, path = older[0], f"{folder}/metadata"
    try:
        found = _json(directory.read(path, info.size))["stateStoreInfo"]
        return [
            (operator, partition, str(store.get("storeName") or DEFAULT_STORE))
            for store in found
            for partition in range(int(store["numPartitions"]))
        ]
    except (ValueError, KeyError, TypeError, AttributeError, FileNotFoundError):
        return None


def _json(data: bytes) -> dict[str, Any]:
    # The first line is the version.
    found = json.loads(data.decode("utf-8").partition("\n")[2])
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found


def _ids(data: bytes) -> dict[int, list[list[str]]]:
    try:
        found = _json(data).get("stateUniqueIds") or {}
        return {
            int(operator): [[str(each) for each in stores] for stores in partitions]
            for operator, partitions in found.items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}
