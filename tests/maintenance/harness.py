"""What lives in a checkpoint, read slowly, and somebody who works there at another time."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any

from pyspark_statestore.format import Entry, Kind, read_merged_file
from pyspark_statestore.format.reader import BytesSource
from pyspark_statestore.log.merged_log import MergedLog
from pyspark_statestore.storage import Directory, Location
from tests.inspect.builders import merged_paths

CLOSED_AFTER = datetime.timedelta(minutes=10)


def live_files(checkpoint: Path) -> dict[str, bytes]:
    """The bytes of each logical file that is read: the rules 3 to 5, entry by entry."""
    killed: dict[str, tuple[int, int]] = {}
    best: dict[str, tuple[Any, bytes]] = {}
    facts: list[tuple[str, Entry, bytes]] = []
    for path in merged_paths(checkpoint):
        if not path.name.endswith(".index.merged"):
            data = path.read_bytes()
            for entry in read_merged_file(BytesSource(data)):
                facts.append((path.name, entry, data[entry.offset : entry.offset + entry.length]))
    for _, entry, _ in facts:
        if entry.kind is Kind.DELETE:
            killed[entry.path] = max(entry.key, killed.get(entry.path, (-1, -1)))
    for name, entry, data in facts:
        if entry.kind is Kind.PUT and entry.key > killed.get(entry.path, (-1, -1)):
            rank = (entry.key, entry.generation, name, entry.offset)
            if entry.path not in best or rank > best[entry.path][0]:
                best[entry.path] = (rank, data)
    return {path: data for path, (_, data) in sorted(best.items())}


def dead_files(checkpoint: Path) -> list[str]:
    """Names of merged files without a live segment."""
    from pyspark_statestore import Checkpoint

    table = Checkpoint(checkpoint).inspect.files().to_pylist()
    return [Path(row["file_path"]).name for row in table if not row["live_segment_count"]]


def merged_log_of(checkpoint: Path, later: datetime.timedelta = datetime.timedelta(0), **rest: Any) -> MergedLog:
    """Somebody who works there.

    Args:
        checkpoint: Its directory.
        later: What the clock is ahead.
        rest: As for :class:`MergedLog`.
    """

    def clock() -> datetime.datetime:
        return datetime.datetime.now(datetime.timezone.utc) + later

    return MergedLog(Directory(Location.of(checkpoint)), rest.pop("closed_after", CLOSED_AFTER), clock=clock, **rest)


def grow_old(checkpoint: Path, but: str = "") -> None:
    """Nothing in the directory has changed for two days, except for one file."""
    now = datetime.datetime.now().timestamp()
    for path in (checkpoint / "state" / "_merged").iterdir():
        at = now if path.name == but else now - 2 * 86_400
        os.utime(path, (at, at))
