"""What does it cost that a partition moves to another executor? Stock Spark and merged state, side by side.

python benchmarks/move.py            # 500 MB of state in two partitions, which change places; 5 ms a call, 100 MB/s
python benchmarks/move.py --quick    # 20 MB

Both executors run on this host, as many do on a large one, so the host's cache has the partition's SSTs. --another-host
leaves the cache out, and shows what a move to a host costs that has nothing; with --restore lazy, most of that waits.
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

from benchmarks.filesystems import PACKAGE, CallCounters  # noqa: E402
from benchmarks.loads import Loads, java_option  # noqa: E402
from benchmarks.restart import ANOTHER_HOST, write_probes  # noqa: E402
from benchmarks.scenario import Scenario  # noqa: E402
from benchmarks.shim import build_shim  # noqa: E402
from benchmarks.sides import Side, environment, merged_settings, start_session  # noqa: E402
from benchmarks.workloads import write_input  # noqa: E402

OUT = Path("build/benchmarks")
MASTER = "local-cluster[2,1,1536]"
EXECUTORS = ("0", "1")
MAINTENANCE_SECONDS = 2
MOST = 0.1


class Cluster:
    """Both sides' queries on two executors.

    Args:
        scenario: What they run.
        work: The directory of everything that is written.
        delay_ms: What each metadata call of an executor waits.
        megabytes_per_second: What each stream of an executor reads.
    """

    def __init__(self, scenario: Scenario, work: Path, delay_ms: int, megabytes_per_second: int) -> None:
        self._scenario, self._work = scenario, work
        merged = merged_settings(scenario)
        options = [
            java_option(work / "log4j2.properties", f"{work}/loads-${{sys:executor}}.log"),
            "-Dexecutor={{EXECUTOR_ID}}",
            f"-Dpyspark.statestore.testing.delayMillis={delay_ms}",
            f"-Dpyspark.statestore.testing.bytesPerSecond={megabytes_per_second * 1_000_000}",
        ]
        more = {
            "spark.executor.memory": "1536m",
            "spark.executor.extraJavaOptions": " ".join(options),
            # A task waits for the executor that Spark thinks its store is on.
            "spark.locality.wait": "60s",
        }
        self.spark = start_session(scenario, work, merged, MASTER, more)
        counters = CallCounters(self.spark)
        self.sides = [
            Side(name, self.spark.newSession(), scenario, work / name, counters) for name in ("stock", "merged")
        ]
        for side in self.sides:
            side.start(merged)
        self._loads = [Loads(work / f"loads-{executor}.log") for executor in EXECUTORS]

    def move(self, side: Side) -> None:
        """Tells Spark that each store of a side is on the other executor."""
        jvm: Any = self.spark._jvm
        mover = getattr(jvm, f"{PACKAGE}.PartitionMover")
        known = mover.move(f"{side.checkpoint}/state", self._scenario.partitions, side.run_id, list(EXECUTORS))
        if known != self._scenario.partitions:
            raise click.ClickException(f"Spark knows where {known} of {self._scenario.partitions} stores are")

    def batch(self, side: Side, file: Path) -> dict[str, Any]:
        """Runs a batch, and says how long each of its stores took to load."""
        record = side.run_batch(file)
        loads = sorted((each for log in self._loads for each in log.seconds()), reverse=True)
        return {"seconds": record["trigger_ms"] / 1000, "loads": loads[: self._scenario.partitions]}


def run(cluster: Cluster, filling: list[Path], probes: list[Path], moves: int) -> dict[str, dict[str, list[Any]]]:
    """Fills the state, and moves all partitions, again and again.

    Args:
        cluster: The queries.
        filling: The input of the batches that fill the state.
        probes: The input of the others, of which the first warms up.
        moves: How often.

    Returns:
        side -> "warm" and "moved" -> what each batch took.
    """
    for file in filling:
        for side in cluster.sides:
            cluster.batch(side, file)
    found: dict[str, dict[str, list[Any]]] = {side.name: {"warm": [], "moved": []} for side in cluster.sides}
    files = iter(probes)
    for _ in range(moves):
        warm, moved = next(files), next(files)
        for side in cluster.sides:
            found[side.name]["warm"].append(cluster.batch(side, warm))
        for side in cluster.sides:
            cluster.move(side)
            found[side.name]["moved"].append(cluster.batch(side, moved))
        # Executors close the stores that have gone. A store that comes back to an open one loads less.
        time.sleep(3 * MAINTENANCE_SECONDS)
    stock, merged = ([batch["output"] for batch in side.batches] for side in cluster.sides)
    if stock != merged:
        raise click.ClickException(f"the sides did not do the same: {stock} {merged}")
    return found


def print_table(title: str, found: dict[str, dict[str, list[Any]]]) -> None:
    """Prints medians."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in ("", "stock", "merged", "ratio", "allowed"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)

    def row(label: str, values: dict[str, float], limit: float | None = None) -> None:
        ratio = values["merged"] / values["stock"] if values["stock"] else float("nan")
        allowed = "" if limit is None else f"at most {limit}: {ratio <= limit}"
        table.add_row(label, f"{values['stock']:.3f}", f"{values['merged']:.3f}", f"{ratio:.3f}", allowed)

    def loads(batches: list[Any]) -> float:
        return float(statistics.median(each for batch in batches for each in batch["loads"]))

    row("seconds that a store takes to load after a move", {n: loads(each["moved"]) for n, each in found.items()}, MOST)
    for name, label in (("moved", "seconds of the batch after a move"), ("warm", "seconds of a batch without")):
        row(label, {n: statistics.median(b["seconds"] for b in each[name]) for n, each in found.items()})
    Console(width=max(110, Console().width)).print(table)


