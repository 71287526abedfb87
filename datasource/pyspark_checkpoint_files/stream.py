"""Stream reads: the segments of a checkpoint as they are committed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_checkpoint_files.batch import BATCH_ROWS
from pyspark_checkpoint_files.options import ReadOptions
from pyspark_checkpoint_files.seen import Seen
from pyspark_statestore.errors import not_allowed

if TYPE_CHECKING:
    import pyarrow as pa


def stream_reader_of(options: ReadOptions) -> DataSourceStreamReader:
    """Returns the reader for this release of Spark: only from 4.2 on does Spark say where a batch begins.

    Raises:
        StateStoreFilesError: The path is missing or cannot be used, or an option needs a newer Spark.
    """
    try:
        from pyspark_checkpoint_files.stream_limited import LimitedStreamReader
    except ImportError:
        return UnlimitedStreamReader(options)
    return LimitedStreamReader(options)


class Between(InputPartition):
    """The segments of a batch: those after the offset ``start`` up to the offset ``end``."""

    def __init__(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        super().__init__(None)
        self.start = start
        self.end = end


class SegmentStreamReader(DataSourceStreamReader):
    """Returns every write in the merged files once, wherever it was moved to meanwhile.

    Args:
        options: The options of the stream.

    Raises:
        StateStoreFilesError: The path is missing or cannot be used.
    """

    def __init__(self, options: ReadOptions) -> None:
        options.checkpoint()
        self._options = options

    def initialOffset(self) -> dict[str, Any]:
        """Returns the offset of a new stream, which begins with all segments that exist."""
        return Seen().offset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Returns one partition: only all files together say what is in a batch."""
        return [Between(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the segments of a batch that are still in a merged file.

        Raises:
            StateStoreFilesError: There is no checkpoint, or it cannot be read.
        """
        from pyspark_checkpoint_files.stream_snapshot import StreamSnapshot
        from pyspark_statestore.inspect import Segments

        assert isinstance(partition, Between)
        snapshot = StreamSnapshot(self._options)
        wanted = ~snapshot.seen(Seen.of(partition.start)) & snapshot.seen(Seen.of(partition.end))
        yield from Segments.of(snapshot.scan, snapshot.location, rows=snapshot.writes.entry[wanted]).batches(BATCH_ROWS)


class UnlimitedStreamReader(SegmentStreamReader):
    """The reader for Spark 4.0 and 4.1: each batch ends with the newest write that has settled.

    Args:
        options: The options of the stream.

    Raises:
        StateStoreFilesError: As :class:`SegmentStreamReader`; PSS_INVALID_OPTION for ``maxSegmentsPerTrigger``.
    """

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        if options.max_segments is not None:
            raise not_allowed("maxSegmentsPerTrigger", options.max_segments, "nothing before Spark 4.2")
        self._newest: dict[str, Any] | None = None

    def latestOffset(self) -> dict[str, Any]:
        """Returns the offset at which the next batch ends; the same as before while there is nothing new.

        Raises:
            StateStoreFilesError: There is no checkpoint, or it cannot be read.
        """
        from pyspark_checkpoint_files.stream_snapshot import StreamSnapshot

        # After a restart nobody says where the stream is. What has settled is then all that was returned, and more.
        since, snapshot = Seen.of(self._newest or {}), StreamSnapshot(self._options)
        given = ~snapshot.seen(since) & snapshot.settled()
        if self._newest is None or given.any():
            self._newest = snapshot.advanced(since, given).offset()
        return self._newest
