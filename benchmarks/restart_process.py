"""One life of the query of `restart.py`, in a process of its own.

Usage: `python -m benchmarks.restart_process IN.json OUT.json`. IN.json says which scenario, in which directory, and
whether this is the life that ends with SIGKILL (`files`: the batches before it) or the one after it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException

from benchmarks.filesystems import CallCounters
from benchmarks.loads import Loads, java_option, snapshot_seconds
from benchmarks.scenario import Scenario
from benchmarks.sides import BenchmarkError, Side, cpu_seconds, environment, jvm_pid, merged_settings, start_session


def live_and_die(scenario: Scenario, work: Path, files: list[str], answer: Path) -> None:
    """Runs both sides' batches in turn, writes that they are done, and waits to be killed.

    Args:
        scenario: What to run.
        work: The directory of everything that is written. It stays.
        files: The input of the batches.
        answer: Where to write the ids of this process and its JVM, when all batches are done.
    """
    merged = merged_settings(scenario) if "merged" in scenario.sides else {}
    spark = start_session(scenario, work, merged)
    counters = CallCounters(spark)
    sides = [Side(name, spark.newSession(), scenario, work / name, counters) for name in scenario.sides]
    for side in sides:
        side.start(merged)
    for number, file in enumerate(files):
        for side in sides:
            record = side.run_batch(Path(file))
            seconds = record["trigger_ms"] / 1000
            print(f"  batch {number + 1:3}/{len(files)} {side.name:6} {seconds:7.2f} s", file=sys.stderr, flush=True)
    pids = [os.getpid(), jvm_pid(spark)]
    partial = answer.with_suffix(".partial")
    partial.write_text(json.dumps({"pids": pids, "environment": environment(spark)}))
    partial.rename(answer)
    time.sleep(3600)


class LocalBytes:
    """Looks four times a second what SSTs take on the local disk.

    Args:
        directory: Below which stores have them.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._found: list[int] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(0.25):
            self._found.append(self._now())

    def _now(self) -> int:
        found: dict[int, int] = {}
        for folder, _, names in os.walk(self._directory):
            for name in names:
                if name.endswith(".sst"):
                    try:
                        status = os.stat(os.path.join(folder, name))
                    except FileNotFoundError:
                        continue
                    found[status.st_ino] = status.st_blocks * 512
        return sum(found.values())

    def end(self) -> list[int]:
        """Stops looking. Returns what was found, in bytes."""
        self._is_over.set()
        self._thread.join()
        return self._found


def java_causes(error: Any) -> str:
    """What a query's error says, and the errors behind it: Python shows the first one only."""
    found: list[str] = []
    cause = error._origin
    while cause is not None and len(found) < 10:
        found.append(str(cause.toString())[:500])
        cause = cause.getCause()
    return "\n  because ".join(found)


def sst_bytes(spark: Any) -> dict[str, int]:
    """Bytes of SSTs: those that merged state had on this host, fetched, left out, uploaded early, and wasted."""
    logs = spark._jvm.io.pyspark.statestore.log.MergedLogs.all().values()
    metrics = [log.metrics().snapshot() for log in logs]
    early = ("earlyBytes", "wastedBytes")
    names = ("cachedBytes", "fetchedBytes", "leftOutBytes", "demandedBytes", "lookAheadBytes", "hydratedBytes", *early)
    return {name: sum(each[name] for each in metrics) for name in names}


def come_back(scenario: Scenario, work: Path, megabytes_per_second: int, following: list[str]) -> dict[str, Any]:
    """Starts a killed side again, with one file to process.

    Args:
        scenario: What to run; its only side is the one to start.
        work: The directory of everything that was written.
        megabytes_per_second: What each stream reads; 0 is as fast as it goes.
        following: The input of more batches.

    Returns:
        seconds from the start of the query to the end of its first batch, its counts, output and durations, what
        following batches took, of processors, too, and what was counted until then, the bytes of SSTs on the local disk
        four times a second, and the id of the JVM's process.
    """
    (name,) = scenario.sides
    merged = merged_settings(scenario) if name == "merged" else {}
    log = work / "loads.log"
    option = {"spark.driver.extraJavaOptions": java_option(work / "log4j2.properties", str(log))}
    spark = start_session(scenario, work, merged, more=option)
    counters = CallCounters(spark)
    counters.delay(scenario.delay_ms)
    counters.limit_reads(megabytes_per_second)
    side = Side(name, spark.newSession(), scenario, work / name, counters)
    local = LocalBytes(work / "local")
    begin = time.monotonic()
    side.start(merged)
    seconds = time.monotonic() - begin
    counts = counters.snapshot(name)
    progress = side.progress()
    ssts = sst_bytes(spark) if merged else {}
    loads = Loads(log).seconds()
    side.first_batch = progress["batchId"] + 1
    cpu = cpu_seconds(spark)
    for file in following:
        side.run_batch(Path(file))
    ssts_at_the_end = sst_bytes(spark) if merged else {}
    at_the_end = counters.snapshot(name)
    cpu = cpu_seconds(spark) - cpu
    pid = jvm_pid(spark)
    counters.delay(0)
    side.stop()
    spark.stop()
    return {
        "seconds": seconds,
        "counts": counts,
        "ssts": ssts,
        "load_seconds": loads,
        "batch": progress["batchId"],
        "output": list(progress["observedMetrics"]["check"]),
        "durations_ms": dict(progress["durationMs"]),
        "following_ms": [batch["trigger_ms"] for batch in side.batches],
        "following_cpu_seconds": cpu,
        "following_output": [batch["output"] for batch in side.batches],
        "ssts_at_the_end": ssts_at_the_end,
        "counts_at_the_end": at_the_end,
        "snapshot_seconds": snapshot_seconds(log),
        "local_bytes": local.end(),
        "jvm": pid,
    }


def main() -> int:
    """Does what the order says."""
    order = json.loads(Path(sys.argv[1]).read_text())
    scenario = Scenario.from_json(order["scenario"])
    work, answer = Path(order["work"]), Path(sys.argv[2])
    try:
        if order["files"]:
            live_and_die(scenario, work, order["files"], answer)
        else:
            answer.write_text(json.dumps(come_back(scenario, work, order["megabytes_per_second"], order["following"])))
    except BenchmarkError as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    except StreamingQueryException as error:
        print(f"FAILED: {java_causes(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
