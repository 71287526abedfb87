"""``Checkpoint.inspect``: the tables about a checkpoint, each read anew."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_statestore.errors import StateStoreFilesError, not_allowed
from pyspark_statestore.inspect.tables import Segments, files_table, plain_files_table, summary_table
from pyspark_statestore.log.columns import TABLES
from pyspark_statestore.log.restart import Restart, rows_of_missing
from pyspark_statestore.log.restorability import Batches, read_batches
from pyspark_statestore.log.scan import Scan, retry_if_gone, scan
from pyspark_statestore.log.state_files import EVERYTHING, StateFiles, StoreFilter, plain_files
from pyspark_statestore.log.versions import versions_table
from pyspark_statestore.storage import Directory, Location
from pyspark_statestore.storage.directory import FileInfo

if TYPE_CHECKING:
    from fsspec.callbacks import Callback


class Inspection:
    """Tables about one checkpoint. Each call reads the checkpoint anew, also while the query runs.

    Args:
        directory: The checkpoint's directory.
        closed_after: The query's ``closedAfter``.
    """

    def __init__(self, directory: Directory, closed_after: datetime.timedelta) -> None:
        self._directory = directory
        self._closed_after = closed_after

    @property
    def location(self) -> Location:
        """Where the checkpoint is."""
        return self._directory.location

    def __repr__(self) -> str:
        return f"Checkpoint({self.location.url!r}).inspect"

    def files(self, callback: Callback | None = None) -> pa.Table:
        """Returns a row for each merged file.

        Args:
            callback: An fsspec callback for progress in merged files.

        Returns:
            The columns ``file_path``, ``file_size_in_bytes``, ``live_bytes``, ``segment_count``,
            ``live_segment_count``, ``tombstone_count``, ``space_amplification``, ``generation``, ``is_sealed``,
            ``is_closed``, ``is_orphan``, ``created_at``, ``last_modified_at``, ``writer``, ``app_id``,
            ``executor_id``, ``query_run_id``, ``foreign_file_count`` and ``foreign_live_bytes``; docs/columns.md
            explains each.

        Raises:
            StateStoreFilesError: There is no checkpoint (PSS_NOT_A_CHECKPOINT), or it cannot be read.
        """
        return self.tables("files", callback=callback)["files"]

    def segments(
        self,
        operator_id: int | None = None,
        partition_id: int | None = None,
        store_name: str | None = None,
        callback: Callback | None = None,
    ) -> pa.Table:
        """Returns a row for each logical file that is or was in a merged file.

        Args:
            operator_id: The stateful operator; all of them if not given.
            partition_id: The state partition; all of them if not given.
            store_name: The store; all of them if not given.
            callback: An fsspec callback for progress in merged files.

        Returns:
            The columns ``file_path``, ``offset``, ``length``, ``logical_path``, ``type``, ``operator_id``,
            ``partition_id``, ``store_name``, ``version``, ``state_store_checkpoint_id``, ``status``, ``generation``,
            ``written_at``, ``crc32c`` and ``foreign_path``; docs/columns.md explains each.

        Raises:
            StateStoreFilesError: There is no checkpoint (PSS_NOT_A_CHECKPOINT), or it cannot be read.
        """
        wanted = StoreFilter(operator_id, partition_id, store_name)
        return self.tables("segments", wanted=wanted, callback=callback)["segments"]

    def versions(
        self,
        operator_id: int | None = None,
        partition_id: int | None = None,
        store_name: str | None = None,
        callback: Callback | None = None,
    ) -> pa.Table:
        """Returns a row for each version of each store, and whether the query could go on from it.

        This opens RocksDB snapshots to see which files they need, so it reads more than the other tables do.

        Args:
            operator_id: The stateful operator; all of them if not given.
            partition_id: The state partition; all of them if not given.
            store_name: The store; all of them if not given.
            callback: An fsspec callback for progress in merged files.

        Returns:
            The columns ``operator_id``, ``partition_id``, ``store_name``, ``version``, ``state_store_checkpoint_id``,
            ``has_snapshot``, ``has_changelog``, ``is_restorable``, ``base_snapshot_version``, ``replay_count`` and
            ``restore_bytes``; docs/columns.md explains each.

        Raises:
            StateStoreFilesError: There is no checkpoint (PSS_NOT_A_CHECKPOINT), or it cannot be read.
        """
        wanted = StoreFilter(operator_id, partition_id, store_name)
        return self.tables("versions", wanted=wanted, callback=callback)["versions"]

    def summary(self, callback: Callback | None = None) -> pa.Table:
        """Returns one row about the whole checkpoint, and whether a query could go on from it.

        For that it opens the newest RocksDB snapshot of each store, to see which files it needs.

        Args:
            callback: An fsspec callback for progress in merged files.

        Returns:
            The columns ``file_count``, ``file_size_in_bytes``, ``live_bytes``, ``space_amplification``,
            ``segment_count``, ``live_segment_count``, ``orphan_file_count``, ``operator_count``, ``partition_count``,
            ``min_version``, ``max_version``, ``plain_file_count``, ``plain_bytes``, ``foreign_file_count``,
            ``foreign_live_bytes``, ``forked_from``, ``fork_count``, ``committed_version``, ``restorable_version``,
            ``not_restorable``, ``provider`` and ``door``; docs/columns.md explains each.

        Raises:
            StateStoreFilesError: There is no checkpoint (PSS_NOT_A_CHECKPOINT), or it cannot be read.
        """
        return self.tables("summary", callback=callback)["summary"]

    def plain_files(self, callback: Callback | None = None) -> pa.Table:
        """Returns a row for each state file that is not merged: all of them, where stock Spark wrote the checkpoint.

        Args:
            callback: An fsspec callback for progress in merged files.

        Returns:
            The columns ``file_path``, ``file_size_in_bytes``, ``logical_path``, ``type``, ``operator_id``,
            ``partition_id``, ``store_name``, ``version``, ``state_store_checkpoint_id`` and ``last_modified_at``;
            docs/columns.md explains each.

        Raises:
            StateStoreFilesError: There is no checkpoint (PSS_NOT_A_CHECKPOINT), or it cannot be read.
        """
        return self.tables("plain_files", callback=callback)["plain_files"]

    def table(self, name: str, **narrowed: Any) -> pa.Table:
        """Returns a table by its name.

        Args:
            name: One of ``files``, ``segments``, ``versions``, ``summary`` and ``plain_files``.
            narrowed: The arguments of the method of that name.

        Raises:
            StateStoreFilesError: There is no such table (PSS_INVALID_OPTION); otherwise as that method.
        """
        _check_names([name])
        table: pa.Table = getattr(self, name)(**narrowed)
        return table

    def tables(
        self,
        *names: str,
        wanted: StoreFilter = EVERYTHING,
        callback: Callback | None = None,
        opens_plain: bool = True,
    ) -> dict[str, pa.Table]:
        """Returns several tables that agree with each other: the checkpoint is read once for all of them.

        Args:
            names: The tables' names.
            wanted: The stores that the tables ``segments`` and ``versions`` are narrowed to.
            callback: An fsspec callback for progress in merged files.
            opens_plain: Whether ``summary`` opens plain state files to see whether they are whole. If not, those that
                are not empty count as whole: stock Spark has thousands of them.

        Raises:
            StateStoreFilesError: There is no such table (PSS_INVALID_OPTION) or checkpoint (PSS_NOT_A_CHECKPOINT), or
                it cannot be read.
        """
        _check_names(names)

        restart = Restart()

        def read() -> dict[str, pa.Table]:
            nonlocal restart
            # The log of commits first: a batch that is committed later need not be in the files that are listed now.
            batches = self._batches() if "summary" in names else Batches()
            merged = self._scan(headers="files" in names, callback=callback)
            others = {"versions", "summary", "plain_files"}.intersection(names)
            plain = plain_files(self._directory, merged) if others else []
            files = StateFiles.of(merged, plain) if others else None
            if "summary" in names and files is not None:
                restart = self._restart(merged, files, batches, opens_plain=opens_plain)
            return {name: self._table(name, merged, files, plain, wanted, restart) for name in names}

        found = retry_if_gone(self._directory, read)
        # Beside a query that goes on, what is missing may have been moved meanwhile.
        return retry_if_gone(self._directory, read) if restart.is_lost else found

    def batches(self, name: str, most: int, **narrowed: Any) -> Iterator[pa.RecordBatch]:
        """Yields a table in batches. Of the table ``segments``, rows are made when their batch is taken.

        Args:
            name: The table's name.
            most: The highest number of rows in a batch.
            **narrowed: The arguments of the method of that name, but for ``callback``.

        Raises:
            StateStoreFilesError: As :meth:`table`.
        """
        if name == "segments":
            wanted = StoreFilter(**narrowed)
            yield from Segments.of(self.scan(), self.location, wanted).batches(most)
        else:
            yield from self.table(name, **narrowed).combine_chunks().to_batches(most)

    def scan(self, *, headers: bool = False) -> Scan:
        """Returns what the indexes of the merged files say, for questions that the tables do not answer.

        Args:
            headers: Whether to open each file, also those whose index an index-only file repeats.

        Raises:
            StateStoreFilesError: There is no checkpoint (PSS_NOT_A_CHECKPOINT), or it cannot be read.
        """
        return retry_if_gone(self._directory, lambda: self._scan(headers=headers))

    def _batches(self) -> Batches | StateStoreFilesError:
        try:
            return read_batches(self._directory, with_ids=False)
        except StateStoreFilesError as error:
            return error

    def _restart(
        self, merged: Scan, files: StateFiles, batches: Batches | StateStoreFilesError, *, opens_plain: bool
    ) -> Restart:
        """Whether a query can go on. What cannot be read for that is an answer, too, and costs no other figure."""
        if isinstance(batches, StateStoreFilesError):
            return Restart(reason=str(batches))
        try:
            whole = files.without(rows_of_missing(self._directory, merged, files))
            return Restart.of(self._directory, whole, batches, opens_plain=opens_plain)
        except StateStoreFilesError as error:
            return Restart(batches.last + 1 if batches.committed else None, None, f"it could not be looked at: {error}")

    def _table(
        self,
        name: str,
        merged: Scan,
        files: StateFiles | None,
        plain: Sequence[FileInfo],
        wanted: StoreFilter,
        restart: Restart,
    ) -> pa.Table:
        if name == "files":
            return files_table(merged, self.location.url, self._closed_after)
        if name == "segments":
            return Segments.of(merged, self.location, wanted).table()
        assert files is not None
        if name == "versions":
            return versions_table(files, self._directory, wanted)
        if name == "plain_files":
            return plain_files_table(files, plain, self.location)
        from pyspark_statestore.log.pins import ForkInfo

        return summary_table(merged, files, self._closed_after, ForkInfo.of(self._directory, merged), restart)

    def _scan(self, *, headers: bool, callback: Callback | None = None) -> Scan:
        return scan(self._directory, headers=headers, callback=callback)


def _check_names(names: Iterable[str]) -> None:
    for name in names:
        if name not in TABLES:
            allowed = ", ".join(TABLES)
            raise not_allowed("table", name, allowed)
