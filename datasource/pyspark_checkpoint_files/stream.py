"""Stream reads: the segments of a checkpoint as they are committed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_checkpoint_files.batch import BATCH_ROWS
from pyspark_checkpoint_files.options import ReadOptions
from pyspark_checkpoint_files.seen import Seen

if TYPE_CHECKING:
    import pyarrow as pa


class Between(InputPartition):
    """The segments of a batch: those after the offset ``start`` up to the offset ``end``."""

    def __init__(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        super().__init__(None)
        self.start = start
        self.end = end


class SegmentStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Returns every write in the merged files once, wherever it was moved to meanwhile.

    Args:
        options: The options of the stream.

    Raises:
        StateStoreFilesError: The path is missing or cannot be used.
    """

    def __init__(self, options: ReadOptions) -> None:
        options.checkpoint()
        self._options = options
        self._target: Seen | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Returns the offset of a new stream, which begins with all segments that exist."""
        return Seen().offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns the limit that ``maxSegmentsPerTrigger`` sets."""
        most = self._options.max_segments
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Notes which writes there are, and waits where some have not settled yet.

        Raises:
            StateStoreFilesError: There is no checkpoint, or it cannot be read.
        """
        from pyspark_checkpoint_files.stream_snapshot import StreamSnapshot

        snapshot = StreamSnapshot(self._options)
        settled = snapshot.settled()
        if not settled.all():
            time.sleep(self._options.settled_after.total_seconds())
            begun = snapshot.scan.at
            snapshot = StreamSnapshot(self._options)
            settled = snapshot.settled(begun)
        self._target = snapshot.advanced(Seen(), settled)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Returns the offset at which the next batch ends.

        Raises:
            StateStoreFilesError: There is no checkpoint, or it cannot be read.
        """
        from pyspark_checkpoint_files.stream_snapshot import StreamSnapshot

        since, snapshot = Seen.of(start), StreamSnapshot(self._options)
        given = ~snapshot.seen(since)
        given &= snapshot.settled() if self._target is None else snapshot.seen(self._target)
        if isinstance(limit, ReadMaxRows):
            # The oldest first: see Seen.
            given &= given.cumsum() <= limit.max_rows
        return snapshot.advanced(since, given).offset() if given.any() else start

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
