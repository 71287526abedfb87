"""What does the index service save, and what does it cost? Calls, heap, and the time of a commit.

python benchmarks/index_service.py calls          # 10 to 1,000 simulated executors over the counting file system
python benchmarks/index_service.py heap           # bytes a segment in the driver and in an executor, a million segments
python benchmarks/index_service.py latency        # commits with the service and without it, on local-cluster[2,1,1024]
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.filesystems import CallCounters  # noqa: E402
from benchmarks.scenario import Scenario  # noqa: E402
from benchmarks.shim import build_shim  # noqa: E402
from benchmarks.sides import Side, environment, merged_settings, start_session  # noqa: E402
from benchmarks.simulated_executors import Calls, Simulation, counting_file_system, launched_jvm  # noqa: E402
from benchmarks.workloads import write_input  # noqa: E402

OUT = Path("build/benchmarks")
MASTER = "local-cluster[2,1,1024]"
ENABLED = "spark.sql.streaming.stateStore.fileMerging.indexService.enabled"
TIMED = ("writeNanos", "reportWaitNanos")
GROUP_TIMES = "io.pyspark.statestore.testing.GroupTimes"
PATIENCE_SECONDS = 60


@click.group()
def main() -> None:
    """Measure the index service."""


def _keep(name: str, raw: Any) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"index_service_{name}.json").write_text(json.dumps(raw, indent=1) + "\n")
    print(f"raw numbers: {OUT}/index_service_{name}.json", file=sys.stderr)


# ---- calls


def simulated(jvm: Any, directory: Path, executors: int, partitions: int, served: bool) -> dict[str, Any]:
    """Lets a query run, lose all its processes, and run again.

    Args:
        jvm: py4j's view of a JVM with the test shim.
        directory: The checkpoint.
        executors: How many there are.
        partitions: How many stores there are.
        served: Whether there is an index service.

    Returns:
        Calls by step and by who has made them.
    """
    with Simulation(jvm, directory, executors, partitions, served, commit_bytes=500) as query:
        found: dict[str, Any] = {"executors": executors, "partitions": partitions, "served": served}

        def step(name: str, *steps: str) -> None:
            asked, bytes_before = query.java.questions(), query.java.messageBytes()
            begin = time.monotonic()
            calls = query.step(*steps)
            found[name] = {**_by(calls), "seconds": time.monotonic() - begin}
            found[name]["questions"] = query.java.questions() - asked
            found[name]["message_bytes"] = query.java.messageBytes() - bytes_before

        step("first batch", "batch")
        step("steady batch", "batch")
        step("batch that loads", "batchThatLoads")
        query.step("maintain", "batch", "maintain", "batch")
        step("pass", "clean")
        found["files"] = query.files
        query.java.killAll()
        step("cold start", "batch")
        step("pass after it", "clean")
        query.java.move(min(executors, partitions))
        step("batch after moves", "batch")
    return found


def _by(calls: Calls) -> dict[str, Any]:
    who = {"driver": calls.driver, "executors": calls.executors, "writing": calls.writing, "reading": calls.reading}
    return {name: dict(kinds) for name, kinds in who.items()}


def _sum(kinds: dict[str, int]) -> int:
    return sum(kinds.values())


@main.command("calls")
@click.option("--executors", type=int, multiple=True, default=(10, 50, 200, 1_000), show_default=True)
@click.option("--partitions", default=2_000, show_default=True)
@click.option("--alone-up-to", default=50, show_default=True, help="Executors, also without the service.")
@click.option("--quick", is_flag=True, help="10 and 50 executors, 200 partitions.")
@click.option("--build/--no-build", default=True, help="Compile the shim first if its sources changed.")
def calls_command(executors: tuple[int, ...], partitions: int, alone_up_to: int, quick: bool, build: bool) -> None:
    """Count the calls of simulated executors."""
    if build:
        build_shim()
    if quick:
        executors, partitions, alone_up_to = (10, 50), 200, 10
    table = Table(title=f"calls, {partitions:,} partitions", title_justify="left", title_style="bold")
    heads = (
        *("executors", "service", "steady\nbatch", "batch that\nloads all", "moves", "a pass", "files"),
        *("cold:\ndriver", "cold:\nexec.", "cold:\ndata", "cold:\nin all", "2 x files\n+ 20"),
    )
    for column in heads:
        table.add_column(column, justify="right")
    raw = []
    for number in executors:
        for served in (True, False) if number <= alone_up_to else (True,):
            work = Path(tempfile.mkdtemp(prefix="index-service-"))
            try:
                with launched_jvm("3g") as jvm:
                    found = simulated(jvm, work / "checkpoint", number, partitions, served)
            finally:
                shutil.rmtree(work, ignore_errors=True)
            raw.append(found)
            print(f"  {json.dumps(found)}", file=sys.stderr)
            cold = found["cold start"]
            table.add_row(
                f"{number:,}",
                "yes" if served else "no",
                *(
                    f"{_sum(found[name]['driver']) + _sum(found[name]['executors']):,}"
                    for name in ("steady batch", "batch that loads", "batch after moves", "pass")
                ),
                f"{found['files']:,}",
                f"{_sum(cold['driver']):,}",
                f"{_sum(cold['executors']):,}",
                f"{_sum(cold['reading']):,}",
                f"{sum(_sum(cold[who]) for who in ('driver', 'executors', 'reading')):,}",
                f"{2 * found['files'] + 20:,}",
            )
    console = Console(width=max(120, Console().width))
    console.print(table)
    console.print(
        "A pass is the driver's, or one of each executor. With moves, each executor takes over one partition."
    )
    console.print(
        "Calls that write files are not in the table, and of those that read segments only a cold start's (data)."
    )
    _keep("calls", raw)


# ---- heap


@main.command("heap")
@click.option("--segments", default=1_000_000, show_default=True)
@click.option("--per-store", default=100, show_default=True, help="Segments of a store.")
@click.option("--deletions", default=0, show_default=True, help="Deletions of a store that its files hold, too.")
@click.option("--memory", default="4g", show_default=True, help="The heap of the JVM.")
@click.option("--quick", is_flag=True, help="20,000 segments.")
@click.option("--build/--no-build", default=True, help="Compile the shim first if its sources changed.")
def heap_command(segments: int, per_store: int, deletions: int, memory: str, quick: bool, build: bool) -> None:
    """Measure the heap that logs take: the driver's, and that of an executor which serves all stores."""
    if build:
        build_shim()
    segments = 20_000 if quick else segments
    work = Path(tempfile.mkdtemp(prefix="index-heap-"))
    try:
        with launched_jvm(memory) as jvm:
            fs, conf = counting_file_system(jvm)
            state = jvm.org.apache.hadoop.fs.Path(f"counting:{work}/checkpoint/state")
            logs = jvm.io.pyspark.statestore.log.IndexHeap(fs, state, conf)
            used = jvm.io.pyspark.statestore.heap.HeapStore.usedHeap
            logs.write(segments // per_store, per_store, deletions, 50)
            before = used()
            full_count = logs.openFull()
            full = used()
            served_count = logs.openServed(segments // per_store)
            served = used()
            assert full_count == served_count == segments, (full_count, served_count)
            logs.close()
            left = used()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    found = {
        "segments": segments,
        "deletions": deletions * (segments // per_store),
        "driver": (full - before) / segments,
        "executor": (served - full) / segments,
        "left": (left - before) / segments,
    }
    title = f"{segments:,} segments of {segments // per_store:,} stores, {deletions} deletions each"
    print(f"bytes of heap a segment, {title}")
    print(f"  driver    {found['driver']:.0f}")
    print(f"  executor  {found['executor']:.0f}, of its own stores")
    print(f"  left when the logs are forgotten: {found['left']:.1f}")
    _keep("heap", found)


# ---- latency


class Times:
    """Times of groups in all executors.

    Args:
        spark: The session.
        executors: How many there are.
    """

    def __init__(self, spark: Any, executors: int) -> None:
        self._spark, self._executors = spark, executors
        spark.udf.registerJavaFunction("group_times", GROUP_TIMES, "string")

    def of(self, directory: Path) -> dict[str, int]:
        """Returns what the logs of a checkpoint have counted so far, in all executors together."""
        end = time.monotonic() + PATIENCE_SECONDS
        found: dict[int, dict[str, int]] = {}
        while len(found) < self._executors:
            if time.monotonic() > end:
                raise click.ClickException(f"only {len(found)} of {self._executors} executors answered")
            tasks = 4 * self._executors
            frame = self._spark.range(0, tasks, 1, tasks).selectExpr("group_times(20L)")
            for (said,) in frame.collect():
                answer = json.loads(said)
                for state, counts in answer["logs"].items():
                    if f"{directory}/" in state:
                        found[answer["pid"]] = counts
        return {name: sum(each[name] for each in found.values()) for name in ("groups", *TIMED)}


@main.command("latency")
@click.option("--batches", default=60, show_default=True, help="Of each way; the first ten do not count.")
@click.option("--partitions", default=20, show_default=True)
@click.option("--master", default=MASTER, show_default=True)
@click.option("--flush-ms", type=click.IntRange(0), default=0, show_default=True, help="Sleep in each flush.")
@click.option("--quick", is_flag=True, help="Four batches: shows only that it works.")
@click.option("--build/--no-build", default=True, help="Compile the shim first if its sources changed.")
def latency_command(batches: int, partitions: int, master: str, flush_ms: int, quick: bool, build: bool) -> None:
    """Compare commits with the service and without it: a query each, in the same executors, batch by batch in turn."""
    if build:
        build_shim()
    warmup = 1 if quick else 10
    batches = 4 if quick else batches
    scenario = Scenario(
        partitions=partitions,
        batches=batches,
        rows_per_batch=1_000,
        keys=10_000,
        sides=("merged",),
        maintenance_interval="60s",
    )
    merged = merged_settings(scenario)
    executors = int(master.split("[")[1].split(",")[0])
    memory = master.rstrip("]").split(",")[2]
    work = Path(tempfile.mkdtemp(prefix="index-latency-"))
    took: dict[str, dict[str, list[float]]] = {}
    try:
        files = write_input(scenario, work / "staging")
        more = {
            "spark.executor.memory": f"{memory}m",
            "spark.executor.extraJavaOptions": f"-Dpyspark.statestore.testing.flushMillis={flush_ms}",
        }
        spark = start_session(scenario, work, merged, master, more)
        times = Times(spark, executors)
        sides = {}
        for way in ("true", "false"):
            sides[way] = Side("merged", spark.newSession(), scenario, work / way, CallCounters(spark))
            sides[way].start({**merged, ENABLED: way})
            took[way] = {"commit_ms": [], "group_ms": [], "report_ms": [], "trigger_ms": []}
        for number, file in enumerate(files):
            # Each goes first in half of the batches.
            for way in ("true", "false") if number % 2 else ("false", "true"):
                side = sides[way]
                before = times.of(side.directory) if number else dict.fromkeys(("groups", *TIMED), 0)
                record = side.run_batch(file)
                after = {name: count - before[name] for name, count in times.of(side.directory).items()}
                if number >= warmup:
                    state = side.progress()["stateOperators"]
                    took[way]["commit_ms"].append(sum(each["commitTimeMs"] for each in state) / partitions)
                    took[way]["group_ms"].append(after["writeNanos"] / after["groups"] / 1e6)
                    took[way]["report_ms"].append(after["reportWaitNanos"] / partitions / 1e6)
                    took[way]["trigger_ms"].append(record["trigger_ms"])
        about = environment(spark)
        for side in sides.values():
            side.stop()
        spark.stop()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    where = f"{master}, {flush_ms} ms a flush"
    table = Table(title=f"median of {batches - warmup} batches, {partitions} commits each, {where}")
    for column in ("", "with the service", "without", "ratio"):
        table.add_column(column, justify="left" if not column else "right")
    labels = {
        "commit_ms": "a store's commit, as Spark times it, ms",
        "group_ms": "a group: write and flush, ms",
        "report_ms": "a task's end waits for its report, ms",
        "trigger_ms": "whole batch, ms",
    }
    for name, label in labels.items():
        there, gone = (statistics.median(took[way][name]) for way in ("true", "false"))
        table.add_row(label, f"{there:.2f}", f"{gone:.2f}", f"{there / gone:.3f}" if gone >= 0.01 else "")
    Console(width=max(100, Console().width)).print(table)
    _keep("latency", {"took": took, "flush_ms": flush_ms, "environment": about})


if __name__ == "__main__":
    main()
