"""What the entries of many merged files say together: what lives, what is dead, what may go.

An index is a set of entries that may be read in any order, so resolving them works on whole columns at once, and the
rules are functions without state, except for :class:`TombstoneWatch`. What this module exports needs neither Spark nor
fsspec; the modules around it list, read and write files.
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
    lets_go,
    newest_file,
    next_generation,
    pinned,
    plan_unlinks,
    released,
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
    "lets_go",
    "newest_file",
    "next_generation",
    "pinned",
    "plan_unlinks",
    "released",
    "relocatable",
    "resolve",
]
