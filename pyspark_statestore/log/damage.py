"""What verification says of a checkpoint, one finding at a time."""

from __future__ import annotations

from dataclasses import dataclass

CORRUPT_SEGMENT = "corrupt_segment"
"""A live segment's bytes are not those that were written."""
CORRUPT_PLAIN_FILE = "corrupt_plain_file"
"""A state file that is not merged was cut off, or its checksum says otherwise."""
CORRUPT_INDEX = "corrupt_index"
"""An index block or a trailer is damaged."""
CORRUPT_FILE = "corrupt_file"
"""The header of a merged file is damaged, or it is none."""
UNSUPPORTED_VERSION = "unsupported_version"
"""A merged file of another format version."""
UNREADABLE_FILE = "unreadable_file"
"""The file system did not give a file out."""
TRUNCATED_FILE = "truncated_file"
"""A merged file ends too early, and something that is needed is missing."""
MISSING_FILE = "missing_file"
"""A merged file is gone that held something that is needed."""
DUPLICATED_FILE = "duplicated_file"
"""A merged file is there a second time, under a name that its writer did not give it."""
MISNAMED_FILE = "misnamed_file"
"""A merged file has another name than its writer gave it."""
INDEX_MISMATCH = "index_mismatch"
"""An index-only file does not say all that the file says that it speaks for."""
MISSING_SEGMENT = "missing_segment"
"""A snapshot that is needed names a file that is not there, or that has another size."""
UNRESTORABLE_VERSION = "unrestorable_version"
"""A version that has to be restorable is not."""
REFERENCE_COUNT = "reference_count"
"""The live segments of a file, counted a second time in another way, are others."""
TORN_TAIL = "torn_tail"
"""Bytes behind the last whole group, which nobody reads: what a killed writer left, as far as can be told."""

LOSES_FACTS = frozenset({CORRUPT_INDEX, CORRUPT_FILE, UNSUPPORTED_VERSION, UNREADABLE_FILE, TRUNCATED_FILE})
"""After these it is not known what else a merged file says."""


@dataclass(frozen=True)
class Damage:
    """One thing that is not as it should be.

    Attributes:
        kind: What it is, a stable text: one of the constants of this module.
        path: URL of the file, or of the place where a missing one should be.
        reason: For people.
        offset: In that file, where it is known.
        logical_path: Of the state file that it is about, relative to ``state/``.
        is_repairable: Whether it can be mended without losing anything.
        repaired: Whether it was.
    """

    kind: str
    path: str
    reason: str
    offset: int | None = None
    logical_path: str | None = None
    is_repairable: bool = False
    repaired: bool = False

    @property
    def name(self) -> str:
        """Of the file."""
        return self.path.rpartition("/")[2]

    def __str__(self) -> str:
        where = self.path if self.offset is None else f"{self.path} at offset {self.offset}"
        what = f" ({self.logical_path})" if self.logical_path else ""
        return f"{self.kind}: {where}{what}: {self.reason}"
