"""HDFS lists a file that is being written with the length of its first flush; what was flushed since can be read."""

from __future__ import annotations

import io
import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import _registry, get_filesystem_class

from pyspark_statestore.checkpoint import Checkpoint
from pyspark_statestore.format import MergedFileWriter, file_name
from pyspark_statestore.storage.directory import Directory
from pyspark_statestore.storage.location import Location
from tests.inspect.builders import CREATED_MS, META, STAMP

GIGABYTES = 3 << 30
FEW = 8 << 20
"""Bytes that may be read of one checkpoint, however long its files are."""


@pytest.fixture
def lengths(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, int]:
    """A checkpoint with one file that has two groups and is open; by its name, its length after the first.

    The fixture's parameter: how many bytes are between the two.
    """
    folder = tmp_path / "q1" / "state" / "_merged"
    folder.mkdir(parents=True)
    name, first = file_name(CREATED_MS, 7, 1), 0
    with (folder / name).open("wb") as out:
        file = MergedFileWriter(out, writer=7, created_ms=CREATED_MS, meta=META)
        for version in (1, 2):
            # Garbage, which takes no space on the disk: as where a payload was withdrawn.
            file.position = out.seek(request.param if version == 2 else 0, io.SEEK_CUR)
            file.put(f"0/0/{version}.delta", b"delta %d" % version * 100, stamp=STAMP + version)
            file.end_group()
            first = first or out.tell()
    return {name: first}


class _Stream:
    """A file as PyArrow opens it on HDFS: nobody may seek behind its end, but who reads there gets nothing."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("rb")  # noqa: SIM115 - it stays open
        self._length = self._file.seek(0, io.SEEK_END)
        self.bytes_read = 0

    def seek(self, offset: int) -> None:
        if offset > self._length:
            raise OSError(255, "Cannot seek after EOF")
        self._file.seek(offset)

    def read(self, length: int) -> bytes:
        data = self._file.read(length)
        self.bytes_read += len(data)
        return data

    def read_at(self, length: int, offset: int) -> bytes:
        if offset >= self._length:
            return b""
        self.seek(offset)
        return self.read(length)

    def close(self) -> None:
        self._file.close()


class _File:
    """fsspec's wrapper of such a file."""

    def __init__(self, stream: _Stream) -> None:
        self.stream = stream
        self.seek, self.read, self.close = stream.seek, stream.read, stream.close


class _OldLengths(LocalFileSystem):
    """The local file system, with HDFS's name, HDFS's listings and HDFS's files."""

    protocol = "hdfs"
    lengths: dict[str, int]
    streams: list[_Stream]

    def open(self, path: str, mode: str = "rb", **kwargs: object) -> _File:
        self.streams.append(_Stream(self._strip_protocol(path)))
        return _File(self.streams[-1])

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


@pytest.mark.parametrize("lengths", [0, 1_500_000, GIGABYTES], indirect=True)
def test_hdfs(tmp_path: Path, lengths: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    get_filesystem_class("file")
    streams: list[_Stream] = []
    monkeypatch.setitem(_registry, "hdfs", type("Hdfs", (_OldLengths,), {"lengths": lengths, "streams": streams}))
    checkpoint = Checkpoint(f"hdfs://{tmp_path}/q1")
    assert checkpoint.inspect.files()["file_size_in_bytes"][0].as_py() > next(iter(lengths.values()))
    assert paths(checkpoint) == ["0/0/1.delta", "0/0/2.delta"]
    assert checkpoint.inspect.versions()["is_restorable"].to_pylist() == [True, True]
    assert max(stream.bytes_read for stream in streams) < FEW


class _NameNode(BaseHTTPRequestHandler):
    """WebHDFS, as far as reading goes; offsets are refused as ``NamenodeWebHdfsMethods.chooseDatanode`` does.

    It is itself the DataNode that it sends readers to, at another path (``WebHdfsHandler.onOpen``). A gateway sends the
    bytes instead.
    """

    root: Path
    lengths: dict[str, int]
    is_gateway: bool
    sent: Counter[str]

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        query = {key.lower(): values[0] for key, values in parse_qs(asked.query).items()}
        if asked.path.startswith("/datanode/"):
            self._send_range(self.root / asked.path.removeprefix("/datanode/"), query)
            return
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
            if int(query.get("offset", 0)) >= self._length(file) > 0:
                self._answer(403, {"RemoteException": {"exception": "IOException", "message": "out of the range"}})
            elif self.is_gateway:
                self._send_range(file, query)
            else:
                self.send_response(307)
                self.send_header(
                    "Location", f"http://{self.headers['Host']}/datanode/{file.relative_to(self.root)}?{asked.query}"
                )
                self.send_header("Content-Length", "0")
                self.end_headers()

    def _send_range(self, file: Path, query: dict[str, str]) -> None:
        offset = int(query.get("offset", 0))
        rest = file.stat().st_size - offset
        if rest < 0:
            self._answer(403, {"RemoteException": {"exception": "EOFException", "message": "Cannot seek after EOF"}})
            return
        self.send_response(200)
        self.send_header("Content-Length", str(min(rest, int(query.get("length", rest)))))
        self.end_headers()
        if "length" in query:
            with file.open("rb") as source:
                source.seek(offset)
                data = source.read(int(query["length"]))
            self.sent[file.name] += len(data)
            self.wfile.write(data)
        else:
            # Who asks for all of it wants to know how much that would be, and hangs up.
            self.close_connection = True

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
def name_node(tmp_path: Path, lengths: dict[str, int], request: pytest.FixtureRequest) -> Iterator[str]:
    is_gateway = request.param == "gateway"
    sent: Counter[str] = Counter()
    handler = type(
        "NameNode", (_NameNode,), {"root": tmp_path, "lengths": lengths, "is_gateway": is_gateway, "sent": sent}
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"webhdfs://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()
    if not is_gateway:
        assert max(sent.values()) < FEW


# A gateway tells the length of nothing but what it sends.
@pytest.mark.parametrize(
    ("lengths", "name_node"),
    [(0, "data node"), (1_500_000, "data node"), (GIGABYTES, "data node"), (0, "gateway"), (1_500_000, "gateway")],
    indirect=True,
)
def test_webhdfs(name_node: str) -> None:
    checkpoint = Checkpoint(f"{name_node}/q1")
    assert paths(checkpoint) == ["0/0/1.delta", "0/0/2.delta"]
    assert checkpoint.inspect.versions()["is_restorable"].to_pylist() == [True, True]


class _Azure(LocalFileSystem):
    """Azure's client over the local file system, and a writer who appends to each file between any two requests."""

    protocol = ("abfs", "az", "abfss")
    async_impl = True
    first_request = 32 << 20

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: object) -> bytes:
        with Path(self._strip_protocol(path)).open("r+b") as file:
            length = file.seek(0, io.SEEK_END)
            file.write(b"more")
            if min(end or length, length) - (start or 0) > self.first_request:
                raise OSError("412 ConditionNotMet: the first part has another eTag than the others")
            file.seek(start or 0)
            return file.read((end or length) - (start or 0))

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("abfs://")))


def test_azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long range of a file that grows meanwhile."""
    monkeypatch.setitem(_registry, "abfs", _Azure)
    data = bytes(range(256)) * (40 << 12)
    (tmp_path / "file").write_bytes(data)
    with Directory(Location.of(f"abfs://{tmp_path}")).open("file", len(data)) as file:
        assert file.read_at(100, len(data) - 200) == data[100:-100]
        assert file.read_at(len(data) - 10, 10) == data[-10:]
