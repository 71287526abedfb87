"""Repartitioning: gives the stateful operators of a stopped query another number of state partitions.

Spark's own steps do it (:mod:`~pyspark_statestore.migration.spark_side`). A batch is entered in the offset log that
differs from the last one in nothing but the number; all state is written anew as that batch's; the batch is committed.
The entry without a commit bars the query from starting. Asked for the same number again, Spark begins the state anew
and finishes. So a crash needs nothing but the same call once more.

What is done here comes before: everything is refused that Spark would find out only when the query is barred, that it
would not notice, or that could not be taken back.

What comes after is not done here: a file sink has no entry for that batch in its list. The query's driver writes it
with the next batch's entry, and the repartitioning cannot be taken back any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_statestore.errors import StateStoreFilesError, not_allowed
from pyspark_statestore.log.merged_log import MergedLog
from pyspark_statestore.log.pins import check_unclaimed
from pyspark_statestore.log.restorability import committed, single_partition_operators, stores_of_operator
from pyspark_statestore.log.scan import Scan, retry_if_gone
from pyspark_statestore.log.spark_logs import COMMITS, entries, newest_batches, operators, partitions_of
from pyspark_statestore.log.state_files import STATE, StateFiles, plain_files
from pyspark_statestore.migration.checks import require_query_stopped
from pyspark_statestore.migration.offset_log import OffsetEntry, UnfinishedRepartition, kept, read_offsets
from pyspark_statestore.migration.sources import EXTENSIONS, Sources
from pyspark_statestore.migration.spark_side import (
    Refuse,
    Rewrite,
    SparkSide,
    StoreName,
    cannot,
    check_location,
    check_spark,
)
from pyspark_statestore.migration.split import split
from pyspark_statestore.paths import merged_path
from pyspark_statestore.session.doors import MERGED_PROVIDERS, STOCK_PROVIDERS, store_of
from pyspark_statestore.storage.changes import make_directory
from pyspark_statestore.storage.directory import Directory, in_parallel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST = 1 << 17
"""State partitions at most, as a guard against a slip of the finger: each is a task and a directory."""


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
    logs = newest_batches(directory)
    plan = Plan.of(directory, partitions)
    if plan.new_batch is not None:
        check_spark(spark, directory.location.url)
    names = plan.store_names(directory)
    result = Repartition(
        plan.before, partitions, plan.new_batch, len({each[0] for each in names}), len(names) * partitions, 0, dry_run
    )
    if plan.new_batch is None:
        return result
    # Spark lets no query start between the two entries, so one that was begun has no query beside it.
    said = None
    if not plan.is_begun and not force:
        said = require_query_stopped(log, snapshot.scan, "Repartitioning", query=query)
    rewrite = retry_if_gone(directory, lambda: rewrite_of(log, plan))
    side = None if dry_run else checked_side(directory, plan, rewrite, spark, snapshot.scan)
    store = store_of(plan.provider)
    retry_if_gone(directory, lambda: Sources.found(log, log.snapshot(), plan.batch, store))
    if side is None:
        return result
    stores: Collection[StoreName] = ()
    if partitions % plan.before == 0 and plan.new_batch == plan.batch + 1:
        stores = side.splittable(rewrite, partitions)
    # Spark's reader finds partitions by their directories, of which merged state needs none.
    make_directories(directory, max(plan.before, partitions))
    # From here on nobody takes the new partitions for old ones, and no query starts.
    made = side.enter(rewrite, partitions)

    def look_again() -> None:
        now = newest_batches(directory)
        has_begun = said is not None and not said.stands(directory)
        if made != plan.new_batch or now != (made, logs[1]) or has_begun:
            batch = made - 1 if made != plan.new_batch else max(now)
            how = "been started meanwhile" if has_begun else f"gone on meanwhile, with batch {batch}"
            reason = (
                f"the query has {how}. Nothing was deleted, and its state is whole. "
                "Call it again, or take it back with undo_repartition"
            )
            parameters = {"path": directory.location.url, "partitions": partitions, "reason": reason}
            raise StateStoreFilesError("PSS_REPARTITION_FAILED", parameters)

    look_again()
    retry_if_gone(directory, lambda: clear(log, plan.batch, store, look_again))
    was_split = retry_if_gone(directory, lambda: split(log, plan.batch, plan.before, partitions, stores))
    ids = side.write(rewrite, partitions, was_split)
    _require_written(log, made, partitions, store, ids)
    side.commit(rewrite, partitions)
    if said is not None:
        said.renew(log)
    written = retry_if_gone(directory, lambda: bytes_of(log, made + 1, store, repeats=bool(was_split)))
    return replace(result, batch=made, written_bytes_count=written)


def clear(log: MergedLog, batch: int, store: str, look_again: Callable[[], None]) -> int:
    """Deletes the state files that no batch up to this one accounts for, once its own are all accounted for.

    Returns:
        How many there were.

    Raises:
        FileNotFoundError: A file was deleted meanwhile: look again.
        StateStoreFilesError: PSS_VERSION_NOT_RESTORABLE; or a file cannot be read, written or deleted; or what
            ``look_again`` raises where the query has gone on.
    """
    return Sources.found(log, log.snapshot(), batch, store).clear(log, batch, look_again)


def _require_written(
    log: MergedLog, batch: int, partitions: int, store: str, ids: Mapping[int, list[list[str]]]
) -> None:
    """Makes sure that the new state is there, before the batch is committed and the query goes on from it."""
    try:
        retry_if_gone(log.directory, lambda: Sources.found(log, log.snapshot(), batch, store, ids))
    except StateStoreFilesError as error:
        if error.getErrorClass() != "PSS_VERSION_NOT_RESTORABLE":
            raise
        parameters = {
            "path": log.directory.location.url,
            "partitions": partitions,
            "reason": error.getMessageParameters()["reason"],
        }
        raise StateStoreFilesError("PSS_REPARTITION_FAILED", parameters) from error


def checked_side(
    directory: Directory,
    plan: Plan,
    rewrite: Rewrite,
    spark: SparkSession | None,
    scan: Scan,
    refuse: Refuse = cannot,
) -> SparkSide:
    """Spark's part of a rewrite, once Spark itself was asked whether it can do it.

    Raises:
        StateStoreFilesError: What ``refuse`` makes, where Spark cannot.
    """
    url = directory.location.exact_url
    is_merged = bool(scan.files) or plan.provider in MERGED_PROVIDERS.values()
    location = merged_path(url) if is_merged else url
    side = SparkSide(spark, location, format_version(directory, plan.batch), refuse=refuse)
    side.check(rewrite)
    return side


def make_directories(directory: Directory, partitions: int) -> None:
    """Makes a directory for each partition of each operator, as Spark does for plain files."""
    paths = [f"{STATE}/{each}/{partition}" for each in operators(directory) for partition in range(partitions)]
    in_parallel(lambda path: make_directory(directory, path), paths)


def rewrite_of(log: MergedLog, plan: Plan) -> Rewrite:
    """What is to be written anew, for the store that the query has."""
    scan = log.snapshot().scan
    known = StateFiles.of(scan, plain_files(log.directory, scan)).stores().known
    provider = STOCK_PROVIDERS[store_of(plan.provider)]
    return Rewrite(
        plan.batch, provider, provider, plan.before, frozenset(single_partition_operators(log.directory, known))
    )


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
    def of(cls, directory: Directory, partitions: int | None, refuse: Refuse = cannot) -> Plan:
        """Reads the query's logs.

        Args:
            directory: The checkpoint's directory.
            partitions: The number that is wanted; None for the one that there is.
            refuse: Makes the error where nothing can be done.

        Raises:
            StateStoreFilesError: What ``refuse`` makes, or PSS_UNFINISHED_REPARTITION; or a log cannot be read.
        """
        check_location(directory, refuse)
        offsets = read_offsets(directory, {batch: data for copy in kept(directory) for batch, data in copy.items()})
        batches = committed(directory)
        url = directory.location.url
        if not batches or not offsets:
            raise refuse(
                url, "no batch was committed, so there is no state yet. Start the query as it is to be instead"
            )
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
            raise refuse(url, reason)
        last = next((entry for entry in offsets if entry.batch == batches[-1]), None)
        before = partitions_of(directory, batches[-1])
        if last is None or before is None:
            raise refuse(url, f"the offset log does not say how many partitions batch {batches[-1]} had")
        provider = _known_provider(directory, last, refuse)
        if unfinished is not None:
            return cls(last.batch, before, unfinished.batch, True, provider)
        return cls(last.batch, before, None if partitions in (None, before) else last.batch + 1, False, provider)

    def store_names(self, directory: Directory, refuse: Refuse = cannot) -> list[tuple[int, str]]:
        """The operators, each with the names of its stores, by their metadata.

        Raises:
            StateStoreFilesError: What ``refuse`` makes, where there are none; or metadata cannot be read.
        """
        found: list[tuple[int, str]] = []
        for operator in operators(directory):
            stores = stores_of_operator(directory, operator, 1)
            if stores is None:
                reason = f"no metadata says which stores operator {operator} has; Spark 4.0 or newer writes it"
                raise refuse(directory.location.url, reason)
            found += sorted({(each[0], each[2]) for each in stores})
        if not found:
            raise refuse(directory.location.url, "its query has no stateful operator, so there are no partitions")
        return found


def _require_same(directory: Directory, unfinished: UnfinishedRepartition, partitions: int | None) -> None:
    if unfinished.partitions != str(partitions):
        wanted = "nothing else can" if partitions is None else f"{partitions} cannot"
        parameters = {
            "path": directory.location.url,
            "batch": unfinished.batch,
            "partitions": unfinished.partitions,
            "reason": f"{wanted} be asked for before",
        }
        raise StateStoreFilesError("PSS_UNFINISHED_REPARTITION", parameters)


def _known_provider(directory: Directory, entry: OffsetEntry, refuse: Refuse) -> str:
    if entry.provider in (*STOCK_PROVIDERS.values(), *MERGED_PROVIDERS.values()):
        return str(entry.provider)
    if entry.provider is None:
        raise refuse(directory.location.url, f"offsets/{entry.batch} does not name the class that keeps the state")
    raise refuse(directory.location.url, f"its provider {entry.provider} is none of Spark's or of this package")


def format_version(directory: Directory, batch: int) -> int:
    """Returns the checkpoint format that the commit log has: the number in the entry's first line."""
    info = entries(directory, COMMITS)[batch]
    head = directory.read(f"{COMMITS}/{batch}", info.size).partition(b"\n")[0]
    return 2 if head.strip() == b"v2" else 1


