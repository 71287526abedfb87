"""How old files are, by this process's clock and by the file system's: whichever says younger is right."""

from __future__ import annotations

import datetime
import uuid
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
