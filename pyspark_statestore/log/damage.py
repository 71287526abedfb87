"""The kinds of damage that a verification finds, and one finding."""

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
"""The file system cannot read a merged file."""
TRUNCATED_FILE = "truncated_file"
"""A merged file ends too early, and something that is needed is missing."""
MISSING_FILE = "missing_file"
"""A merged file is gone that held something that is needed."""
DUPLICATED_FILE = "duplicated_file"
"""A copy of a merged file lies beside it, under a name that its writer did not give it."""
MISNAMED_FILE = "misnamed_file"
"""A merged file has another name than its writer gave it."""
INDEX_MISMATCH = "index_mismatch"
"""An index-only file does not say all that is in a file that it speaks for."""
MISSING_SEGMENT = "missing_segment"
"""A snapshot that is needed names a file that is not there, or that has another size."""
UNRESTORABLE_VERSION = "unrestorable_version"
"""A version that has to be restorable is not."""
REFERENCE_COUNT = "reference_count"
"""Two ways of counting the live segments of a file give different numbers: a mistake of this package."""
VERSION_GAP = "version_gap"
"""A store lacks versions that are likely to have been there: those around them are, or other stores have them."""
TORN_TAIL = "torn_tail"
"""Bytes behind the last whole group, which nobody reads: a killed writer has left them, as far as can be told."""

LOSES_ENTRIES = frozenset({CORRUPT_INDEX, CORRUPT_FILE, UNSUPPORTED_VERSION, UNREADABLE_FILE, TRUNCATED_FILE})
"""With one of these it is not known what else is in a merged file."""


@dataclass(frozen=True)
class Damage:
    """One thing that is not as it should be.

    Attributes:
        kind: What is wrong, a stable text: one of the constants of this module.
        path: The URL of the file, or of the place where a missing one should be.
        reason: What is wrong, for people.
        offset: Where in that file, if it is known.
        logical_path: The path of the state file that it is about, relative to ``state/``.
        is_repairable: Whether it can be repaired without losing anything.
        repaired: Whether it was repaired.
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
        """The name of the file."""
        return self.path.rpartition("/")[2]

    def __str__(self) -> str:
        where = self.path if self.offset is None else f"{self.path} at offset {self.offset}"
        what = f" ({self.logical_path})" if self.logical_path else ""
        return f"{self.kind}: {where}{what}: {self.reason}"
