"""Compaction on a server that speaks S3."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint
from tests.inspect.builders import STAMP, merged_file

pytest.importorskip("moto.server", reason="moto[server] is not installed", exc_type=ImportError)
pytest.importorskip("s3fs", reason="s3fs is not installed", exc_type=ImportError)

from tests.inspect.test_s3 import BUCKET, Server, server, upload
from tests.maintenance.harness import live_files

__all__ = ["server"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What an object store has after many commits: files with one group each, half of them dead."""
    for number in range(30):
        with merged_file(tmp_path / "c", number) as file:
            for partition in range(3):
                file.put(f"0/{partition}/{number + 1}.delta", os.urandom(4000), stamp=STAMP + number)
            if number >= 15:
                for partition in range(3):
                    file.delete(f"0/{partition}/{number - 14}.delta", stamp=STAMP + number - 15, writer=7)
    return tmp_path / "c"


def downloaded(server: Server, name: str, to: Path) -> Path:
    import fsspec

    fs = fsspec.filesystem("s3", **server.options)
    fs.invalidate_cache()
    (to / "state" / "_merged").mkdir(parents=True)
    for path in fs.ls(f"{BUCKET}/{name}/state/_merged", detail=False):
        (to / "state" / "_merged" / path.rpartition("/")[2]).write_bytes(fs.cat_file(path))
    return to


def test_many_small_files_become_one(server: Server, folder: Path, tmp_path: Path) -> None:
    checkpoint = Checkpoint(upload(server, folder, "compacted"), server.options)

    done = checkpoint.maintenance.compact()

    asked = Counter(server.requests)
    assert live_files(downloaded(server, "compacted", tmp_path / "after")) == live_files(folder)
    assert checkpoint.inspect.summary().to_pylist()[0]["file_count"] == 1
    assert (done.rewritten_files_count, done.added_files_count, done.removed_files_count) == (15, 1, 30)
    assert sum(count for (method, _), count in asked.items() if method == "HEAD") <= 5, "no question per file"
    again = checkpoint.maintenance.compact()
    assert (again.rewritten_files_count, again.added_files_count, again.removed_files_count) == (0, 0, 0)


def test_corrupt_segment_stays_where_it_is(server: Server, folder: Path, tmp_path: Path) -> None:
    from tests.inspect.builders import merged_paths, refused

    path = merged_paths(folder)[20]
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(bytes(data))
    checkpoint = Checkpoint(upload(server, folder, "corrupt"), server.options)
    with refused("PSS_CORRUPT_SEGMENT", "s3a://checkpoints/corrupt/state/_merged", path.name):
        checkpoint.maintenance.compact()
    assert live_files(downloaded(server, "corrupt", tmp_path / "after")) == live_files(folder)
    assert not [name for _, name in server.requests if name.endswith(".index.merged")]


def test_no_announcement_is_left(server: Server, folder: Path) -> None:
    import fsspec

    Checkpoint(upload(server, folder, "announced"), server.options).maintenance.compact()
    fs = fsspec.filesystem("s3", **server.options)
    fs.invalidate_cache()
    assert [path for path in fs.ls(f"{BUCKET}/announced/state/_merged", detail=False) if "relocating" in path] == []
    assert [name for method, name in server.requests if method == "PUT" and name.endswith(".relocating")] != []
