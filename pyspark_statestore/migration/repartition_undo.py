"""The way back from a repartitioning: the query goes on with the partitions that it had before.

A repartitioning writes the state anew and leaves the old partitions as they are. Until the query has gone on, nothing
but the new state and the entries in logs says that there was one. They are taken away in this order: the commit, which
bars the query from starting; the metadata of operators; the new state; the entry of the offset log, which lets the
query start. After a crash the checkpoint has a repartitioning that is not finished. This, repeated, ends what was
begun; the repartitioning, repeated, writes the state again.

A file sink has no entry for it: the query's driver writes that when the query has gone on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.deletion import delete_files
from pyspark_statestore.log.leftovers import leftovers
from pyspark_statestore.log.merged_log import LogSnapshot, MergedLog
from pyspark_statestore.log.pins import check_unclaimed
from pyspark_statestore.log.repartitionings import noted
from pyspark_statestore.log.restart import lost_stores
from pyspark_statestore.log.restorability import batch_with_ids
from pyspark_statestore.log.scan import retry_if_gone
from pyspark_statestore.log.spark_logs import OFFSETS, entries, operators, partitions_of
from pyspark_statestore.log.state_files import STATE, StateFiles, files_below_state, is_state_file, store_folder
from pyspark_statestore.migration.checks import require_query_stopped
from pyspark_statestore.migration.offset_log import UnfinishedRepartition, keep, read_offsets
from pyspark_statestore.storage.changes import delete, forget_checksum
from pyspark_statestore.storage.directory import Directory


@dataclass(frozen=True)
class RepartitionUndo:
    """What was taken back, or would be.

    Attributes:
        batch: The batch that was the repartitioning.
        partitions_before: State partitions that the repartitioning had made.
        partitions: State partitions that the query goes on with.
        removed_files_count: State files that were deleted.
        removed_bytes_count: Their size in bytes.
        kept_copy: URL of a zip with the entries that were taken out of the query's logs; None in a dry run.
        dry_run: Whether nothing was changed.
    """

    batch: int
    partitions_before: int
    partitions: int
    removed_files_count: int
    removed_bytes_count: int
    kept_copy: str | None
    dry_run: bool


def undo_repartition(
    log: MergedLog, *, dry_run: bool = False, force: bool = False, query: Any = None
) -> RepartitionUndo:
    """Implements :meth:`pyspark_statestore.Checkpoint.undo_repartition`."""
    directory = log.directory
    snapshot = log.snapshot()
    check_unclaimed(directory, snapshot.scan.others)
    done = UnfinishedRepartition.found(directory, read_offsets(directory, {}), or_finished=True)
    if done is None:
        raise _refused(directory, "it is none, or the query has gone on since")
    is_finished = any(not name.startswith(OFFSETS) for name in done.files)
    said = None
    if is_finished and not force:
        said = require_query_stopped(log, snapshot.scan, "Taking a repartitioning back", query=query, ours=done.files)
    before = partitions_of(directory, done.base)
    assert before is not None, "an entry that differs in the number has one"
    snapshot, files, rows = retry_if_gone(directory, lambda: _written(log, done))
    # What a fork reads elsewhere is still there.
    size = int(files.length[rows[files.origin[rows] == 0]].sum())
    result = RepartitionUndo(done.batch, int(done.partitions), before, len(rows), size, None, dry_run)
    if dry_run:
        return result
    copy = keep(log, [], done.files)
    # Between the look and this, somebody else may have taken it back, and the query may have gone on.
    if UnfinishedRepartition.found(directory, read_offsets(directory, {}), or_finished=True) != done:
        raise _refused(directory, "the query's logs have changed meanwhile")
    for name in done.files:
        if not name.startswith(OFFSETS):
            _forget(directory, name)
    for operator in operators(directory):
        folder = f"{STATE}/{operator}/_metadata/v2"
        for batch in entries(directory, folder):
            if batch >= done.batch:
                _forget(directory, f"{folder}/{batch}")
    delete_files(log, snapshot, files, rows)
    if (note := noted(directory).get(done.batch)) is not None:
        _forget(directory, note)
    _forget(directory, f"{OFFSETS}/{done.batch}")
    if said is not None:
        said.renew(log)
    return replace(result, kept_copy=copy)


def _written(log: MergedLog, done: UnfinishedRepartition) -> tuple[LogSnapshot, StateFiles, np.ndarray]:
    """Finds what no batch before the repartitioning accounts for, and makes sure that the rest restores that batch.

    That is what the repartitioning wrote, and what is left of batches that the query went back before: as long as the
    offset log ends with the repartitioning, no later version is of a batch. What an earlier batch had in the same
    partitions stays.

    Raises:
        FileNotFoundError: A file was deleted meanwhile: look again.
        StateStoreFilesError: PSS_CANNOT_UNDO_REPARTITION.
    """
    snapshot = log.snapshot()
    plain = [info for name, info in files_below_state(log.directory).items() if is_state_file(name)]
    files = StateFiles.of(snapshot.scan, plain)
    rows = leftovers(log.directory, files, done.base)
    _require_restorable(log.directory, files.without(rows), done.base)
    return snapshot, files, rows


def _require_restorable(directory: Directory, files: StateFiles, batch: int) -> None:
    if lost := lost_stores(directory, files, batch + 1, batch_with_ids(directory, files, batch)):
        reason = (
            f"version {batch + 1} of {store_folder(lost[0])} cannot be restored; {len(lost)} of the old partitions' "
            "stores are gone or damaged"
        )
        raise _refused(directory, reason)


def _forget(directory: Directory, name: str) -> None:
    forget_checksum(directory, name)
    delete(directory, name)


def _refused(directory: Directory, reason: str) -> StateStoreFilesError:
    return StateStoreFilesError("PSS_CANNOT_UNDO_REPARTITION", {"path": directory.location.url, "reason": reason})
