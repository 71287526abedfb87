"""Splitting: new partitions begin with the files of the old ones, and no row is written again.

Where each partition becomes ``k``, a new one gets rows of one old partition only. So it can have the same segments
under paths of its own: a reference file says so, and costs a few bytes a segment. Spark's tasks then write nothing but
what deletes the rows of the others (Java ``StateWriting``).

That pays where rows are large. Every row is deleted in all of its ``k`` partitions but one, which costs about as much
as a short key. Until RocksDB compacts it away, a new partition restores and caches what it has deleted.

The bytes stay where they are: in a fork's source, which the fork's pins keep, or in the checkpoint itself, which has
pins of its own for that (:func:`~pyspark_statestore.log.references.give_second_paths`). After a crash the same call
ends what was begun. docs/decisions/0019-partitions-are-split-by-reference.md says why it is done like this.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog
from pyspark_statestore.log.references import give_second_paths
from pyspark_statestore.log.restorability import Store
from pyspark_statestore.log.state_files import STATE, store_folder
from pyspark_statestore.migration.sources import Sources
from pyspark_statestore.migration.spark_side import StoreName
from pyspark_statestore.sparkfiles import files_and_rows
from pyspark_statestore.storage.directory import Directory

SMALLEST_ROW = 128
"""Bytes that a row has to take in SSTs, on the average, for each further partition that its own becomes.

What deletes a row takes about 6 bytes, so it is a twentieth then.
docs/decisions/0019-partitions-are-split-by-reference.md has the figures.
"""


def split(
    log: MergedLog,
    batch: int,
    before: int,
    partitions: int,
    stores: Collection[StoreName],
) -> set[StoreName]:
    """Gives the new partitions of stores the files of the old ones, where that pays.

    Whatever the new partitions have is given anew: a name says which version a file is, not what is in it.

    Args:
        log: The checkpoint's merged files.
        batch: The batch whose state the new partitions begin with.
        before: How many partitions there are.
        partitions: How many there will be; a multiple of that.
        stores: The stores of which Spark's tasks can split partitions.

    Returns:
        The stores that were given their files.

    Raises:
        FileNotFoundError: A file was deleted meanwhile: look again.
        StateStoreFilesError: A file cannot be read or written; or what the new partitions have is not what was given.
    """
    if not stores or not _Found.of(log, log.snapshot(), batch, before, partitions, stores).chosen:
        return set()
    found: _Found | None = None

    def choose(snapshot: LogSnapshot) -> tuple[np.ndarray, pa.StringArray]:
        nonlocal found
        found = _Found.of(log, snapshot, batch, before, partitions, stores)
        return _second_paths(found, before, partitions)

    # What was not done in time is written anew.
    if not give_second_paths(log, choose) or found is None:
        return set()
    _require_the_same(log, found, batch, before, partitions)
    return set(found.chosen)


def _require_the_same(log: MergedLog, found: _Found, batch: int, before: int, partitions: int) -> None:
    """Makes sure that each new partition restores just what the one does that it is split off."""
    pairs = {
        (operator, new, name): (operator, new % before, name)
        for operator, name in found.chosen
        for new in range(before, partitions)
    }
    given = Sources.found(log, log.snapshot(), batch, "rocksdb", wanted=pairs)
    here = log.directory.location.absolute
    old, new = found.sources.places(here, list(pairs.values())), given.places(here, list(pairs))
    for store, expected, there in zip(pairs, old, new, strict=True):
        if expected != there:
            reason = f"{STATE}/{store_folder(store)} has other files than the partition that it is split off"
            parameters = {"path": log.directory.location.url, "partitions": partitions, "reason": reason}
            raise StateStoreFilesError("PSS_REPARTITION_FAILED", parameters)


@dataclass(frozen=True)
class _Found:
    """What can be split.

    Attributes:
        sources: What restores the old partitions.
        chosen: The stores that are worth splitting, each with the rows of the files that restore the version.
    """

    sources: Sources = field(repr=False)
    chosen: Mapping[StoreName, np.ndarray]

    @classmethod
    def of(
        cls,
        log: MergedLog,
        snapshot: LogSnapshot,
        batch: int,
        before: int,
        partitions: int,
        stores: Collection[StoreName],
    ) -> _Found:
        sources = Sources.found(log, snapshot, batch, "rocksdb")
        said = _said(log.directory, sources)
        chosen: dict[StoreName, np.ndarray] = {}
        for name in sorted(stores):
            each = [(name[0], partition, name[1]) for partition in range(before)]
            if not all(said.get(store) for store in each):
                continue  # no snapshot, or one that does not count its rows
            size, count = (sum(said[store][at] for store in each) for at in (0, 1))
            rows = np.concatenate([sources.of[store].rows for store in each])
            is_merged = bool(np.all(sources.files.is_merged(rows)))
            # To delete all rows in all new partitions but one has to be little beside writing them.
            if is_merged and size >= SMALLEST_ROW * (partitions // before - 1) * count:
                chosen[name] = rows
        return cls(sources, chosen)


def _said(directory: Directory, sources: Sources) -> dict[Store, tuple[int, int]]:
    """Of stores whose restore begins with a snapshot that says its rows: bytes of the files that it names, and rows."""
    zips = {store: each.snapshot for store, each in sources.of.items() if each.snapshot is not None}
    rows = np.array(list(zips.values()), "i8")
    answers = sources.files.read(directory, rows, lambda data: files_and_rows(data or b""))
    found = {}
    for store, answer in zip(zips, answers, strict=True):
        if answer is not None and answer[1] is not None:
            found[store] = (sum(answer[0].values()), answer[1])
    return found


def _second_paths(found: _Found, before: int, partitions: int) -> tuple[np.ndarray, pa.StringArray]:
    """The entries of the files that new partitions get, and their paths there."""
    files = found.sources.files
    paths: list[str] = []
    repeated: list[int] = []
    rows = np.concatenate([np.zeros(0, "i8"), *found.chosen.values()])
    for row, path in zip(rows.tolist(), files.path.take(pa.array(rows)).to_pylist(), strict=True):
        operator, partition, rest = path.split("/", 2)
        for new in range(int(partition) + before, partitions, before):
            paths.append(f"{operator}/{new}/{rest}")
            repeated.append(row)
    return found.sources.entry_rows(np.array(repeated, "i8")), pa.array(paths, pa.string())
