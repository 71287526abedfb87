"""Batch reads: a table of a checkpoint, in one task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_checkpoint_files.options import NARROWED, SINK_TABLES, ReadOptions
from pyspark_checkpoint_files.plain_errors import plain_errors
from pyspark_checkpoint_files.pushdown import is_offered, push

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

BATCH_ROWS = 8 * 1024
"""The highest number of rows in an Arrow batch. Small batches let Spark work on one while the next is made."""


def reader_of(options: ReadOptions) -> DataSourceReader:
    """Returns the reader for these options. It takes filters where Spark allows them and the table can be narrowed."""
    if options.table in SINK_TABLES:
        return SinkReader(options)
    return FilteringReader(options) if options.table in NARROWED and is_offered() else TableReader(options)


class SinkReader(DataSourceReader):
    """Reads one table of a file sink, anew each time, in one task.

    Args:
        options: The options of the read.

    Raises:
        StateStoreFilesError: The path is missing or cannot be used.
    """

    def __init__(self, options: ReadOptions) -> None:
        options.sink()
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Returns one partition, for one task."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yields the table.

        Raises:
            StateStoreFilesError: As the methods of :class:`pyspark_statestore.sink.sink.Sink`.
        """
        with plain_errors():
            sink = self._options.sink()
            tables = {"sink_files": sink.files, "sink_log": sink.log, "sink_waiting": sink.waiting}
            yield from tables[self._options.table]().to_batches(BATCH_ROWS)


class TableReader(DataSourceReader):
    """Reads one table of a checkpoint, anew each time.

    One task does everything: only the indexes of all files together say what lives, so each of several tasks would read
    all of them. Spark plans the partitions of a temporary view once, when the view is made, so a partition must not
    hold what was found then.

    Args:
        options: The options of the read.

    Raises:
        StateStoreFilesError: The path is missing or cannot be used.
    """

    def __init__(self, options: ReadOptions) -> None:
        options.checkpoint()
        self._options = options
        self._narrowed: dict[str, Any] = dict(options.narrowed)
        self._nothing = False

    def partitions(self) -> list[InputPartition]:
        """Returns one partition, for one task."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yields the table.

        Raises:
            StateStoreFilesError: As :class:`pyspark_statestore.inspect.Inspection`.
        """
        if self._nothing:
            return
        with plain_errors():
            yield from self._options.checkpoint().inspect.batches(self._options.table, BATCH_ROWS, **self._narrowed)


class FilteringReader(TableReader):
    """Reads a table in a session in which Spark offers filters to its data sources."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes the filters that narrow the read, and returns the others."""
        pushed = push(filters, self._narrowed)
        self._narrowed, self._nothing = pushed.narrowed, self._nothing or pushed.nothing
        return pushed.rest
