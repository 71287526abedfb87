"""A file that is open and has more than 2 GiB.

It takes half a minute and as many bytes of the disk: `make soak` asks for it by PSS_LARGE_GROUPS=1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore.format import MergedFileWriter, file_name
from tests.hdfs.harness import Hdfs, SharedCheckpoint
from tests.jvm.harness import CREATED_MS, STAMP

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("PSS_LARGE_GROUPS"), reason="only with PSS_LARGE_GROUPS=1"),
]

GAP = (1 << 31) + 12_345
PATHS = ["0/0/1.changelog", "0/0/2.changelog"]
DATA = [b"delta 1", b"delta 2"]


@pytest.fixture
def large(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """The bytes of a merged file whose first group has more than 2 GiB, and where that ends."""
    path = tmp_path / file_name(CREATED_MS, 77, 1)
    with path.open("wb") as out:
        file = MergedFileWriter(out, writer=77, created_ms=CREATED_MS, meta={"plain": False})
        # Garbage, which takes no space on this disk: as where a payload was withdrawn.
        file.position = out.seek(GAP, os.SEEK_CUR)
        ends: list[int] = []
        for path_of_group, data in zip(PATHS, DATA, strict=True):
            file.put(path_of_group, data, stamp=STAMP + len(ends))
            file.end_group()
            ends.append(file.position)
    yield path, ends[0]
    path.unlink()


def test_open_file_of_more_than_two_gigabytes(
    on_hdfs: Hdfs, here: Callable[..., SharedCheckpoint], jvm: Any, large: tuple[Path, int]
) -> None:
    local, first = large
    path = on_hdfs.path(f"state/_merged/{local.name}")
    source = jvm.java.io.FileInputStream(str(local))
    out = on_hdfs.fs.create(path)
    try:
        jvm.org.apache.hadoop.io.IOUtils.copyBytes(source, out, first, False)  # a long, as it is beyond an int
        # The NameNode hears of the first flush of each block: of this one, and not of the next.
        out.hflush()
        out.write(bytes(source.readAllBytes()))
        out.hflush()
        listed = on_hdfs.merged_files()[local.name]
        assert listed < local.stat().st_size, "this HDFS lists an open file with its length: the test proves nothing"
        reader = here(on_hdfs)
        assert [reader.load(path) for path in PATHS] == DATA
        assert reader.clean() == 0
    finally:
        source.close()
        out.close()
        on_hdfs.fs.delete(path, False)
