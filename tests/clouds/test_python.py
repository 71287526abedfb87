"""Python reads and maintains checkpoints in Google's and Azure's stores, through gcsfs and adlfs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore import Checkpoint
from tests.clouds.servers import BUCKET, LocalAzure
from tests.maintenance.harness import live_files
from tests.maintenance.test_compaction_s3 import folder

__all__ = ["folder"]

AZURE_URL = "abfss://{bucket}@account.dfs.core.windows.net/{key}"
SCHEMES = ("gs://{bucket}/{key}", AZURE_URL, "wasbs://{bucket}@account.blob.core.windows.net/{key}")


@pytest.fixture(params=SCHEMES, ids=lambda url: url.partition(":")[0])
def there(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> tuple[Checkpoint, Any, str]:
    """A checkpoint in a store; the store's file system, and the checkpoint's path there."""
    server = request.getfixturevalue("gcs" if request.param.startswith("gs") else "azure")
    fs = server.direct()
    path = f"{BUCKET}/{tmp_path.name}"
    fs.put(f"{folder}/", f"{path}/", recursive=True)
    url = request.param.format(bucket=BUCKET, key=tmp_path.name)
    return Checkpoint(url, server.options()), fs, path


def fetched(fs: Any, path: str, to: Path) -> Path:
    """A copy on the disk of what is there."""
    fs.invalidate_cache()
    fs.get(f"{path}/", f"{to}/", recursive=True)
    return to


def test_a_checkpoint_is_read(there: tuple[Checkpoint, Any, str], folder: Path) -> None:
    checkpoint, _, _ = there
    here = Checkpoint(folder)
    for table in ("files", "segments"):
        expected = getattr(here.inspect, table)()
        found = getattr(checkpoint.inspect, table)()
        same = [name for name in expected.column_names if name not in ("file_path", "last_modified_at", "is_closed")]
        assert found.select(same).to_pylist() == expected.select(same).to_pylist()
    assert None not in checkpoint.inspect.files()["last_modified_at"].to_pylist()
    assert checkpoint.maintenance.verify().is_clean


def test_compaction(there: tuple[Checkpoint, Any, str], folder: Path, tmp_path: Path) -> None:
    checkpoint, fs, path = there
    done = checkpoint.maintenance.compact()
    assert (done.rewritten_files_count, done.added_files_count, done.removed_files_count) == (15, 1, 30)
    assert live_files(fetched(fs, path, tmp_path / "after")) == live_files(folder)
    assert checkpoint.inspect.summary().to_pylist()[0]["file_count"] == 1


def test_a_file_grows_while_it_is_read(azure: LocalAzure, tmp_path: Path) -> None:
    """An append blob: each request is one of its own, and none asks for the version of another."""
    from pyspark_statestore.storage import Directory, Location

    name = f"{tmp_path.name}/growing"
    fs = azure.direct()
    data = bytes(range(256)) * (9 << 12)  # more than one request
    with fs.open(f"{BUCKET}/{name}", "ab") as file:
        file.write(data)
    directory = Directory(Location.of(AZURE_URL.format(bucket=BUCKET, key=tmp_path.name), azure.options()))
    (info,) = directory.files("")
    with directory.open("growing", info.size) as opened:
        assert opened.read_at(10, 90) == data[10:100]
        with fs.open(f"{BUCKET}/{name}", "ab") as file:
            file.write(b"more")
        assert opened.read_at(0, info.size) == data
    (info,) = directory.files("")
    assert info.size == len(data) + 4


def test_directories_are_no_files(azure: LocalAzure, tmp_path: Path) -> None:
    """Hadoop's clients of Azure mark a directory by an empty blob of its name; ours does so, too."""
    from pyspark_statestore.storage import Directory, Location
    from pyspark_statestore.storage.changes import make_directory, write

    directory = Directory(Location.of(AZURE_URL.format(bucket=BUCKET, key=tmp_path.name), azure.options()))
    write(directory, "state/0/1/1.delta", b"delta")
    for path in ("state", "state/0", "state/0/0", "state/0/1"):
        make_directory(directory, path)
    assert sorted(directory.names("state/0")) == ["0", "1"]
    assert [info.name for info in directory.find("state")] == ["0/1/1.delta"]
    assert directory.files("state/0") == []
    assert [info.name for info in directory.files("state/0/1")] == ["1.delta"]
    assert directory.names("state/0/0") == []
