"""Stream reads from Spark 4.2 on, whose batches can be limited and which know the trigger ``availableNow``."""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_checkpoint_files.options import ReadOptions
from pyspark_checkpoint_files.seen import Seen
from pyspark_checkpoint_files.stream import SegmentStreamReader


class LimitedStreamReader(SegmentStreamReader, SupportsTriggerAvailableNow):
    """The reader for a Spark that says where a batch begins.

    Args:
        options: The options of the stream.

    Raises:
        StateStoreFilesError: As :class:`SegmentStreamReader`.
    """

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._target: Seen | None = None

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
