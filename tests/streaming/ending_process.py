"""A driver in a process of its own, whose query ends or does not: ``<how> <mode> <store> <master> <directory>``.

``how`` is ``configure``, ``attach``, or ``raw``: the settings that ``pyspark-statestore settings`` prints. It prints
the id of its JVM's process, and then does what each line of its input says: ``start`` the query; have it take what is
``available``; ``stop`` it; ``stop session``; ``exit``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from pyspark_statestore import attach, configure, merged_path

SLOW = -2
"""A number at which a task takes a minute, after it has left a file that begins with ``slow-``."""


def session(how: str, mode: str, store: str, master: str) -> SparkSession:
    """Starts a session."""
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.log.level", "WARN")
    if how == "configure":
        return configure(builder, mode=mode, store=store).getOrCreate()
    if how == "attach":
        return attach(builder.getOrCreate(), mode=mode, store=store)
    command = ["pyspark_statestore.cli", "settings", "--mode", mode, "--store", store, "--as", "json"]
    printed = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=True).stdout
    for key, value in json.loads(printed).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def start(spark: SparkSession, mode: str, root: Path, *, available_now: bool) -> StreamingQuery:
    """Starts a query that counts what is in the input."""
    rows = spark.readStream.schema("n int").json(str(root / "input"))

    def count(n: int) -> int:
        if n == SLOW:
            (root / f"slow-{uuid.uuid4()}").touch()
            time.sleep(60)
        return n

    rows = rows.withColumn("n", F.udf(count, "int")("n")).groupBy("n").count()
    location = str(root / "q1") if mode == "provider" else merged_path(str(root / "q1"))
    writer = rows.writeStream.outputMode("update").format("noop").option("checkpointLocation", location)
    if available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime="100 milliseconds").start()


def main(how: str, mode: str, store: str, master: str, directory: str) -> None:
    """Does what it is told."""
    spark = session(how, mode, store, master)
    query: StreamingQuery | None = None
    assert spark._jvm is not None
    print(f"@{spark._jvm.java.lang.ProcessHandle.current().pid()}", flush=True)
    for line in sys.stdin:
        command = line.strip()
        if command in ("start", "available"):
            query = start(spark, mode, Path(directory), available_now=command == "available")
            if command == "available":
                query.awaitTermination()
        elif command == "stop":
            assert query is not None
            query.stop()
        elif command == "stop session":
            spark.stop()
        elif command == "exit":
            return
        print(f"@{command}", flush=True)


main(*sys.argv[1:])
