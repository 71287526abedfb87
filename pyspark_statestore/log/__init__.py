"""What the entries of many merged files say together: what lives, what is dead, what may go.

The index is a union of facts that may be read in any order, so everything here works on whole columns at once and
keeps no state but :class:`TombstoneWatch`. Needs neither Spark nor fsspec.
"""

from pyspark_statestore.log.entries import Entries
from pyspark_statestore.log.resolution import FileTotals, Resolution, Status, resolve
from pyspark_statestore.log.rules import (
    HIGHEST_STAMP,
    MAX_GENERATION,
    FileState,
    TombstoneWatch,
    Unlink,
    UnlinkPlan,
    closed_tombstones,
    is_closed,
    is_expired,
    is_heeded,
    is_timely,
    newest_file,
    next_generation,
    pinned,
    plan_unlinks,
    relocatable,
)

__all__ = [
    "HIGHEST_STAMP",
    "MAX_GENERATION",
    "Entries",
    "FileState",
    "FileTotals",
    "Resolution",
    "Status",
    "TombstoneWatch",
    "Unlink",
    "UnlinkPlan",
    "closed_tombstones",
    "is_closed",
    "is_expired",
    "is_heeded",
    "is_timely",
    "newest_file",
    "next_generation",
    "pinned",
    "plan_unlinks",
    "relocatable",
    "resolve",
]
