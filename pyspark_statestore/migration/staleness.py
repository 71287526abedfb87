"""Whether merged files are older than the plain ones beside them: what the index knows would win over newer files."""

from __future__ import annotations

import datetime
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.inspect.logical_paths import Stores
from pyspark_statestore.inspect.scan import Scan
from pyspark_statestore.inspect.segments import time_of
from pyspark_statestore.inspect.state_files import STATE, is_state_file
from pyspark_statestore.migration.live_segments import LiveSegments
from pyspark_statestore.storage.directory import Directory, FileInfo

DROP = "Drop the merged files, if the plain ones are right: pyspark-statestore drop-merged"

_FORCE = "If the merged ones are right, since an earlier batch was gone back to, say so: force=True (--force)"

_CLOCKS_DIFFER = datetime.timedelta(minutes=10)
"""A segment's time is its writer's, a plain file's the file system's."""


def require_fresh(directory: Directory, found: Scan, there: Iterable[FileInfo]) -> None:
    """Refuses merged files after which somebody seems to have written plain ones, which merging never does.

    Where an export has left its marker, that one tells for sure; this is for where there is none.

    Args:
        directory: Of the checkpoint.
        found: Its merged files.
        there: Other files below ``state/``.

    Raises:
        StateStoreFilesError: PSS_STALE_MERGED.
    """
    live = LiveSegments.of(found)
    plain = [info for info in there if is_state_file(info.name)]
    if not len(live) or not plain:
        return
    known = set(live.path)
    newest = time_of(live.highest_stamp)
    # Who copies a directory without its times gives all files new ones.
    changed = [info.modified for info in found.infos.values() if info.modified is not None]
    since = max([newest, *changed]) + _CLOCKS_DIFFER
    late = [info for info in plain if info.modified is not None and info.modified > since]
    merged_to = highest_version(live.path)
    unknown = [info.name for info in plain if info.name not in known]
    reason = ""
    if late:
        reason = f"{STATE}/{late[0].name} was written after the newest segment of {newest:%Y-%m-%d %H:%M:%S} UTC"
    elif (plain_to := highest_version(unknown)) > merged_to:
        reason = f"there are plain files up to version {plain_to}, and segments up to {merged_to}"
    if reason:
        parameters = {"path": directory.location.url, "reason": reason, "action": f"{DROP}. {_FORCE}"}
        raise StateStoreFilesError("PSS_STALE_MERGED", parameters)


def highest_version(paths: list[str]) -> int:
    """The highest version that any of these files is of; -1 where none has one."""
    stores = Stores.of(pa.chunked_array([pa.array(paths, pa.string())]))
    versions = stores.versions(np.arange(len(paths)))[0].drop_null()
    return max(versions.to_pylist(), default=-1)
