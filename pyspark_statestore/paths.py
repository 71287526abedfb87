"""The paths of the path door: ``merged+<scheme>:...``."""

from __future__ import annotations

import os
import re

from pyspark_statestore.errors import StateStoreFilesError

MERGED_PREFIX = "merged+"

SINK_LIST = "_spark_metadata"
"""The folder in which a file sink of Spark's has the list of its files."""

SCHEMES = ("file", "hdfs", "viewfs", "webhdfs", "s3a", "s3", "abfs", "abfss", "wasb", "gs", "oss", "cosn")
"""The schemes that ``configure`` sets up; the message of ``PSS_UNKNOWN_SCHEME`` says how to add another one."""

LIST_DEPTH = 3
"""How many directories below one are looked into for checkpoints, unless somebody says otherwise."""

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)


def merged_path(path: str | os.PathLike[str]) -> str:
    """Returns the ``checkpointLocation`` with which a query keeps its state in merged files.

    The checkpoint is in the same directory as without: ``merged+hdfs://nn/q1`` is the directory ``hdfs://nn/q1``.

    Args:
        path: A URI; a path without a scheme, which is a local one whatever ``fs.defaultFS`` says, and below the current
            directory if it is relative; or a merged path, which is returned unchanged.

    Returns:
        The path with the scheme ``merged+<scheme>``.

    Raises:
        StateStoreFilesError: PSS_BAD_PATH or PSS_UNKNOWN_SCHEME.

    Example:
        >>> merged_path("hdfs://nn/q1")
        'merged+hdfs://nn/q1'
        >>> merged_path("/tmp/q1")
        'merged+file:/tmp/q1'
    """
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(text, str):
        raise _bad(str(text), "it is not text")
    if text.startswith("/"):
        return f"{MERGED_PREFIX}file:{text}"
    found = _URI.fullmatch(text)
    if not found:
        if not text.strip():
            raise _bad(text, "it is empty; give a path or a URI such as hdfs://namenode/checkpoints/q1")
        # Whole: a restart from another directory must find the same checkpoint, and say so where it does not.
        return f"{MERGED_PREFIX}file:{os.path.abspath(text)}"
    scheme, rest = found[1].lower(), found[2]
    if reason := why_no_uri(scheme.removeprefix(MERGED_PREFIX), rest):
        raise _bad(text, reason)
    if scheme.startswith(MERGED_PREFIX):
        if not scheme.removeprefix(MERGED_PREFIX) or scheme.count(MERGED_PREFIX) > 1:
            raise _bad(text, f"{MERGED_PREFIX} has to be followed by one scheme, as in merged+hdfs://namenode/path")
        return text
    if scheme not in SCHEMES:
        parameters = {"scheme": scheme, "path": text, "known": ", ".join(SCHEMES)}
        raise StateStoreFilesError("PSS_UNKNOWN_SCHEME", parameters)
    return f"{MERGED_PREFIX}{scheme}:{rest}"


def why_no_uri(scheme: str, rest: str) -> str:
    """Says why a path with a scheme cannot be one, and how to write it; nothing where it can.

    Args:
        scheme: The scheme in lower case, without ``merged+``.
        rest: What comes after the colon.
    """
    if not rest.strip("/"):
        return "nothing follows the scheme. A scheme has to be followed by an absolute path or by //host/path"
    if not rest.startswith("/"):
        how = (
            ""
            if scheme != "file"
            else f": file://{os.path.abspath(os.path.expanduser(rest))}, or {rest} without a scheme"
        )
        return f"a scheme has to be followed by an absolute path or by //host/path{how}"
    host = rest[2:].partition("/")[0] if rest.startswith("//") else ""
    if scheme == "file" and host:
        below = rest[2:]
        return (
            f"{host!r} is the name of a host there, and a file of this machine has none. Write file:///{below} for "
            f"/{below}, or {below} without a scheme for what is below the current directory"
        )
    return ""


def _bad(path: str, reason: str) -> StateStoreFilesError:
    return StateStoreFilesError("PSS_BAD_PATH", {"path": path, "reason": reason})
