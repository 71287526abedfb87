"""What a checkpoint has to do with others: which one it is a fork of, and which are forks of it."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_statestore.forks.origin import read_origin
from pyspark_statestore.forks.pins import pins_among
from pyspark_statestore.inspect.scan import Scan
from pyspark_statestore.storage import Directory


@dataclass(frozen=True)
class Kinship:
    """The answer.

    Attributes:
        forked_from: URL of the checkpoint that it was made of; None where it is no fork.
        fork_count: Forks that have files here pinned.
    """

    forked_from: str | None
    fork_count: int

    @classmethod
    def of(cls, directory: Directory, scan: Scan) -> Kinship:
        """Reads what lies beside the merged files; nothing where nothing does.

        Raises:
            FileNotFoundError: Something was deleted meanwhile: look again.
            StateStoreFilesError: It cannot be read.
        """
        origin = read_origin(directory, scan)
        forks = {pin.fork for pin in pins_among(directory, scan.others) if pin.fork}
        return cls(None if origin is None else origin.url, len(forks))
