"""A standalone cluster whose two workers are on hosts of their own, as far as Spark can tell: 127.0.0.1 and 127.0.0.2.

Its master and workers live in the JVM of the tests, as those of a local cluster do, and its executors are processes.
They end with their worker, and all ends with the JVM.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

HOSTS = ("127.0.0.1", "127.0.0.2")

SPECULATION = {
    "spark.executor.cores": "1",
    "spark.locality.wait": "0",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "200ms",
    "spark.speculation.efficiency.enabled": "false",
}
"""Settings with which a task that is held gets a copy on the other host soon."""


def require_hosts() -> None:
    """Skips the test where the second address is not there: Linux has all of 127.0.0.0/8, others have one."""
    for host in HOSTS:
        try:
            with socket.create_server((host, 0)):
                pass
        except OSError as error:
            pytest.skip(f"no two hosts on this machine: {host}: {error}")


@contextmanager
def two_hosts(work: Path) -> Iterator[str]:
    """The master's URL, for sessions on one executor with one core on each host.

    Args:
        work: Where executors write their logs.
    """
    SparkContext._ensure_initialized()
    gateway, jvm = SparkContext._gateway, SparkContext._jvm
    deploy, none = jvm.org.apache.spark.deploy, jvm.scala.Option.empty()
    conf = jvm.org.apache.spark.SparkConf(False).set("spark.master.rest.enabled", "false")
    running: list[Any] = []
    try:
        running.append(deploy.master.Master.startRpcEnvAndEndpoint(HOSTS[0], 0, 0, conf)._1())
        url = f"spark://{running[0].address().hostPort()}"
        masters = gateway.new_array(jvm.java.lang.String, 1)
        masters[0] = url
        for number, host in enumerate(HOSTS):
            start = deploy.worker.Worker.startRpcEnvAndEndpoint
            running.append(start(host, 0, 0, 1, 1024, masters, str(work), jvm.scala.Some(number), conf, none))
        yield url
    finally:
        for environment in reversed(running):
            environment.shutdown()
            environment.awaitTermination()


def is_alive(process: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
