"""Compaction as an INSERT: it rewrites the files whose rows of the table ``files`` are inserted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyspark_checkpoint_files.options import ReadOptions
from pyspark_statestore.errors import StateStoreFilesError

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_statestore.log.merged_log import MergedLog

PATH = "file_path"
"""The column that names the file. The other columns of a row are ignored."""

_RETRYABLE = ("PSS_READ_FAILED", "PSS_WRITE_FAILED")
"""Errors that another attempt may not meet. With any other, Spark would fail again, with a less plain message."""


@dataclass(frozen=True)
class Rewritten(WriterCommitMessage):
    """The result of a task.

    Attributes:
        failures: The errors that it met.
    """

    failures: tuple[StateStoreFilesError, ...] = ()


class CompactionWriter(DataSourceArrowWriter):
    """Rewrites files of a checkpoint. Each task rewrites the files of its rows.

    A task may fail, run again, or run twice at the same time. Superfluous copies are removed at the end of the
    INSERT or with the next cleaning.

    Args:
        options: The options of the write.

    Raises:
        StateStoreFilesError: The path is missing or cannot be used.
    """

    def __init__(self, options: ReadOptions) -> None:
        options.checkpoint()
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Rewritten:
        """Copies the live segments of the files into new ones.

        Raises:
            StateStoreFilesError: The file system failed in a way that may not happen again.
        """
        from pyspark_statestore.maintenance.compaction import rewrite

        try:
            names = self._names(iterator)
            failures = tuple(rewrite(self._log, names).failures) if names else ()
        except StateStoreFilesError as error:
            failures = (error,)
        for failure in failures:
            if failure.getErrorClass() in _RETRYABLE:
                raise failure
        return Rewritten(failures)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Unlinks the files that nobody needs any more.

        Raises:
            StateStoreFilesError: A row was refused, a live segment is corrupt, or the checkpoint cannot be cleaned.
        """
        from pyspark_statestore.maintenance.cleaning import clean

        clean(self._log, self._log.snapshot().closed_tombstones)
        for message in messages:
            if isinstance(message, Rewritten) and message.failures:
                raise message.failures[0]

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Does nothing: the copies are as good as the originals."""

    @cached_property
    def _log(self) -> MergedLog:
        from pyspark_statestore.log.merged_log import MergedLog
        from pyspark_statestore.storage import Directory, Location

        options = self._options
        return MergedLog(Directory(Location.of(options.path, options.storage)), options.closed_after)

    def _names(self, batches: Iterator[pa.RecordBatch]) -> set[str]:
        """Returns the names of the files.

        Raises:
            StateStoreFilesError: PSS_BAD_PATH where a row does not name a merged file of this checkpoint.
        """
        from pyspark_statestore.format import parse_file_name
        from pyspark_statestore.log.scan import MERGED

        names: set[str] = set()
        folders: dict[str, bool] = {}
        for batch in batches:
            for path in batch.column(batch.schema.get_field_index(PATH)).to_pylist():
                folder, _, name = (path or "").rpartition("/")
                checkpoint = folder.removesuffix(f"/{MERGED}")
                if folder not in folders:
                    folders[folder] = checkpoint != folder and self._is_here(checkpoint)
                if not folders[folder] or parse_file_name(name) is None:
                    reason = f"only merged files of {self._log.directory.location.url} can be rewritten here"
                    raise StateStoreFilesError("PSS_BAD_PATH", {"path": path, "reason": reason})
                names.add(name)
        return names

    def _is_here(self, checkpoint: str) -> bool:
        from pyspark_statestore.storage import Location

        here = self._log.directory.location.url
        try:
            return checkpoint == here or Location.of(checkpoint, self._options.storage).url == here
        except StateStoreFilesError:
            return False
