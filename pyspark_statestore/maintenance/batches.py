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

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from pyspark_statestore.inspect.logical_paths import DEFAULT_STORE
from pyspark_statestore.inspect.spark_logs import COMMITS, content_of, entries, operator_metadata, operators
from pyspark_statestore.parsing.json_text import objects, whole_number
from pyspark_statestore.storage.directory import Directory, in_parallel

_LATE = 3
"""Entries that Spark may not have purged yet though the state is cleaned up to there."""

_PARTITIONS = 1 << 20
"""Of all stores of an operator at most; metadata that says more is none."""

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
    return list(entries(directory, COMMITS))


def read_batches(directory: Directory, *, with_ids: bool) -> Batches:
    """Reads the log of commits.

    Args:
        directory: Of the checkpoint.
        with_ids: Whether the entries may name checkpoint ids; else they need not be opened.

    Raises:
        StateStoreFilesError: It cannot be read.
    """
    infos = entries(directory, COMMITS)
    found = tuple(infos)
    if not with_ids:
        return Batches(found)

    def read(batch: int) -> dict[int, list[list[str]]]:
        try:
            return ids_of(directory.read(f"{COMMITS}/{batch}", infos[batch].size))
        except FileNotFoundError:  # purged meanwhile
            return {}

    return Batches(found, dict(zip(found, in_parallel(read, found), strict=True)))


def stores_of_operator(directory: Directory, operator: int) -> list[Store] | None:
    """The stores that an operator has by its own metadata; None where there is none that can be read.

    Raises:
        StateStoreFilesError: It cannot be read.
    """
    try:
        metadata = operator_metadata(directory, operator)
        if metadata is None:
            return None
        found = objects(content_of(metadata[1])["stateStoreInfo"], "stateStoreInfo")
        partitions = [whole_number(store["numPartitions"], "numPartitions", _PARTITIONS) for store in found]
        if sum(partitions) > _PARTITIONS:
            return None
        names = [str(store.get("storeName") or DEFAULT_STORE) for store in found]
        return [
            (operator, partition, name)
            for name, count in zip(names, partitions, strict=True)
            for partition in range(count)
        ]
    except (ValueError, KeyError, FileNotFoundError):
        return None


def expected_stores(directory: Directory, known: Collection[Store]) -> list[Store]:
    """All stores of the query: one may be missing altogether.

    Args:
        directory: Of the checkpoint.
        known: Stores that files are there of.

    Raises:
        StateStoreFilesError: The metadata of operators cannot be read.
    """
    found: set[Store] = set()
    for operator in {*operators(directory), *(store[0] for store in known)}:
        of_metadata = stores_of_operator(directory, operator)
        found |= set(of_metadata or (store for store in known if store[0] == operator))
    return sorted(found)


def ids_of(data: bytes) -> dict[int, list[list[str]]]:
    """With checkpoint format 2, what an entry of the log of commits names: by operator, of each partition, its ids."""
    try:
        found = content_of(data).get("stateUniqueIds") or {}
        return {int(operator): _ids_of_stores(partitions) for operator, partitions in found.items()}
    except (ValueError, AttributeError):
        return {}


def _ids_of_stores(partitions: object) -> list[list[str]]:
    if not isinstance(partitions, list) or not all(isinstance(stores, list) for stores in partitions):
        raise ValueError("the ids of an operator are no arrays in an array")
    return [[str(each) for each in stores] for stores in partitions]