@click.command(context_settings={"show_default": True})
@click.option("--partitions", type=click.IntRange(2), default=2)
@click.option("--batches", type=click.IntRange(1), default=4, help="To fill the state.")
@click.option("--rows-per-batch", type=click.IntRange(1), default=75_000, help="Nearly each is a group of its own.")
@click.option("--value-bytes", type=click.IntRange(1), default=1_700, help="Random bytes in each group's state.")
@click.option("--moves", type=click.IntRange(1), default=5)
@click.option("--delay-ms", type=click.IntRange(0), default=5, help="Sleep in each metadata call of an executor.")
@click.option("--mb-per-second", type=click.IntRange(0), default=100, help="What a stream of an executor reads.")
@click.option("--another-host", is_flag=True, help="Without the host's cache.")
@click.option("--restore", type=click.Choice(["eager", "lazy", "ondemand"]), default="eager", help="Of merged state.")
@click.option("--quick", is_flag=True, help="3,000 rows a batch, two moves.")
@click.option("--build/--no-build", default=True, help="Compile the shim first if its sources changed.")
def main(
    partitions: int,
    batches: int,
    rows_per_batch: int,
    value_bytes: int,
    moves: int,
    delay_ms: int,
    mb_per_second: int,
    another_host: bool,
    restore: str,
    quick: bool,
    build: bool,
) -> None:
    """Move all partitions of a query to the other executor, and see how long their stores take to load."""
    if build:
        build_shim()
    work = Path(tempfile.mkdtemp(prefix="move-"))
    scenario = Scenario(
        partitions=partitions,
        batches=batches,
        rows_per_batch=3_000 if quick else rows_per_batch,
        keys=100_000_000,
        value_bytes=value_bytes,
        changelog=False,
        maintenance_interval=f"{MAINTENANCE_SECONDS}s",
        delay_ms=delay_ms,
        options={"cache_dir": str(work / "cache"), "restore": restore, **(ANOTHER_HOST if another_host else {})},
    )
    moves = 2 if quick else moves
    try:
        filling = write_input(scenario, work / "staging")
        cluster = Cluster(scenario, work, delay_ms, mb_per_second)
        found = run(cluster, filling, write_probes(scenario, filling, 1, 2 * moves - 1), moves)
        raw = {"scenario": scenario.to_json(), "found": found, "environment": environment(cluster.spark)}
        for side in cluster.sides:
            side.stop()
        cluster.spark.stop()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "move.json").write_text(json.dumps(raw, indent=1) + "\n")
    print_table(f"{moves} moves of {partitions} partitions, restore={restore}, {scenario.title()}", found)
    print(f"raw numbers: {OUT}/move.json", file=sys.stderr)


if __name__ == "__main__":
    main()
