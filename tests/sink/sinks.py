"""Queries that write files, through stock Spark's commit protocol and through ours."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_statestore import merged_path
from pyspark_statestore.session.doors import COMMIT_PROTOCOL_KEY, COMPACTING_PROTOCOL
from tests.sink import manifest
from tests.streaming.runs import session_conf

TASKS = 4
"""So many tasks write each batch."""

STAGING, WAITING, REPLACED = (f"_spark_metadata/{name}" for name in ("_staging", "_waiting", "_replaced"))
"""Directories of a sink that no reader is to see."""

SCHEMA = "id long, p string, q int, word string, amount decimal(12,2), at timestamp"


def rows_of(batch: int, count: int = 40) -> list[dict[str, Any]]:
    """The input of a batch."""
    return [
        {
            "id": batch * count + number,
            "p": ["a", "b/c d=%", None][number % 3],
            "q": number % 2,
            "word": f'word {number}, "quoted" and ünlike' if number % 5 else None,
            "amount": f"{number}.25",
            "at": f"2024-02-03T04:05:{number % 60:02}.123456",
        }
        for number in range(count)
    ]


@dataclass
class FileSink:
    """A query that writes files, batch by batch.

    Attributes:
        spark: The session.
        folder: For its input, its checkpoint and its files.
        format: Of the files.
        partition_by: Columns.
        options: Of its writer.
        change: Makes the query of the input.
        scheme: Of the file system of the sink.
        url: Of a sink that is on no disk.
        fed: Batches of input.
        is_merged_path: Whether its checkpoint is on a merged path.
    """

    spark: SparkSession
    folder: Path
    format: str = "parquet"
    partition_by: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    change: Callable[[DataFrame], DataFrame] = lambda rows: rows.repartition(TASKS, "id")
    scheme: str = "file"
    url: str = ""
    fed: int = 0
    is_merged_path: bool = False

    def __post_init__(self) -> None:
        for name in ("input", "files"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    @property
    def files(self) -> Path:
        """The sink's directory."""
        return self.folder / "files"

    @property
    def location(self) -> str:
        """The sink's directory as Spark is told."""
        return self.url or f"{self.scheme}:{self.files}"

    @property
    def checkpoint(self) -> Path:
        """The query's checkpoint."""
        return self.folder / "checkpoint"

    @property
    def checkpoint_location(self) -> str:
        """The query's checkpoint as Spark is told."""
        return merged_path(str(self.checkpoint)) if self.is_merged_path else str(self.checkpoint)

    def feed(self, *batches: Sequence[Mapping[str, Any]]) -> None:
        """Adds input."""
        for rows in batches:
            text = "".join(json.dumps(row) + "\n" for row in rows)
            hidden = self.folder / "input" / f".{self.fed:06}.json"
            hidden.write_text(text)
            hidden.rename(hidden.with_name(f"{self.fed:06}.json"))
            self.fed += 1

    def run(self, *, compacting: bool = True, conf: Mapping[str, str] | None = None, **options: str) -> None:
        """Processes all input, each of its files as a batch."""
        with self.running(compacting=compacting, conf=conf, **options) as query:
            query.awaitTermination()

    @contextmanager
    def running(
        self, *, compacting: bool = True, conf: Mapping[str, str] | None = None, **options: str
    ) -> Iterator[StreamingQuery]:
        """Starts the query, which ends when all input is processed.

        A sink asks its session for the protocol in each batch, so the session's settings stay changed meanwhile.
        """
        protocol = {COMMIT_PROTOCOL_KEY: COMPACTING_PROTOCOL} if compacting else {}
        with session_conf(self.spark, {**protocol, **(conf or {})}):
            rows = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self.folder / "input"))
            writer = self.change(rows).writeStream.format(self.format).options(**self.options).options(**options)
            if self.partition_by:
                writer = writer.partitionBy(*self.partition_by)
            writer = writer.option("checkpointLocation", self.checkpoint_location).trigger(availableNow=True)
            yield writer.start(self.location)

    def read(self, **options: str) -> Counter[str]:
        """What a reader finds, by row."""
        reader = self.spark.read.format(self.format).options(**self.options).options(**options)
        return Counter(row[0] for row in reader.load(self.location).selectExpr("to_json(struct(*))").collect())

    def listed(self, batch: int) -> list[str]:
        """The files of a batch below the sink's directory, as its list names them."""
        return [str(path.relative_to(self.files)) for path in manifest.listed(self.files)[str(batch)]]

    def ids(self) -> list[int]:
        """The ids that a reader finds, each of which is to be there once."""
        if not self.url and not any(manifest.listed(self.files).values()):
            return []  # Spark finds no schema where all rows wait
        return sorted(row["id"] for row in self.spark.read.format(self.format).load(self.location).collect())

    def present(self) -> list[str]:
        """All files that are there, without those of Spark's list and without checksums."""
        found = (path.relative_to(self.files) for path in self.files.rglob("*") if path.is_file())
        return sorted(str(path) for path in found if path.parent != Path("_spark_metadata") and path.suffix != ".crc")

    def present_outside_staging(self) -> list[str]:
        """As `present`, without what is staged.

        A job that has failed or was cancelled tidies up without waiting for its other tasks. What one of them writes
        later stays in the staging directory for a day.
        """
        return [file for file in self.present() if not file.startswith(f"{STAGING}/")]


def both(
    spark: SparkSession, folder: Path, batches: Sequence[Sequence[Mapping[str, Any]]], **of_sink: Any
) -> tuple[FileSink, FileSink]:
    """The same batches through our protocol and through stock Spark's."""
    ours, stock = (FileSink(spark, folder / side, **of_sink) for side in ("ours", "stock"))
    for sink in (ours, stock):
        sink.feed(*batches)
        sink.run(compacting=sink is ours)
    return ours, stock
