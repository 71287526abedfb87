"""Whether a query seems to be running, from what it leaves in its checkpoint."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.inspect.segments import time_of
from pyspark_statestore.inspect.spark_logs import COMMITS, OFFSETS, entries
from pyspark_statestore.maintenance.ages import Now
from pyspark_statestore.maintenance.site import Site, View
from pyspark_statestore.storage.directory import FileInfo

_SEALED_AFTER = datetime.timedelta(hours=1)
"""No merged file stays open for longer."""


def require_stopped(
    site: Site, view: View, plain: Iterable[FileInfo], now: Now, action: str, ours: Collection[str] = ()
) -> None:
    """Refuses to go on where anything in the checkpoint is so new that a query may have written it just now.

    Args:
        site: Of the checkpoint.
        view: Of its merged files.
        plain: Its other state files.
        now: What time it is.
        action: What needs a query that is stopped, for the message.
        ours: Files of the query's logs, such as ``offsets/7``, that this package wrote last.

    Raises:
        StateStoreFilesError: PSS_QUERY_RUNNING, or the checkpoint cannot be read.
    """
    for reason in _signs(site, view, plain, now, ours):
        override = "wait a little, or say so with force=True (--force)"
        parameters = {"action": action, "path": site.directory.location.url, "reason": reason, "override": override}
        raise StateStoreFilesError("PSS_QUERY_RUNNING", parameters)


def _signs(site: Site, view: View, plain: Iterable[FileInfo], now: Now, ours: Collection[str]) -> Iterator[str]:
    def is_new(info: FileInfo, within: datetime.timedelta = site.closed_after) -> bool:
        return info.modified is None or now.age(info.modified) < within

    for log in (COMMITS, OFFSETS):
        written = (info for info in entries(site.directory, log).values() if f"{log}/{info.name}" not in ours)
        if any(is_new(info) for info in written):
            yield f"a file in {log} was written in the last {site.closed_after}"
    # HDFS shows the time of its creation as that of an open file's last change.
    within = site.closed_after + (_SEALED_AFTER if site.directory.lists_old_lengths else datetime.timedelta(0))
    for name, file in view.scan.files.items():
        if not file.sealed and is_new(view.scan.infos[name], within):
            yield f"{name} is not sealed and was changed in the last {within}"
    newest = time_of(view.highest_stamp)
    if now.here - newest < site.closed_after:
        yield f"the newest segment was written at {newest:%Y-%m-%d %H:%M:%S} UTC"
    if any(is_new(info) for info in plain):
        yield f"a state file was written in the last {site.closed_after}"
