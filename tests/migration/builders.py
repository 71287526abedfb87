"""Small checkpoints, merged, stock or half and half, without Spark."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from pyspark_statestore import Checkpoint
from pyspark_statestore.session.doors import MERGED_PROVIDERS, PROVIDER_KEY, STOCK_PROVIDERS
from tests.inspect.builders import plain_file
from tests.maintenance import builders, faults
from tests.maintenance.faults import Breakage
from tests.maintenance.harness import live_files

STOCK, MERGED = STOCK_PROVIDERS["rocksdb"], MERGED_PROVIDERS["rocksdb"]

NOW = datetime.timedelta(0)


def offsets_text(provider: str, batch: int, version: str = "v1") -> str:
    """An entry of the offset log, with settings before and after the class."""
    conf = {"spark.sql.shuffle.partitions": "2", PROVIDER_KEY: provider, "spark.sql.x": f'"{PROVIDER_KEY}":"x"'}
    metadata = {"batchWatermarkMs": 0, "batchTimestampMs": batch, "conf": conf}
    return f'{version}\n{json.dumps(metadata, separators=(",", ":"))}\n{{"logOffset":{batch}}}'


def write_offsets(checkpoint: Path, provider: str, batches: Iterable[int]) -> None:
    """Writes entries, each with Hadoop's checksum, which is for other bytes as soon as they change."""
    for batch in batches:
        file = checkpoint / "offsets" / str(batch)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(offsets_text(provider, batch))
        file.with_name(f".{batch}.crc").write_bytes(b"crc\0of what was there")


def make(checkpoint: Path, kind: str = "merged", provider: str | None = None) -> Path:
    """Batches 0 to 3, with the other files that Spark keeps.

    Args:
        checkpoint: Where.
        kind: ``merged``, ``plain`` or ``mixed``.
        provider: The class; that of the kind unless given.
    """
    builders.make(checkpoint, kind)
    write_offsets(checkpoint, provider or (STOCK if kind == "plain" else MERGED), range(builders.LAST + 1))
    (checkpoint / "metadata").write_text('{"id":"4f5b"}')
    (checkpoint / ".metadata.crc").write_bytes(b"crc\0")
    source = checkpoint / "sources" / "0" / "0"
    source.parent.mkdir(parents=True)
    source.write_text("v1\n{}")
    return checkpoint


def make_small(checkpoint: Path) -> Path:
    """Batch 0 by stock Spark and batch 1 with merged state, and a plain file that the latter superseded."""
    builders.write_logs(checkpoint, range(2))
    write_offsets(checkpoint, MERGED, range(2))
    (checkpoint / "metadata").write_text('{"id":"4f5b"}')
    builders.write_version(checkpoint, 1, merged=False)
    builders.write_version(checkpoint, 2, merged=True)
    superseded(checkpoint, "0/1/2.changelog")
    return checkpoint


def providers(checkpoint: Path) -> list[str]:
    """What each entry of the offset log names, oldest first."""
    files = sorted((file for file in (checkpoint / "offsets").iterdir() if file.name.isdecimal()), key=_number)
    return [json.loads(file.read_text().split("\n")[1])["conf"][PROVIDER_KEY] for file in files]


def state_of_merged(checkpoint: Path) -> dict[str, bytes]:
    """What a query with merged state reads: segments, and plain files that they do not supersede."""
    return {**plain_state(checkpoint), **live_files(checkpoint)}


def plain_state(checkpoint: Path) -> dict[str, bytes]:
    """What stock Spark reads: the plain files, metadata left out."""
    state = checkpoint / "state"
    files = {str(file.relative_to(state)): file for file in state.rglob("*") if file.is_file()}
    return {
        path: file.read_bytes()
        for path, file in sorted(files.items())
        if not path.startswith("_merged/") and "_metadata" not in path and not file.name.startswith(".")
    }


def markers(checkpoint: Path) -> list[str]:
    """The endings of what is in ``_merged`` beside merged files."""
    folder = checkpoint / "state" / "_merged"
    found = sorted(file.suffix for file in folder.iterdir()) if folder.is_dir() else []
    return [suffix for suffix in found if suffix not in (".merged", ".tmp")]


def at(checkpoint: Path | str, **more: Any) -> Checkpoint:
    """The checkpoint, of which it is known that nobody writes to it."""
    return Checkpoint(checkpoint, closed_after=NOW, **more)


def stock_goes_on(checkpoint: Path, *, batch: int = builders.LAST + 1) -> None:
    """One more batch of stock Spark: its logs, and plain files of the next version."""
    last = json.loads((checkpoint / "offsets" / str(batch - 1)).read_text().split("\n")[1])["conf"][PROVIDER_KEY]
    write_offsets(checkpoint, last, [batch])
    (checkpoint / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    builders.write_version(checkpoint, batch + 1, merged=False)


def superseded(checkpoint: Path, path: str) -> None:
    """A plain file with other bytes under the path of a live segment, as stock Spark's last attempt left it."""
    file = plain_file(checkpoint, path, b"superseded")
    file.with_name(f".{file.name}.crc").write_bytes(b"crc\0of what was there")
    os.utime(file, (1_600_000_000, 1_600_000_000))


def breaking_file_system(breakage: Breakage) -> type[LocalFileSystem]:
    """As that of the other tests of maintenance, and renaming may fail, too."""

    class Renaming(faults.breaking_file_system(breakage)):  # type: ignore[misc]
        def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
            breakage.happens(f"rename {Path(path2).name}")
            super().mv(path1, path2, **kwargs)

    return Renaming


def _number(file: Path) -> int:
    return int(file.name)
