"""Spark's own logs of a query and of its operators: a file for each batch, with a version and then JSON in it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from pyspark_statestore.parsing import parse_object
from pyspark_statestore.storage.directory import Directory, FileInfo

_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
"""A batch's number as Spark writes it, within Java's long. Spark never looks for a name such as 007."""

_OPERATOR = re.compile(r"0|[1-9][0-9]{0,8}")

COMMITS, OFFSETS = "commits", "offsets"
"""Logs of the query, in its checkpoint."""

PARTITIONS_KEY = "spark.sql.shuffle.partitions"
"""The setting in the offset log that says how many state partitions each stateful operator has."""


def entries(directory: Directory, log: str) -> dict[int, FileInfo]:
    """Lists the files of a log, by batch, in ascending order.

    Args:
        directory: The checkpoint's directory.
        log: The log's path in it, such as ``commits``.

    Raises:
        StateStoreFilesError: It cannot be listed.
    """
    found = {int(info.name): info for info in directory.files(log) if _NUMBER.fullmatch(info.name)}
    return dict(sorted(found.items()))


def missing_entry(commits: Collection[int], offsets: Collection[int], batch: int) -> str:
    """Names an entry of the query's logs that a restart after a batch needs, and that is not there; nothing if all are.

    Args:
        commits: The batches in the log of commits.
        offsets: The batches in the offset log.
        batch: The batch after which the query would go on.
    """
    if batch not in commits:
        return f"{COMMITS}/{batch}"
    # A restart reads the offsets of the batch before the last one, too.
    return next((f"{OFFSETS}/{each}" for each in range(max(0, batch - 1), batch + 1) if each not in offsets), "")


def content_of(data: bytes) -> dict[str, Any]:
    """Reads the JSON object in a log's file, after the first line, which is the log's version.

    Raises:
        ValueError: There is no JSON object.
    """
    return parse_object(data.decode("utf-8").partition("\n")[2].partition("\n")[0])


def newest_batches(directory: Directory) -> tuple[int, int]:
    """Returns the newest batches in the offset log and in the log of commits; -1 where there is none.

    Who is about to delete state compares them with what they were when that was decided: a query may have gone on.

    Raises:
        StateStoreFilesError: A log cannot be listed.
    """
    return max(entries(directory, OFFSETS), default=-1), max(entries(directory, COMMITS), default=-1)


def partitions_of(directory: Directory, batch: int, offsets: Mapping[int, FileInfo] | None = None) -> int | None:
    """Returns how many state partitions each stateful operator had in a batch; None where the offset log does not say.

    Metadata of operators says it, too. In its first format it keeps the first number, whatever a repartitioning does.

    Args:
        directory: The checkpoint's directory.
        batch: The batch.
        offsets: The files of the offset log, where they are listed already.

    Raises:
        StateStoreFilesError: The entry cannot be read.
    """
    try:
        return int(setting_of(directory, batch, PARTITIONS_KEY, offsets) or "")
    except ValueError:
        return None


def setting_of(directory: Directory, batch: int, key: str, offsets: Mapping[int, FileInfo] | None = None) -> str | None:
    """Returns a setting that the offset log has for a batch; None where it does not say.

    Args:
        directory: The checkpoint's directory.
        batch: The batch.
        key: The setting's name.
        offsets: The files of the offset log, where they are listed already.

    Raises:
        StateStoreFilesError: The entry cannot be read.
    """
    info = (entries(directory, OFFSETS) if offsets is None else offsets).get(batch)
    if info is None:
        return None
    try:
        said = content_of(directory.read(f"{OFFSETS}/{batch}", info.size)).get("conf", {})
        return str(said[key])
    except (ValueError, KeyError, TypeError, FileNotFoundError):
        return None


def operators(directory: Directory) -> list[int]:
    """Lists the ids of the stateful operators that have state.

    Raises:
        StateStoreFilesError: They cannot be listed.
    """
    return sorted(int(name) for name in directory.names("state") if _OPERATOR.fullmatch(name))


def operator_metadata(directory: Directory, operator_id: int) -> tuple[str, bytes] | None:
    """Reads a stateful operator's newest metadata: its path in the checkpoint, and its bytes; None without metadata.

    Raises:
        FileNotFoundError: It is gone.
        StateStoreFilesError: It cannot be read.
    """
    folder = f"state/{operator_id}/_metadata"
    found = [(f"v2/{info.name}", info) for info in entries(directory, f"{folder}/v2").values()]
    found = found or [(info.name, info) for info in directory.files(folder) if info.name == "metadata"]
    if not found:
        return None
    name, info = found[-1]
    return f"{folder}/{name}", directory.read(f"{folder}/{name}", info.size)
