"""The questions that can be asked of a checkpoint."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.inspect.columns import TABLES
from pyspark_statestore.inspect.files import files_table
from pyspark_statestore.inspect.scan import ATTEMPTS, MERGED, Scan, scan
from pyspark_statestore.inspect.segments import StoreFilter, segments_table
from pyspark_statestore.inspect.state_files import StateFiles, plain_files
from pyspark_statestore.inspect.summary import summary_table
from pyspark_statestore.inspect.versions import versions_table
from pyspark_statestore.storage import Directory, Location

if TYPE_CHECKING:
    from fsspec.callbacks import Callback

Result = TypeVar("Result")

_OF_A_CHECKPOINT = {"state", "offsets", "commits", "metadata", "sources"}
"""What Spark makes in a checkpoint's directory; any of it will do."""


class Inspection:
    """Tables about one checkpoint. Each call looks afresh, and may run beside the query.

    Args:
        location: Of the checkpoint.
        closed_after: As the query's ``closedAfter``.
    """

    def __init__(self, location: Location, closed_after: datetime.timedelta) -> None:
        self._location = location
        self._directory = Directory(location)
        self._closed_after = closed_after

    def files(self, callback: Callback | None = None) -> pa.Table:
        """Returns a row for each merged file.

        Args:
            callback: Told how many files there are, and of each that was read.

        Returns:
            The columns ``file_path``, ``file_size_in_bytes``, ``live_bytes``, ``segment_count``,
            ``live_segment_count``, ``tombstone_count``, ``space_amplification``, ``generation``, ``is_sealed``,
            ``is_closed``, ``is_orphan``, ``created_at``, ``last_modified_at``, ``writer``, ``app_id``,
            ``executor_id`` and ``query_run_id``; docs/columns.md explains each.

        Raises:
            StateStoreFilesError: There is no checkpoint (PSS_NOT_A_CHECKPOINT), or it cannot be read.
        """
        return files_table(self._scan(callback=callback), self._location.url, self._closed_after)

    def segments(
        self,
        operator_id: int | None = None,
        partition_id: int | None = None,
        store_name: str | None = None,
        callback: Callback | None = None,
    ) -> pa.Table:
        """Returns a row for each logical file that is or was in a merged file.

        Args:
            operator_id: Only of this stateful operator.
            partition_id: Only of this state partition.
            store_name: Only of this store.
            callback: Told how many merged files there are, and of each that was read.

        Returns:
            The columns ``file_path``, ``offset``, ``length``, ``logical_path``, ``type``, ``operator_id``,
            ``partition_id``, ``store_name``, ``version``, ``state_store_checkpoint_id``, ``status``, ``generation``,
            ``written_at`` and ``crc32c``; docs/columns.md explains each.

        Raises:
            StateStoreFilesError: There is no checkpoint (PSS_NOT_A_CHECKPOINT), or it cannot be read.
        """
        wanted = StoreFilter(operator_id, partition_id, store_name)
        return segments_table(self._scan(headers=False, callback=callback), self._location.url, wanted)

    def versions(
        self,
        operator_id: int | None = None,
        partition_id: int | None = None,
        store_name: str | None = None,
        callback: Callback | None = None,
    ) -> pa.Table:
        """Returns a row for each version of each store, and whether the query could go on from it.

        RocksDB snapshots are opened to see which files they need, so this reads more than the other tables do.

        Args:
            operator_id: Only of this stateful operator.
            partition_id: Only of this state partition.
            store_name: Only of this store.
            callback: Told how many merged files there are, and of each that was read.

        Returns:
            The columns ``operator_id``, ``partition_id``, ``store_name``, ``version``, ``state_store_checkpoint_id``,
            ``has_snapshot``, ``has_changelog``, ``is_restorable``, ``base_snapshot_version``, ``replay_count`` and
            ``restore_bytes``; docs/columns.md explains each.

        Raises:
            StateStoreFilesError: There is no checkpoint (PSS_NOT_A_CHECKPOINT), or it cannot be read.
        """
        wanted = StoreFilter(operator_id, partition_id, store_name)

        def look() -> pa.Table:
            merged = self._scan(callback=callback)
            files = StateFiles.of(merged, plain_files(self._directory, merged))
            return versions_table(files, self._directory, wanted)

        return self._again_where_files_vanish(look)

    def summary(self, callback: Callback | None = None) -> pa.Table:
        """Returns one row about the whole checkpoint.

        Args:
            callback: Told how many merged files there are, and of each that was read.

        Returns:
            The columns ``file_count``, ``file_size_in_bytes``, ``live_bytes``, ``space_amplification``,
            ``segment_count``, ``live_segment_count``, ``orphan_file_count``, ``operator_count``, ``partition_count``,
            ``min_version``, ``max_version`` and ``plain_file_count``; docs/columns.md explains each.

        Raises:
            StateStoreFilesError: There is no checkpoint (PSS_NOT_A_CHECKPOINT), or it cannot be read.
        """
        merged = self._scan(callback=callback)
        files = StateFiles.of(merged, plain_files(self._directory, merged))
        return summary_table(merged, files, self._closed_after)

    def table(self, name: str, **narrowed: Any) -> pa.Table:
        """Returns a table by its name.

        Args:
            name: One of ``files``, ``segments``, ``versions`` and ``summary``.
            narrowed: What the method of that name takes.

        Raises:
            StateStoreFilesError: There is no such table (PSS_INVALID_OPTION), or as that method.
        """
        if name not in TABLES:
            allowed = ", ".join(TABLES)
            raise StateStoreFilesError("PSS_INVALID_OPTION", {"key": "table", "value": name, "allowed": allowed})
        table: pa.Table = getattr(self, name)(**narrowed)
        return table

    def _scan(self, *, headers: bool = True, callback: Callback | None = None) -> Scan:
        found = scan(self._directory, headers=headers, callback=callback)
        if not found.infos:
            self._check()
        return found

    def _check(self) -> None:
        """A checkpoint without merged files is one, too; anything else is a mistake that no empty table may hide."""
        names = self._directory.names()
        if _OF_A_CHECKPOINT.isdisjoint(names):
            what = (
                "it does not exist or is empty"
                if not names
                else f"it has none of {', '.join(sorted(_OF_A_CHECKPOINT))}"
            )
            raise StateStoreFilesError("PSS_NOT_A_CHECKPOINT", {"path": self._location.url, "reason": what})

    def _again_where_files_vanish(self, look: Callable[[], Result]) -> Result:
        for _ in range(ATTEMPTS):
            try:
                return look()
            except FileNotFoundError:
                continue
        where = self._location.display(MERGED)
        reason = f"files that were listed were gone when they were opened, {ATTEMPTS} times running"
        raise StateStoreFilesError("PSS_READ_FAILED", {"action": "read", "path": where, "reason": reason})
