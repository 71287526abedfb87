"""On a server that speaks S3: the same files go, for few requests."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore.checkpoint import Checkpoint
from pyspark_statestore.format import file_name
from tests.inspect.builders import merged_file, plain_file
from tests.inspect.spark_files import lz4, snapshot

pytest.importorskip("moto.server", reason="moto[server] is not installed", exc_type=ImportError)
pytest.importorskip("s3fs", reason="s3fs is not installed", exc_type=ImportError)

from tests.inspect.test_s3 import BUCKET, Server, server

__all__ = ["server"]

TEMPORARY = "0/0/.7.delta.0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f.TID12.tmp"
NOW = datetime.datetime.now(datetime.timezone.utc)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """With an orphan of each kind."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1")
    with merged_file(tmp_path, 1, plain=True) as file:
        metadata = json.dumps({"sstFiles": [{"dfsSstFileName": "a.sst", "sizeBytes": 3}]})
        file.put("0/0/5.zip", snapshot(metadata), stamp=int((NOW.timestamp() - 8 * 86_400) * 1000) << 16)
    for path in ("0/0/SSTs/a.sst", "0/0/SSTs/orphan.sst", TEMPORARY):
        plain_file(tmp_path, path, b"123")
    plain_file(tmp_path, "0/0/6.changelog", lz4(b"x"))
    (tmp_path / "state" / "_merged" / file_name(1, 5, 1)).write_bytes(b"")
    (tmp_path / "state" / "_merged" / file_name(1, 5, 2).replace(".merged", ".relocating")).write_bytes(b"")
    return tmp_path


def upload(server: Server, folder: Path, name: str) -> Any:
    import fsspec

    fs = fsspec.filesystem("s3", **server.options)
    for path in folder.rglob("*"):
        if path.is_file():
            fs.put_file(str(path), f"{BUCKET}/{name}/{path.relative_to(folder)}")
    return fs


def set_age(name: str, days: float) -> None:
    """S3 does not let anybody say when an object was written; its stand-in does."""
    from moto.s3.models import s3_backends

    for backends in s3_backends.values():
        for backend in backends.values():
            if BUCKET in backend.buckets:
                for key, value in backend.buckets[BUCKET].keys.items():
                    if key.startswith(f"{name}/"):
                        # An immutable file is older than the snapshot that came after it, wherever that waited.
                        earlier = days + (2 if key.endswith(".sst") else 0)
                        value.last_modified = NOW.replace(tzinfo=None) - datetime.timedelta(days=earlier)


def keys(fs: Any, name: str) -> set[str]:
    fs.invalidate_cache()
    return {path.removeprefix(f"{BUCKET}/{name}/") for path in fs.find(f"{BUCKET}/{name}")}


def test_orphans_go(checkpoint: Path, server: Server) -> None:
    name = os.path.basename(checkpoint)
    fs = upload(server, checkpoint, name)
    before = keys(fs, name)
    set_age(name, 8)
    maintenance = Checkpoint(f"s3://{BUCKET}/{name}", server.options).maintenance
    server.forget()
    dry = maintenance.remove_orphan_files()
    assert [method for method, _ in server.requests if method not in ("GET", "HEAD")] == []
    assert keys(fs, name) == before
    done = maintenance.remove_orphan_files(dry_run=False)
    gone = {path.removeprefix(f"s3://{BUCKET}/{name}/") for path in done.files["file_path"].to_pylist()}
    assert done.files.equals(dry.files)
    assert keys(fs, name) == before - gone
    merged = {file_name(1, 5, 1), file_name(1, 5, 2).replace(".merged", ".relocating")}
    assert gone == {"state/0/0/SSTs/orphan.sst", f"state/{TEMPORARY}", *(f"state/_merged/{name}" for name in merged)}


def test_young_ones_stay(checkpoint: Path, server: Server) -> None:
    name = f"{checkpoint.name}-young"
    fs = upload(server, checkpoint, name)
    set_age(name, 1.5)
    before = keys(fs, name)
    maintenance = Checkpoint(f"s3://{BUCKET}/{name}", server.options).maintenance
    assert maintenance.remove_orphan_files(dry_run=False).removed_files_count == 0
    assert keys(fs, name) == before
