"""HDFS lists a file that is being written with the length of its first flush; what was flushed since can be read."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import _registry, get_filesystem_class

from pyspark_statestore.checkpoint import Checkpoint
from pyspark_statestore.format import MergedFileWriter, file_name
from tests.inspect.places import CREATED_MS, META, STAMP


@pytest.fixture
def lengths(tmp_path: Path) -> dict[str, int]:
    """A checkpoint with one file that has two groups and is open; by its name, its length after the first."""
    folder = tmp_path / "q1" / "state" / "_merged"
    folder.mkdir(parents=True)
    name = file_name(CREATED_MS, 7, 1)
    with (folder / name).open("wb") as out:
        file = MergedFileWriter(out, writer=7, created_ms=CREATED_MS, meta=META)
        for version in (1, 2):
            file.put(f"0/0/{version}.delta", b"delta %d" % version * 100, stamp=STAMP + version)
            file.end_group()
            if version == 1:
                first = out.tell()
    return {name: first}


class _OldLengths(LocalFileSystem):
    """The local file system, with HDFS's name and HDFS's listings."""

    protocol = "hdfs"
    lengths: dict[str, int]

    def ls(self, path: str, detail: bool = False, **kwargs: object) -> list[dict[str, object]]:
        return [
            {**info, "size": self.lengths.get(Path(info["name"]).name, info["size"])}
            for info in super().ls(path, detail=True, **kwargs)
        ]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("hdfs://")))


def paths(checkpoint: Checkpoint) -> list[str]:
    return sorted(checkpoint.inspect.segments()["logical_path"].to_pylist())


def test_hdfs(tmp_path: Path, lengths: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    get_filesystem_class("file")
    monkeypatch.setitem(_registry, "hdfs", type("Hdfs", (_OldLengths,), {"lengths": lengths}))
    checkpoint = Checkpoint(f"hdfs://{tmp_path}/q1")
    assert checkpoint.inspect.files()["file_size_in_bytes"][0].as_py() > next(iter(lengths.values()))
    assert paths(checkpoint) == ["0/0/1.delta", "0/0/2.delta"]
    assert checkpoint.inspect.versions()["is_restorable"].to_pylist() == [True, True]


class _NameNode(BaseHTTPRequestHandler):
    """WebHDFS, as far as reading goes; offsets are refused as ``NamenodeWebHdfsMethods.chooseDatanode`` does."""

    root: Path
    lengths: dict[str, int]

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        query = {key.lower(): values[0] for key, values in parse_qs(asked.query).items()}
        file = self.root / asked.path.removeprefix("/webhdfs/v1/")
        operation = query["op"].upper()
        if not file.exists():
            self._answer(404, {"RemoteException": {"exception": "FileNotFoundException", "message": "gone"}})
        elif operation == "LISTSTATUS":
            statuses = [self._status(each, each.name) for each in file.iterdir()]
            self._answer(200, {"FileStatuses": {"FileStatus": statuses}})
        elif operation == "GETFILESTATUS":
            self._answer(200, {"FileStatus": self._status(file, "")})
        else:
            offset, length = int(query.get("offset", 0)), int(query["length"])
            if offset >= self._length(file) > 0:
                self._answer(403, {"RemoteException": {"exception": "IOException", "message": "out of the range"}})
            else:
                self._send(200, file.read_bytes()[offset : offset + length])

    def _length(self, file: Path) -> int:
        return self.lengths.get(file.name, file.stat().st_size)

    def _status(self, file: Path, suffix: str) -> dict[str, object]:
        kind = "DIRECTORY" if file.is_dir() else "FILE"
        length = 0 if file.is_dir() else self._length(file)
        return {"pathSuffix": suffix, "type": kind, "length": length, "modificationTime": CREATED_MS}

    def _answer(self, status: int, what: object) -> None:
        self._send(status, json.dumps(what).encode())

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def name_node(tmp_path: Path, lengths: dict[str, int]) -> Iterator[str]:
    handler = type("NameNode", (_NameNode,), {"root": tmp_path, "lengths": lengths})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"webhdfs://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_webhdfs(name_node: str) -> None:
    checkpoint = Checkpoint(f"{name_node}/q1")
    assert paths(checkpoint) == ["0/0/1.delta", "0/0/2.delta"]
    assert checkpoint.inspect.versions()["is_restorable"].to_pylist() == [True, True]
