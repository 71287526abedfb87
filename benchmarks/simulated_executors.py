"""Up to a thousand executors of one query, and their driver, simulated in one JVM over the counting file system."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from benchmarks.filesystems import METADATA_CALLS, PACKAGE, TEST_JAR, Counts, minus
from pyspark_statestore import jar_path

PREFIX = "spark.sql.streaming.stateStore.fileMerging."
SMALL_FILES = {"maxFileSize": "64k", "compaction.enabled": "false", "closedAfter": "24h"}
"""Options of a simulation: files are sealed by their size alone, and segments are moved by nobody."""

WRITING = ("create", "addBlock", "complete")
"""The calls that write a file."""


@contextmanager
def launched_jvm(memory: str = "2g") -> Iterator[Any]:
    """Starts a JVM without Spark, with the shim and the test shim, and stops it at the end.

    Args:
        memory: The size of its heap.
    """
    jars = Path(pyspark.__file__).parent / "jars"
    port, token, process = launch_gateway(
        jarpath=str(next(jars.glob("py4j-*.jar"))),
        classpath=os.pathsep.join([jar_path(), str(TEST_JAR), f"{jars}/*"]),
        javaopts=[f"-Xmx{memory}", f"-Xms{memory}", "-Dlog4j2.level=ERROR"],
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
        redirect_stdout=subprocess.DEVNULL,
        redirect_stderr=subprocess.DEVNULL,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway.jvm
    finally:
        gateway.close()
        process.kill()
        process.wait()


def counting_file_system(jvm: Any, **options: str) -> tuple[Any, Any]:
    """Makes the counting file system.

    Args:
        jvm: py4j's view of a JVM with the test shim.
        **options: Options of merged state.

    Returns:
        The file system and its configuration.
    """
    conf = jvm.org.apache.hadoop.conf.Configuration()
    conf.set("fs.counting.impl", f"{PACKAGE}.CountingFileSystem")
    for name, value in options.items():
        conf.set(PREFIX + name, value)
    return jvm.org.apache.hadoop.fs.FileSystem.newInstance(jvm.java.net.URI.create("counting:///"), conf), conf


class Calls:
    """Metadata calls of a step, by who has made them.

    Args:
        counts: Calls by kind of thread, as the simulation names them.
    """

    def __init__(self, counts: dict[str, Counts]) -> None:
        self._counts = counts

    def by(self, *threads: str) -> dict[str, int]:
        """Returns the metadata calls of some kinds of threads, by kind of call, without zeroes."""
        found: dict[str, int] = {}
        for thread in threads:
            for operations in self._counts.get(thread, {}).values():
                for operation in METADATA_CALLS:
                    if operations.get(operation):
                        found[operation] = found.get(operation, 0) + operations[operation]
        return found

    @property
    def driver(self) -> dict[str, int]:
        """Those of the driver."""
        return self.by("driver")

    @property
    def executors(self) -> dict[str, int]:
        """Those of executors that neither read segments nor write files."""
        return {kind: count for kind, count in self.by("task", "maintenance").items() if kind not in WRITING}

    @property
    def writing(self) -> dict[str, int]:
        """Those with which executors write files."""
        return {kind: count for kind, count in self.by("task", "maintenance").items() if kind in WRITING}

    @property
    def reading(self) -> dict[str, int]:
        """Those with which executors read segments."""
        return self.by("other")

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.by("driver", "task", "maintenance", "other").values())


class Simulation:
    """A query on simulated executors.

    Args:
        jvm: py4j's view of a JVM with the test shim.
        directory: The checkpoint.
        executors: How many there are.
        partitions: How many stores there are; executor n has partition n first.
        served: Whether there is an index service.
        commit_bytes: The bytes of a changelog.
        **options: Options of merged state.
    """

    def __init__(
        self,
        jvm: Any,
        directory: Path,
        executors: int,
        partitions: int,
        served: bool,
        commit_bytes: int = 2_000,
        **options: str,
    ) -> None:
        self.merged = directory / "state" / "_merged"
        self._label = str(directory)
        self._counting = getattr(jvm, f"{PACKAGE}.CountingFileSystem")
        self._counting.registerRoot(self._label, str(directory))
        fs, conf = counting_file_system(jvm, **{**SMALL_FILES, **options})
        state = jvm.org.apache.hadoop.fs.Path(f"counting:{directory}/state")
        kind = jvm.io.pyspark.statestore.log.SimulatedExecutors
        self.java = kind(fs, state, conf, executors, partitions, served, commit_bytes)

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *error: object) -> None:
        self.java.close()

    @property
    def files(self) -> int:
        """How many merged files there are."""
        return len(list(self.merged.glob("*.merged")))

    def step(self, *names: str) -> Calls:
        """Lets something happen.

        Args:
            *names: Methods of ``SimulatedExecutors`` without arguments, in this order.

        Returns:
            Its calls.
        """
        before = self._snapshot()
        for name in names:
            getattr(self.java, name)()
        return Calls(minus(self._snapshot(), before))

    def _snapshot(self) -> dict[str, Counts]:
        counts: dict[str, Counts] = json.loads(self._counting.snapshotJson()).get(self._label, {})
        return counts