def bytes_of(log: MergedLog, version: int, store: str, *, repeats: bool = False) -> int:
    """Size of all files that were written for a version that is a store's state anew.

    Args:
        log: The checkpoint's merged files.
        version: The version.
        store: ``rocksdb`` or ``heap``.
        repeats: Whether its snapshots also name files that earlier ones name.
    """
    found = log.snapshot().scan
    files = StateFiles.of(found, plain_files(log.directory, found))
    stores = files.stores()
    number, _, extension = stores.version_files(np.arange(len(files.length)))
    is_of_version = pc.and_(pc.equal(number, version), pc.is_in(extension, pa.array(EXTENSIONS[store])))
    rows = np.flatnonzero(np.array(is_of_version.fill_null(False), bool) & (stores.store >= 0))
    is_zip = np.array(pc.equal(extension, "zip").fill_null(False), bool) & (stores.store >= 0)
    is_new = np.isin(np.arange(len(is_zip)), rows)
    # What a second path or a fork reads elsewhere was not written.
    own = set(files.path.filter(pa.array(files.origin == 0)).to_pylist())
    if repeats:
        own -= files.named(log.directory, np.flatnonzero(is_zip & ~is_new)).keys()
    named = files.named(log.directory, np.flatnonzero(is_zip & is_new))
    return int(files.length[rows].sum()) + sum(size for path, size in named.items() if path in own)
