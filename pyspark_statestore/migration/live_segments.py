"""What lives in merged files, and which of it is there as plain files, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pyspark_statestore.inspect.scan import Scan
from pyspark_statestore.inspect.state_files import STATE, StateFiles
from pyspark_statestore.maintenance.checked_bytes import checksum_of
from pyspark_statestore.storage.directory import Directory, FileInfo, in_parallel

_PARTS = 32


@dataclass(frozen=True)
class LiveSegments:
    """A row for each logical file that lives in a merged one.

    Attributes:
        path: Below ``state/``.
        row: Of its entry in the scan.
        stamp: Of the write.
        writer: Of the write.
        length: In bytes.
        crc32c: Of its bytes.
    """

    path: list[str] = field(repr=False)
    row: np.ndarray = field(repr=False)
    stamp: np.ndarray = field(repr=False)
    writer: np.ndarray = field(repr=False)
    length: np.ndarray = field(repr=False)
    crc32c: np.ndarray = field(repr=False)

    @classmethod
    def of(cls, scan: Scan) -> LiveSegments:
        """Takes them from a look."""
        entries = scan.entries
        rows = StateFiles.entry_rows(scan)
        columns = (getattr(entries, name)[rows] for name in ("stamp", "writer", "length", "crc32c"))
        return cls(entries.path.take(pa.array(rows)).to_pylist(), rows, *columns)

    def __len__(self) -> int:
        return len(self.path)

    @property
    def highest_stamp(self) -> int:
        """Of all writes; 0 without any."""
        return int(self.stamp.max()) if len(self.stamp) else 0

    def same(self, directory: Directory, there: Mapping[str, FileInfo], rows: np.ndarray) -> np.ndarray:
        """Tells which of these are there as plain files with the very same bytes; reads what has the right size.

        Args:
            directory: Where the plain files are.
            there: Files below its ``state/``.
            rows: Which are asked about.

        Raises:
            StateStoreFilesError: A file cannot be read.
        """
        found: np.ndarray = np.zeros(len(rows), bool)

        def look(positions: np.ndarray) -> None:
            for at in positions.tolist():
                path, length = self.path[rows[at]], int(self.length[rows[at]])
                if path in there and there[path].size == length:
                    found[at] = is_same(directory, path, length, int(self.crc32c[rows[at]]))

        in_parallel(look, [part for part in np.array_split(np.arange(len(rows)), _PARTS) if len(part)])
        return found


def is_same(directory: Directory, path: str, length: int, expected: int) -> bool:
    """Whether a plain file has these bytes.

    Args:
        directory: Of a checkpoint.
        path: Below its ``state/``.
        length: In bytes.
        expected: Its checksum.
    """
    try:
        with directory.open(f"{STATE}/{path}", length) as file:
            return checksum_of(file, 0, length) == expected
    except FileNotFoundError:
        return False
