"""Relocations are announced before anybody looks at what lives: docs/guarantees.md, "When may a tombstone go?"."""

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
    """A relocation that is under way.

    Args:
        log: Of the checkpoint.
        clock: Seconds that do not jump.
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
        """Around everything that writes copies, until they are durable.

        Raises:
            StateStoreFilesError: They became visible when nobody may have waited for them any more.
        """
        self._in_doubt = True
        yield
        if not self._is_heeded():
            raise self._log.too_slow("writing copies without renewing their relocation marker")
        self._in_doubt = False

    @property
    def in_doubt(self) -> bool:
        """Whether a write failed, so that its copies may or may not turn up."""
        return self._in_doubt

    @property
    def path(self) -> str:
        """Of the file that announces it."""
        return f"{MERGED}/{self.name}"

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """Keeps it up in the block, however long the file system takes to make a copy visible."""
        ended = threading.Event()
        # A daemon: it never keeps a process from ending.
        renewing = threading.Thread(target=self._renew_until, args=(ended,), name="pyspark-statestore-marker")
        renewing.daemon = True
        renewing.start()
        try:
            yield
        finally:
            ended.set()
            renewing.join()  # it would come back after it was deleted

    def _renew_until(self, ended: threading.Event) -> None:
        # One that others may have given up already would promise what it cannot keep.
        while not ended.wait(self._log.closed_after.total_seconds() / 4) and self._is_heeded():
            now = self._now()
            try:
                overwrite(self._log.directory, self.path, b"")
            except StateStoreFilesError:
                _log.warning("A relocation marker could not be renewed and is tried again", exc_info=True)
            else:
                self._since_renewed = now if self._is_heeded() else self._since_renewed

    def _is_heeded(self) -> bool:
        """Whether others wait for its copies: for ``closedAfter``; a part is left for clocks that differ."""
        return is_heeded(self._since_renewed.seconds, self._log.closed_after.total_seconds())

    def _now(self) -> Stopwatch:
        return Stopwatch(self._clock, self._log.clock)


@contextmanager
def holding_marker(log: MergedLog, clock: Callable[[], float] = time.monotonic) -> Iterator[RelocationMarker]:
    """Announces a relocation; what lives has to be looked up in the block.

    The marker is taken back at the end, unless copies may still turn up: then it stays, as a dead process's does,
    and whoever cleans removes it after ``closedAfter``.

    Args:
        log: Of the checkpoint.
        clock: Seconds that do not jump.

    Raises:
        StateStoreFilesError: It cannot be written or taken back.
    """
    marker = RelocationMarker(log, clock)
    write(log.directory, marker.path, b"")
    try:
        with marker.renewed():
            yield marker
    finally:
        if not marker.in_doubt:
            delete(log.directory, marker.path)
