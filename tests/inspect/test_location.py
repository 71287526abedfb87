"""Whatever people write for a checkpoint leads to it, or to an error that says what to write."""

import datetime
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.registry import _registry

from pyspark_statestore import StateStoreFilesError
from pyspark_statestore.checkpoint import Checkpoint
from pyspark_statestore.storage import Directory, Location
from tests.inspect.builders import refused, simple_checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return simple_checkpoint(tmp_path / "a b%20c::d#e")


@pytest.mark.parametrize(
    "written",
    [
        "{path}",
        "{path}/",
        "file:{path}",
        "file://{path}",
        "FILE:{path}",
        "merged+file:{path}",
        "merged+file://{path}",
        "Merged+File:{path}",
        "merged+{path}",
        "local://{path}",
    ],
)
def test_local_paths(checkpoint: Path, written: str) -> None:
    found = Checkpoint(written.format(path=checkpoint)).inspect.files()
    assert found.num_rows == 2
    assert found["file_path"][0].as_py().partition("://")[2].startswith(f"{checkpoint}/state/_merged/")


def test_path_objects(checkpoint: Path) -> None:
    assert Checkpoint(checkpoint).inspect.files().num_rows == 2
    assert Checkpoint(checkpoint).url == f"file://{checkpoint}"
    assert repr(Checkpoint(checkpoint)) == f"Checkpoint('file://{checkpoint}')"


def test_relative_paths(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkpoint.parent)
    asked = Checkpoint(checkpoint.name)
    monkeypatch.chdir("/")
    assert asked.inspect.files().num_rows == 2


def test_home(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(checkpoint.parent))
    assert Checkpoint(f"~/{checkpoint.name}").inspect.files().num_rows == 2


@pytest.mark.parametrize("written", ["memory://q1", "memory:/q1", "memory:///q1/", "merged+memory:/q1"])
def test_in_memory(checkpoint: Path, written: str) -> None:
    memory = fsspec.filesystem("memory")
    memory.put(f"{checkpoint}/", "/q1", recursive=True)
    try:
        asked = Checkpoint(written).inspect
        assert asked.files().num_rows == 2
        assert asked.summary()["max_version"].to_pylist() == [2]
        assert asked.versions()["is_restorable"].to_pylist() == [True] * 4
        assert asked.files()["last_modified_at"].null_count == 0
    finally:
        memory.rm("/q1", recursive=True)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "empty"),
        ("  ", "empty"),
        (b"x", "no text"),
        (None, "no path"),
        (7, "no path"),
        ("s3://", "nothing follows"),
    ],
)
def test_what_is_no_path(path: Any, reason: str) -> None:
    with refused("PSS_BAD_PATH", reason):
        Checkpoint(path)


def test_unknown_scheme() -> None:
    with refused("PSS_BAD_PATH", "nosuch"):
        Checkpoint("nosuch://host/q1")


@pytest.mark.parametrize(
    ("path", "package", "extra"),
    [
        ("s3://bucket/q1", "s3fs", "pyspark-statestore[s3]"),
        ("s3a://bucket/q1", "s3fs", "pyspark-statestore[s3]"),
        ("merged+s3a://bucket/q1", "s3fs", "pyspark-statestore[s3]"),
        ("gs://bucket/q1", "gcsfs", "pyspark-statestore[gcs]"),
        ("abfss://container@account.dfs.core.windows.net/q1", "adlfs", "pyspark-statestore[azure]"),
        ("wasbs://container@account.blob.core.windows.net/q1", "adlfs", "pyspark-statestore[azure]"),
        ("webhdfs://namenode:9870/q1", "requests", "pip install requests"),
    ],
)
def test_missing_package(path: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for protocol in list(_registry):
        if protocol in ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "webhdfs"):
            monkeypatch.delitem(_registry, protocol)
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.webhdfs", raising=False)
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with refused("PSS_MISSING_DEPENDENCY", path.removeprefix("merged+"), extra):
        Checkpoint(path)


def test_scheme_that_only_hadoop_has() -> None:
    with refused("PSS_MISSING_DEPENDENCY", "hdfs://"):
        Checkpoint("viewfs://cluster/q1")


def test_storage_options_reach_the_file_system(tmp_path: Path) -> None:
    assert Location.of(tmp_path, {"auto_mkdir": True}).fs.auto_mkdir is True


@pytest.mark.parametrize("options", ["anon", ["anon"], 7, {1: 2}])
def test_storage_options_that_are_no_mapping(tmp_path: Path, options: Any) -> None:
    with refused("PSS_INVALID_OPTION", "storage_options"):
        Checkpoint(tmp_path, options)


def test_storage_options_that_the_file_system_does_not_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Strict(fsspec.get_filesystem_class("file")):  # type: ignore[misc]
        def __init__(self, *, colour: str = "") -> None:
            super().__init__()

    monkeypatch.setitem(_registry, "file", Strict)
    with pytest.raises(StateStoreFilesError) as caught:
        Checkpoint(tmp_path, {"password": "hunter2"})
    assert caught.value.getErrorClass() == "PSS_INVALID_OPTION"
    assert "password" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_file_system_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoCredentials(fsspec.get_filesystem_class("file")):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            raise ValueError("Must provide either a connection_string or account_name with credentials!!")

    monkeypatch.setitem(_registry, "file", NoCredentials)
    with refused("PSS_READ_FAILED", "reach", "account_name"):
        Checkpoint(tmp_path)


@pytest.mark.parametrize("closed_after", [10, None, datetime.timedelta(seconds=-1)])
def test_closed_after_that_is_no_time(tmp_path: Path, closed_after: Any) -> None:
    with refused("PSS_INVALID_OPTION", "closed_after"):
        Checkpoint(tmp_path, closed_after=closed_after)


@pytest.mark.parametrize("query", [None, object(), "q1"])
def test_what_is_no_query(query: Any) -> None:
    with refused("PSS_UNKNOWN_LOCATION", "checkpointLocation"):
        Checkpoint.of(query)


def test_listing_goes_down_and_leaves_out(tmp_path: Path) -> None:
    for path in ("a/b/c", "a/d", "x/y"):
        (tmp_path / "top" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "top" / path).write_text(path)
    directory = Directory(Location.of(tmp_path))
    assert sorted((info.name, info.size) for info in directory.find("top")) == [("a/b/c", 5), ("a/d", 3), ("x/y", 3)]
    assert [info.name for info in directory.find("top", leave_out=("a",))] == ["x/y"]
    assert directory.find("nowhere") == []
    assert directory.files("top") == []
    assert sorted(directory.names("top")) == ["a", "x"]


@pytest.mark.parametrize(
    ("url", "absolute", "other", "path"),
    [
        ("file:///a b/q1", "/a b/q1", "file:///c/q2", "/c/q2"),
        ("memory://a/q1", "/a/q1", "memory://c/q2", "/c/q2"),
        ("s3a://bucket/a/q1", "/a/q1", "s3a://bucket/c/q2", "bucket/c/q2"),
    ],
)
def test_the_path_in_the_file_system_leads_to_its_neighbours(url: str, absolute: str, other: str, path: str) -> None:
    if url.startswith("s3a:"):
        pytest.importorskip("s3fs", reason="s3fs is not installed", exc_type=ImportError)
    location = Location.of(url)
    assert location.absolute == absolute
    there = location.beside("/c/q2")
    assert (there.url.replace("memory:///", "memory://"), there.path) == (other, path)
    assert there.absolute == "/c/q2"
    assert there.fs is location.fs
    assert there.beside(absolute).path == location.path
