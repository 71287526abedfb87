"""Relocation markers: empty files that announce a relocation before it looks at what lives.

Without a marker a copy could bring back what was deleted: a relocation reads a segment, another process deletes it,
unlinks the original and forgets the tombstone, and then the copy appears. With a marker it cannot. Others keep their
tombstones while a marker counts; a relocation makes its marker first, copies only what lives in a snapshot that began
later, makes the copies durable, and deletes the marker last (docs/guarantees.md, "When may a tombstone go?"). A marker
counts for ``closedAfter`` since it was made or renewed; a relocation stops in time by itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log import is_heeded, is_timely
from pyspark_statestore.log.merged_log import MergedLog, Stopwatch
from pyspark_statestore.log.scan import MERGED, RELOCATING_SUFFIX
from pyspark_statestore.storage.changes import delete, overwrite, write

_log = logging.getLogger(__name__)


class RelocationMarker:
    """The marker of a relocation that is under way.

    Args:
        log: This process's work on the checkpoint.
        clock: Returns seconds of a clock that does not jump.
    """

    def __init__(self, log: MergedLog, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = log.next_name(RELOCATING_SUFFIX)
        self._log = log
        self._clock = clock
        self._since_announced = self._since_renewed = self._now()
        self._in_doubt = False

    def is_timely(self) -> bool:
        """Whether copies may still be begun."""
        return is_timely(self._since_announced.seconds, self._log.closed_after.total_seconds())

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Wraps everything that writes copies, until they are durable.

        Raises:
            StateStoreFilesError: The copies became visible when others may have stopped waiting for them.
        """
        self._in_doubt = True
        yield
        if not self._is_heeded():
            raise self._log.too_slow("writing copies without renewing their relocation marker")
        self._in_doubt = False

    @property
    def in_doubt(self) -> bool:
        """Whether a write failed, so that its copies may still turn up."""
        return self._in_doubt

    @property
    def path(self) -> str:
        """The marker's path in the checkpoint."""
        return f"{MERGED}/{self.name}"

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """Renews the marker in the block, however long the file system takes to make a copy visible."""
        ended = threading.Event()
        # A daemon: it never keeps a process from ending.
        renewing = threading.Thread(target=self._renew_until, args=(ended,), name="pyspark-statestore-marker")
        renewing.daemon = True
        renewing.start()
        try:
            yield
        finally:
            ended.set()
            renewing.join()  # or it could make the marker again after it was deleted

    def _renew_until(self, ended: threading.Event) -> None:
        # A marker that others may have given up already must not be renewed: they rely on it no more.
        while not ended.wait(self._log.closed_after.total_seconds() / 4) and self._is_heeded():
            now = self._now()
            try:
                overwrite(self._log.directory, self.path, b"")
            except StateStoreFilesError:
                _log.info("A relocation marker could not be renewed and is tried again", exc_info=True)
            else:
                self._since_renewed = now if self._is_heeded() else self._since_renewed

    def _is_heeded(self) -> bool:
        """Whether others surely still wait for the copies."""
        return is_heeded(self._since_renewed.seconds, self._log.closed_after.total_seconds())

    def _now(self) -> Stopwatch:
        return Stopwatch(self._clock, self._log.clock)


@contextmanager
def holding_marker(log: MergedLog, clock: Callable[[], float] = time.monotonic) -> Iterator[RelocationMarker]:
    """Announces a relocation. The snapshot to copy from has to be taken in the block.

    The marker is deleted at the end, unless copies may still turn up: then it stays, as the marker of a dead process
    does, and the next cleaning removes it after ``closedAfter``.

    Args:
        log: This process's work on the checkpoint.
        clock: Returns seconds of a clock that does not jump.

    Raises:
        StateStoreFilesError: The marker cannot be written or deleted.
    """
    marker = RelocationMarker(log, clock)
    write(log.directory, marker.path, b"")
    try:
        with marker.renewed():
            yield marker
    finally:
        if not marker.in_doubt:
            delete(log.directory, marker.path)
