"""What Spark's own logs of a query and of its operators hold: a file for each batch, in it a version and then JSON."""

from __future__ import annotations

import re
from typing import Any

from pyspark_statestore.parsing import parse_object
from pyspark_statestore.storage.directory import Directory, FileInfo

_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
"""As Java's long and as Spark writes it: a name such as 007 would be looked for under another one."""

_OPERATOR = re.compile(r"0|[1-9][0-9]{0,8}")

COMMITS, OFFSETS = "commits", "offsets"
"""Logs of the query, in its checkpoint."""


def entries(directory: Directory, log: str) -> dict[int, FileInfo]:
    """The files of a log, by batch, in ascending order.

    Args:
        directory: Of the checkpoint.
        log: Such as ``commits``, relative to it.

    Raises:
        StateStoreFilesError: It cannot be listed.
    """
    found = {int(info.name): info for info in directory.files(log) if _NUMBER.fullmatch(info.name)}
    return dict(sorted(found.items()))


def content_of(data: bytes) -> dict[str, Any]:
    """What a file of a log says after its first line, which is the log's version.

    Raises:
        ValueError: That is no JSON object.
    """
    return parse_object(data.decode("utf-8").partition("\n")[2].partition("\n")[0])


def operators(directory: Directory) -> list[int]:
    """Ids of the stateful operators that have state.

    Raises:
        StateStoreFilesError: They cannot be listed.
    """
    return sorted(int(name) for name in directory.names("state") if _OPERATOR.fullmatch(name))


def operator_metadata(directory: Directory, operator_id: int) -> tuple[str, bytes] | None:
    """Where a stateful operator's newest metadata is, in the checkpoint, and its bytes; None where there is none.

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
