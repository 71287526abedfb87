"""Compaction as an INSERT: it rewrites the files whose rows of the table ``files`` are inserted."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyspark_checkpoint_files.options import ReadOptions
from pyspark_checkpoint_files.plain_errors import plain_errors
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
        files: How many files' rows it had.
        added: How many files it wrote.
    """

    failures: tuple[StateStoreFilesError, ...] = ()
    files: int = 0
    added: int = 0


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

    @plain_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Rewritten:
        """Copies the live segments of the files into new ones.

        Raises:
            StateStoreFilesError: The file system failed in a way that may not happen again.
        """
        from pyspark_statestore.maintenance.compaction import rewrite
        from pyspark_statestore.maintenance.relocation import Relocation

        try:
            names = self._names(iterator)
            done = rewrite(self._log, names) if names else Relocation()
            result = Rewritten(tuple(done.failures), len(names), len(done.added))
        except StateStoreFilesError as error:
            result = Rewritten((error,))
        for failure in result.failures:
            if failure.getErrorClass() in _RETRYABLE:
                raise failure
        return result

    @plain_errors()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Unlinks the files that nobody needs any more, and says in the driver's log what the INSERT did.

        Spark shows no result of an INSERT, and takes no row count from a Python data source.

        Raises:
            StateStoreFilesError: A row was refused, a live segment is corrupt, or the checkpoint cannot be cleaned.
        """
        from pyspark_statestore.maintenance.cleaning import clean
        from pyspark_statestore.rendering import counted, size

        cleaned = clean(self._log, self._log.snapshot().closed_tombstones)
        done = [message for message in messages if isinstance(message, Rewritten)]
        failures = [failure for each in done for failure in each.failures]
        if failures:
            raise failures[0]
        rewritten, added = sum(each.files for each in done), sum(each.added for each in done)
        print(
            f"pyspark-statestore: INSERT into {self._log.directory.location.url}: rows of "
            f"{counted(rewritten, 'file')} came, {counted(added + len(cleaned.added), 'file')} added, "
            f"{counted(len(cleaned.files), 'file')} of {size(cleaned.size_in_bytes)} removed",
            file=sys.stderr,  # of a worker, which the JVM hands on to the driver's log
            flush=True,
        )

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
