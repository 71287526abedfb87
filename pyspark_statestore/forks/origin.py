"""Where a fork came from: a small file beside its merged ones, also when it needs nothing of the source any more."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pyspark_statestore.format import parse_file_name
from pyspark_statestore.inspect.scan import MERGED, Scan
from pyspark_statestore.parsing.json_text import parse_object, whole_number
from pyspark_statestore.storage import Directory
from pyspark_statestore.storage.changes import write

ORIGIN_SUFFIX = ".origin"


@dataclass(frozen=True)
class Origin:
    """What a fork says of itself.

    Attributes:
        source: Path of the checkpoint that was forked, in its file system.
        url: The same as people wrote it.
        version: Of the state that the fork began with.
        mode: ``no_claim``, ``claim`` or ``copy``.
        created_ms: When it was made, in Unix milliseconds.
    """

    source: str
    url: str
    version: int
    mode: str
    created_ms: int


def write_origin(directory: Directory, name: str, origin: Origin) -> None:
    """Writes it down.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED.
    """
    write(directory, f"{MERGED}/{name}", json.dumps(asdict(origin), ensure_ascii=False).encode())


def read_origin(directory: Directory, scan: Scan) -> Origin | None:
    """Reads it; None where the checkpoint is no fork, or what it says is not understood.

    Raises:
        FileNotFoundError: It is gone.
        StateStoreFilesError: It cannot be read.
    """
    for name, info in scan.others.items():
        if name.endswith(ORIGIN_SUFFIX) and parse_file_name(name.removesuffix(ORIGIN_SUFFIX) + ".merged"):
            try:
                found = parse_object(directory.read(f"{MERGED}/{name}", info.size))
                source, url, mode = (str(found[key]) for key in ("source", "url", "mode"))
                version, created_ms = (whole_number(found[key], key) for key in ("version", "created_ms"))
                return Origin(source, url, version, mode, created_ms)
            except (ValueError, KeyError):
                return None
    return None
