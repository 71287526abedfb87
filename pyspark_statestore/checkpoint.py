"""``Checkpoint``: everything that can be asked of a checkpoint or done with it. It only hands over to other rooms."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from pyspark_statestore.conf import CLOSED_AFTER
from pyspark_statestore.errors import StateStoreFilesError, not_allowed

if TYPE_CHECKING:
    import pyarrow as pa
    from fsspec.callbacks import Callback
    from pyspark.sql import SparkSession

    from pyspark_statestore.forks.fork import Fork
    from pyspark_statestore.inspect import Inspection
    from pyspark_statestore.log.merged_log import MergedLog
    from pyspark_statestore.maintenance.compaction import Compaction
    from pyspark_statestore.maintenance.maintenance import Maintenance
    from pyspark_statestore.migration.conversion import Conversion
    from pyspark_statestore.migration.dropping import Drop
    from pyspark_statestore.migration.export import Export
    from pyspark_statestore.migration.repartition import Repartition
    from pyspark_statestore.migration.repartition_undo import RepartitionUndo
    from pyspark_statestore.migration.store_conversion import StoreConversion
    from pyspark_statestore.report.page import Report
    from pyspark_statestore.sink.holes import SinksOfFork
    from pyspark_statestore.sink.sink import Sink
    from pyspark_statestore.storage import Directory, Location

    SinkPath: TypeAlias = str | os.PathLike[str] | Sink


class Checkpoint:
    """The checkpoint of a streaming query, with merged state or without.

    Creating the object reads nothing. Each call reads the checkpoint anew, also while the query runs.

    Args:
        path: The query's ``checkpointLocation``: a local path or a URL, with or without ``merged+`` before it. The URLs
            of Hadoop (``s3a://``, ``wasbs://``) work, too.
        storage_options: Options of the fsspec file system, such as ``{"anon": True}``.
        closed_after: The query's ``closedAfter``, ten minutes if not given: nobody appends to a file that has not
            changed for this long.

    Raises:
        StateStoreFilesError: PSS_BAD_PATH, PSS_MISSING_DEPENDENCY (names the extra to install), PSS_INVALID_OPTION.

    Example:
        >>> checkpoint = Checkpoint("s3://bucket/checkpoints/q1")
        >>> checkpoint.inspect.summary().to_pylist()[0]["space_amplification"]
        1.27
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None = None,
        *,
        closed_after: datetime.timedelta = CLOSED_AFTER,
    ) -> None:
        from pyspark_statestore.storage import Location

        if not isinstance(closed_after, datetime.timedelta) or closed_after < datetime.timedelta(0):
            allowed = "a datetime.timedelta of 0 or more"
            raise not_allowed("closed_after", closed_after, allowed)
        self._location: Location = Location.of(path, storage_options)
        self._storage_options = storage_options
        self._closed_after = closed_after
        self._query: Any = None

    @classmethod
    def of(
        cls,
        query: Any,
        storage_options: Mapping[str, Any] | None = None,
        *,
        closed_after: datetime.timedelta = CLOSED_AFTER,
    ) -> Checkpoint:
        """Returns the checkpoint of a query.

        The query tells the verbs that need a stopped one whether it has ended, and they need not wait then.

        Args:
            query: A ``StreamingQuery`` of a classic session, running or stopped. The queries of Spark Connect and of
                Spark's listeners do not know their checkpoint: give its path to :class:`Checkpoint`.
            storage_options: As for :class:`Checkpoint`.
            closed_after: As for :class:`Checkpoint`.

        Raises:
            StateStoreFilesError: PSS_UNKNOWN_LOCATION where the query does not know its checkpoint.
        """
        wrapper = getattr(query, "_jsq", None)
        if wrapper is None:
            what = f"a {type(query).__module__}.{type(query).__name__}"
            reason = "only the StreamingQuery of a classic session knows it"
            raise StateStoreFilesError("PSS_UNKNOWN_LOCATION", {"what": what, "reason": reason})
        try:
            path = str(wrapper.streamingQuery().resolvedCheckpointRoot())
        except Exception as error:  # py4j's, where the JVM is gone
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise StateStoreFilesError("PSS_UNKNOWN_LOCATION", {"what": "the query", "reason": reason}) from error
        checkpoint = cls(path, storage_options, closed_after=closed_after)
        checkpoint._query = query
        return checkpoint

    @property
    def url(self) -> str:
        """The URL of the checkpoint, without ``merged+``."""
        return self._location.url

    @property
    def is_merged(self) -> bool:
        """Whether the checkpoint has its state in merged files. After an export in place it has not.

        It takes one listing.

        Raises:
            StateStoreFilesError: The checkpoint cannot be listed.
        """
        from pyspark_statestore.format import parse_file_name
        from pyspark_statestore.log.scan import MERGED, is_retirement

        names = self._directory.names(MERGED)
        return any(parse_file_name(name) for name in names) and not any(map(is_retirement, names))

    @cached_property
    def inspect(self) -> Inspection:
        """The tables about the checkpoint: files, segments, versions, summary."""
        from pyspark_statestore.inspect import Inspection

        return Inspection(self._directory, self._closed_after)

    @cached_property
    def maintenance(self) -> Maintenance:
        """The verbs that keep the checkpoint small and sound."""
        from pyspark_statestore.maintenance.maintenance import Maintenance

        return Maintenance(self._directory, self._closed_after, self._query)

    def state(
        self,
        operator_id: int = 0,
        partition_id: int | None = None,
        store_name: str = "default",
        version: int | None = None,
        *,
        state_variable: str | None = None,
        key: Any = None,
    ) -> pa.Table:
        """Returns the keys and values in a state store, decoded by the schema in the checkpoint.

        It works without a JVM and while the query runs. RocksDB's state is read with ``rocksdict``.
        docs/look-inside.md has examples.

        Args:
            operator_id: The stateful operator, by Spark's number within the query.
            partition_id: The state partition; all of them if not given.
            store_name: The store. A stream-stream join has four.
            version: The state version. Batch n leaves version n + 1. The version of the last committed batch if not
                given.
            state_variable: The state variable of ``transformWithState``, which is needed where there are several.
                Spark's own column families have names, too, such as ``$eventTimers_keyToTimestamp``.
            key: Only the rows of this key. Give values by field, for all fields or for some, where ``window.start`` is
                a field in a struct; or just the value, where the key has one field. Text is read as the field's type.

        Returns:
            The columns ``partition_id``, ``key`` and ``value``, with a row for each value. A column that cannot be
            decoded has the store's bytes; its field's metadata says why in ``pyspark_statestore.undecoded``.

        Raises:
            StateStoreFilesError: There is no such state (PSS_NO_SUCH_STATE), the version cannot be restored
                (PSS_VERSION_NOT_RESTORABLE), an argument is not allowed (PSS_INVALID_OPTION), ``rocksdict`` cannot
                be imported (PSS_MISSING_DEPENDENCY), there is no checkpoint (PSS_NOT_A_CHECKPOINT), or it cannot be
                read.
        """
        from pyspark_statestore.state.reader import StateSelection
        from pyspark_statestore.state.tables import read_state

        wanted = StateSelection(operator_id, partition_id, store_name, state_variable)
        return read_state(self._directory, self.inspect, wanted, version, key)

    def state_changes(
        self,
        from_version: int,
        to_version: int | None = None,
        operator_id: int = 0,
        partition_id: int | None = None,
        store_name: str = "default",
        *,
        state_variable: str | None = None,
        key: Any = None,
    ) -> pa.Table:
        """Returns the keys that were added, changed or removed between two versions.

        Args:
            from_version: The earlier version; 0 is the empty state.
            to_version: The later version; that of the last committed batch if not given.
            operator_id: As for :meth:`state`, like all that follow.
            partition_id: The state partition; all of them if not given.
            store_name: The store.
            state_variable: The state variable of ``transformWithState``.
            key: Only the changes of this key.

        Returns:
            The columns ``partition_id``, ``change`` (added, changed or removed), ``key``, ``value_before`` and
            ``value_after``, sorted by partition and key. Values are lists where a key has several.

        Raises:
            StateStoreFilesError: As :meth:`state`.
        """
        from pyspark_statestore.state.reader import StateSelection
        from pyspark_statestore.state.tables import read_changes

        wanted = StateSelection(operator_id, partition_id, store_name, state_variable)
        return read_changes(self._directory, self.inspect, wanted, from_version, to_version, key)

    def report(self, *, callback: Callback | None = None) -> Report:
        """Makes a page about the checkpoint for a browser: what it holds, how it grew, what to do about it.

        It reads the indexes of the merged files, but no state, and works for stock Spark's state, too. docs/report.md
        says what is on the page.

        Args:
            callback: An fsspec callback for progress in merged files.

        Returns:
            The page, which :meth:`~pyspark_statestore.report.page.Report.write` writes, and the advice on it. In a
            notebook it shows itself.

        Raises:
            StateStoreFilesError: There is no checkpoint (PSS_NOT_A_CHECKPOINT), or it cannot be read.

        Example:
            >>> report = Checkpoint("s3://bucket/checkpoints/q1").report()
            >>> [advice.rule for advice in report.advice]
            ['compact']
            >>> report.write("q1.html")
        """
        from pyspark_statestore.report.checkpoint import CheckpointReading, checkpoint_report

        reading = CheckpointReading.of(self.inspect, self._directory, self._closed_after, callback)
        return checkpoint_report(reading, self._planned_compaction)

    def _planned_compaction(self) -> Compaction | None:
        """What a compaction would do; None where it would be refused, which the call itself explains."""
        try:
            return self.maintenance.compact(dry_run=True)
        except StateStoreFilesError:
            return None

    def fork(
        self,
        dst: str | os.PathLike[str],
        mode: str = "no_claim",
        version: int | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
        partitions: int | None = None,
        sinks: Mapping[SinkPath, SinkPath] | None = None,
        compact_interval: int | None = None,
        spark: SparkSession | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> Fork:
        """Makes a second checkpoint that goes on from a version of this one. This one stays as it is.

        A query that is started with the new checkpoint begins with the batch after the one that left the version. Its
        sources must be those of this query. Unless the state is copied, the two share it, and neither deletes what the
        other one needs. docs/fork.md says more.

        Args:
            dst: The fork's path, where nothing may exist yet.
            mode: With ``no_claim`` the fork reads the state where it is, and never deletes it. With ``claim`` it also
                owns the state, and nobody may use this checkpoint any more. With ``copy`` the state is copied.
            version: The state version to begin with. Batch n leaves version n + 1. The version of the last committed
                batch if not given.
            storage_options: Options of the fsspec file system of ``dst``; this checkpoint's if not given.
            partitions: Repartition the fork, with Spark 4.3, as :meth:`repartition` does; it has this checkpoint's
                number if not given. With a multiple of that, state with large rows is not written again
                (docs/reshape.md).
            sinks: For each directory to which this checkpoint's query writes files, an empty one to which the fork's
                query is to write instead: paths, or ``Sink`` objects. It gets the list without which that query could
                not go on there. Readers of it see what the fork's query writes, and nothing else.
            compact_interval: The query's ``spark.sql.streaming.fileSink.log.compactInterval``, for a sink whose list
                does not tell it yet; the session's if not given.
            spark: The session that repartitions it, as for :meth:`repartition`.
            dry_run: Only report what the fork would hold.
            force: Allow ``claim`` where the query seems to be running.

        Returns:
            A report. Its ``path`` is the checkpointLocation for the fork's query.

        Raises:
            StateStoreFilesError: ``dst`` or a new sink is not empty (PSS_NOT_EMPTY), what was given for a sink of this
                checkpoint's query is none (PSS_NOT_A_SINK, PSS_DAMAGED_SINK_LIST), ``dst`` is in another file system
                (PSS_OTHER_FILE_SYSTEM), the version cannot be restored (PSS_VERSION_NOT_RESTORABLE), ``claim`` was
                asked for and the query runs (PSS_QUERY_RUNNING), this checkpoint was claimed (PSS_CLAIMED), an argument
                is not allowed (PSS_INVALID_OPTION, PSS_BAD_PATH), there is no checkpoint (PSS_NOT_A_CHECKPOINT), the
                fork cannot be repartitioned (as :meth:`repartition`), or something cannot be read or written. What was
                written of the fork and of its sinks is deleted then.
        """
        from pyspark_statestore.forks.fork import fork_checkpoint

        target = self._location_of(dst, storage_options)
        if partitions is not None:
            from pyspark_statestore.migration.repartition import check_number
            from pyspark_statestore.migration.spark_side import check_location, check_spark

            check_number(partitions)
        pairs = self._sinks_of_fork(sinks, target, version, compact_interval, spark)
        options = self._storage_options if storage_options is None else storage_options
        there = Checkpoint(dst, options, closed_after=self._closed_after)
        if partitions is not None:
            check_location(there._directory)
            if partitions != self._partitions_at(version):
                check_spark(spark, there.url)

        def afterwards() -> None:
            # Nobody runs a query on a fork that is being made.
            if partitions is not None:
                there.repartition(partitions, spark=spark, force=True)
            if pairs.sinks:
                pairs.begin(there._directory)

        log = self._merged_log(dry_run)
        made = fork_checkpoint(
            log,
            target,
            mode,
            version,
            dry_run=dry_run,
            force=force,
            is_reshaped=partitions is not None,
            afterwards=afterwards,
            query=self._query,
        )
        return replace(made, sinks_count=len(pairs.sinks))

    def _partitions_at(self, version: int | None) -> int | None:
        """How many state partitions there are in a version, or in the newest; None where the logs do not say."""
        from pyspark_statestore.log.spark_logs import partitions_of

        batch = self._batch_of(version)
        return None if batch < 0 else partitions_of(self._directory, batch)

    def _batch_of(self, version: int | None) -> int:
        """The batch that left a version, or the last committed one; -1 where there is none."""
        from pyspark_statestore.log.restorability import committed

        if isinstance(version, int) and not isinstance(version, bool):
            return version - 1
        return max(committed(self._directory), default=-1)

    def _sinks_of_fork(
        self,
        sinks: Mapping[SinkPath, SinkPath] | None,
        target: Location,
        version: int | None,
        compact_interval: int | None,
        spark: SparkSession | None,
    ) -> SinksOfFork:
        """The fork's sinks, once they were looked at."""
        from pyspark_statestore.sink.holes import SinksOfFork, interval_of_session

        if sinks is not None and not isinstance(sinks, Mapping):
            raise not_allowed("sinks", sinks, "a mapping from the directory of a sink to that of the fork's")
        interval = interval_of_session(spark) if compact_interval is None else compact_interval
        pairs = tuple(zip(self._sinks(list(sinks or ())), self._sinks(list((sinks or {}).values())), strict=True))
        found = SinksOfFork(pairs, interval)
        if pairs:
            found.check(self._directory, self._batch_of(version), target)
        return found

    def _sinks(self, sinks: Sequence[SinkPath]) -> tuple[Directory, ...]:
        """Directories of file sinks."""
        from pyspark_statestore.sink.sink import Sink

        if isinstance(sinks, (str, os.PathLike, Sink)):
            raise not_allowed("sinks", sinks, "a list of paths")
        found = [one if isinstance(one, Sink) else Sink(one, self._storage_options) for one in sinks]
        return tuple(sink._directory for sink in found)

    def repartition(
        self,
        partitions: int,
        *,
        spark: SparkSession | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> Repartition:
        """Gives the stateful operators of a stopped query another number of state partitions.

        Spark's own offline repartitioning does it, for either door: it adds a batch to the query's logs which has the
        same state in other partitions. The query goes on with the next batch, and needs no setting for it: a restart
        takes the number from the logs. Call it again after an interruption. Where there will be a multiple of the
        partitions and rows are large, no row is written again. docs/reshape.md says more.

        The old partitions stay as they are. :meth:`undo_repartition` goes back to them as long as the query has not
        gone on, and ``maintenance.remove_old_partitions`` deletes those that the query has no more.

        It takes Spark 4.3. A query counts as running until nothing was written for ``closed_after``, except in the
        session that ran it, as for :meth:`convert`.

        Args:
            partitions: How many state partitions each operator gets.
            spark: A classic session with the package, whose tasks read and write the state; the active one if not
                given. A dry run needs none.
            dry_run: Only check, and report what would be done.
            force: Allow it where the query seems to be running.

        Raises:
            StateStoreFilesError: PSS_INVALID_OPTION, PSS_CANNOT_REPARTITION (says why, before anything is changed),
                PSS_UNFINISHED_REPARTITION (another number was begun), PSS_QUERY_RUNNING, PSS_VERSION_NOT_RESTORABLE,
                PSS_EXPORTED, PSS_CLAIMED, PSS_NOT_A_CHECKPOINT, PSS_SPARK_NOT_RUNNING, PSS_JAR_MISSING, or
                PSS_REPARTITION_FAILED where Spark failed half-way: repeat it, or take it back.

        Example:
            >>> done = Checkpoint("hdfs://nn/checkpoints/q1").repartition(400, spark=spark)
            >>> done.partitions_before, done.partitions, done.batch
            (200, 400, 1043)
        """
        from pyspark_statestore.migration.repartition import repartition

        log = self._merged_log(dry_run)
        return repartition(log, partitions, spark=spark, dry_run=dry_run, force=force, query=self._query)

    def undo_repartition(self, *, dry_run: bool = False, force: bool = False) -> RepartitionUndo:
        """Takes a repartitioning back: the query goes on with the partitions that it had before.

        It takes back a finished one as long as the query has not gone on, and one that was interrupted. What is taken
        out of the query's logs is kept in ``_replaced``; the new state is deleted. Call it again after an interruption.

        Args:
            dry_run: Only report what would be deleted.
            force: Allow it where the query seems to be running: after a repartitioning it does for ``closed_after``,
                except in the session that ran the query.

        Raises:
            StateStoreFilesError: PSS_CANNOT_UNDO_REPARTITION where there is none, the query has gone on, or old
                partitions were removed; PSS_QUERY_RUNNING, PSS_EXPORTED, PSS_CLAIMED, PSS_NOT_A_CHECKPOINT, or the
                checkpoint cannot be read or written.
        """
        from pyspark_statestore.migration.repartition_undo import undo_repartition

        return undo_repartition(self._merged_log(dry_run), dry_run=dry_run, force=force, query=self._query)

    @overload
    def convert(self, to: str, *, door: str = "provider", dry_run: bool = False, force: bool = False) -> Conversion: ...

    @overload
    def convert(
        self, *, store: str, spark: SparkSession | None = None, dry_run: bool = False, force: bool = False
    ) -> StoreConversion: ...

    def convert(
        self,
        to: str | None = None,
        *,
        store: str | None = None,
        door: str = "provider",
        spark: SparkSession | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> Conversion | StoreConversion:
        """Lets a stopped query go on with merged state, or with stock Spark's; or with another store.

        A restarted query takes the class that keeps its state from the checkpoint's offset log, not from the session.
        This rewrites the class there, keeps a copy of what it replaces, and touches no state. It can be repeated after
        an interruption.

        To ``merged``: plain state files are read where they are. After an export in place, the query goes back to its
        merged files, and the plain copies are removed, unless stock Spark has gone on since. A repartitioning that
        Spark began offline is undone if it has written no state.

        A query with merged state says in its checkpoint that it has ended, and this works at once then. One that was
        killed does not, nor does one of stock Spark: it counts as running until nothing was written for
        ``closed_after``. The session that ran it knows better: there this works at once, too, where the query has ended
        and wrote last, and never while it runs. With ``configure`` or ``attach`` the path is enough; a session of stock
        Spark needs ``Checkpoint.of(query)``. So it is for all methods that need a stopped query.

        To ``stock``: :meth:`export` must have written the state back, and has done this already.

        With ``store``, the state is written anew for RocksDB or for the heap store, by Spark 4.3, and the newest entry
        of the offset log names the other class then. The files of the old store stay, unread, until
        ``maintenance.remove_old_partitions``. A heap store has room for one column family and checkpoint format 1 only.
        docs/reshape.md says more.

        Args:
            to: ``merged`` or ``stock``.
            store: ``rocksdb`` or ``heap``, instead of ``to``.
            door: The door for the merged query, ``provider`` or ``path``. For the path door, a checkpoint of stock
                Spark needs no conversion; one of the provider door, or after an export, does.
            spark: For ``store``, a classic session with the package, whose tasks read and write the state; the active
                one if not given. A dry run needs none.
            dry_run: Only report what would change.
            force: Allow it where the query seems to be running, or merged files seem to be older than plain ones. After
                an export in place, what the export's marker says holds even so.

        Returns:
            A ``Conversion``; with ``store``, a ``StoreConversion``.

        Raises:
            StateStoreFilesError: PSS_QUERY_RUNNING, PSS_NOT_EXPORTED, PSS_STALE_MERGED, PSS_NEEDS_PATH_DOOR,
                PSS_UNKNOWN_PROVIDER, PSS_UNFINISHED_REPARTITION, PSS_UNREADABLE_STATE, PSS_NOT_A_CHECKPOINT,
                PSS_INVALID_OPTION, or the checkpoint cannot be read or written. With ``store`` also
                PSS_CANNOT_CONVERT_STORE, PSS_STORE_CONVERSION_FAILED, PSS_VERSION_NOT_RESTORABLE, PSS_EXPORTED,
                PSS_CLAIMED, PSS_SPARK_NOT_RUNNING or PSS_JAR_MISSING.

        Example:
            >>> Checkpoint("hdfs://nn/checkpoints/q1").convert(store="rocksdb", spark=spark).store_before
            'heap'
        """
        log = self._merged_log(dry_run)
        if store is not None:
            from pyspark_statestore.migration.store_conversion import convert_store

            if to is not None:
                raise not_allowed("to", to, "not given where store is: one thing after the other")
            return convert_store(log, store, spark=spark, dry_run=dry_run, force=force, query=self._query)
        from pyspark_statestore.migration.conversion import convert

        if to is None:
            raise not_allowed("to", to, "merged or stock, or store has to be given")
        return convert(log, to, door=door, dry_run=dry_run, force=force, query=self._query)

    def export(
        self,
        dst: str | os.PathLike[str] | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
        dry_run: bool = False,
        force: bool = False,
        spark: SparkSession | None = None,
        callback: Callback | None = None,
    ) -> Export:
        """Writes the merged state of a stopped query back as the plain files that stock Spark expects.

        A query counts as running until nothing was written for ``closed_after``, except in the session that ran it, as
        for :meth:`convert`. Every file is checked against its checksum and read back. Call it again after an
        interruption: it goes on where it was. After an export in place the merged files stay, and nobody reads or
        writes them. :meth:`convert` goes back to them, until :meth:`drop_merged` deletes them.

        Args:
            dst: An empty or new directory, for a copy of the whole checkpoint. The export is in place if not given.
            storage_options: Options of the fsspec file system of ``dst``; this checkpoint's if not given.
            dry_run: Only report what would be written.
            force: Allow it where the query seems to be running, or merged files seem to be older than plain ones.
            spark: Write in Spark tasks instead of in this process.
            callback: An fsspec callback for progress in bytes.

        Raises:
            StateStoreFilesError: PSS_QUERY_RUNNING, PSS_DESTINATION_EXISTS, PSS_VERSION_NOT_RESTORABLE,
                PSS_CORRUPT_SEGMENT, PSS_STALE_MERGED, or something cannot be read or written.
        """
        from pyspark_statestore.migration.export import export
        from pyspark_statestore.storage import Directory

        target = None if dst is None else Directory(self._location_of(dst, storage_options))
        log = self._merged_log(dry_run)
        return export(log, target, dry_run=dry_run, force=force, spark=spark, callback=callback, query=self._query)

    def drop_merged(self, *, dry_run: bool = True, force: bool = False) -> Drop:
        """Deletes the merged files after an export in place. There is no way back to them then.

        Args:
            dry_run: Only report what would be deleted. This is the default.
            force: Allow it where no export was made, or an exported file has changed since, provided that plain files
                alone restore every version that Spark may go back to.

        Raises:
            StateStoreFilesError: PSS_DROP_REFUSED where the merged files are needed, or the checkpoint cannot be read
                or written.
        """
        from pyspark_statestore.migration.dropping import drop_merged

        return drop_merged(self._merged_log(dry_run), dry_run=dry_run, force=force)

    def _merged_log(self, dry_run: bool) -> MergedLog:
        from pyspark_statestore.log.merged_log import MergedLog

        return MergedLog(self._directory, self._closed_after, dry_run=dry_run)

    @cached_property
    def _directory(self) -> Directory:
        from pyspark_statestore.storage import Directory

        return Directory(self._location)

    def _location_of(self, path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None) -> Location:
        """Locates another checkpoint, in this one's file system unless options are given."""
        from pyspark_statestore.storage import Location

        return Location.of(path, self._storage_options if storage_options is None else storage_options)

    def __repr__(self) -> str:
        return f"Checkpoint({self.url!r})"


def fork(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    mode: str = "no_claim",
    version: int | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    dst_storage_options: Mapping[str, Any] | None = None,
    closed_after: datetime.timedelta = CLOSED_AFTER,
    partitions: int | None = None,
    sinks: Mapping[SinkPath, SinkPath] | None = None,
    compact_interval: int | None = None,
    spark: SparkSession | None = None,
    dry_run: bool = False,
    force: bool = False,
) -> Fork:
    """Forks the checkpoint at a path: see :meth:`Checkpoint.fork`.

    Args:
        src: The checkpoint to fork, as for :class:`Checkpoint`.
        dst: As for :meth:`Checkpoint.fork`, like all that follow but these two.
        mode: ``no_claim``, ``claim`` or ``copy``.
        version: The state version to begin with.
        storage_options: Options of the fsspec file system of ``src``.
        dst_storage_options: Options of the file system of ``dst``; those of ``src`` if not given.
        closed_after: As for :class:`Checkpoint`.
        partitions: State partitions of the fork; those of ``src`` if not given.
        sinks: For each directory to which the query writes files, one for the fork's query.
        compact_interval: The query's ``spark.sql.streaming.fileSink.log.compactInterval``.
        spark: The session that repartitions it.
        dry_run: Only report what the fork would hold.
        force: Allow ``claim`` where the query seems to be running.

    Raises:
        StateStoreFilesError: As :meth:`Checkpoint.fork`.

    Example:
        >>> pyspark_statestore.fork("s3://bucket/checkpoints/q1", "s3://bucket/checkpoints/q1-test").version
        1043
    """
    source = Checkpoint(src, storage_options, closed_after=closed_after)
    return source.fork(
        dst,
        mode,
        version,
        storage_options=dst_storage_options,
        partitions=partitions,
        sinks=sinks,
        compact_interval=compact_interval,
        spark=spark,
        dry_run=dry_run,
        force=force,
    )


@overload
def convert(
    path: str | os.PathLike[str],
    to: str,
    storage_options: Mapping[str, Any] | None = None,
    *,
    closed_after: datetime.timedelta = CLOSED_AFTER,
    door: str = "provider",
    dry_run: bool = False,
    force: bool = False,
) -> Conversion: ...


@overload
def convert(
    path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    closed_after: datetime.timedelta = CLOSED_AFTER,
    store: str,
    spark: SparkSession | None = None,
    dry_run: bool = False,
    force: bool = False,
) -> StoreConversion: ...


def convert(
    path: str | os.PathLike[str],
    to: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    *,
    closed_after: datetime.timedelta = CLOSED_AFTER,
    store: str | None = None,
    door: str = "provider",
    spark: SparkSession | None = None,
    dry_run: bool = False,
    force: bool = False,
) -> Conversion | StoreConversion:
    """Converts the checkpoint at a path: see :meth:`Checkpoint.convert`.

    Args:
        path: The checkpoint, as for :class:`Checkpoint`.
        to: ``merged`` or ``stock``.
        storage_options: Options of the fsspec file system.
        closed_after: As for :class:`Checkpoint`.
        store: ``rocksdb`` or ``heap``, instead of ``to``.
        door: ``provider`` or ``path``.
        spark: For ``store``, the session whose tasks read and write the state; the active one if not given.
        dry_run: Only report what would change.
        force: Allow it where the query seems to be running, or merged files seem to be older than plain ones.

    Raises:
        StateStoreFilesError: As :meth:`Checkpoint.convert`.

    Example:
        >>> convert("hdfs://nn/checkpoints/q1", to="merged").changed_entries_count
        100
    """
    checkpoint = Checkpoint(path, storage_options, closed_after=closed_after)
    if store is not None and to is None:
        return checkpoint.convert(store=store, spark=spark, dry_run=dry_run, force=force)
    return checkpoint.convert(to, store=store, door=door, dry_run=dry_run, force=force)  # type: ignore[call-overload, no-any-return]


def export(
    path: str | os.PathLike[str],
    dst: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    *,
    dst_storage_options: Mapping[str, Any] | None = None,
    closed_after: datetime.timedelta = CLOSED_AFTER,
    dry_run: bool = False,
    force: bool = False,
    spark: SparkSession | None = None,
    callback: Callback | None = None,
) -> Export:
    """Exports the merged state of the checkpoint at a path: see :meth:`Checkpoint.export`.

    Args:
        path: The checkpoint, as for :class:`Checkpoint`.
        dst: An empty or new directory for a copy; the export is in place if not given.
        storage_options: Options of the fsspec file system of ``path``.
        dst_storage_options: Options of the file system of ``dst``; those of ``path`` if not given.
        closed_after: As for :class:`Checkpoint`.
        dry_run: Only report what would be written.
        force: Allow it where the query seems to be running, or merged files seem to be older than plain ones.
        spark: Write in Spark tasks instead of in this process.
        callback: An fsspec callback for progress in bytes.

    Raises:
        StateStoreFilesError: As :meth:`Checkpoint.export`.
    """
    checkpoint = Checkpoint(path, storage_options, closed_after=closed_after)
    return checkpoint.export(
        dst, storage_options=dst_storage_options, dry_run=dry_run, force=force, spark=spark, callback=callback
    )
