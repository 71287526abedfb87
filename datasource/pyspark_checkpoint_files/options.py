"""The options of the data source."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pyspark_statestore.checkpoint import Checkpoint
from pyspark_statestore.conf import OPTIONS, Option
from pyspark_statestore.errors import StateStoreFilesError, did_you_mean, not_allowed
from pyspark_statestore.sink.sink import Sink

TABLES = ("files", "segments", "versions", "summary", "plain_files")
"""The tables about a checkpoint."""

SINK_TABLES = ("sink_files", "sink_log", "sink_waiting")
"""The tables about a file sink, whose directory is the path."""

NARROWED = ("segments", "versions")
"""The tables that can be narrowed to a store."""

STREAMED = "segments"
"""The table that can be read as a stream."""

_STORAGE = "storage."
_LARGEST_INT = (1 << 31) - 1

_NARROWING = {"operatorId": "operator_id", "partitionId": "partition_id", "storeName": "store_name"}
_NAMES = ("path", "table", *_NARROWING, "closedAfter", "settledAfter", "maxSegmentsPerTrigger", f"{_STORAGE}<key>")
_BY_LOWER_CASE = {name.lower(): name for name in _NAMES}


@dataclass(frozen=True)
class ReadOptions:
    """The options of one read.

    Attributes:
        path: The path of the checkpoint or of the sink. It is empty where it is not given yet, as when a catalog
            creates a table.
        table: One of :data:`TABLES` or :data:`SINK_TABLES`.
        narrowed: Those of ``operator_id``, ``partition_id`` and ``store_name`` that are given.
        closed_after: The query's ``closedAfter``.
        settled_after: How old a segment in an open file must be before a stream returns it.
        max_segments: The highest number of segments in a batch of a stream; None for any number.
        storage: Options of the fsspec file system.
    """

    path: str
    table: str
    narrowed: Mapping[str, Any]
    closed_after: datetime.timedelta
    settled_after: datetime.timedelta
    max_segments: int | None
    storage: Mapping[str, Any] = field(repr=False)  # it may hold passwords

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Reads the options that Spark passes, whose names are case-insensitive.

        Raises:
            StateStoreFilesError: PSS_UNKNOWN_OPTION or PSS_INVALID_OPTION, which list what is allowed.
        """
        if "provider" in options:
            options = _of_a_catalog(options)
        given: dict[str, str] = {}
        storage: dict[str, Any] = {}
        for key, value in options.items():
            lower = key.lower()
            if lower.startswith(_STORAGE) and lower != _STORAGE:
                storage[lower.removeprefix(_STORAGE)] = _storage_value(value)
            elif lower in _BY_LOWER_CASE:
                given[_BY_LOWER_CASE[lower]] = value
            else:
                hint = did_you_mean(key, _NAMES) or f"The options of checkpoint_files are: {', '.join(_NAMES)}."
                raise StateStoreFilesError("PSS_UNKNOWN_OPTION", {"key": key, "hint": hint})
        table = given.get("table", TABLES[0]).strip().lower()
        tables = (*TABLES, *SINK_TABLES)
        if table not in tables:
            meant = did_you_mean(table, tables)
            raise not_allowed("table", given["table"], ", ".join(tables) + (f" ({meant})" if meant else ""))
        narrowed: dict[str, Any] = {}
        for name, argument in _NARROWING.items():
            if name not in given:
                continue
            if table not in NARROWED:
                raise not_allowed(name, given[name], f"only with table {' or '.join(NARROWED)}; this is {table}")
            narrowed[argument] = given[name] if name == "storeName" else _integer(name, given[name])
        limit, closed = given.get("maxSegmentsPerTrigger"), OPTIONS["closedAfter"]
        return cls(
            # A name may end in a space.
            path=given.get("path", "") if given.get("path", "").strip() else "",
            table=table,
            narrowed=MappingProxyType(narrowed),
            closed_after=_duration("closedAfter", given.get("closedAfter", closed.default), minimum=closed.minimum),
            settled_after=_duration("settledAfter", given.get("settledAfter", "5s"), maximum="1h"),
            max_segments=None if limit is None else _integer("maxSegmentsPerTrigger", limit, lowest=1),
            storage=MappingProxyType(storage),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark sends readers to executors with pickle, which cannot handle a mapping proxy.
        fields = (self.path, self.table, dict(self.narrowed), self.closed_after, self.settled_after, self.max_segments)
        return type(self), (*fields, dict(self.storage))

    def checkpoint(self) -> Checkpoint:
        """Returns the checkpoint to read.

        Raises:
            StateStoreFilesError: The path is missing or cannot be used.
        """
        return Checkpoint(self._required_path(), self.storage, closed_after=self.closed_after)

    def sink(self) -> Sink:
        """Returns the file sink to read.

        Raises:
            StateStoreFilesError: The path is missing or cannot be used.
        """
        return Sink(self._required_path(), self.storage)

    def check_path(self) -> None:
        """Makes sure that a path is given.

        Raises:
            StateStoreFilesError: PSS_BAD_PATH.
        """
        self._required_path()

    def require_path(self) -> None:
        """Makes sure that there is something at the path, if it is given yet. One listing tells.

        Raises:
            StateStoreFilesError: PSS_NOT_A_CHECKPOINT or PSS_NOT_A_SINK, or the path cannot be used or listed.
        """
        if not self.path:
            return
        from pyspark_statestore.storage import Directory, Location

        directory = Directory(Location.of(self.path, self.storage))
        if self.table in SINK_TABLES:
            from pyspark_statestore.sink.file_list import check_sink

            check_sink(directory)
        else:
            from pyspark_statestore.log.scan import check_checkpoint

            check_checkpoint(directory)

    def _required_path(self) -> str:
        if not self.path:
            reason = "the option path is missing: give it to load(), to OPTIONS (path '...') or to WITH (path = '...')"
            raise StateStoreFilesError("PSS_BAD_PATH", {"path": self.path, "reason": reason})
        return self.path


def _of_a_catalog(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the option ``table`` of a table that a catalog creates: Spark asks for its columns, no more."""
    ours = {key: key.lower() for key in properties}
    for key, lower in ours.items():
        if lower != "table" and (lower in _BY_LOWER_CASE or lower.startswith(_STORAGE)):
            allowed = (
                "in CREATE TABLE only table, since Spark forgets other options: SELECT ... FROM it WITH (path = '...')"
            )
            raise not_allowed(key, properties[key], allowed)
    return {key: properties[key] for key, lower in ours.items() if lower == "table"}


def _integer(name: str, text: str, lowest: int = 0) -> int:
    number = int(text) if re.fullmatch(r"\s*\d{1,10}\s*", text, re.ASCII) else -1
    if not lowest <= number <= _LARGEST_INT:
        raise not_allowed(name, text, f"a whole number from {lowest} to {_LARGEST_INT}")
    return number


def _duration(name: str, text: str, minimum: str = "", maximum: str = "") -> datetime.timedelta:
    option = Option(name, "", "duration", "", minimum=minimum, maximum=maximum)
    try:
        milliseconds = option.parse(text)
        assert isinstance(milliseconds, int)
        return datetime.timedelta(milliseconds=milliseconds)
    except (StateStoreFilesError, OverflowError):
        raise not_allowed(name, text, option.allowed) from None


def _storage_value(text: str) -> Any:
    """Reads a text as what fsspec wants: a boolean, a mapping (as in ``client_kwargs``), a list, or the text."""
    if text.strip().lower() in ("true", "false"):
        return text.strip().lower() == "true"
    if text.lstrip().startswith(("{", "[")):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text
