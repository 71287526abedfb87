"""Whether a query of this process, which knows that it was stopped, is the one that wrote a checkpoint last.

Nothing in a checkpoint tells: a query that was stopped leaves what one that waits for data has, too. Merged files may
all be sealed while their query runs, and stock Spark's files have no writer in them.
"""

from __future__ import annotations

from typing import Any

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.log.spark_logs import COMMITS, OFFSETS, entries
from pyspark_statestore.parsing import parse_object
from pyspark_statestore.storage.directory import Directory


def was_stopped(query: Any, directory: Directory, action: str) -> bool:
    """Whether the query of a checkpoint is known to be stopped, so that its files need not be old.

    The query's thread writes the logs and has ended when ``isActive`` is false. What its tasks and the maintenance of
    its stores still write are files of versions that are there, which a conversion does not touch.

    Args:
        query: The ``StreamingQuery`` that the checkpoint was found by; None without one.
        directory: The checkpoint's directory.
        action: What needs a stopped query, for the message.

    Returns:
        False where the query does not tell: another one has written to the checkpoint since, or it made no progress.
        One of another application that has written nothing yet is not noticed, as where only silence tells.

    Raises:
        StateStoreFilesError: PSS_QUERY_RUNNING where the query runs.
    """
    if query is None:
        return False
    run = query.runId if query.isActive else _run_in_session(query)
    if run is not None:
        parameters = {
            "action": action,
            "path": directory.location.url,
            "reason": f"its run {run} is active in this session",
            "override": "stop it, or wait for its last batch, and try again",
        }
        raise StateStoreFilesError("PSS_QUERY_RUNNING", parameters)
    progress = query.lastProgress
    if not progress or _id_of(directory) != str(query.id):
        return False
    # A trigger without data reports the next batch. One that was planned when the query was stopped made no progress.
    last = int(progress["batchId"]) - ("addBatch" not in progress["durationMs"])
    planned, committed = (max(entries(directory, log), default=-1) for log in (OFFSETS, COMMITS))
    return planned <= last + 1 and committed <= last


def _run_in_session(query: Any) -> str | None:
    """The run of the same query that was started again in its session; None without one."""
    running = query._jsq.sparkSession().streams().get(str(query.id))
    return None if running is None else str(running.runId().toString())


def _id_of(directory: Directory) -> str | None:
    """The id of the query that a checkpoint belongs to; None where it has none that can be read."""
    try:
        found = [info for info in directory.files("") if info.name == "metadata"]
        if not found:
            return None
        return str(parse_object(directory.read("metadata", found[0].size).decode())["id"])
    except (FileNotFoundError, ValueError, KeyError):
        return None
