"""Forks on a server that speaks S3, where a path begins with a bucket that a reference does not name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore import Checkpoint, StateStoreFilesError
from pyspark_statestore.log.merged_log import MergedLog
from pyspark_statestore.maintenance.cleaning import clean
from pyspark_statestore.storage import Directory, Location
from pyspark_statestore.storage.changes import publish
from tests.forks.harness import go_on
from tests.inspect.builders import refused
from tests.maintenance.harness import CLOSED_AFTER

pytest.importorskip("moto.server", reason="moto[server] is not installed", exc_type=ImportError)
pytest.importorskip("s3fs", reason="s3fs is not installed", exc_type=ImportError)


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, Any]]:
    """How to reach a server with two buckets."""
    import fsspec
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    found = {
        "key": "testing",
        "secret": "testing",
        "client_kwargs": {"endpoint_url": f"http://{host}:{port}", "region_name": "us-east-1"},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        fs = fsspec.filesystem("s3", **found)
        for bucket in ("one", "two"):
            fs.call_s3("create_bucket", Bucket=bucket)
        yield found
    server.stop()


def test_a_fork_in_a_bucket(options: dict[str, Any], source: Path) -> None:
    import fsspec

    fs = fsspec.filesystem("s3", **options)
    fs.put(f"{source}/", "one/checkpoints/q1/", recursive=True)
    checkpoint = Checkpoint("s3a://one/checkpoints/q1", options)
    with refused("PSS_OTHER_FILE_SYSTEM", "s3a://two/fork"):
        checkpoint.fork("s3a://two/fork")

    checkpoint.fork("s3://one/checkpoints/q1-test")
    checkpoint.fork("s3a://two/copied", "copy")

    fork, copied = Checkpoint("s3a://one/checkpoints/q1-test", options), Checkpoint("s3://two/copied", options)
    for each in (fork, copied):
        assert each.inspect.versions().equals(checkpoint.inspect.versions())
        assert each.maintenance.verify().is_clean
    names = {path.rpartition("/")[2] for path in fs.ls("one/checkpoints/q1/state/_merged", refresh=True)}
    there = set(fork.inspect.segments()["foreign_path"].to_pylist())
    assert there == {f"s3a://one/checkpoints/q1/state/_merged/{name}" for name in names if name.endswith(".merged")}

    # The source deletes everything; the fork has it until it has brought it home.
    go_on(source, 6, 50)
    fs.put(f"{source}/", "one/checkpoints/q1/", recursive=True)
    log = MergedLog(Directory(Location.of("s3a://one/checkpoints/q1", options)), CLOSED_AFTER)
    assert clean(log, log.snapshot().closed_tombstones).files == ()
    fork.maintenance.compact(localize=True)
    assert len(clean(log, log.snapshot().closed_tombstones).files) == 4
    assert fork.maintenance.verify().is_clean


def write_and_fail(directory: Directory, path: str, where: str) -> None:
    """A new object, or one that is to be replaced."""
    with pytest.MonkeyPatch.context() as patch, publish(directory, path, is_new=path == "offsets/8") as out:
        out.write(b"as it would be")
        if where == "in the block":
            raise OSError("on purpose")
        patch.setattr(out._file, "close", lambda: 1 / 0)


@pytest.mark.parametrize("where", ["in the block", "at the end"])
def test_what_is_to_be_replaced_stays_where_that_fails(options: dict[str, Any], where: str) -> None:
    """An object that cannot be replaced is as it was; nobody takes it away."""
    directory = Directory(Location.of("s3a://one/replaced", options))
    with publish(directory, "offsets/7") as out:
        out.write(b"as it was")
    for path in ("offsets/7", "offsets/8"):
        with pytest.raises((OSError, StateStoreFilesError)):
            write_and_fail(directory, path, where)
    [info] = directory.files("offsets")
    assert info.name == "7"
    assert directory.read("offsets/7", info.size) == b"as it was"
