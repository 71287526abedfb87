"""An S3 on this machine: moto's server on loopback with the proxy before it, and the settings of its clients."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.s3.proxy import Proxy

BUCKET = "checkpoints"
IMPATIENT = "impatient"
"""A bucket on which S3A gives up after one failure, and does not wait for answers for long."""

REGION = "us-east-1"

DURATIONS = {
    # Hadoop 3.5's own defaults say "60s", which S3A 3.3.1 cannot read.
    "threads.keepalivetime": "60",
    "connection.establish.timeout": "5000",
    "connection.timeout": "200000",
    "connection.ttl": "300000",
    "connection.idle.time": "60000",
    "connection.acquisition.timeout": "60000",
    "connection.request.timeout": "0",
    "multipart.purge.age": "86400",
    # Shorter than the defaults: no test is about the length of pauses.
    "retry.interval": "20",
    "retry.throttle.interval": "20",
    "assumed.role.session.duration": "1800",
}
_OF_IMPATIENT = {
    "attempts.maximum": "0",
    "retry.limit": "0",
    "retry.throttle.limit": "0",
    "connection.timeout": "6000",
}


class LocalS3:
    """A context manager: server and proxy run inside it, with two buckets.

    Attributes:
        proxy: What S3A talks to.
    """

    def __init__(self) -> None:
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)

    def __enter__(self) -> LocalS3:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._buffers = tempfile.TemporaryDirectory(prefix="s3a-", ignore_cleanup_errors=True)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self._direct = f"http://{host}:{port}"
        self.proxy = Proxy((host, port))
        self.proxy.__enter__()
        for bucket in (BUCKET, IMPATIENT):
            self.direct().call_s3("create_bucket", Bucket=bucket)
        return self

    def __exit__(self, *_: object) -> None:
        self.proxy.__exit__()
        self._server.stop()
        self._buffers.cleanup()

    def options(self, *, direct: bool = False) -> dict[str, Any]:
        """Storage options of fsspec; ``direct`` goes by the proxy, uncounted and without faults."""
        endpoint = {"endpoint_url": self._direct if direct else self.proxy.url, "region_name": REGION}
        return {"key": "testing", "secret": "testing", "client_kwargs": endpoint}

    def direct(self) -> Any:
        """A file system of fsspec that goes by the proxy and remembers nothing."""
        import fsspec

        return fsspec.filesystem("s3", **self.options(direct=True), use_listings_cache=False)

    def keys(self, prefix: str, bucket: str = BUCKET) -> list[str]:
        """All objects below a prefix."""
        return sorted(path.removeprefix(f"{bucket}/") for path in self.direct().find(f"{bucket}/{prefix}"))

    def uploads(self, bucket: str = BUCKET) -> list[str]:
        """The keys of multipart uploads that nobody has ended."""
        found = self.direct().call_s3("list_multipart_uploads", Bucket=bucket).get("Uploads") or []
        return [upload["Key"] for upload in found]

    def hadoop_settings(self) -> dict[str, str]:
        """Hadoop settings of S3A."""
        settings = {
            **DURATIONS,
            "endpoint": self.proxy.url,
            "endpoint.region": REGION,
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
            "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
            "access.key": "testing",
            "secret.key": "testing",
            # As every Hadoop since 3.4 does. Else each PUT is followed by a deletion of its parents' markers.
            "directory.marker.retention": "keep",
            # As by default, in files. A buffer in memory takes 64 MB for each object that is written.
            "buffer.dir": self._buffers.name,
        }
        impatient = {f"bucket.{IMPATIENT}.{key}": value for key, value in _OF_IMPATIENT.items()}
        return {f"fs.s3a.{key}": value for key, value in (settings | impatient).items()} | {
            "fs.s3a.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
            "fs.AbstractFileSystem.s3a.impl": "org.apache.hadoop.fs.s3a.S3A",
        }

    def spark_settings(self) -> dict[str, str]:
        """The same for a Spark session."""
        return {f"spark.hadoop.{key}": value for key, value in self.hadoop_settings().items()}


def class_path_settings(jars: Sequence[Path]) -> Mapping[str, str]:
    """Settings that put jars on the class path of a session whose JVMs do not run yet."""
    joined = ":".join(map(str, jars))
    return {"spark.driver.extraClassPath": joined, "spark.executor.extraClassPath": joined}


def add_to_class_path(jvm: Any, jars: Sequence[Path]) -> None:
    """Puts jars on the class path of a JVM that runs, for the sessions that are made in it from now on."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    there = {url.toString() for url in loader.getURLs()}
    for jar in jars:
        url = jvm.java.io.File(str(jar)).toURI().toURL()
        if url.toString() not in there:
            loader.addURL(url)
