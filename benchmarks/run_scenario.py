"""Runs one scenario in this process, both sides batch by batch in turn.

Usage: `python -m benchmarks.run_scenario IN.json OUT.json`.
`small_files.py` starts it once for each scenario: a JVM that has run one would be warm for the next.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import disk
from benchmarks.filesystems import CallCounters, minus
from benchmarks.scenario import Scenario
from benchmarks.sides import BenchmarkError, Side, environment, jvm_memory, merged_settings, start_session
from benchmarks.workloads import state_fingerprint, write_input
from pyspark_statestore import Checkpoint


def run(scenario: Scenario, work: Path) -> dict[str, Any]:
    """Runs a scenario.

    Args:
        scenario: What to run.
        work: An empty directory for everything that is written.

    Returns:
        All raw numbers.

    Raises:
        BenchmarkError: If the sides' results differ, or nothing was computed.
    """
    files = write_input(scenario, work / "staging")
    merged = merged_settings(scenario) if "merged" in scenario.sides else {}
    spark = start_session(scenario, work, merged)
    counters = CallCounters(spark)
    sides = [Side(name, spark.newSession(), scenario, work / name, counters) for name in scenario.sides]
    try:
        for side in sides:
            side.start(merged)
        counters.delay(scenario.delay_ms)
        for number, file in enumerate(files):
            # The first side reads its input from a cold cache, so the sides take turns.
            for side in sides if number % 2 == 0 else reversed(sides):
                _progress(side.name, side.run_batch(file), len(files))
        counters.delay(0)
        result: dict[str, Any] = {"scenario": scenario.to_json(), "environment": environment(spark), "sides": {}}
        space = _space(sides)
        memory = jvm_memory(spark)
        uploads = _uploads(spark, sides)
        for side in sides:
            before = counters.snapshot(side.name)
            side.stop()
            result["sides"][side.name] = {
                "batches": side.batches,
                "totals": counters.snapshot(side.name),
                "after_stop": minus(counters.snapshot(side.name), before),
                "space": space.get(side.name),
                "memory": memory if len(sides) == 1 else None,
                "uploads": uploads.get(side.name),
                "state": state_fingerprint(side.session, scenario.workload, side.checkpoint),
            }
        _verify(scenario, result["sides"])
        return result
    finally:
        counters.delay(0)
        for side in sides:
            side.stop()
        spark.stop()


def _space(sides: list[Side]) -> dict[str, Any]:
    for side in sides:
        if side.name == "merged":
            try:
                space = disk.merged_space(side.directory)
            except ImportError as error:
                print(f"  space amplification is left out: {error}", file=sys.stderr)
                return {}
            return {"merged": {**vars(space), "amplification": space.amplification}}
    return {}


def _uploads(spark: Any, sides: list[Side]) -> dict[str, dict[str, int]]:
    """Bytes that each side wrote when it published snapshots; for merged state also those before, and these in vain.

    Nothing may have been deleted yet: ``retain`` is more than the batches. Compare ``--option upload=created`` with
    ``--option upload=commit``.
    """
    found = {}
    for side in sides:
        if side.name == "stock":
            state = side.directory.rglob("*")
            uploads = {"published_bytes": sum(f.stat().st_size for f in state if f.suffix in (".zip", ".sst"))}
        else:
            logs = spark._jvm.io.pyspark.statestore.log.MergedLogs.all().values()
            metrics = [log.metrics().snapshot() for log in logs]
            names = ("writtenBytes", "earlyBytes", "relocatedBytes", "wastedBytes")
            written, early, moved, wasted = (sum(each[name] for each in metrics) for name in names)
            changelogs = sum(
                row["length"]
                for row in Checkpoint(side.directory).inspect.segments().to_pylist()
                if row["logical_path"].endswith(".changelog")
            )
            published = written - early - moved - changelogs
            uploads = {"published_bytes": published, "early_bytes": early, "wasted_bytes": wasted}
        found[side.name] = uploads
        figures = ", ".join(f"{name} {count:,}" for name, count in uploads.items())
        print(f"  {side.name}: {figures}", file=sys.stderr)
    return found


def _verify(scenario: Scenario, sides: dict[str, Any]) -> None:
    """Checks that both sides wrote the same rows in every batch and have the same state, and that neither is empty."""
    for name, side in sides.items():
        if not sum(batch["output"][0] for batch in side["batches"]):
            raise BenchmarkError(f"{name} gave out no rows at all: the workload is too small to prove anything")
        if not all(rows for rows, _ in side["state"]):
            raise BenchmarkError(f"{name} has no state at the end: {side['state']}")
    if len(sides) < 2:
        return
    stock, merged = sides["stock"], sides["merged"]
    for one, other in zip(stock["batches"], merged["batches"], strict=True):
        if one["output"] != other["output"]:
            raise BenchmarkError(
                f"results differ in batch {one['batch']} of {scenario.title()}: stock {one['output']}, "
                f"merged {other['output']} (rows, sum of their hashes)"
            )
    if stock["state"] != merged["state"]:
        raise BenchmarkError(f"the state differs at the end: stock {stock['state']}, merged {merged['state']}")


def _progress(name: str, batch: dict[str, Any], total: int) -> None:
    usage = batch["disk"]
    print(
        f"  batch {batch['batch'] + 1:3}/{total} {name:6} {batch['trigger_ms'] / 1000:7.2f} s  "
        f"{usage['files']:6} files {usage['bytes'] / 1e6:9.1f} MB under state/",
        file=sys.stderr,
        flush=True,
    )


def main() -> int:
    """Runs the scenario of a file and writes its numbers to another."""
    scenario = Scenario.from_json(json.loads(Path(sys.argv[1]).read_text()))
    work = Path(tempfile.mkdtemp(prefix="small-files-"))
    begin = time.monotonic()
    try:
        result = run(scenario, work)
    except BenchmarkError as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(work, ignore_errors=True)
    result["seconds"] = round(time.monotonic() - begin, 1)
    Path(sys.argv[2]).write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
