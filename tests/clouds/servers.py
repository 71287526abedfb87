"""Google's and Azure's stores on this machine, on loopback, and the settings of their clients."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from tests.jvm.harness import until

BUCKET = "checkpoints"
_REQUEST = re.compile(r'\\"(GET|POST|PUT|DELETE|PATCH) (/\S+) HTTP')

# gcsfs asks what kind of bucket it is, by gRPC with TLS, which the server has not. It reads this when it is imported.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

NUMBERS = {
    # Hadoop 3.5's own defaults say "64m", which the connector 2.2.6 cannot read.
    "block.size": str(64 << 20),
    "rewrite.max.chunk.size": str(512 << 20),
    "outputstream.buffer.size": str(8 << 20),
    "outputstream.sync.min.interval": "0",
    "inputstream.inplace.seek.limit": str(8 << 20),
    "inputstream.min.range.request.size": str(2 << 20),
}


_Started = TypeVar("_Started", bound="_Server")


class _Server:
    """A program that serves on a port of its own while the block runs."""

    def __enter__(self: _Started) -> _Started:
        self._home = tempfile.TemporaryDirectory(prefix="cloud-")
        self.log = Path(self._home.name) / "log"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self.command(), stdout=log, stderr=subprocess.STDOUT, env=self.environment(), cwd=self._home.name
            )
        until(self._answers, f"{self.command()[0]} to serve; it said {self.log.read_text()[-500:]}")
        self.prepare()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait(30)
        self._home.cleanup()

    def command(self) -> list[str]:
        """What is run."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """What it is run with."""
        return dict(os.environ)

    def prepare(self) -> None:
        """Makes the bucket."""
        raise NotImplementedError

    def _answers(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()
        with suppress(urllib.error.HTTPError):  # an answer, too
            try:
                urllib.request.urlopen(self.url, timeout=5).close()
            except (urllib.error.URLError, ConnectionError) as error:
                return isinstance(error, urllib.error.HTTPError)
        return True


class LocalGcs(_Server):
    """fake-gcs-server, which keeps its objects in memory.

    Args:
        program: The server.
    """

    def __init__(self, program: Path) -> None:
        self._program = program

    def command(self) -> list[str]:
        """What is run."""
        at = f"127.0.0.1:{self.port}"
        where = ["-host", "127.0.0.1", "-port", str(self.port), "-external-url", self.url, "-public-host", at]
        return [str(self._program), "-scheme", "http", "-backend", "memory", *where]

    def prepare(self) -> None:
        """Makes the bucket."""
        body = json.dumps({"name": BUCKET}).encode()
        headers = {"Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/storage/v1/b?project=p", body, headers)).close()

    def requests(self, below: str, begin: int, end: int) -> Counter[str]:
        """How many requests of each kind there were, between two marks, about objects whose names contain this."""
        found = _REQUEST.findall(self.log.read_text()[begin:end])
        return Counter(_kind(method, path) for method, path in found if below in path.replace("%2F", "/"))

    def mark(self) -> int:
        """Where the requests that come now begin."""
        return len(self.log.read_text())

    def options(self) -> dict[str, Any]:
        """Storage options of fsspec."""
        return {"token": "anon", "endpoint_url": self.url, "project": "p"}

    def direct(self) -> Any:
        """A file system of fsspec that remembers nothing."""
        import fsspec

        return fsspec.filesystem("gs", **self.options(), use_listings_cache=False)

    def keys(self, prefix: str) -> list[str]:
        """All objects below a prefix; without those that stand for directories."""
        fs = self.direct()
        fs.invalidate_cache()
        found = fs.find(f"{BUCKET}/{prefix}")
        return sorted(path.removeprefix(f"{BUCKET}/") for path in found if not path.endswith("/"))

    def hadoop_settings(self) -> dict[str, str]:
        """Hadoop settings of the connector."""
        connector = "com.google.cloud.hadoop.fs.gcs"
        settings = {
            **NUMBERS,
            "impl": f"{connector}.GoogleHadoopFileSystem",
            "project.id": "p",
            "storage.root.url": f"{self.url}/",
            "auth.null.enable": "true",
            "auth.service.account.enable": "false",
        }
        of_abstract = {"fs.AbstractFileSystem.gs.impl": f"{connector}.GoogleHadoopFS"}
        return {f"fs.gs.{key}": value for key, value in settings.items()} | of_abstract


def _kind(method: str, path: str) -> str:
    """A request in the words of the price list: GET of an object is its metadata, of a download its bytes."""
    if path.startswith("/upload"):
        # The second half of an upload, which carries the bytes, is not billed.
        return "upload" if method == "POST" else "bytes of an upload"
    if path.startswith("/download"):
        return "read"
    if "/compose" in path or "/rewriteTo" in path or "/copyTo" in path:
        return "copy"
    if method == "GET":
        return "status" if re.match(r"/storage/v1/b/[^/]+/o/", path) else "list"
    return {"DELETE": "delete"}.get(method, method)


class LocalAzure(_Server):
    """Azurite, which keeps its blobs in memory.

    Args:
        program: The command that runs it.
    """

    ACCOUNT = "account"

    def __init__(self, program: Sequence[str]) -> None:
        self._program = list(program)
        self._key = base64.b64encode(secrets.token_bytes(64)).decode()

    def environment(self) -> dict[str, str]:
        """With an account of our own."""
        return {**super().environment(), "AZURITE_ACCOUNTS": f"{self.ACCOUNT}:{self._key}"}

    def command(self) -> list[str]:
        """What is run."""
        where = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
        return [*self._program, *where, "--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--loose"]

    def prepare(self) -> None:
        """Makes the container."""
        self.direct().mkdir(BUCKET)

    def options(self) -> dict[str, Any]:
        """Storage options of fsspec."""
        endpoint = f"BlobEndpoint={self.url}/{self.ACCOUNT}"
        account = f"DefaultEndpointsProtocol=http;AccountName={self.ACCOUNT};AccountKey={self._key}"
        return {"connection_string": f"{account};{endpoint};"}

    def direct(self) -> Any:
        """A file system of fsspec."""
        import fsspec

        return fsspec.filesystem("abfs", **self.options())
