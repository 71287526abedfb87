"""A driver in a process of its own, which tests start and kill: ``python -m tests.cluster.driver <spec.json>``.

It starts a session and a query over what is in ``<root>/input``, writes what each batch gives out to ``<root>/out``,
and does what it is told on its standard input, a line of JSON each: see ``_COMMANDS``. Its answers are lines that begin
with @. It ends with 0 when it is told to stop, with 3 when the query fails.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_statestore import configure
from tests.cluster.data import SCHEMA, WORKLOADS

KILLER = "io.pyspark.statestore.testing.Killer"


@dataclass
class Running:
    """The session and its query."""

    spark: SparkSession
    query: StreamingQuery
    spec: dict[str, Any]

    @property
    def root(self) -> Path:
        """Where all of the test is."""
        return Path(self.spec["root"])

    def restore(self, batches: list[int]) -> dict[int, list[list[Any]]]:
        """The state after each of these batches, for each of its parts, read from the checkpoint."""
        workload = WORKLOADS[self.spec["workload"]]
        found: dict[int, list[list[Any]]] = {}
        for batch in batches:
            found[batch] = []
            for part in workload.state_parts:
                reader = self.spark.read.format("statestore").options(batchId=str(batch), **part)
                rows = reader.load(self.spec["location"]).selectExpr(*workload.state_columns).collect()
                found[batch].append(sorted(tuple(row) for row in rows))
        return found

    def replay(self, batch: int, partition: int, snapshot: int) -> list[list[Any]]:
        """The state of one partition after a batch, rebuilt from the snapshot after another one."""
        workload = WORKLOADS[self.spec["workload"]]
        found = []
        for part in workload.state_parts:
            reader = self.spark.read.format("statestore").options(
                batchId=str(batch), snapshotStartBatchId=str(snapshot), snapshotPartitionId=str(partition), **part
            )
            rows = reader.load(self.spec["location"]).selectExpr(*workload.state_columns).collect()
            found.append(sorted(tuple(row) for row in rows))
        return found

    def batch(self) -> list[Any]:
        """What the query's result is when it is computed at once."""
        rows = self.spark.read.schema(SCHEMA).json(str(self.root / "input"))
        return sorted(tuple(row) for row in WORKLOADS[self.spec["workload"]].build(rows).collect())

    def executors(self) -> list[int]:
        """The executors of a local cluster: child processes of this one's JVM."""
        children = self.spark.sparkContext._jvm.java.lang.ProcessHandle.current().children().toList()
        return [child.pid() for child in children]


_COMMANDS = ("restore", "replay", "batch", "executors")


def start(spec: dict[str, Any]) -> Running:
    """Starts the session and the query."""
    builder = SparkSession.builder.master(spec["master"]).config(map=spec["conf"])
    sink = bool(spec["sink"])
    spark = configure(builder, mode=spec["door"], store=spec["store"], sink=sink, **spec["options"]).getOrCreate()
    root = Path(spec["root"])
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(root / "input"))
    # Each row goes by a point where its task may be killed.
    stream = stream.selectExpr("k", "side", "v", f"reflect('{KILLER}', 'row', pad) AS pad")

    def take(batch: DataFrame, batch_id: int) -> None:
        hidden = root / "out" / f"_{batch_id}"
        hidden.write_text(json.dumps([tuple(row) for row in batch.collect()]))
        hidden.rename(root / "out" / f"{batch_id}.json")

    if spec["sink"]:
        writer = stream.repartition(4, "k").writeStream.format(spec["sink"]).partitionBy("side")
        writer = writer.option("path", spec["files"])
    else:
        workload = WORKLOADS[spec["workload"]]
        writer = workload.build(stream).writeStream.outputMode(workload.output_mode).foreachBatch(take)
    return Running(spark, writer.option("checkpointLocation", spec["location"]).start(), spec)


def _say(what: dict[str, Any]) -> None:
    print("@" + json.dumps(what), flush=True)


def _give_up_with(query: StreamingQuery) -> None:
    try:
        while query.isActive:
            time.sleep(0.1)
        failure = str(query.exception() or "")
    except Exception as error:
        failure = f"the JVM is gone: {error}"
    if failure:
        _say({"failed": failure})
        sys.stderr.write(failure)
        sys.stderr.flush()
        os._exit(3)


def main() -> None:
    """Serves until it is told to stop."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    running = start(spec)
    threading.Thread(target=_give_up_with, args=(running.query,), daemon=True).start()
    _say({"ready": True})
    for line in sys.stdin:
        command = json.loads(line)
        name = command.pop("do")
        if name == "stop":
            break
        try:
            if name not in _COMMANDS:
                raise ValueError(f"no such command: {name}")
            _say({"answer": getattr(running, name)(**command)})
        except Exception as error:
            _say({"error": str(error)[:1000]})
    running.query.stop()
    running.spark.stop()


if __name__ == "__main__":
    main()
