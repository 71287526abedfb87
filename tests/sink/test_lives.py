"""Random lives of a sink: batches with and without joining, other options, delays, compactions, publications, cleaning.

After each step a reader that is no Spark finds each row once, with its values, or it waits. In the end all are there.
"""

from __future__ import annotations

import csv
import datetime
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession

from pyspark_statestore import Sink
from tests.conftest import MakeSpark
from tests.sampling import sampled
from tests.sink.handmade import unpack
from tests.sink.sinks import FileSink
from tests.sink.test_old_sinks import INTERVAL, listed

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="sinks")]

AT_ONCE = datetime.timedelta(0)
STEPS = 9
CODECS = {
    "parquet": ["snappy", "gzip", "zstd", "uncompressed"],
    "orc": ["snappy", "zlib", "zstd", "none"],
    "json": ["none", "gzip", "bzip2", "deflate"],
    "csv": ["none", "gzip", "bzip2"],
}


def rows_in(file: Path, header: bool) -> Iterator[tuple[int, str | None]]:
    """The id and the word of each row of a file."""
    if file.suffix == ".parquet":
        yield from ((row["id"], row["word"]) for row in pq.ParquetFile(file).read(["id", "word"]).to_pylist())
    elif file.suffix == ".orc":
        yield from ((row["id"], row["word"]) for row in orc.ORCFile(file).read(["id", "word"]).to_pylist())
    else:
        text = unpack(file.name, file.read_bytes()).decode()
        if ".json" in file.name:
            yield from ((row["id"], row.get("word")) for row in map(json.loads, text.splitlines()))
        else:
            lines = csv.reader(text.splitlines(), escapechar="\\")
            if header:
                next(lines)
            yield from ((int(line[0]), line[1] or None) for line in lines)


class Life:
    """A sink, what was done with it, and what it has to hold."""

    def __init__(self, spark: SparkSession, folder: Path, seed: int) -> None:
        self.random = draw = random.Random(seed)
        self.format = draw.choice([*CODECS])
        header = draw.random() < 0.5
        self.options = {"header": str(header)} if self.format == "csv" else {}
        self.header = header
        self.codecs = draw.sample(CODECS[self.format], 2)
        if "deflate" in self.codecs:
            self.codecs.remove("deflate")  # which Python's zlib reads in another way
        self.sink = FileSink(
            spark,
            folder / draw.choice(["s", "a b=%"]),
            format=self.format,
            partition_by=draw.choice([(), ("q",), ("p", "q")]),
            options=self.options,
            change=lambda rows: rows.select("id", "word", "p", "q").repartition(draw.randint(1, 5), "id"),
        )
        self.expected: dict[int, str | None] = {}
        self.did: list[str] = []

    def run(self) -> None:
        for _ in range(STEPS):
            step = self.random.choice([self.batches] * 3 + [self.compact, self.publish, self.clean])
            if not self.expected:
                step = self.batches
            step()
            self.check()
        self.publish()
        self.check()
        assert set(self.published()) == set(self.expected), self.did
        self.compact()
        self.clean()
        self.check()
        assert set(self.published()) == set(self.expected), self.did
        assert Sink(self.sink.files).verify().is_clean

    def rows(self) -> list[dict[str, Any]]:
        count, first = self.random.choice([1, 7, 40, 200]), len(self.expected)
        rows = []
        for number in range(first, first + count):
            word = self.random.choice([None, "0023", " b", f'w{number} "q", ü', "true"])
            rows.append({"id": number, "word": word, "p": self.random.choice(["a", "b/c %"]), "q": number % 3})
            self.expected[number] = word
        return rows

    def batches(self) -> None:
        options = {"compression": self.random.choice(self.codecs), "targetFileSize": self.random.choice(["2k", "64k"])}
        if self.random.random() < 0.4:
            options["maxDelay"] = "10h"
        if self.random.random() < 0.2 and self.format in ("parquet", "orc"):
            options["maxRecordsPerFile"] = str(self.random.choice([5, 50]))
        compacting = self.random.random() < 0.7
        self.did.append(f"batches {options} {compacting}")
        self.sink.feed(*(self.rows() for _ in range(self.random.randint(1, 3))))
        self.sink.run(compacting=compacting, conf=INTERVAL, **options)

    def compact(self) -> None:
        target = self.random.choice([1024, 4096, 20_000, 1 << 27])
        self.did.append(f"compact {target}")
        Sink(self.sink.files).compact(target_file_size=target, older_than=AT_ONCE, options=self.options)

    def publish(self) -> None:
        self.did.append("publish")
        Sink(self.sink.files).publish(idle_for=AT_ONCE, force=True, format=self.format, options=self.options)

    def clean(self) -> None:
        self.did.append("clean")
        Sink(self.sink.files).remove_orphan_files(AT_ONCE, dry_run=False, force=True)

    def published(self) -> dict[int, str | None]:
        return dict(self.found([self.sink.files / name for name in listed(self.sink)]))

    def found(self, files: list[Path]) -> list[tuple[int, str | None]]:
        return [row for file in files for row in rows_in(file, self.header)]

    def check(self) -> None:
        files = [self.sink.files / name for name in listed(self.sink)]
        waiting = [
            Path(path.removeprefix("file://")) for path in Sink(self.sink.files).waiting()["file_path"].to_pylist()
        ]
        found = self.found(files + waiting)
        assert len(found) == len(dict(found)), self.did
        assert dict(found) == self.expected, self.did


@pytest.mark.parametrize("seed", sampled(range(200), 2))
def test_a_life(make_spark: MakeSpark, tmp_path: Path, seed: int) -> None:
    Life(make_spark(), tmp_path, seed).run()
