"""The verbs of ``Checkpoint.maintenance``, each documented here and told whole in the module that implements it."""

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
    from pyspark_statestore.maintenance.old_partitions import OldPartitions
    from pyspark_statestore.maintenance.orphans import OrphanRemoval
    from pyspark_statestore.maintenance.verify.verification import Verification


class Maintenance:
    """Maintains a checkpoint's files from outside of its query.

    Every method may run beside the query (:meth:`expire` needs it stopped), beside itself and on several machines, and
    may be killed at any point. What each leaves then, its module says.

    Args:
        directory: The checkpoint's directory.
        closed_after: The query's ``closedAfter``.
        query: The ``StreamingQuery`` that the checkpoint was found by; None without one.
    """

    def __init__(self, directory: Directory, closed_after: datetime.timedelta, query: Any = None) -> None:
        self._directory = directory
        self._closed_after = closed_after
        self._query = query

    def __repr__(self) -> str:
        return f"Checkpoint({self._directory.location.url!r}).maintenance"

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
        """Rewrites merged files that are mostly dead, or small, and unlinks those in which nothing lives any more.

        Args:
            max_space_amplification: Rewrite a file that has more than so many bytes for each live one; at least 1.
            target_file_size: Size of new files in bytes. Files of less than three quarters of it are joined.
            where: Rewrite the files for which this condition on the columns of ``inspect.files()`` holds, whatever
                their amplification and size: an Arrow expression or, with ``spark``, also SQL.
            localize: In a fork, also copy everything that it reads in other checkpoints, and drop its pins there, so
                that it needs them no more.
            abandoned_after: Count an unsealed file as closed once its newest segment is this old, and it is this much
                older than the newest file. Use less than a day only when you know that the query is stopped.
            dry_run: Change nothing; only return what would be done.
            spark: The session whose tasks rewrite files; this process does if not given.
            callback: Receives the number of bytes to rewrite, and then of those that were rewritten.

        Returns:
            What was rewritten, written and unlinked.

        Raises:
            StateStoreFilesError: PSS_INVALID_OPTION, PSS_NOT_A_CHECKPOINT, PSS_CLAIMED, PSS_CORRUPT_SEGMENT,
                PSS_MISSING_SEGMENT, PSS_FOREIGN_FILE_MISSING, or the checkpoint cannot be read or written. Nothing that
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

        These are merged files without a valid group, what crashed writers, relocations and forks have left, and state
        files that nothing refers to: plain ones, and SSTs that were uploaded before a snapshot that never came.

        Args:
            older_than: Keep younger files: a process may be about to refer to them. Merged files, segments and
                temporary files stay for a day in any case, since they might still be open or named. What a fork has
                pinned stays until the fork has been away for so long, counted from the first call that misses it.
            dry_run: Change nothing; only return what would be removed. The default.
            force: Allow ``older_than`` to be less than an hour. Use it only where nobody writes to the checkpoint.

        Returns:
            The files that were removed, each with the reason.

        Raises:
            StateStoreFilesError: PSS_INVALID_OPTION for less than an hour without ``force``, PSS_NOT_A_CHECKPOINT or
                PSS_CLAIMED; or the checkpoint cannot be read, and nothing was removed; or a file cannot be removed.
        """
        from pyspark_statestore.maintenance.orphans import remove_orphan_files

        return remove_orphan_files(self._log(dry_run), older_than, dry_run=dry_run, force=force)

    def consolidate_index(self, *, dry_run: bool = False) -> Consolidation:
        """Writes one index-only file that repeats the indexes of all sealed merged files.

        A process that starts reads that file instead of opening each sealed one. Older index-only files that it
        replaces are removed.

        Args:
            dry_run: Change nothing; only return what would be done.

        Returns:
            The file that was written, and how many files it covers.

        Raises:
            StateStoreFilesError: PSS_NOT_A_CHECKPOINT, PSS_CLAIMED, or the checkpoint cannot be read or written.
        """
        from pyspark_statestore.maintenance.consolidation import consolidate_index

        return consolidate_index(self._log(dry_run), dry_run=dry_run)

    def expire(self, retain_last: int, *, dry_run: bool = True, force: bool = False) -> Expiry:
        """Deletes the state versions of a stopped query before those of its last committed batches.

        A query counts as running until nothing was written for ``closed_after``, except in the session that ran it.

        Args:
            retain_last: How many committed batches the query can still go back to; at least 1.
            dry_run: Change nothing; only return what would be deleted. The default.
            force: Expire though the query seems to be running. Use it only when you know that it is stopped.

        Returns:
            What was deleted, and the oldest batch that can be gone back to. Do not delete that batch's entries from
            Spark's logs.

        Raises:
            StateStoreFilesError: PSS_INVALID_OPTION, PSS_NOT_A_CHECKPOINT, PSS_QUERY_RUNNING, PSS_CLAIMED, or the
                checkpoint cannot be read or written. Everything that the retained versions need is there then.
        """
        from pyspark_statestore.maintenance.expiry import expire

        return expire(self._log(dry_run), retain_last, dry_run=dry_run, force=force, query=self._query)

    def remove_old_partitions(self, *, dry_run: bool = True) -> OldPartitions:
        """Deletes the state of partitions that the query has no more, since it was repartitioned to fewer.

        Also the files of the store that it had before it was converted to another one. Spark leaves all of it for ever.
        Afterwards the query can neither go back to a batch before that, nor can a repartitioning be taken back.

        Args:
            dry_run: Change nothing; only return what would be deleted. The default.

        Raises:
            StateStoreFilesError: PSS_NOT_A_CHECKPOINT, PSS_CLAIMED, PSS_EXPORTED, or the checkpoint cannot be read or
                written. What the query needs is there then.
        """
        from pyspark_statestore.maintenance.old_partitions import remove_old_partitions

        return remove_old_partitions(self._log(dry_run), dry_run=dry_run)

    def verify(
        self,
        *,
        repair: bool = False,
        dry_run: bool = False,
        spark: SparkSession | None = None,
        callback: Callback | None = None,
    ) -> Verification:
        """Reads and checks every live byte, and checks that every version can be restored.

        Args:
            repair: Mend what can be mended without losing anything.
            dry_run: With ``repair``, only return what would be mended.
            spark: The session whose tasks read; this process does if not given.
            callback: Receives the number of bytes to read, and then of those that were read.

        Returns:
            The damage that was found; none of it is raised as an error.

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
        """Drops the pins that protect the files which a fork of this checkpoint reads here.

        Use this for a fork that you do not want any more. ``compact(localize=True)`` in the fork drops its pins by
        itself, and :meth:`remove_orphan_files` here drops those of a fork that has been gone for long.

        Args:
            fork: The fork's ``checkpointLocation``.
            dry_run: Change nothing; only return what would be released.
            force: Release though the fork still reads files here. Once they are unlinked it cannot be restored; the
                result says how many segments that concerns.
            storage_options: Options for the fsspec file system of the fork.

        Returns:
            How many pins were dropped, and what the fork loses.

        Raises:
            StateStoreFilesError: PSS_FORK_NEEDS, or a file cannot be read or deleted.
        """
        from pyspark_statestore.maintenance.fork_release import release_fork

        there = Directory(Location.of(fork, storage_options))
        return release_fork(self._directory, there, dry_run=dry_run, force=force)

    def _log(self, dry_run: bool, abandoned_after: datetime.timedelta = ABANDONED_AFTER) -> MergedLog:
        return MergedLog(self._directory, self._closed_after, abandoned_after, dry_run=dry_run)
