"""A checkpoint as an object: what is asked of it and done with it hangs off here."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark_statestore.conf import CLOSED_AFTER
from pyspark_statestore.errors import StateStoreFilesError

if TYPE_CHECKING:
    import pyarrow as pa
    from fsspec.callbacks import Callback
    from pyspark.sql import SparkSession

    from pyspark_statestore.forks.fork import Fork
    from pyspark_statestore.inspect import Inspection
    from pyspark_statestore.log.merged_log import MergedLog
    from pyspark_statestore.maintenance.maintenance import Maintenance
    from pyspark_statestore.migration.conversion import Conversion
    from pyspark_statestore.migration.dropping import Drop
    from pyspark_statestore.migration.export import Export
    from pyspark_statestore.storage import Directory, Location


class Checkpoint:
    """The checkpoint of a streaming query, with merged state or without.

    Nothing is read before a question is asked, and each question looks afresh: it may be asked while the query runs.

    Args:
        path: The query's ``checkpointLocation``: a local path or a URL, with ``merged+`` before it or without; those of
            Hadoop (``s3a://``, ``wasbs://``) are understood.
        storage_options: For the fsspec file system, such as ``{"anon": True}``.
        closed_after: As the query's ``closedAfter``: after how long without a change nobody appends to a file any more.

    Raises:
        StateStoreFilesError: PSS_BAD_PATH, PSS_MISSING_DEPENDENCY (says which extra to install), PSS_INVALID_OPTION.

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
            allowed = "a datetime.timedelta of no time or more"
            parameters = {"key": "closed_after", "value": closed_after, "allowed": allowed}
            raise StateStoreFilesError("PSS_INVALID_OPTION", parameters)
        self._location: Location = Location.of(path, storage_options)
        self._storage_options = storage_options
        self._closed_after = closed_after

    @classmethod
    def of(
        cls,
        query: Any,
        storage_options: Mapping[str, Any] | None = None,
        *,
        closed_after: datetime.timedelta = CLOSED_AFTER,
    ) -> Checkpoint:
        """Finds the checkpoint of a query.

        Args:
            query: A ``StreamingQuery`` of a classic session, running or stopped. (Spark Connect and Spark's listeners
                do not tell where a checkpoint is: give its path to :class:`Checkpoint`.)
            storage_options: For the fsspec file system.
            closed_after: As for :class:`Checkpoint`.

        Raises:
            StateStoreFilesError: PSS_UNKNOWN_LOCATION where the query does not tell.
        """
        wrapper = getattr(query, "_jsq", None)
        if wrapper is None:
            what = f"a {type(query).__module__}.{type(query).__name__}"
            reason = "only the StreamingQuery of a classic session knows"
            raise StateStoreFilesError("PSS_UNKNOWN_LOCATION", {"what": what, "reason": reason})
        try:
            path = str(wrapper.streamingQuery().resolvedCheckpointRoot())
        except Exception as error:  # py4j's, where the JVM is gone
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise StateStoreFilesError("PSS_UNKNOWN_LOCATION", {"what": "the query", "reason": reason}) from error
        return cls(path, storage_options, closed_after=closed_after)

    @property
    def url(self) -> str:
        """Where it is, without ``merged+``."""
        return self._location.url

    @property
    def is_merged(self) -> bool:
        """Whether there are merged files in it that count, by one listing: after an export in place they do not.

        Raises:
            StateStoreFilesError: It cannot be listed.
        """
        from pyspark_statestore.format import parse_file_name
        from pyspark_statestore.log.scan import MERGED, is_retirement
        from pyspark_statestore.storage import Directory

        names = Directory(self._location).names(MERGED)
        return any(parse_file_name(name) for name in names) and not any(map(is_retirement, names))

    @cached_property
    def inspect(self) -> Inspection:
        """What is in it."""
        from pyspark_statestore.inspect import Inspection

        return Inspection(self._location, self._closed_after)

    @cached_property
    def maintenance(self) -> Maintenance:
        """What can be done to it."""
        from pyspark_statestore.maintenance.maintenance import Maintenance

        return Maintenance(self._location, self._closed_after)

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
        """Returns the keys and values that a state store holds, decoded by the schema in the checkpoint.

        No JVM is needed; RocksDB's state is read with ``rocksdict``, which the extra ``state`` installs. It may be
        asked while the query runs. docs/look-inside.md has examples.

        Args:
            operator_id: The stateful operator, as Spark numbers them within the query.
            partition_id: Only of this state partition.
            store_name: The store; a stream-stream join has four.
            version: The state version, which batch version - 1 left; None for that of the last committed batch.
            state_variable: Of ``transformWithState``, the variable; needed where there are several. Spark's own column
                families have names, too, such as ``$eventTimers_keyToTimestamp``.
            key: Only of this key: values by field, of all fields or some; or a value, where the key has one field.

        Returns:
            The columns ``partition_id``, ``key`` and ``value``, a row for each value. What cannot be decoded is a
            column of bytes as the store has them, with the reason as ``pyspark_statestore.undecoded`` in the field's
            metadata.

        Raises:
            StateStoreFilesError: There is no such state (PSS_NO_SUCH_STATE), the version cannot be restored
                (PSS_VERSION_NOT_RESTORABLE), an argument is not allowed (PSS_INVALID_OPTION), ``rocksdict`` is not
                installed (PSS_MISSING_DEPENDENCY), there is no checkpoint (PSS_NOT_A_CHECKPOINT), or it cannot be read.
        """
        from pyspark_statestore.state.reading import Selection
        from pyspark_statestore.state.state import read_state

        wanted = Selection(operator_id, partition_id, store_name, state_variable)
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
            from_version: The earlier one; 0 is the empty state.
            to_version: The later one; None for that of the last committed batch.
            operator_id: As for :meth:`state`, as all that follow.
            partition_id: Only of this state partition.
            store_name: The store.
            state_variable: Of ``transformWithState``, the variable.
            key: Only of this key.

        Returns:
            The columns ``partition_id``, ``change`` (added, changed or removed), ``key``, ``value_before`` and
            ``value_after``, by partition and key; values are lists where a key has several.

        Raises:
            StateStoreFilesError: As :meth:`state`.
        """
        from pyspark_statestore.state.reading import Selection
        from pyspark_statestore.state.state import read_changes

        wanted = Selection(operator_id, partition_id, store_name, state_variable)
        return read_changes(self._directory, self.inspect, wanted, from_version, to_version, key)

    def fork(
        self,
        dst: str | os.PathLike[str],
        mode: str = "no_claim",
        version: int | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> Fork:
        """Makes a second checkpoint that goes on from a version of this one, which stays as it is.

        docs/fork.md says how the two live side by side.

        Args:
            dst: Where the fork is to be: nothing may be there.
            mode: ``no_claim``: the fork reads the state where it is, and never deletes it. ``claim``: likewise, and it
                owns it: this checkpoint must not be used any more. ``copy``: the state is copied.
            version: Of the state, which batch version - 1 left; None for that of the last committed batch.
            storage_options: For the fsspec file system of ``dst``, where it is another one than this checkpoint's.
            dry_run: Only say what the fork would have.
            force: Allows ``claim`` where the query seems to be running.

        Returns:
            What was made; ``path`` is the checkpointLocation for the fork's query.

        Raises:
            StateStoreFilesError: As :func:`pyspark_statestore.fork`.
        """
        from pyspark_statestore.forks.fork import fork_checkpoint
        from pyspark_statestore.log.merged_log import MergedLog
        from pyspark_statestore.storage import Location

        options = self._storage_options if storage_options is None else storage_options
        log = MergedLog(self._directory, self._closed_after, dry_run=dry_run)
        return fork_checkpoint(log, Location.of(dst, options), mode, version, dry_run=dry_run, force=force)

    def convert(self, to: str, *, door: str = "provider", dry_run: bool = False, force: bool = False) -> Conversion:
        """Lets a stopped query go on with merged state, or with stock Spark's.

        A restart takes the class that keeps the state from the checkpoint's offset log, not from the session. This
        rewrites it there, keeps a copy of what it replaced, and touches no state. To ``merged``, old files are read
        where they are; after an export in place it goes back to the merged files and removes the plain copies, unless
        stock Spark has gone on since. An offline repartitioning by Spark that was begun and has written no state is
        undone. To ``stock``, :meth:`export` has to have written the state back before, and has
        done this, too.

        Args:
            to: ``merged`` or ``stock``.
            door: Which one the query goes through when merged. A checkpoint of stock Spark needs no conversion for the
                path door; one of the provider door, or after an export, does.
            dry_run: Only say what would be changed.
            force: Allows it where the query seems to be running, or merged files seem to be older than plain ones.

        Raises:
            StateStoreFilesError: PSS_QUERY_RUNNING, PSS_NOT_EXPORTED, PSS_STALE_MERGED, PSS_NEEDS_PATH_DOOR,
                PSS_UNKNOWN_PROVIDER, PSS_UNFINISHED_REPARTITION, or the checkpoint cannot be read or written. Repeated,
                it ends what an interrupted one has begun.
        """
        from pyspark_statestore.migration.conversion import convert

        return convert(self._merged_log(dry_run), to, door=door, dry_run=dry_run, force=force)

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

        Every file is checked against its checksum and read back. Interrupted, it goes on where it was when it is called
        again. In place, the merged files stay, and can be gone back to with :meth:`convert`, until
        :meth:`drop_merged`; nobody reads or writes them meanwhile.

        Args:
            dst: A directory that is empty or does not exist, for a copy of the whole checkpoint; in place if not given.
            storage_options: For its file system; as this checkpoint's unless given.
            dry_run: Only say what would be written.
            force: Allows it where the query seems to be running, or merged files seem to be older than plain ones.
            spark: Writes in Spark tasks instead of in this process.
            callback: Told how many bytes there are to write, and of those that were.

        Raises:
            StateStoreFilesError: PSS_QUERY_RUNNING, PSS_DESTINATION_EXISTS, PSS_VERSION_NOT_RESTORABLE,
                PSS_CORRUPT_SEGMENT, PSS_STALE_MERGED, or something cannot be read or written.
        """
        from pyspark_statestore.migration.export import export
        from pyspark_statestore.storage import Directory, Location

        options = self._storage_options if storage_options is None else storage_options
        target = None if dst is None else Directory(Location.of(dst, options))
        return export(self._merged_log(dry_run), target, dry_run=dry_run, force=force, spark=spark, callback=callback)

    def drop_merged(self, *, dry_run: bool = True, force: bool = False) -> Drop:
        """Deletes the merged files after an export in place; there is no way back to them then.

        Args:
            dry_run: Only say what would be deleted; the default.
            force: Allows it where no export was made, or a file is not as it was exported, if every version that Spark
                may go back to can be restored from plain files alone.

        Raises:
            StateStoreFilesError: PSS_DROP_REFUSED where something needs them, or the checkpoint cannot be read or
                written.
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

    def __repr__(self) -> str:
        return f"Checkpoint({self.url!r})"


# The verbs as functions of a path.


def convert(
    path: str | os.PathLike[str], to: str, storage_options: Mapping[str, Any] | None = None, **how: Any
) -> Conversion:
    """Lets a stopped query go on with merged state, or with stock Spark's.

    Args:
        path: The query's ``checkpointLocation``.
        to: ``merged`` or ``stock``.
        storage_options: For the fsspec file system.
        **how: As of :meth:`Checkpoint.convert`: ``door``, ``dry_run``, ``force``.

    Raises:
        StateStoreFilesError: As of :meth:`Checkpoint.convert`.

    Example:
        >>> convert("hdfs://nn/checkpoints/q1", to="merged").changed_entries_count
        100
    """
    return Checkpoint(path, storage_options).convert(to, **how)


def export(
    path: str | os.PathLike[str],
    dst: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **how: Any,
) -> Export:
    """Writes the merged state of a stopped query back as the plain files that stock Spark expects.

    Args:
        path: The query's ``checkpointLocation``.
        dst: A directory that is empty or does not exist; in place if not given.
        storage_options: For the fsspec file system of both.
        **how: As of :meth:`Checkpoint.export`: ``dry_run``, ``force``, ``spark``, ``callback``.

    Raises:
        StateStoreFilesError: As of :meth:`Checkpoint.export`.
    """
    return Checkpoint(path, storage_options).export(dst, **how)


def fork(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    mode: str = "no_claim",
    version: int | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    dst_storage_options: Mapping[str, Any] | None = None,
    closed_after: datetime.timedelta = CLOSED_AFTER,
    dry_run: bool = False,
    force: bool = False,
) -> Fork:
    """Makes a second checkpoint that goes on from a version of a first one, which stays as it is.

    A query that is given the new checkpoint goes on behind the batch that left the version. Its sources have to be
    those of the first one. State is shared unless it is copied: neither side deletes what the other one needs.

    Args:
        src: The ``checkpointLocation`` of a query, running or not.
        dst: Where the fork is to be: nothing may be there.
        mode: ``no_claim``: the fork reads the state where it is, and never deletes it. ``claim``: likewise, and it
            owns it: the first checkpoint must not be used any more. ``copy``: the state is copied.
        version: Of the state, which batch version - 1 left; None for that of the last committed batch.
        storage_options: For the fsspec file system.
        dst_storage_options: For that of ``dst``, where it is another one.
        closed_after: As the query's ``closedAfter``.
        dry_run: Only say what the fork would have.
        force: Allows ``claim`` where the query seems to be running.

    Raises:
        StateStoreFilesError: ``dst`` is not empty (PSS_NOT_EMPTY) or in another file system (PSS_OTHER_FILE_SYSTEM),
            the version cannot be restored (PSS_VERSION_NOT_RESTORABLE), the source is running and is to be claimed
            (PSS_QUERY_RUNNING) or was claimed (PSS_CLAIMED), an argument is not allowed (PSS_INVALID_OPTION,
            PSS_BAD_PATH), there is no checkpoint (PSS_NOT_A_CHECKPOINT), or something cannot be read or written. What
            was written is taken back then.

    Example:
        >>> pyspark_statestore.fork("s3://bucket/checkpoints/q1", "s3://bucket/checkpoints/q1-test").version
        1043
    """
    source = Checkpoint(src, storage_options, closed_after=closed_after)
    return source.fork(dst, mode, version, storage_options=dst_storage_options, dry_run=dry_run, force=force)
