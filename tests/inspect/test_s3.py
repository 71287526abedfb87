"""On a server that speaks S3: the same tables as on the disk, for few requests."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_statestore.checkpoint import Checkpoint
from pyspark_statestore.inspect import TABLES
from tests.inspect.builders import STAMP, merged_file, merged_paths, plain_file, refused
from tests.state.small_stores import write_store

pytest.importorskip("moto.server", reason="moto[server] is not installed", exc_type=ImportError)
pytest.importorskip("s3fs", reason="s3fs is not installed", exc_type=ImportError)

BUCKET = "checkpoints"


class Server:
    """The server, and what it was asked.

    Attributes:
        requests: (method, "list" or the object's name), in order.
    """

    def __init__(self, application: Any) -> None:
        self._application = application
        self.requests: list[tuple[str, str]] = []
        self.bytes_sent: Counter[str] = Counter()
        self.options: dict[str, Any] = {}

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        listing = "list-type=2" in environ["QUERY_STRING"]
        name = "list" if listing else environ["PATH_INFO"].rpartition("/")[2]
        self.requests.append((environ["REQUEST_METHOD"], name))
        answer = b"".join(self._application(environ, start_response))
        self.bytes_sent[name] += len(answer)
        return [answer]

    def forget(self) -> None:
        """Begins to count anew."""
        self.requests.clear()
        self.bytes_sent.clear()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    import fsspec
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    counting = Server(DomainDispatcherApplication(create_backend_app))
    running = make_server("127.0.0.1", 0, counting, threaded=True)
    import threading

    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    counting.options = {
        "key": "testing",
        "secret": "testing",
        "client_kwargs": {"endpoint_url": f"http://127.0.0.1:{running.server_port}", "region_name": "us-east-1"},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        fsspec.filesystem("s3", **counting.options).call_s3("create_bucket", Bucket=BUCKET)
        yield counting
    running.shutdown()
    thread.join()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Ten files, some far larger than their indexes, one torn, and tombstones."""
    folder = tmp_path / "checkpoint"
    (folder / "offsets").mkdir(parents=True)
    (folder / "offsets" / "0").write_text("v1")
    for number in range(10):
        with merged_file(folder, number, seal=number % 3 != 0) as file:
            for partition in range(40):
                file.put(f"0/{partition}/{number + 1}.delta", os.urandom(5000), stamp=STAMP + number)
                if number:
                    file.delete(f"0/{partition}/{number // 2}.delta", stamp=STAMP + number, writer=9)
    with merged_paths(folder)[3].open("ab") as torn:
        torn.write(b"torn")
    return folder


def upload(server: Server, folder: Path, name: str) -> str:
    """Puts a checkpoint into the bucket; its URL as Hadoop has it."""
    import fsspec

    fs = fsspec.filesystem("s3", **server.options)
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            fs.pipe_file(f"{BUCKET}/{name}/{file.relative_to(folder)}", file.read_bytes())
    server.forget()
    return f"s3a://{BUCKET}/{name}"


def rows(checkpoint: Checkpoint, table: str) -> list[dict[str, Any]]:
    """A table without what differs: where the checkpoint is, and when its files were written there."""
    found: list[dict[str, Any]] = checkpoint.inspect.table(table).to_pylist()
    for row in found:
        row.pop("last_modified_at", None)
        if "file_path" in row:
            row["file_path"] = row["file_path"].removeprefix(checkpoint.url)
    return found


# There is nothing plain in this checkpoint; the next test but one has such files.
@pytest.mark.parametrize("table", [table for table in TABLES if table != "plain_files"])
def test_same_tables_as_on_the_disk(server: Server, checkpoint: Path, table: str) -> None:
    url = upload(server, checkpoint, f"same-{table}")
    assert rows(Checkpoint(url, server.options), table) == rows(Checkpoint(checkpoint), table) != []


@pytest.mark.parametrize("merged", [False, True], ids=["stock", "merged"])
def test_same_state_as_on_the_disk(server: Server, tmp_path: Path, merged: bool) -> None:
    write_store(tmp_path, merged=merged)
    url = upload(server, tmp_path, f"state-{merged}")
    there, here = Checkpoint(url, server.options), Checkpoint(tmp_path)
    assert there.state().to_pylist() == here.state().to_pylist() != []
    assert there.state_changes(1, 2).to_pylist() == here.state_changes(1, 2).to_pylist() != []


def test_same_tables_of_plain_files(server: Server, tmp_path: Path) -> None:
    with merged_file(tmp_path, 1, plain=True) as file:
        file.put("0/0/2.delta", b"two", stamp=STAMP)
    for path in ("0/0/1.delta", "0/1/1.delta", "0/1/2.delta", "0/_metadata/metadata"):
        plain_file(tmp_path, path)
    plain_file(tmp_path, "0/1/3.delta", b"")
    url = upload(server, tmp_path, "plain")
    for table in TABLES:
        assert rows(Checkpoint(url, server.options), table) == rows(Checkpoint(tmp_path), table) != []


@pytest.mark.parametrize("table", ["files", "segments", "summary"])
def test_requests(server: Server, checkpoint: Path, table: str) -> None:
    url = upload(server, checkpoint, f"requests-{table}")
    Checkpoint(url, server.options).inspect.table(table)
    asked = Counter(server.requests)
    # The logs of Spark say which version a restart needs: of the commits before and after the files, of the offsets.
    assert asked.pop(("GET", "list")) == (4 if table == "summary" else 1)
    assert {method for method, _ in asked} == {"GET"}, "no HEAD"
    logs = {"0"} if table == "summary" else set()
    assert {name for _, name in asked} == {path.name for path in merged_paths(checkpoint)} | logs
    assert set(asked.values()) <= {1, 2}
    assert max(server.bytes_sent[path.name] for path in merged_paths(checkpoint)) <= 128 * 1024


def test_last_modified_is_the_servers(server: Server, checkpoint: Path) -> None:
    url = upload(server, checkpoint, "modified")
    assert Checkpoint(url, server.options).inspect.files()["last_modified_at"].null_count == 0


@pytest.mark.parametrize("place", ["nobucket/q1", f"{BUCKET}/nowhere"])
def test_missing(server: Server, place: str) -> None:
    with refused("PSS_NOT_A_CHECKPOINT", f"s3://{place}"):
        Checkpoint(f"s3://{place}", server.options).inspect.files()


def test_server_that_is_not_there(server: Server) -> None:
    options = {**server.options, "client_kwargs": {"endpoint_url": "http://127.0.0.1:1", "region_name": "us-east-1"}}
    options["config_kwargs"] = {"retries": {"max_attempts": 0}, "connect_timeout": 1}
    with refused("PSS_READ_FAILED", "list s3://x/y"):
        Checkpoint("s3://x/y", options).inspect.files()


def test_no_credentials(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    options = {"client_kwargs": server.options["client_kwargs"]}
    with refused("PSS_READ_FAILED", "NoCredentials"):
        Checkpoint(f"s3://{BUCKET}/nocredentials", options).inspect.files()
