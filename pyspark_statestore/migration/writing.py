"""Carries out the pieces of an export, here or as a Spark job, and knows what is done."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pyspark_statestore.inspect.scan import ATTEMPTS, always_gone
from pyspark_statestore.maintenance.on_spark import run_on_spark
from pyspark_statestore.migration.live_segments import LiveSegments
from pyspark_statestore.migration.pieces import Piece, carry_out
from pyspark_statestore.storage.directory import Directory, in_parallel

if TYPE_CHECKING:
    from fsspec.callbacks import Callback
    from pyspark.sql import SparkSession


class Writing:
    """One export at work.

    Args:
        source: The checkpoint.
        target: Where the plain files are written.
        spark: Writes in Spark tasks instead of in threads.
        callback: Told how many bytes there are to write, and of those that were.
    """

    def __init__(
        self, source: Directory, target: Directory, spark: SparkSession | None, callback: Callback | None
    ) -> None:
        self._source = source
        self._target = target
        self._spark = spark
        self._callback = callback
        self._lock = threading.Lock()
        self._done: dict[str, tuple[int, int]] = {}

    def note(self, live: LiveSegments, rows: np.ndarray) -> None:
        """Remembers that these segments are there as plain files, with the right bytes."""
        for at in rows.tolist():
            self._done[live.path[at]] = (int(live.stamp[at]), int(live.writer[at]))

    def missing(self, live: LiveSegments) -> np.ndarray:
        """Which segments are not, as far as is known."""
        keys = zip(live.path, live.stamp.tolist(), live.writer.tolist(), strict=True)
        rows = [at for at, (path, stamp, writer) in enumerate(keys) if self._done.get(path) != (stamp, writer)]
        found: np.ndarray = np.array(rows, "i8")
        return found

    def attempts(self) -> Iterator[int]:
        """Numbers of the looks that are taken until nothing is missing.

        Raises:
            StateStoreFilesError: PSS_READ_FAILED where that does not end.
        """
        yield from range(ATTEMPTS)
        raise always_gone(self._source)

    def run(self, pieces: Sequence[Piece], live: LiveSegments | None = None, rows: np.ndarray | None = None) -> bool:
        """Carries out pieces; remembers the segments where no file was gone.

        Args:
            pieces: What is to be done.
            live: The segments that they write.
            rows: Of these.

        Returns:
            Whether no file was gone.

        Raises:
            StateStoreFilesError: The first that a piece has failed with.
        """
        if self._callback is not None:
            self._callback.set_size(sum(piece.total for piece in pieces))
        if self._spark is None:
            done = in_parallel(partial(carry_out, self._source, self._target, told=self._tell), pieces)
        else:
            done = run_on_spark(self._spark, partial(carry_out, self._source, self._target), pieces)
            for piece in pieces:
                self._tell(piece.total)
        if live is not None and rows is not None and all(done):
            self.note(live, rows)
        return all(done)

    def _tell(self, written: int) -> None:
        if self._callback is not None:
            with self._lock:
                self._callback.relative_update(written)
