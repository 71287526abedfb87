"""How old files are, and how long things take, by two clocks.

Whoever waits for others goes by the clock that says less; whoever has to end before others lose patience by the one
that says more. So a step of one clock alone ends nothing that is under way.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_statestore.inspect.state_files import STATE
from pyspark_statestore.storage.changes import delete, write

if TYPE_CHECKING:
    from pyspark_statestore.maintenance.site import Site


@dataclass(frozen=True)
class Now:
    """What time it is.

    Attributes:
        here: By this process's clock.
        there: By the file system's, as far as that is known: it may be later.
    """

    here: datetime.datetime
    there: datetime.datetime | None = None

    def age(self, modified: datetime.datetime | None) -> datetime.timedelta:
        """How old a file is at least; nothing where its file system does not say when it was modified."""
        if modified is None:
            return datetime.timedelta(0)
        return min(now - modified for now in (self.here, self.there) if now is not None)


class Stopwatch:
    """How long something has taken at most.

    A clock that does not jump may stand still while the machine sleeps, and a wall clock may be put forward: by the one
    that says more, things only end early.

    Args:
        clock: Seconds that do not jump.
        wall: What time it is.
    """

    def __init__(self, clock: Callable[[], float], wall: Callable[[], datetime.datetime]) -> None:
        self._clock, self._wall = clock, wall
        self._begun, self._begun_at = clock(), wall()

    @property
    def seconds(self) -> float:
        """Until now."""
        return max(self._clock() - self._begun, (self._wall() - self._begun_at).total_seconds())


def ask_file_system(site: Site) -> Now:
    """Makes an empty file below ``state/``, sees which time it has got, and deletes it.

    It is named as Spark names its temporary files, so that one that stays is nobody's, and goes as theirs do.

    Raises:
        StateStoreFilesError: The file system fails.
    """
    name = f".clock.{uuid.uuid4()}.tmp"
    write(site.directory, f"{STATE}/{name}", b"")
    try:
        modified = [info.modified for info in site.directory.files(STATE) if info.name == name]
    finally:
        delete(site.directory, f"{STATE}/{name}")
    return Now(site.clock(), modified[0] if modified else None)
