"""Another store for the same state: RocksDB instead of the heap, or the other way round.

The state that the last committed batch left is written anew, in every partition, for the other store. Its files have
other names than those of the store that the query has (``.zip`` and ``.sst`` beside ``.delta`` and ``.snapshot``), so
nobody reads them until the newest entry of the offset log names the other class, which is done last. A restart takes
the class from that entry. Before it, a crash leaves files that nobody reads, and the same call once more writes them
anew; after it, everything is done.

Older entries keep the old class: readers of earlier batches find the old store's files, until
:func:`~pyspark_statestore.maintenance.old_partitions.remove_old_partitions` deletes them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark_statestore.errors import StateStoreFilesError, not_allowed
from pyspark_statestore.log.merged_log import MergedLog
from pyspark_statestore.log.pins import check_unclaimed
from pyspark_statestore.log.scan import retry_if_gone
from pyspark_statestore.log.spark_logs import newest_batches
from pyspark_statestore.migration.checks import require_query_stopped
from pyspark_statestore.migration.offset_log import OffsetChanges
from pyspark_statestore.migration.repartition import (
    Plan,
    bytes_of,
    checked_side,
    clear,
    format_version,
    make_directories,
    rewrite_of,
)
from pyspark_statestore.migration.sources import Sources
from pyspark_statestore.migration.spark_side import check_spark
from pyspark_statestore.session.doors import MERGED_PROVIDERS, STOCK_PROVIDERS, STORES, store_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class StoreConversion:
    """What a conversion to another store did, or would do.

    Attributes:
        store_before: ``rocksdb`` or ``heap``: what kept the state.
        store: What keeps it now.
        provider: The class that the newest entry of the offset log names now.
        version: The version of the state that was written for it; None where it has that store already, and nothing was
            done.
        stores_count: State stores that were written: for each operator, its stores in all partitions.
        written_bytes_count: Size of their state files, in bytes; 0 in a dry run.
        kept_copy: URL of a zip with the entry of the offset log as it was before; None where nothing was rewritten.
        dry_run: Whether nothing was changed.
    """

    store_before: str
    store: str
    provider: str
    version: int | None
    stores_count: int
    written_bytes_count: int
    kept_copy: str | None
    dry_run: bool


def convert_store(
    log: MergedLog,
    store: str,
    *,
    spark: SparkSession | None = None,
    dry_run: bool = False,
    force: bool = False,
    query: Any = None,
) -> StoreConversion:
    """Implements :meth:`pyspark_statestore.Checkpoint.convert` with ``store``."""
    if store not in STORES:
        raise not_allowed("store", store, " or ".join(STORES))
    directory = log.directory
    snapshot = log.snapshot()
    check_unclaimed(directory, snapshot.scan.others)
    logs = newest_batches(directory)
    plan = Plan.of(directory, None, refuse=_cannot)
    before = store_of(plan.provider)
    result = StoreConversion(before, store, plan.provider, None, 0, 0, None, dry_run)
    if before == store:
        return result
    check_spark(spark, directory.location.url, _cannot)
    names = plan.store_names(directory, refuse=_cannot)
    if store == "heap" and format_version(directory, plan.batch) > 1:
        raise _cannot(directory.location.url, "it has checkpoint format 2, and the heap store knows the first only")
    is_ours = plan.provider in MERGED_PROVIDERS.values()
    provider = (MERGED_PROVIDERS if is_ours else STOCK_PROVIDERS)[store]
    changes = OffsetChanges.of_newest(directory, provider)
    action = f"Converting to the {store} store"
    said = None
    if not force:
        said = require_query_stopped(log, snapshot.scan, action, query=query, ours=changes.ours)
    rewrite = replace(retry_if_gone(directory, lambda: rewrite_of(log, plan)), next_provider=STOCK_PROVIDERS[store])
    side = None if dry_run else checked_side(directory, plan, rewrite, spark, snapshot.scan, refuse=_cannot)
    retry_if_gone(directory, lambda: Sources.found(log, log.snapshot(), plan.batch, before))
    count = sum(1 if operator in rewrite.single else plan.before for operator, _ in names)
    result = replace(result, provider=provider, version=plan.batch + 1, stores_count=count)
    if side is None:
        return result
    make_directories(directory, plan.before)

    # Later versions of that store are of batches that the query went back before.
    def look_again() -> None:
        if newest_batches(directory) != logs or (said is not None and not said.stands(directory)):
            raise _cannot(directory.location.url, "its query has gone on meanwhile. Nothing was changed; call it again")

    retry_if_gone(directory, lambda: clear(log, plan.batch, before, look_again))
    look_again()
    side.convert(rewrite)
    _require_written(log, plan.batch, store)
    written = retry_if_gone(directory, lambda: bytes_of(log, plan.batch + 1, store))
    copy = changes.carry_out(log)
    if said is not None:
        said.renew(log)
    return replace(result, written_bytes_count=written, kept_copy=copy)


def _require_written(log: MergedLog, batch: int, store: str) -> None:
    """Makes sure that the state is there for the other store, before the query is told to have it."""
    try:
        retry_if_gone(log.directory, lambda: Sources.found(log, log.snapshot(), batch, store))
    except StateStoreFilesError as error:
        if error.getErrorClass() != "PSS_VERSION_NOT_RESTORABLE":
            raise
        parameters = {"path": log.directory.location.url, "reason": error.getMessageParameters()["reason"]}
        raise StateStoreFilesError("PSS_STORE_CONVERSION_FAILED", parameters) from error


def _cannot(path: str, reason: str) -> StateStoreFilesError:
    return StateStoreFilesError("PSS_CANNOT_CONVERT_STORE", {"path": path, "reason": reason})
