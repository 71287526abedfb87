"""Of the same files, the Python index and the Java index say the same."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore.format import BytesSource, MergedFileWriter, file_name, read_merged_file
from pyspark_statestore.log import Entries, Status, resolve
from tests.jvm.harness import CREATED_MS, STAMP, Checkpoint
from tests.jvm.vectors import DIRECTORY, WRITER

pytestmark = pytest.mark.spark


@pytest.fixture
def checkpoint(jvm: Any, tmp_path: Path) -> Iterator[Checkpoint]:
    made = Checkpoint(jvm, tmp_path / "checkpoint")
    made.merged.mkdir(parents=True)
    yield made
    made.forget()


def agree(checkpoint: Checkpoint) -> int:
    """Compares all that either index says of the files that are there; how many paths live."""
    sources = {path.name: BytesSource(path.read_bytes()) for path in checkpoint.merged.glob("*.merged")}
    resolution = resolve(Entries.read({name: read_merged_file(source, name) for name, source in sources.items()}))
    checkpoint.exists("0/0")  # opens the log
    index = checkpoint.log.index()
    entries = resolution.entries
    live = resolution.to_arrow()
    assert len(index.listRecursively("")) == len(live)
    for row in live.to_pylist():
        segment = index.find(row["path"])
        found = segment.entry()
        assert segment.file().name() == row["file"]
        said = (found.offset(), found.length(), found.stamp(), found.writer(), found.generation(), found.type())
        assert said == tuple(row[name] for name in ("offset", "length", "stamp", "writer", "generation", "type"))
        assert found.crc32c() & 0xFFFFFFFF == row["crc32c"]
    dead = entries.take((resolution.status == Status.DELETED).nonzero()[0]).path.to_pylist()
    assert [path for path in dead if path not in set(live["path"].to_pylist()) and index.find(path) is not None] == []
    files = list(index.files())
    assert sorted(file.name() for file in files) == list(entries.files)
    for file in files:
        number = entries.files.index(file.name())
        assert index.referenceCount(file) == resolution.totals.live_segment_count[number]
    assert index.liveBytes() == resolution.live_bytes
    return len(live)


def test_the_vectors_of_both(checkpoint: Checkpoint) -> None:
    # The first two are what Python's index-only file refers to.
    vectors = ["python-relocated", "python-sealed"]
    vectors += sorted({path.stem for path in DIRECTORY.glob("*.merged")} - set(vectors))
    for number, vector in enumerate(vectors, start=1):
        name = file_name(CREATED_MS, WRITER, number, index_only="index-only" in vector)
        shutil.copy(DIRECTORY / f"{vector}.merged", checkpoint.merged / name)

    assert agree(checkpoint) > 5


@pytest.mark.parametrize("seed", range(3))
def test_files_of_python(checkpoint: Checkpoint, seed: int) -> None:
    rnd = random.Random(seed)
    paths = [f"0/{partition}/{version}.changelog" for partition in range(2) for version in range(10)]
    repeated = {}
    for writer in range(1, 9):
        name = file_name(CREATED_MS + rnd.randrange(9), writer, 1)
        with (checkpoint.merged / name).open("wb") as out:
            file = MergedFileWriter(out, writer=writer, created_ms=CREATED_MS)
            for _ in range(rnd.randrange(4)):
                for path in rnd.sample(paths, 6):
                    key = {"stamp": STAMP + rnd.randrange(6), "writer": rnd.randrange(1, 4)}
                    if rnd.random() < 0.3:
                        file.delete(path, **key)
                    else:
                        file.put(path, rnd.randbytes(rnd.randrange(50)), generation=rnd.randrange(3), **key)
                file.end_group()
            if rnd.random() < 0.7:
                file.seal()
        parsed = read_merged_file(BytesSource((checkpoint.merged / name).read_bytes()), name)
        if parsed.sealed and rnd.random() < 0.6:
            repeated[name] = list(parsed)
    with (checkpoint.merged / file_name(CREATED_MS, 9, 1, index_only=True)).open("wb") as out:
        MergedFileWriter(out, writer=9, created_ms=CREATED_MS).seal_index_only(repeated)

    assert agree(checkpoint) > 0


def test_files_of_java(checkpoint: Checkpoint) -> None:
    for version in range(6):
        for partition in range(3):
            checkpoint.write(f"0/{partition}/{version}.changelog", bytes(version))
    for version in range(3):
        checkpoint.delete(f"0/0/{version}.changelog")
        checkpoint.write(f"0/1/{version}.changelog", b"anew")
    checkpoint.log.seal()

    assert agree(checkpoint) == 15
