"""Relocations are announced before anybody looks at what lives: docs/guarantees.md, "When may a tombstone go?"."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark_statestore.inspect.scan import INTENT_SUFFIX, MERGED
from pyspark_statestore.maintenance.site import Site
from pyspark_statestore.storage.changes import delete, write


@dataclass
class Announcement:
    """A relocation that is under way.

    Attributes:
        name: Of the file that announces it.
        ends_at: When copies may no longer be begun, on the clock that does not jump.
    """

    name: str
    ends_at: float
    clock: Callable[[], float] = time.monotonic
    _in_doubt: bool = False

    def is_timely(self) -> bool:
        """Whether copies may still be written: others stop waiting for them after ``closedAfter``."""
        return self.clock() < self.ends_at

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Around everything that writes copies, until they are durable."""
        self._in_doubt = True
        yield
        self._in_doubt = False

    @property
    def in_doubt(self) -> bool:
        """Whether a write failed, so that its copies may or may not turn up."""
        return self._in_doubt


@contextmanager
def announced(site: Site, clock: Callable[[], float] = time.monotonic) -> Iterator[Announcement]:
    """Announces a relocation; what lives has to be looked up in the block.

    The announcement is taken back at the end, unless copies may still turn up: then it stays, as a dead process's does,
    and whoever cleans removes it after ``closedAfter``.

    Args:
        site: Of the checkpoint.
        clock: Seconds that do not jump.

    Raises:
        StateStoreFilesError: It cannot be written or taken back.
    """
    begun = clock()
    announcement = Announcement(site.next_name(INTENT_SUFFIX), begun + site.closed_after.total_seconds() / 2, clock)
    path = f"{MERGED}/{announcement.name}"
    write(site.directory, path, b"")
    try:
        yield announcement
    finally:
        if not announcement.in_doubt:
            delete(site.directory, path)
