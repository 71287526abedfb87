"""Counts the calls of a summary: opens and bytes on a disk, requests on a server that speaks S3."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.file_calls import counted
from pyspark_statestore.checkpoint import Checkpoint

BUCKET = "checkpoints"


def cold_summary(checkpoint: Path) -> dict[str, Any]:
    """Counts the opens and bytes of a first ``summary()``.

    Returns:
        files, opens (the most of one file), bytes (the most of one file), listings.
    """
    with counted() as calls:
        Checkpoint(checkpoint).inspect.summary()
    most = {"opens": max(calls.opens.values()), "bytes": max(calls.bytes_read.values())}
    return {"files": len(calls.opens), **most, "listings": calls.listings.total()}


def s3_summary(checkpoint: Path) -> dict[str, Any]:
    """Counts the requests of a first ``summary()`` to moto's S3 server.

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
