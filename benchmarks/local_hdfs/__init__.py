"""A real HDFS on this machine: one NameNode, one DataNode, on loopback, in a JVM of its own.

    with LocalHdfs() as hdfs:
        spark.read.parquet(f"{hdfs.url}/data")
        hdfs.calls()        # what clients asked the NameNode, by kind and path

`python -m benchmarks.local_hdfs` runs one until it is interrupted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.local_hdfs.archive import HdfsUnavailable, server_jars

__all__ = ["CLIENT_SETTINGS", "Call", "HdfsUnavailable", "LocalHdfs"]

CLIENT_SETTINGS = {
    # Else closing a file sleeps 400 ms wherever the DataNode has not reported its last block yet.
    "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "5",
    "dfs.replication": "1",
}
"""Hadoop settings for clients of a small HDFS."""

_SOURCE = Path(__file__).with_name("LocalHdfs.java")
_START_SECONDS = 120
_LEASE_SOFT_LIMIT = 60
_ANY = "127.0.0.1:0"
_SETTINGS = {
    "fs.defaultFS": f"hdfs://{_ANY}",
    # Apart from clients, so that the DataNode's reports are not among the requests that are counted.
    "dfs.namenode.servicerpc-address": _ANY,
    "dfs.namenode.http-address": _ANY,
    "dfs.datanode.address": _ANY,
    "dfs.datanode.ipc.address": _ANY,
    "dfs.datanode.http.address": _ANY,
    "dfs.replication": "1",
    "dfs.webhdfs.enabled": "false",
    "dfs.permissions.enabled": "false",
    "dfs.namenode.safemode.extension": "0",
    "dfs.namenode.resource.du.reserved": "0",
    # A block of a deleted file is gone from the DataNode soon after.
    "dfs.heartbeat.interval": "1",
    "dfs.namenode.replication.interval": "1",
}
_OPENED = ("java.lang", "java.nio", "java.net", "java.util", "sun.nio.ch", "jdk.internal.ref")
_JAVA_OPTIONS = [
    *("-Xmx256m", "-Djava.net.preferIPv4Stack=true"),
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
]
_LOG4J = """\
log4j.rootLogger=WARN, err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d %p %c: %m%n
"""


class Call(NamedTuple):
    """A kind of request about one path.

    Attributes:
        kind: As the NameNode's metrics call it, such as ``Create`` or ``AddBlock``.
        path: What it was about; empty for requests that name no path, such as ``RenewLease``.
    """

    kind: str
    path: str


class LocalHdfs:
    """A context manager: the servers run inside it. They also end when this process does, however it ends.

    Args:
        settings: More Hadoop settings for the servers.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {**_SETTINGS, **(settings or {})}
        self._process: subprocess.Popen[str] | None = None
        self._directory: Path | None = None
        self._lock = threading.Lock()
        self.url = ""
        """Such as ``hdfs://127.0.0.1:40123``."""

    def __enter__(self) -> LocalHdfs:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the servers and returns when they serve.

        Raises:
            HdfsUnavailable: If their classes cannot be had.
            RuntimeError: If they do not start.
        """
        jars = server_jars()
        self._directory = Path(tempfile.mkdtemp(prefix="local-hdfs-"))
        try:
            self._process = self._launch(jars, self._directory)
            watchdog = threading.Timer(_START_SECONDS, self._process.kill)
            watchdog.start()
            assert self._process.stdout is not None
            port = self._process.stdout.readline().strip()
            watchdog.cancel()
            if not port:
                raise RuntimeError(f"HDFS did not start: {self.log()[-3000:]}")
            self.url = f"hdfs://127.0.0.1:{port}"
        except BaseException:
            self.stop()
            raise

    def _launch(self, jars: list[Path], directory: Path) -> subprocess.Popen[str]:
        for server in ("hdfs", "datanode"):
            web = directory / "conf" / "webapps" / server / "WEB-INF"
            web.mkdir(parents=True)
            (web / "web.xml").write_text("<web-app/>")
        (directory / "conf" / "log4j.properties").write_text(_LOG4J)
        # How old what its beans say may be, in seconds.
        (directory / "conf" / "hadoop-metrics2.properties").write_text("*.period=1\n")
        home = os.environ.get("JAVA_HOME")
        java = str(Path(home) / "bin" / "java") if home else "java"
        class_path = os.pathsep.join(map(str, [directory / "conf", *jars]))
        settings = {"hadoop.tmp.dir": str(directory / "data"), **self._settings}
        with (directory / "log").open("w") as log:
            return subprocess.Popen(
                [java, *_JAVA_OPTIONS, f"-Djava.io.tmpdir={directory}", "-cp", class_path, str(_SOURCE)]
                + [f"{key}={value}" for key, value in settings.items()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=directory,
                start_new_session=True,  # an interrupt of the test run is for the test run
            )

    def stop(self) -> None:
        """Stops the servers and deletes all that they held."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def log(self) -> str:
        """What the servers have logged."""
        return (self._directory / "log").read_text() if self._directory else ""

    def client_settings(self) -> dict[str, str]:
        """Spark settings for sessions that work on it."""
        return {f"spark.hadoop.{key}": value for key, value in CLIENT_SETTINGS.items()}

    def calls(self) -> Counter[Call]:
        """Requests of clients to the NameNode since the start, by kind and path, counted where they arrive."""
        counted: Counter[Call] = Counter()
        for key, count in self._ask("calls").items():
            method, path = key.split(" ", 1)
            counted[Call(method[0].upper() + method[1:], path)] = count
        return counted

    def rpc_counts(self) -> Counter[str]:
        """The same by kind only, as the NameNode's bean `RpcDetailedActivityForPort…` says; takes a second."""
        return Counter(self._ask("jmx"))

    def restart_data_node(self) -> None:
        """Stops the DataNode and starts it again: all that is being written there waits for a recovery then."""
        self._ask("restart-data-node")

    @contextmanager
    def lease_soft_limit(self, seconds: float) -> Iterator[None]:
        """Lets writers count as dead that have not renewed their leases for so long; clients do so every 30 s."""
        self._ask(f"lease-soft-limit {seconds * 1000:.0f}")
        try:
            yield
        finally:
            self._ask(f"lease-soft-limit {_LEASE_SOFT_LIMIT * 1000}")

    def _ask(self, question: str) -> dict[str, int]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise RuntimeError("this HDFS does not run")
        with self._lock:
            try:
                process.stdin.write(f"{question}\n")
                process.stdin.flush()
                answer = process.stdout.readline()
            except OSError:
                answer = ""
        if not answer:
            raise RuntimeError(f"HDFS has died: {self.log()[-3000:]}")
        found: dict[str, int] = json.loads(answer)
        return found
