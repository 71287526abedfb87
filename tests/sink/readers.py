"""Readers of a file sink, of all kinds: by Spark's list, by directory, by glob, and streams that lag behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.fs as pafs
from pyspark.sql import DataFrame

from tests.sink.sinks import FileSink

Ids = Counter[int]
"""How often a reader finds each id."""

SCHEMA = "id long, word string"


def _ids(rows: DataFrame) -> Ids:
    return Counter(row["id"] for row in rows.select("id").collect())


def _batch(sink: FileSink, *paths: str, **options: str) -> Ids:
    """A batch reader of Spark's, which is told the columns and so finds no row where there is no file."""
    reader = sink.spark.read.schema(SCHEMA).format(sink.format).options(**sink.options).options(**options)
    return _ids(reader.load([*paths]))


def values(sink: FileSink) -> list[str]:
    """The directories of partition values."""
    return sorted(path.name for path in sink.files.iterdir() if path.is_dir() and "=" in path.name)


def by_list(sink: FileSink) -> Ids:
    """Spark, given the sink: it goes by the list."""
    return _batch(sink, sink.location)


def by_partition(sink: FileSink) -> Ids:
    """Spark, given the directories of all partition values, as a table of a metastore has them; or else all files."""
    return _batch(sink, *(f"{sink.location}/{value}" for value in values(sink) or ["part-*"]))


def by_glob(sink: FileSink) -> Ids:
    """Spark, given what is in the sink, at each depth at which there are files."""
    found = _batch(sink, f"{sink.location}/*")
    if sink.partition_by:
        assert _batch(sink, f"{sink.location}/*/*") == found
    return found


def by_recursion(sink: FileSink) -> Ids:
    """Spark, told to look into all directories of what is in the sink."""
    return _batch(sink, f"{sink.location}/*", recursiveFileLookup="true")


def by_pyarrow(sink: FileSink) -> Ids:
    """PyArrow, given the directory."""
    found = ds.dataset(str(sink.files), format=sink.format, partitioning="hive", filesystem=pafs.LocalFileSystem())
    return Counter(found.to_table(columns=["id"])["id"].to_pylist())


BY_DIRECTORY: dict[str, Callable[[FileSink], Ids]] = {
    "partition": by_partition,
    "glob": by_glob,
    "recursion": by_recursion,
    "pyarrow": by_pyarrow,
}
"""Readers that do not go by the list."""


def seen(sink: FileSink) -> dict[str, Ids]:
    """What each reader finds that begins now."""
    return {"list": by_list(sink), **{name: read(sink) for name, read in BY_DIRECTORY.items()}}


@dataclass
class Follower:
    """A stream that reads a sink, and stops each time when it has read what is there: so it lags until the next time.

    Attributes:
        sink: That it reads.
        folder: For its checkpoint and what it has read.
        options: Of the stream.
    """

    sink: FileSink
    folder: Path
    options: dict[str, str] = field(default_factory=dict)

    def follow(self) -> Ids:
        """Reads what it takes for new, and returns all that it has ever read."""
        sink = self.sink
        rows = sink.spark.readStream.schema(SCHEMA).format(sink.format).options(**sink.options).options(**self.options)
        writer = rows.load(sink.location).writeStream.format("parquet").outputMode("append")
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint")).trigger(availableNow=True)
        writer.start(str(self.folder / "out")).awaitTermination()
        return _ids(sink.spark.read.schema(SCHEMA).parquet(str(self.folder / "out")))
