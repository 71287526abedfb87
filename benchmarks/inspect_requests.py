"""What a summary asks of a file system: opens and bytes on a disk, requests on a server that speaks S3."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark_statestore.checkpoint import Checkpoint

BUCKET = "checkpoints"


def cold_summary(checkpoint: Path) -> dict[str, Any]:
    """Counts what a first ``summary()`` opens and reads.

    Returns:
        files, opens (the most of one file), bytes (the most of one file), listings.
    """
    from fsspec.implementations.local import LocalFileSystem
    from fsspec.registry import get_filesystem_class, register_implementation

    opens: Counter[str] = Counter()
    bytes_read: Counter[str] = Counter()
    listings: Counter[str] = Counter()

    class File:
        def __init__(self, file: Any, name: str) -> None:
            self._file, self._name = file, name

        def seek(self, offset: int) -> int:
            return int(self._file.seek(offset))

        def read(self, length: int) -> bytes:
            data: bytes = self._file.read(length)
            bytes_read[self._name] += len(data)
            return data

        def __enter__(self) -> File:
            return self

        def __exit__(self, *error: object) -> None:
            self._file.close()

    class Counting(LocalFileSystem):
        def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
            listings[path] += 1
            return super().ls(path, detail=detail, **options)

        def _open(self, path: str, *arguments: Any, **options: Any) -> Any:
            opens[path] += 1
            return File(super()._open(path, *arguments, **options), path)

    before = get_filesystem_class("file")
    register_implementation("file", Counting, clobber=True)
    try:
        Checkpoint(checkpoint).inspect.summary()
    finally:
        register_implementation("file", before, clobber=True)
    most = {"opens": max(opens.values()), "bytes": max(bytes_read.values())}
    return {"files": len(opens), **most, "listings": listings.total()}


def s3_summary(checkpoint: Path) -> dict[str, Any]:
    """Counts what a first ``summary()`` asks of moto's S3 server.

    Returns:
        files, listings, gets (the most of one file), others (such as HEAD); or ``missing``: why not.
    """
    try:
        import fsspec
        import s3fs  # noqa: F401
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server
    except ImportError as error:
        return {"missing": f"{error}; pip install 'pyspark-statestore[test]'"}

    requests: Counter[tuple[str, str]] = Counter()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = DomainDispatcherApplication(create_backend_app)

    def counting(environ: dict[str, Any], start_response: Any) -> Any:
        name = "list" if "list-type=2" in environ["QUERY_STRING"] else environ["PATH_INFO"]
        requests[environ["REQUEST_METHOD"], name] += 1
        return application(environ, start_response)

    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    server = make_server("127.0.0.1", 0, counting, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = {"endpoint_url": f"http://127.0.0.1:{server.server_port}", "region_name": "us-east-1"}
    options = {"key": "benchmark", "secret": "benchmark", "client_kwargs": endpoint}
    try:
        fs = fsspec.filesystem("s3", **options)
        fs.call_s3("create_bucket", Bucket=BUCKET)
        for file in checkpoint.rglob("*.merged"):
            fs.pipe_file(f"{BUCKET}/q1/{file.relative_to(checkpoint)}", file.read_bytes())
        requests.clear()
        Checkpoint(f"s3a://{BUCKET}/q1", options).inspect.summary()
    finally:
        server.shutdown()
    listings = requests.pop(("GET", "list"), 0)
    gets = [count for (method, _), count in requests.items() if method == "GET"]
    return {"files": len(gets), "listings": listings, "gets": max(gets), "others": requests.total() - sum(gets)}
