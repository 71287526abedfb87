"""An offline repartitioning that Spark has begun and could not finish, and the way back.

Spark's ``StreamingCheckpointManager.repartition`` first enters a batch in the offset log that has all that the last
committed one has, but for the number of partitions. Told to, it marks batches between the two as committed, which were
begun and never ended. Only then does it look whether it knows the state. Where it does not, what it has entered keeps
the query from starting for ever (``STREAMING_UNFINISHED_REPARTITION_DETECTED``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.inspect.spark_logs import COMMITS, OFFSETS, entries
from pyspark_statestore.migration.offset_log import OffsetEntry
from pyspark_statestore.migration.staleness import highest_version
from pyspark_statestore.storage.changes import delete
from pyspark_statestore.storage.directory import Directory
from pyspark_statestore.storage.whole_files import forget_checksum

PARTITIONS_KEY = "spark.sql.shuffle.partitions"


@dataclass(frozen=True)
class UnfinishedRepartition:
    """What such a repartitioning has left in a query's logs.

    Attributes:
        batch: That it entered in the offset log.
        partitions: How many there were to be.
        files: What it wrote, such as ``offsets/7``, with the contents; in the order in which it is taken away.
    """

    batch: int
    partitions: str
    files: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def found(cls, directory: Directory, log: Sequence[OffsetEntry]) -> UnfinishedRepartition | None:
        """Looks for one.

        Args:
            directory: Of the checkpoint.
            log: All entries of its offset log.

        Raises:
            StateStoreFilesError: It cannot be read.
        """
        if not log or not log[-1].is_whole:
            return None
        newest = log[-1]
        committed = entries(directory, COMMITS)
        base = None if newest.batch in committed else _base_of(newest, log[:-1])
        if base is None:
            return None
        # The entry that bars the query from starting goes last: whoever is interrupted finds the rest by it.
        skipped = [batch for batch in reversed(committed) if batch > base.batch]
        files = {f"{COMMITS}/{b}": directory.read(f"{COMMITS}/{b}", committed[b].size) for b in skipped}
        files[f"{OFFSETS}/{newest.batch}"] = newest.data
        return cls(newest.batch, _without_partitions(newest)[0], files)

    def require_no_state(self, directory: Directory, state: Iterable[str]) -> None:
        """Refuses to undo what has written state already: the query would take that for its own.

        Args:
            directory: Of the checkpoint.
            state: Paths of state files below ``state/``.

        Raises:
            StateStoreFilesError: PSS_UNFINISHED_REPARTITION.
        """
        highest = highest_version(list(state))
        if highest > self.batch:
            parameters = {
                "path": directory.location.url,
                "batch": self.batch,
                "partitions": self.partitions,
                "reason": f"there are state files of version {highest}",
            }
            raise StateStoreFilesError("PSS_UNFINISHED_REPARTITION", parameters)

    def undo(self, directory: Directory) -> None:
        """Takes away what it wrote in the logs.

        Raises:
            StateStoreFilesError: A file cannot be deleted.
        """
        for name in self.files:
            forget_checksum(directory, name)
            delete(directory, name)


def _base_of(newest: OffsetEntry, older: Sequence[OffsetEntry]) -> OffsetEntry | None:
    """The entry from which it was made; a query's own batches differ in more, such as the time."""
    partitions, rest = _without_partitions(newest)
    for entry in reversed(older):
        others, same = _without_partitions(entry)
        if same == rest and rest is not None and others != partitions:
            return entry
    return None


def _without_partitions(entry: OffsetEntry) -> tuple[str, object]:
    """The number of partitions, and all else that an entry says; None where it does not say the number."""
    version, _, rest = entry.data.decode("utf-8").partition("\n")
    metadata, _, sources = rest.partition("\n")
    said = json.loads(metadata) if metadata.strip() else {}
    partitions = said.get("conf", {}).pop(PARTITIONS_KEY, None)
    return str(partitions), None if partitions is None else (version, said, sources)
