"""Reads a table once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from pyspark_checkpoint_files.options import NARROWED, ReadOptions
from pyspark_checkpoint_files.pushdown import is_offered, push

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 8 * 1024
"""Rows in an Arrow batch at most: with fewer, Spark works on one while the next is made."""


def reader_of(options: ReadOptions) -> DataSourceReader:
    """The reader for these options, with filters where Spark allows them and they spare anything."""
    return FilteringReader(options) if options.table in NARROWED and is_offered() else TableReader(options)


class TableReader(DataSourceReader):
    """Reads one table of a checkpoint, afresh each time.

    Everything happens in one task: what lives is only known from the indexes of all files together, so several tasks
    would each read all of them. Spark plans the partitions of a view once, when it is made: none of them may say what
    was found then.

    Args:
        options: Of the read.

    Raises:
        StateStoreFilesError: There is no path, or it cannot be used.
    """

    def __init__(self, options: ReadOptions) -> None:
        options.checkpoint()
        self._options = options
        self._narrowed: dict[str, Any] = dict(options.narrowed)
        self._nothing = False

    def partitions(self) -> list[InputPartition]:
        """One: see the class."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yields the table.

        Raises:
            StateStoreFilesError: As :class:`pyspark_statestore.inspect.Inspection`.
        """
        if self._nothing:
            return
        yield from self._options.checkpoint().inspect.batches(self._options.table, BATCH_ROWS, **self._narrowed)


class FilteringReader(TableReader):
    """The same, for a session in which Spark hands filters over."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes the filters that narrow what is read."""
        pushed = push(filters, self._narrowed)
        self._narrowed, self._nothing = pushed.narrowed, self._nothing or pushed.nothing
        return pushed.rest
