"""Sinks made by hand whose files have rows: of any format, size and ending in any directory, listed as by Spark.

Their rows are read back without Spark and without the package, each format by a library of its own.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import random
import uuid
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from tests.sink import manifest
from tests.sink.made import line, write_list

Row = Mapping[str, object]

XML_OPENING = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n<ROWS>\n'


@dataclass
class MadeSink:
    """A sink whose files were made here.

    Attributes:
        folder: The sink's directory.
        batch: The batch that is listed next.
    """

    folder: Path
    batch: int = 0
    _modified: int = field(default=1_700_000_000_000)

    def add(self, files: Sequence[tuple[str, str, bytes]]) -> list[Path]:
        """Writes files and lists them as a batch.

        Args:
            files: Of each its directory below the sink, the ending of its name, such as ``.json.gz``, and its bytes.
        """
        lines, paths = [], []
        for number, (directory, ending, content) in enumerate(files):
            path = self.folder / directory / f"part-{number:05}-{uuid.uuid4()}-c000{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            url = "file://" + quote(str(path), safe="/=:@!$&'()*+,;-._~")
            lines.append(line(url, len(content), modificationTime=self._modified))
            paths.append(path)
        write_list(self.folder, lines, entry=str(self.batch))
        self.batch += 1
        return paths

    def listed(self) -> list[Path]:
        """The listed files."""
        return [path for paths in manifest.listed(self.folder).values() for path in paths]

    def rows(self, read: Reader) -> Counter[tuple[tuple[str, str], ...]]:
        """The rows of all listed files with their directories, without columns that are null."""
        found: Counter[tuple[tuple[str, str], ...]] = Counter()
        for path in self.listed():
            directory = str(path.parent.relative_to(self.folder))
            for row in read.rows(path):
                cells = sorted((name, repr(value)) for name, value in row.items() if value is not None)
                key = (("/", directory), *cells)
                found[key] += 1
        return found


def pack(name: str, content: bytes) -> bytes:
    """Compresses as the ending of a name says."""
    return (
        gzip.compress(content) if name.endswith(".gz") else bz2.compress(content) if name.endswith(".bz2") else content
    )


def unpack(name: str, content: bytes) -> bytes:
    """Undoes :func:`pack`."""
    opened = {".gz": gzip.decompress, ".bz2": bz2.decompress}
    return next((undo(content) for ending, undo in opened.items() if name.endswith(ending)), content)


@dataclass(frozen=True)
class Reader:
    """Writes and reads files of a format.

    Attributes:
        format: As for ``writeStream.format``.
        header: Whether a CSV has one.
    """

    format: str
    header: bool = False

    def bytes(self, rows: Sequence[Row], columns: Sequence[str], ending: str) -> bytes:
        """The content of a file."""
        if self.format in ("parquet", "orc"):
            types = {name: pa.int64() if name == "id" else pa.string() for name in columns}
            table = pa.table({name: pa.array([row.get(name) for row in rows], types[name]) for name in columns})
            out = io.BytesIO()
            codec = {"gz": "gzip"}.get(named := ending.rpartition(".")[0].strip("."), named) or "none"
            if self.format == "parquet":
                pq.write_table(table, out, compression=codec)
            else:
                orc.write_table(table, out, compression={"none": "uncompressed"}.get(codec, codec))
            return out.getvalue()
        if self.format == "json":
            text = "".join(
                json.dumps({name: row[name] for name in columns if row.get(name) is not None}, ensure_ascii=False)
                + "\n"
                for row in rows
            )
        elif self.format == "csv":
            out_text = io.StringIO()
            writer = csv.writer(out_text, lineterminator="\n")
            if self.header:
                writer.writerow(columns)
            writer.writerows([row.get(name) for name in columns] for row in rows)
            text = out_text.getvalue()
        elif self.format == "text":
            text = "".join(f"{row['value']}\n" for row in rows)
        else:
            cells = (
                "".join(f"        <{n}>{row[n]}</{n}>\n" for n in columns if row.get(n) is not None) for row in rows
            )
            text = XML_OPENING + "".join(f"    <ROW>\n{each}    </ROW>\n" for each in cells) + "</ROWS>"
        return pack(ending, text.encode())

    def rows(self, path: Path) -> list[Row]:
        """The rows of a file; of a CSV without header the cells have numbers for names."""
        if self.format == "parquet":
            return list(pq.ParquetFile(path).read().to_pylist())
        if self.format == "orc":
            return list(orc.ORCFile(path).read().to_pylist())
        text = unpack(path.name, path.read_bytes()).decode()
        if self.format == "json":
            return [json.loads(each) for each in text.splitlines()]
        if self.format == "text":
            return [{"value": each} for each in text.split("\n")[:-1]]
        if self.format == "csv":
            lines = list(csv.reader(io.StringIO(text, newline="")))
            names = lines.pop(0) if self.header else [str(number) for number in range(100)]
            return [{name: cell for name, cell in zip(names, each, strict=False) if cell} for each in lines]
        return [{cell.tag: cell.text for cell in row} for row in ElementTree.fromstring(text.encode())]


def values(random_: random.Random, number: int, columns: Sequence[str], texts: bool) -> Row:
    """A row: the column ``id`` tells it from all others."""
    row: dict[str, object] = {"id": number, "value": f"{number} " + "x" * random_.randrange(60)}
    for name in columns:
        if name not in row and random_.random() < 0.8:
            row[name] = random_.choice(["0023", "true", "1e5", "ü", f"w{number}"]) if texts else f" {number}\t,\"'"
    return row
