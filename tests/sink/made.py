"""Sinks that are made by hand, file by file: Spark's list and whatever lies beside. Their files have no rows."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

LONG_AGO = time.time() - 100 * 24 * 3600


def name(number: int, ending: str = "-c000.snappy.parquet", task: int = 0) -> str:
    """A name that Spark gives."""
    return f"part-{task:05}-{number:08x}-1111-4222-8333-{number:012x}{ending}"


def put(folder: Path, *paths: str, data: bytes = b"data") -> None:
    """Writes files that nobody has touched for long."""
    for path in paths:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        os.utime(file, (LONG_AGO, LONG_AGO))


def line(url: str, size: object = 4, **other: Any) -> str:
    """A line of the list."""
    said = {"path": url, "size": size, "isDir": False, "modificationTime": int(LONG_AGO * 1000)}
    return json.dumps({**said, "blockReplication": 1, "blockSize": 1 << 25, "action": "add", **other})


def make(folder: Path, listed: Sequence[str], *, entry: str = "0") -> Path:
    """A sink whose list names these files, which are there."""
    put(folder, *listed)
    write_list(folder, [line(f"file:{quote(str(folder / path))}") for path in listed], entry=entry)
    return folder


def write_list(folder: Path, lines: Sequence[str], *, entry: str = "0") -> None:
    """A file of the list with these lines."""
    put(folder, f"_spark_metadata/{entry}", data="\n".join(["v1", *lines]).encode())


def present(folder: Path) -> set[str]:
    """All files, and none of a checksum."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".crc")
    return {str(path.relative_to(folder)) for path in found}
