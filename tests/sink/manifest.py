"""A reader of file sinks that is not Spark: it goes by Spark's list of files and reads these with pyarrow."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq

from tests.meanwhile import meanwhile


def listed(sink: Path) -> dict[str, list[Path]]:
    """What Spark's list of files names, by entry: ``7`` for a batch, ``9.compact`` for all batches up to one."""
    log = sink / "_spark_metadata"
    names = [path.name for path in log.glob("[0-9]*")] if log.exists() else []
    compact = max((int(name.partition(".")[0]) for name in names if name.endswith(".compact")), default=-1)
    found: dict[str, list[Path]] = {}
    for name in names:
        number = int(name.partition(".")[0])
        if number > compact or name == f"{compact}.compact":
            entries = [json.loads(line) for line in (log / name).read_text().splitlines()[1:]]
            found[name] = [Path(unquote(urlparse(e["path"]).path)) for e in entries if not e["isDir"]]
    return found


def ids(sink: Path, column: str) -> Counter[str]:
    """How often each value of a column is there, for a reader that begins now."""
    found: Counter[str] = Counter()
    for files in listed(sink).values():
        for file in files:
            found.update(pq.ParquetFile(file).read([column])[column].to_pylist())
    return found


@contextmanager
def reader(sink: Path, column: str, most_files: int) -> Iterator[list[str]]:
    """Reads all the time what is there, and notes what is wrong: rows seen twice, rows that go, small files.

    Args:
        sink: Its directory.
        column: Whose values are all different.
        most_files: Of a batch.

    Yields:
        What was wrong.
    """
    wrong: list[str] = []
    before: Counter[str] = Counter()

    def read() -> None:
        nonlocal before
        batches = {entry: len(files) for entry, files in listed(sink).items() if entry.isdecimal()}
        wrong.extend(f"batch {batch} has {count} files" for batch, count in batches.items() if count > most_files)
        now = ids(sink, column)
        wrong.extend(f"{value} is there {count} times" for value, count in now.items() if count > 1)
        wrong.extend(f"{value} has gone" for value in before - now)
        before = now

    with meanwhile(read, 0.05):
        yield wrong
