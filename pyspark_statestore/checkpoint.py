"""A checkpoint as an object: what is asked of it and done with it hangs off here."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark_statestore.conf import OPTIONS
from pyspark_statestore.errors import StateStoreFilesError

if TYPE_CHECKING:
    from pyspark_statestore.inspect import Inspection
    from pyspark_statestore.storage import Location

CLOSED_AFTER = datetime.timedelta(milliseconds=int(OPTIONS["closedAfter"].parse(OPTIONS["closedAfter"].default)))
"""Default of the option ``closedAfter``."""


class Checkpoint:
    """The checkpoint of a streaming query, with merged state or without.

    Nothing is read before a question is asked, and each question looks afresh: it may be asked while the query runs.

    Args:
        path: The query's ``checkpointLocation``: a local path or a URL, with ``merged+`` before it or without; those of
            Hadoop (``s3a://``, ``wasbs://``) are understood.
        storage_options: For the fsspec file system, such as ``{"anon": True}``.
        closed_after: As the query's ``closedAfter``: after how long without a change nobody appends to a file any more.

    Raises:
        StateStoreFilesError: PSS_BAD_PATH, PSS_MISSING_DEPENDENCY (says which extra to install), PSS_INVALID_OPTION.

    Example:
        >>> checkpoint = Checkpoint("s3://bucket/checkpoints/q1")
        >>> checkpoint.inspect.summary().to_pylist()[0]["space_amplification"]
        1.27
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None = None,
        *,
        closed_after: datetime.timedelta = CLOSED_AFTER,
    ) -> None:
        from pyspark_statestore.storage import Location

        if not isinstance(closed_after, datetime.timedelta) or closed_after < datetime.timedelta(0):
            allowed = "a datetime.timedelta of no time or more"
            parameters = {"key": "closed_after", "value": closed_after, "allowed": allowed}
            raise StateStoreFilesError("PSS_INVALID_OPTION", parameters)
        self._location: Location = Location.of(path, storage_options)
        self._closed_after = closed_after

    @classmethod
    def of(
        cls,
        query: Any,
        storage_options: Mapping[str, Any] | None = None,
        *,
        closed_after: datetime.timedelta = CLOSED_AFTER,
    ) -> Checkpoint:
        """Finds the checkpoint of a query.

        Args:
            query: A ``StreamingQuery`` of a classic session, running or stopped. (Spark Connect and Spark's listeners
                do not tell where a checkpoint is: give its path to :class:`Checkpoint`.)
            storage_options: For the fsspec file system.
            closed_after: As for :class:`Checkpoint`.

        Raises:
            StateStoreFilesError: PSS_UNKNOWN_LOCATION where the query does not tell.
        """
        wrapper = getattr(query, "_jsq", None)
        if wrapper is None:
            what = f"a {type(query).__module__}.{type(query).__name__}"
            reason = "only the StreamingQuery of a classic session knows"
            raise StateStoreFilesError("PSS_UNKNOWN_LOCATION", {"what": what, "reason": reason})
        try:
            path = str(wrapper.streamingQuery().resolvedCheckpointRoot())
        except Exception as error:  # py4j's, where the JVM is gone
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise StateStoreFilesError("PSS_UNKNOWN_LOCATION", {"what": "the query", "reason": reason}) from error
        return cls(path, storage_options, closed_after=closed_after)

    @property
    def url(self) -> str:
        """Where it is, without ``merged+``."""
        return self._location.url

    @cached_property
    def inspect(self) -> Inspection:
        """What is in it."""
        from pyspark_statestore.inspect import Inspection

        return Inspection(self._location, self._closed_after)

    def __repr__(self) -> str:
        return f"Checkpoint({self.url!r})"
