"""Counts the files that a process opens when it reads a checkpoint for the first time, in Python and in the JVM."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from benchmarks.file_calls import counted
from benchmarks.filesystems import MERGED_FILE_SYSTEM, PACKAGE, TEST_JAR
from pyspark_statestore import jar_path
from pyspark_statestore.checkpoint import Checkpoint

TABLES = ("summary", "segments")


def python_opens(checkpoint: Path) -> dict[str, int]:
    """Returns how many merged files the first read of each table opens."""
    found = {}
    for table in TABLES:
        with counted() as calls:
            Checkpoint(checkpoint).inspect.table(table)
        found[table] = calls.opens.total()
    return found


def jvm_opens(checkpoint: Path) -> int:
    """Returns how many merged files an executor opens when it asks for a file of the state for the first time.

    Args:
        checkpoint: The checkpoint's local directory.
    """
    jars = Path(pyspark.__file__).parent / "jars"
    port, token, process = launch_gateway(
        jarpath=str(next(jars.glob("py4j-*.jar"))),
        classpath=os.pathsep.join([jar_path(), str(TEST_JAR), f"{jars}/*"]),
        javaopts=["-Xmx512m", "-Dlog4j2.level=ERROR"],
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
        redirect_stdout=subprocess.DEVNULL,
        redirect_stderr=subprocess.DEVNULL,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        hadoop = gateway.jvm.org.apache.hadoop
        conf = hadoop.conf.Configuration()
        conf.set("fs.counting.impl", f"{PACKAGE}.CountingFileSystem")
        conf.set("fs.merged+counting.impl", MERGED_FILE_SYSTEM)
        counters = getattr(gateway.jvm, f"{PACKAGE}.CountingFileSystem")
        counters.registerRoot("checkpoint", str(checkpoint))
        fs = hadoop.fs.FileSystem.newInstance(gateway.jvm.java.net.URI.create("merged+counting:///"), conf)
        fs.exists(hadoop.fs.Path(f"merged+counting:{checkpoint}/state/0/0/1.zip"))
        counts = json.loads(counters.snapshotJson())["checkpoint"]
    finally:
        gateway.close()
        process.kill()
        process.wait()
    return sum(categories.get("merged", {}).get("open", 0) for categories in counts.values())
