"""Repartitioning: gives the stateful operators of a stopped query another number of state partitions.

Spark does it (:mod:`~pyspark_statestore.migration.spark_side`). It enters a batch in the offset log that differs from
the last one in nothing but the number, writes all state anew as that batch's, and commits the batch. The entry without
a commit bars the query from starting; Spark, asked for the same number again, begins the state anew and finishes. So a
crash needs nothing but the same call once more.

What is done here comes before: everything is refused that Spark would find out only when the query is barred, that it
would not notice, or that could not be taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.errors import StateStoreFilesError, not_allowed
from pyspark_statestore.log.merged_log import MergedLog
from pyspark_statestore.log.pins import check_unclaimed
from pyspark_statestore.log.restorability import committed, single_partition_operators, stores_of_operator
from pyspark_statestore.log.scan import retry_if_gone
from pyspark_statestore.log.spark_logs import COMMITS, entries, operators, partitions_of
from pyspark_statestore.log.state_files import STATE, StateFiles, plain_files
from pyspark_statestore.migration.checks import check_restorable, require_query_stopped
from pyspark_statestore.migration.offset_log import OffsetEntry, UnfinishedRepartition, read_offsets
from pyspark_statestore.migration.spark_side import SparkSide, cannot
from pyspark_statestore.migration.stopped import was_stopped
from pyspark_statestore.paths import merged_path
from pyspark_statestore.session.doors import MERGED_PROVIDERS, STOCK_PROVIDERS
from pyspark_statestore.sparkfiles import files_named
from pyspark_statestore.storage.changes import make_directory
from pyspark_statestore.storage.directory import Directory, in_parallel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST = 1 << 17
"""State partitions at most, as a guard against a slip of the finger: each is a task and a directory."""

_ROCKSDB = (STOCK_PROVIDERS["rocksdb"], MERGED_PROVIDERS["rocksdb"])


@dataclass(frozen=True)
class Repartition:
    """What a repartitioning did, or would do.

    Attributes:
        partitions_before: State partitions of each stateful operator before.
        partitions: State partitions now.
        batch: The batch that is the repartitioning in the query's logs: the query goes on with the next one. None where
            the checkpoint has that number of partitions already, and nothing was done.
        operators_count: Stateful operators.
        stores_count: State stores that were written: for each operator, its stores in all new partitions.
        written_bytes_count: Size of their state files, in bytes; 0 in a dry run.
        dry_run: Whether nothing was changed.
    """

    partitions_before: int
    partitions: int
    batch: int | None
    operators_count: int
    stores_count: int
    written_bytes_count: int
    dry_run: bool


def repartition(
    log: MergedLog,
    partitions: int,
    *,
    spark: SparkSession | None = None,
    dry_run: bool = False,
    force: bool = False,
    query: Any = None,
) -> Repartition:
    """Implements :meth:`pyspark_statestore.Checkpoint.repartition`."""
    check_number(partitions)
    directory = log.directory
    snapshot = log.snapshot()
    check_unclaimed(directory, snapshot.scan.others)
    plan = Plan.of(directory, partitions)
    names = plan.store_names(directory)
    _require_many_partitions(log)
    result = Repartition(
        plan.before, partitions, plan.new_batch, len({each[0] for each in names}), len(names) * partitions, 0, dry_run
    )
    if plan.new_batch is None:
        return result
    # Spark lets no query start between the two entries, so one that was begun has no query beside it.
    if not plan.is_begun and not force and not was_stopped(query, directory, "Repartitioning"):
        require_query_stopped(log, snapshot.scan, None, (), "Repartitioning", dry_run=dry_run)
    side = None
    if not dry_run:
        is_merged = bool(snapshot.scan.files) or plan.provider in MERGED_PROVIDERS.values()
        url = directory.location.url
        side = SparkSide(spark, merged_path(url) if is_merged else url, _format_version(directory, plan.batch))
        side.check(plan.batch, names)
    if not plan.is_begun:
        retry_if_gone(directory, lambda: check_restorable(directory, log.snapshot().scan))
    if side is None:
        return result
    # Spark's reader finds partitions by their directories, of which merged state needs none.
    _make_directories(directory, operators(directory), max(plan.before, partitions))
    made = side.repartition(partitions)
    written = retry_if_gone(directory, lambda: _bytes_of(log, made + 1))
    return replace(result, batch=made, written_bytes_count=written)


def _make_directories(directory: Directory, found: Sequence[int], partitions: int) -> None:
    paths = [f"{STATE}/{operator}/{partition}" for operator in found for partition in range(partitions)]
    in_parallel(lambda path: make_directory(directory, path), paths)


def _require_many_partitions(log: MergedLog) -> None:
    scan = log.snapshot().scan
    single = single_partition_operators(
        log.directory, StateFiles.of(scan, plain_files(log.directory, scan)).stores().known
    )
    if single:
        reason = (
            f"operator {min(single)} keeps everything in one partition, as a global aggregation or a limit does, and "
            "Spark would look for its state in others"
        )
        raise cannot(log.directory.location.url, reason)


def check_number(partitions: object) -> None:
    """Refuses what is no number of partitions.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION.
    """
    if not isinstance(partitions, int) or isinstance(partitions, bool) or not 0 < partitions <= MOST:
        raise not_allowed("partitions", partitions, f"a whole number from 1 to {MOST}")


@dataclass(frozen=True)
class Plan:
    """What is to be done.

    Attributes:
        batch: The last committed batch, whose state is taken.
        before: The number of partitions that it has.
        new_batch: The batch that the repartitioning will be; None where nothing is to be done.
        is_begun: Whether an earlier call has entered that batch in the offset log already.
        provider: The class that keeps the state.
    """

    batch: int
    before: int
    new_batch: int | None
    is_begun: bool
    provider: str = field(repr=False)

    @classmethod
    def of(cls, directory: Directory, partitions: int) -> Plan:
        """Reads the query's logs.

        Raises:
            StateStoreFilesError: PSS_CANNOT_REPARTITION or PSS_UNFINISHED_REPARTITION; or a log cannot be read.
        """
        offsets = read_offsets(directory, {})
        batches = committed(directory)
        url = directory.location.url
        if not batches or not offsets:
            raise cannot(url, "no batch was committed, so there is no state yet. Start it with that number instead")
        unfinished = UnfinishedRepartition.found(directory, offsets)
        if unfinished is not None:
            _require_same(directory, unfinished, partitions)
            # Batches that were skipped for it are committed without a state of their own.
            batches = [batch for batch in batches if f"{COMMITS}/{batch}" not in unfinished.files]
        elif offsets[-1].batch > batches[-1]:
            reason = (
                f"batch {offsets[-1].batch} was begun and not committed. Start the query until it has committed it, "
                "for example with trigger(availableNow=True)"
            )
            raise cannot(url, reason)
        last = next((entry for entry in offsets if entry.batch == batches[-1]), None)
        before = partitions_of(directory, batches[-1])
        if last is None or before is None:
            raise cannot(url, f"the offset log does not say how many partitions batch {batches[-1]} had")
        provider = _rocksdb(directory, last)
        if unfinished is not None:
            return cls(last.batch, before, unfinished.batch, True, provider)
        return cls(last.batch, before, None if before == partitions else last.batch + 1, False, provider)

    def store_names(self, directory: Directory) -> list[tuple[int, str]]:
        """The operators, each with the names of its stores, by their metadata.

        Raises:
            StateStoreFilesError: PSS_CANNOT_REPARTITION where there are none; or metadata cannot be read.
        """
        found: list[tuple[int, str]] = []
        for operator in operators(directory):
            stores = stores_of_operator(directory, operator, 1)
            if stores is None:
                reason = f"no metadata says which stores operator {operator} has; Spark 4.0 or newer writes it"
                raise cannot(directory.location.url, reason)
            found += sorted({(each[0], each[2]) for each in stores})
        if not found:
            raise cannot(directory.location.url, "its query has no stateful operator, so there are no partitions")
        return found


def _require_same(directory: Directory, unfinished: UnfinishedRepartition, partitions: int) -> None:
    if unfinished.partitions != str(partitions):
        parameters = {
            "path": directory.location.url,
            "batch": unfinished.batch,
            "partitions": unfinished.partitions,
            "reason": f"{partitions} cannot be asked for before",
        }
        raise StateStoreFilesError("PSS_UNFINISHED_REPARTITION", parameters)


def _rocksdb(directory: Directory, entry: OffsetEntry) -> str:
    if entry.provider in _ROCKSDB:
        return str(entry.provider)
    if entry.provider is None:
        raise cannot(directory.location.url, f"offsets/{entry.batch} does not name the class that keeps the state")
    what = "a heap store" if "HDFSBacked" in entry.provider else "no store of Spark's or of this package"
    reason = f"its provider is {entry.provider}, {what}; only RocksDB's state can be repartitioned"
    raise cannot(directory.location.url, reason)


def _format_version(directory: Directory, batch: int) -> int:
    """The checkpoint format that the commit log has: the number in the entry's first line."""
    info = entries(directory, COMMITS)[batch]
    head = directory.read(f"{COMMITS}/{batch}", info.size).partition(b"\n")[0]
    return 2 if head.strip() == b"v2" else 1


def _bytes_of(log: MergedLog, version: int) -> int:
    """Size of all files that a version consists of; a repartitioning writes all of them."""
    found = log.snapshot().scan
    files = StateFiles.of(found, plain_files(log.directory, found))
    stores = files.stores()
    number, _, extension = stores.version_files(np.arange(len(files.length)))
    rows = np.flatnonzero(np.array(pc.equal(number, version).fill_null(False), bool) & (stores.store >= 0))
    zips = rows[np.array(pc.equal(extension.take(pa.array(rows)), "zip").fill_null(False), bool)]
    named = files.read(log.directory, zips, lambda data: sum((files_named(data or b"") or {}).values()))
    return int(files.length[rows].sum()) + sum(named)
