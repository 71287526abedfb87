"""What can be done to a checkpoint: the verbs of ``Checkpoint.maintenance``."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark_statestore.log.merged_log import ABANDONED_AFTER, TARGET_FILE_SIZE, MergedLog
from pyspark_statestore.storage import Directory, Location

if TYPE_CHECKING:
    from fsspec.callbacks import Callback
    from pyarrow.compute import Expression
    from pyspark.sql import SparkSession

    from pyspark_statestore.maintenance.compaction import Compaction
    from pyspark_statestore.maintenance.consolidation import Consolidation
    from pyspark_statestore.maintenance.expiry import Expiry
    from pyspark_statestore.maintenance.fork_release import ForkRelease
    from pyspark_statestore.maintenance.orphans import OrphanRemoval
    from pyspark_statestore.maintenance.verify.verification import Verification


class Maintenance:
    """Everything here may run beside the query, beside itself, and on several machines, and may be killed at any point.

    Args:
        location: Of the checkpoint.
        closed_after: As the query's ``closedAfter``.
    """

    def __init__(self, location: Location, closed_after: datetime.timedelta) -> None:
        self._location = location
        self._closed_after = closed_after

    def compact(
        self,
        *,
        max_space_amplification: float = 1.5,
        target_file_size: int = TARGET_FILE_SIZE,
        where: Expression | str | None = None,
        localize: bool = False,
        abandoned_after: datetime.timedelta = ABANDONED_AFTER,
        dry_run: bool = False,
        spark: SparkSession | None = None,
        callback: Callback | None = None,
    ) -> Compaction:
        """Rewrites files that are mostly dead, or small, and unlinks what has nothing alive in it any more.

        Args:
            max_space_amplification: Files of which more than this many bytes are kept for each live one are rewritten.
            target_file_size: In bytes. Files of less than three quarters of it are joined.
            where: Of the files, in the columns of ``inspect.files()``, those that may be rewritten: an Arrow expression
                or, with ``spark``, also SQL; replaces the choice by amplification and size.
            localize: In a fork, also copy everything that it reads in other checkpoints, so that it needs them no more;
                their pins are dropped then.
            abandoned_after: An unsealed file counts as closed where its newest segment is so old, and it is so much
                older than the newest file. A day unless it is known that the query is stopped.
            dry_run: Only say what would be done.
            spark: Rewrites in Spark tasks instead of in this process.
            callback: Told how many bytes there are to rewrite, and of those that were.

        Raises:
            StateStoreFilesError: The checkpoint cannot be read or written, or a live segment is corrupt; nothing that
                is needed is gone then.
        """
        from pyspark_statestore.maintenance.compaction import compact

        return compact(
            self._log(dry_run, abandoned_after),
            max_space_amplification=max_space_amplification,
            target_file_size=target_file_size,
            where=where,
            localize=localize,
            dry_run=dry_run,
            spark=spark,
            callback=callback,
        )

    def remove_orphan_files(
        self,
        older_than: datetime.timedelta = datetime.timedelta(days=3),
        *,
        dry_run: bool = True,
        force: bool = False,
    ) -> OrphanRemoval:
        """Removes files that nobody can need.

        These are merged files without a valid group, what crashed writers and relocations have left, and plain state
        files that nothing refers to.

        Args:
            older_than: Younger ones stay: somebody may be about to refer to them.
            dry_run: Only say what would be removed; the default.
            force: Allows less than an hour.

        Raises:
            StateStoreFilesError: PSS_INVALID_OPTION for less than an hour without ``force``; or the checkpoint cannot
                be read, and nothing was removed.
        """
        from pyspark_statestore.maintenance.orphans import remove_orphan_files

        return remove_orphan_files(self._log(dry_run), older_than, dry_run=dry_run, force=force)

    def consolidate_index(self, *, dry_run: bool = False) -> Consolidation:
        """Writes one file that repeats the indexes of all sealed ones, so that who starts need not open these.

        Older files of its kind, which it replaces, are removed.

        Args:
            dry_run: Only say what would be done.

        Raises:
            StateStoreFilesError: The checkpoint cannot be read or written.
        """
        from pyspark_statestore.maintenance.consolidation import consolidate_index

        return consolidate_index(self._log(dry_run), dry_run=dry_run)

    def expire(self, retain_last: int, *, dry_run: bool = True, force: bool = False) -> Expiry:
        """Deletes the versions before the last ones, of a query that is stopped.

        Args:
            retain_last: Batches that can be gone back to, at least 1: the last committed one stays whatever is said.
            dry_run: Only say what would be deleted; the default.
            force: Allows it where the query seems to be running.

        Raises:
            StateStoreFilesError: PSS_INVALID_OPTION, PSS_QUERY_RUNNING, or the checkpoint cannot be read or written.
        """
        from pyspark_statestore.maintenance.expiry import expire

        return expire(self._log(dry_run), retain_last, dry_run=dry_run, force=force)

    def verify(
        self,
        *,
        repair: bool = False,
        dry_run: bool = False,
        spark: SparkSession | None = None,
        callback: Callback | None = None,
    ) -> Verification:
        """Reads every live byte and checks it, and whether every version can be restored.

        Args:
            repair: Mend what can be mended without losing anything.
            dry_run: Only say what would be mended.
            spark: Reads in Spark tasks instead of in this process.
            callback: Told how many bytes there are to read, and of those that were.

        Returns:
            Which damage there is; none of it is raised as an error.

        Raises:
            StateStoreFilesError: The checkpoint cannot be read at all.
        """
        from pyspark_statestore.maintenance.verify.verification import verify

        log = self._log(dry_run or not repair)
        return verify(log, repair=repair, dry_run=dry_run, spark=spark, callback=callback)

    def release_fork(
        self,
        fork: str | os.PathLike[str],
        *,
        dry_run: bool = False,
        force: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> ForkRelease:
        """Takes back what protects the files that a fork of this checkpoint reads here.

        ``compact(localize=True)`` in the fork does so by itself, and so does :meth:`remove_orphan_files` here for a
        fork that is gone; this is for a fork that is not wanted any more.

        Args:
            fork: The fork's checkpoint.
            dry_run: Only say what would be released.
            force: Also if the fork still reads files here: it cannot be restored once they are gone. What is said is
                how much that is.
            storage_options: For the fsspec file system of the fork.

        Raises:
            StateStoreFilesError: PSS_FORK_NEEDS, or something cannot be read or deleted.
        """
        from pyspark_statestore.maintenance.fork_release import release_fork

        there = Location.of(fork, storage_options)
        return release_fork(Directory(self._location), there, dry_run=dry_run, force=force)

    def _log(self, dry_run: bool, abandoned_after: datetime.timedelta = ABANDONED_AFTER) -> MergedLog:
        return MergedLog(Directory(self._location), self._closed_after, abandoned_after, dry_run=dry_run)
