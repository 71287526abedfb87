"""``Sink``: what can be asked of a file sink or done with it, also of one that stock Spark has written.

It has the shape of ``Checkpoint``: tables are in ``inspect``, verbs that keep it small and sound in ``maintenance``.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark_statestore.errors import StateStoreFilesError, not_allowed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from pyspark_statestore.report.page import Report
    from pyspark_statestore.sink.compaction import SinkCompaction
    from pyspark_statestore.sink.orphans import SinkOrphanRemoval
    from pyspark_statestore.sink.verification import SinkVerification
    from pyspark_statestore.sink.waiting import SinkPublication
    from pyspark_statestore.storage import Directory

TARGET_FILE_SIZE = 128 << 20
"""Bytes; the same as of the option ``targetFileSize`` of sinks."""

OLDER_THAN = datetime.timedelta(days=14)
"""Twice Spark's ``maxFileAge``: so a stream that reads the sink may be up to one of them behind."""


class SinkInspection:
    """Tables about one sink. Each call reads the sink anew, also while the query runs.

    Args:
        directory: The sink's directory.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def __repr__(self) -> str:
        return f"Sink({self._directory.location.url!r}).inspect"

    def files(self) -> pa.Table:
        """Returns the files that readers see.

        Returns:
            The columns ``file_path``, ``directory`` (of the partition value, such as ``p=1/q=x``),
            ``file_size_in_bytes``, ``last_modified_at``, and ``listed_in``, the file of Spark's list that names it.

        Raises:
            StateStoreFilesError: PSS_NOT_A_SINK, PSS_DAMAGED_SINK_LIST, or it cannot be read.
        """
        from pyspark_statestore.sink.file_list import files_table, read_list

        return files_table(self._directory, read_list(self._directory))

    def log(self) -> pa.Table:
        """Returns the files that make up Spark's list.

        Returns:
            The columns ``file_path``, ``batch_id``, ``is_compact`` (whether it repeats all batches before),
            ``is_current`` (whether readers go by it), ``entry_count``, ``listed_bytes`` (size of the files that it
            names), ``file_size_in_bytes`` (its own) and ``last_modified_at``.

        Raises:
            StateStoreFilesError: As :meth:`files`.
        """
        from pyspark_statestore.sink.file_list import log_table, read_list

        return log_table(self._directory, read_list(self._directory, only_current=False))

    def waiting(self) -> pa.Table:
        """Returns the files whose rows wait to be published, as ``maxDelay`` allows. No reader sees them yet.

        Returns:
            The columns ``file_path``, ``directory`` (of the partition value, such as ``p=1/q=x``),
            ``file_size_in_bytes`` and ``waiting_since``.

        Raises:
            StateStoreFilesError: As :meth:`files`.
        """
        from pyspark_statestore.sink.waiting import read_waiting, waiting_table

        return waiting_table(self._directory, read_waiting(self._directory))


class SinkMaintenance:
    """Keeps a sink's files few and sound, from outside of its query.

    Args:
        directory: The sink's directory.
        storage_options: Options of its file system, which the checkpoint of its query may be in, too.
    """

    def __init__(self, directory: Directory, storage_options: Mapping[str, Any] | None = None) -> None:
        self._directory = directory
        self._storage_options = storage_options

    def __repr__(self) -> str:
        return f"Sink({self._directory.location.url!r}).maintenance"

    def publish(
        self,
        *,
        target_file_size: int = TARGET_FILE_SIZE,
        idle_for: datetime.timedelta = datetime.timedelta(hours=1),
        format: str | None = None,
        options: Mapping[str, str] | None = None,
        dry_run: bool = False,
        force: bool = False,
        spark: SparkSession | None = None,
    ) -> SinkPublication:
        """Publishes the rows that wait, for a query that does not run any more.

        A query that runs publishes them by itself, with its next batch after ``maxDelay``. Do not call it while the
        query runs: rows could be there twice.

        Args:
            target_file_size: Bytes that a file is to have.
            idle_for: Refuse where the sink's list has changed later than this ago: the query may be running.
            format: The format of the files, where their names do not tell.
            options: Options with which the query writes, such as ``{"header": "true"}``, which CSV needs.
            dry_run: Change nothing; only return what waits.
            force: Allow ``idle_for`` to be less than an hour. Use it only where you know that the query has ended.
            spark: The session, with the jar; the active one if not given.

        Returns:
            How many files readers see now that they did not see before.

        Raises:
            StateStoreFilesError: PSS_SINK_IN_USE, or as :meth:`compact`. Readers see what they saw then.
        """
        from pyspark_statestore.sink.waiting import publish

        now = datetime.datetime.now(datetime.timezone.utc)
        return publish(
            self._directory,
            target_file_size=target_file_size,
            idle_for=idle_for,
            format=format,
            options=options or {},
            dry_run=dry_run,
            force=force,
            spark=spark,
            now=now,
        )

    def verify(
        self,
        *,
        repair: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_options: Mapping[str, Any] | None = None,
        compact_interval: int | None = None,
        dry_run: bool = False,
    ) -> SinkVerification:
        """Checks that every listed or waiting file is there with its size, and that the list has no gap.

        With ``repair``, it first writes the entries of the list that a repartitioning of the query has left out, as
        ``Checkpoint.repartition`` does with ``sinks``. An entry that was lost is never made up: the batch has to be a
        repartitioning by the query's own logs. The query may be running.

        Args:
            repair: Write what is missing.
            checkpoint: The query's checkpoint, which ``repair`` needs.
            checkpoint_options: Options of the fsspec file system of the checkpoint; the sink's if not given.
            compact_interval: The query's ``spark.sql.streaming.fileSink.log.compactInterval``, for a list that does not
                tell it yet; the session's if not given, and Spark's default (10) without one.
            dry_run: With ``repair``, only report what would be written.

        Returns:
            What was found; none of it is raised as an error.

        Raises:
            StateStoreFilesError: As :meth:`files`; with ``repair``, PSS_CANNOT_REPAIR_SINK where anything else is
                missing or the sink is another query's, PSS_INVALID_OPTION, or something cannot be read or written.
        """
        from pyspark_statestore.sink.verification import verify

        if not repair:
            if checkpoint is not None:
                raise not_allowed("checkpoint", checkpoint, "given only with repair")
            return verify(self._directory)
        if checkpoint is None:
            raise not_allowed("checkpoint", None, "the checkpoint of the query that writes to the sink, with repair")
        from pyspark_statestore.sink.holes import interval_of_session, mend
        from pyspark_statestore.storage import Directory, Location

        options = self._storage_options if checkpoint_options is None else checkpoint_options
        there = Directory(Location.of(checkpoint, options))
        interval = interval_of_session() if compact_interval is None else compact_interval
        mended = mend(self._directory, there, interval, dry_run=dry_run)
        return replace(verify(self._directory), repaired=tuple(mended), dry_run=dry_run)

    def compact(
        self,
        *,
        target_file_size: int = TARGET_FILE_SIZE,
        older_than: datetime.timedelta = OLDER_THAN,
        format: str | None = None,
        options: Mapping[str, str] | None = None,
        remove_after: datetime.timedelta | None = None,
        dry_run: bool = False,
        spark: SparkSession | None = None,
    ) -> SinkCompaction:
        """Joins small files that are listed already, in Spark tasks. The query may be running, and readers, too.

        A reader that goes by Spark's list sees each row once, before and after. The joined files stay, for readers
        that have begun already, until :meth:`remove_orphan_files` or ``remove_after`` removes them. **Who reads
        directories** (a glob, a partition value's directory, PyArrow, Trino, DuckDB) **sees their rows twice until
        then.** Columns that only some of the joined files have are null for the others' rows, as a reader with
        ``mergeSchema`` sees them.

        Before the list changes, each joined file is accounted for: its rows or lines, summed up, are in the new files,
        which are read again, and the new files are there. A file that cannot be joined without loss stays as it is:
        the result's ``failed`` says which and why.

        Args:
            target_file_size: Bytes that a file is to have. Larger files stay as they are.
            older_than: Join only files that are older than the sink's newest by this. Streams that read the sink get
                each row once if they are behind by less than this minus their ``maxFileAge`` (7 days). Give 0 where no
                stream reads the sink.
            format: The format of the files, where their names do not tell.
            options: Options with which the query writes: ``header``, which CSV needs, and those that it sets of
                ``lineSep``, ``quote``, ``escape``, ``sep``, ``encoding``, ``rootTag``, ``compression``.
            remove_after: Then remove what earlier compactions have replaced longer than this ago, as
                :meth:`remove_orphan_files` does with ``older_than``, and with its warning. At least an hour. Nothing if
                not given.
            dry_run: Change nothing; only return what would be done.
            spark: The session, with the jar; the active one if not given. Its Hadoop settings count.

        Returns:
            What was joined, and how many files it has become.

        Raises:
            StateStoreFilesError: PSS_INVALID_OPTION, PSS_NOT_A_SINK, PSS_DAMAGED_SINK_LIST, PSS_SPARK_NOT_RUNNING,
                PSS_JAR_MISSING, PSS_SINK_REWRITE_FAILED, PSS_SINK_LIST_CHANGED, or something cannot be read or
                written. Readers see what they saw then.
        """
        from pyspark_statestore.sink.compaction import compact
        from pyspark_statestore.sink.orphans import check_age

        if remove_after is not None:
            check_age("remove_after", remove_after, force=False)
        done = compact(
            self._directory,
            target_file_size=target_file_size,
            older_than=older_than,
            format=format,
            options=options or {},
            dry_run=dry_run,
            spark=spark,
        )
        if remove_after is None:
            return done
        removed = self.remove_orphan_files(remove_after, dry_run=dry_run)
        return replace(
            done,
            removed_files_count=removed.removed_files_count,
            removed_bytes_count=removed.removed_bytes_count,
        )

    def remove_orphan_files(
        self,
        older_than: datetime.timedelta = datetime.timedelta(days=3),
        *,
        dry_run: bool = True,
        force: bool = False,
    ) -> SinkOrphanRemoval:
        """Removes files that no reader sees: of batches that failed, and what :meth:`compact` has replaced.

        Only files count that a query can have written, by their names and places. What lies in another table or in a
        checkpoint in the directory stays. Where a batch job has left ``_SUCCESS``, only what :meth:`compact` has
        replaced goes. Do not use it where a batch job has written a single file and left none: Spark's list does not
        name it. What Spark's sink option ``retention`` has taken out of the list is removed, too.

        Args:
            older_than: Keep younger files, and those that were replaced later: a batch may be about to list them, or a
                reader may have begun before.
            dry_run: Change nothing; only return what would be removed. The default.
            force: Allow ``older_than`` to be less than an hour. Use it only where nobody writes or reads.

        Returns:
            The files that were removed, each with the reason.

        Raises:
            StateStoreFilesError: PSS_INVALID_OPTION for less than an hour without ``force``, PSS_NOT_A_SINK,
                PSS_SINK_ELSEWHERE or PSS_DAMAGED_SINK_LIST; or the sink cannot be read, and nothing was removed; or a
                file cannot be removed.
        """
        from pyspark_statestore.sink.orphans import remove_orphan_files

        now = datetime.datetime.now(datetime.timezone.utc)
        return remove_orphan_files(self._directory, older_than, now, dry_run=dry_run, force=force)


class Sink(SinkInspection, SinkMaintenance):
    """A directory to which a query writes files with ``writeStream``.

    Creating the object reads nothing. Each call reads the sink anew, also while the query runs.

    Tables are in :attr:`inspect` and verbs in :attr:`maintenance`, as in :class:`Checkpoint`. Each can also be called
    on the sink itself: ``sink.verify()`` is ``sink.maintenance.verify()``.

    Args:
        path: The directory, as Spark knows it: a local path or a URL.
        storage_options: Options of the fsspec file system, such as ``{"anon": True}``.

    Raises:
        StateStoreFilesError: PSS_BAD_PATH, PSS_MISSING_DEPENDENCY (names the extra to install), PSS_INVALID_OPTION.

    Example:
        >>> sink = Sink("hdfs://nn/tables/clicks")
        >>> sink.maintenance.compact(dry_run=True, spark=spark).rewritten_data_files_count
        18211
    """

    def __init__(self, path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> None:
        from pyspark_statestore.storage import Directory, Location

        super().__init__(Directory(Location.of(path, storage_options)))
        self._storage_options = storage_options

    def __repr__(self) -> str:
        return f"Sink({self.url!r})"

    @property
    def url(self) -> str:
        """The URL of the sink."""
        return self._directory.location.url

    @cached_property
    def inspect(self) -> SinkInspection:
        """The tables about the sink: files, log, waiting."""
        return SinkInspection(self._directory)

    @cached_property
    def maintenance(self) -> SinkMaintenance:
        """The verbs that keep the sink's files few and sound: compact, publish, remove_orphan_files, verify."""
        return SinkMaintenance(self._directory, self._storage_options)

    def report(self) -> Report:
        """Makes a page about the sink for a browser: how large its files are, where the small ones are, what to do.

        It lists the sink's directory and reads Spark's list, but no data file.

        Returns:
            The page, which :meth:`~pyspark_statestore.report.page.Report.write` writes, and the advice on it.

        Raises:
            StateStoreFilesError: As :meth:`files`.

        Example:
            >>> Sink("hdfs://nn/tables/clicks").report().write("clicks.html")
        """
        from pyspark_statestore.report.sink import SinkReading, sink_report

        at = datetime.datetime.now(datetime.timezone.utc)
        problems = self.verify().problems.to_pylist()
        reading = SinkReading(
            url=self.url,
            at=at,
            files=self.files(),
            log=self.log(),
            waiting=self._waiting_here(),
            damages=sum(problem["severity"] == "damage" for problem in problems),
            unlisted=sum(problem["kind"] == "unlisted" for problem in problems),
            orphans=self._orphans(),
        )
        return sink_report(reading)

    def _waiting_here(self) -> pa.Table:
        """As :meth:`waiting`; no rows for a copy of a sink, whose list names what waits in the sink."""
        from pyspark_statestore.log.columns import schema_of

        try:
            return self.waiting()
        except StateStoreFilesError as error:
            if error.getErrorClass() != "PSS_SINK_ELSEWHERE":
                raise
            return schema_of("sink_waiting").empty_table()

    def _orphans(self) -> tuple[int, int] | None:
        """The files that a removal of orphans would remove, and their bytes; None where nobody may say."""
        try:
            found = self.remove_orphan_files()
        except StateStoreFilesError as error:
            if error.getErrorClass() != "PSS_SINK_ELSEWHERE":
                raise
            return None
        return found.removed_files_count, found.removed_bytes_count
