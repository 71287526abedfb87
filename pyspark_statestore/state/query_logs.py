"""What a query's own logs say of its state: the newest version, which attempt at it counts, how stores write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark_statestore.inspect.spark_logs import COMMITS, OFFSETS, content_of, entries
from pyspark_statestore.state.contents import Encoding
from pyspark_statestore.storage import Directory

_STORE = "spark.sql.streaming.stateStore."
_DELIMITERS = {"1": b",", "2": b""}
"""Of ``rocksdb.mergeOperatorVersion``; logs that are older than the setting stand for 1."""


def newest_version(directory: Directory) -> int | None:
    """The version that the last committed batch left; None where no batch was committed."""
    batches = entries(directory, COMMITS)
    return max(batches) + 1 if batches else None


def checkpoint_ids(directory: Directory, operator_id: int, version: int) -> frozenset[str] | None:
    """With checkpoint format 2, ids of the attempts at a version that were committed; None where that is not known."""
    found = _json(directory, COMMITS, version - 1)
    ids = (found or {}).get("stateUniqueIds")
    if not isinstance(ids, Mapping) or str(operator_id) not in ids:
        return None
    partitions = ids[str(operator_id)]
    if not isinstance(partitions, list) or not all(isinstance(each, list) for each in partitions):
        return None
    return frozenset(str(each) for partition in partitions for each in partition)


def encoding(directory: Directory, version: int) -> Encoding:
    """How the query's stores write."""
    batches = entries(directory, OFFSETS)
    if not batches:
        return Encoding()
    found = _json(directory, OFFSETS, version - 1 if version - 1 in batches else max(batches))
    said = (found or {}).get("conf")
    conf = said if isinstance(said, Mapping) else {}
    return Encoding(
        delimiter=_DELIMITERS.get(str(conf.get(f"{_STORE}rocksdb.mergeOperatorVersion", "1")), b""),
        has_checksums=str(conf.get(f"{_STORE}rowChecksum.enabled", "false")).lower() == "true",
        is_unsafe_row=str(conf.get(f"{_STORE}encodingFormat", "unsaferow")).lower() == "unsaferow",
    )


def _json(directory: Directory, log: str, batch: int) -> Mapping[str, Any] | None:
    info = entries(directory, log).get(batch)
    try:
        return None if info is None else content_of(directory.read(f"{log}/{batch}", info.size))
    except ValueError:
        return None
