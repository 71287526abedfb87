"""How soon does state use executors that join? Two become four; stock Spark beside it, each in a process of its own.

python benchmarks/rebalance.py                # 24 partitions, 400,000 keys of 1 KB, 24 batches a side
python benchmarks/rebalance.py --quick        # a tenth of the keys
python benchmarks/rebalance.py --executors 1  # one becomes two, each with a core of its own where there are two

The query counts rows by key and keeps the latest value. Two executors work on it until half of the batches are done;
then as many join. A batch counts as even when each executor has within 20 % of its share of the partitions.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.report import COLOURS  # noqa: E402
from benchmarks.shim import build_shim  # noqa: E402
from tests.cluster.processes import spark_home  # noqa: E402

SIDES: dict[str, dict[str, Any] | None] = {
    "stock": None,
    "auto": {"rebalance": "auto"},
    "auto, lazy": {"rebalance": "auto", "restore": "lazy"},
}
MOST_BATCHES = 3
MOST_SLOWEST = 1.5
TOLERANCE = 0.2
VALUE_BYTES = 1_000


def is_even(counts: dict[str, int], executors: int) -> bool:
    """Whether each executor has within the tolerance of its share."""
    share = sum(counts.values()) / executors
    return len(counts) == executors and all(abs(count / share - 1) <= TOLERANCE for count in counts.values())


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Runs one side, in this process.

    Args:
        order: ``side``, ``work``, ``partitions``, ``keys``, ``updates``, ``batches``, and ``executors`` at first.

    Returns:
        By batch: milliseconds, and partitions by executor. ``joined``: the first batch with twice as many executors.
    """
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as sf

    from benchmarks.workloads import write_batch
    from pyspark_statestore import configure

    work, partitions, first = Path(order["work"]), order["partitions"], order["executors"]
    most = 2 * first
    builder = SparkSession.builder.master(f"local-cluster[{most},1,2048]").config("spark.executor.memory", "1500m")
    builder = builder.config("spark.sql.shuffle.partitions", partitions).config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.ui.enabled", "false").config("spark.local.dir", str(work / "local"))
    store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    builder = builder.config("spark.sql.streaming.stateStore.providerClass", store)
    builder = builder.config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    builder = builder.config("spark.sql.streaming.stateStore.maintenanceInterval", "2s")
    options = SIDES[order["side"]]
    if options is not None:
        builder = configure(builder, mode="provider", store="rocksdb", **options)
    spark = builder.getOrCreate()
    jvm: Any = spark._jvm
    context = spark.sparkContext._jsc.sc()
    utils = jvm.org.apache.spark.api.python.PythonUtils

    def executors() -> list[str]:
        listed = context.schedulerBackend().getExecutorIds()
        return sorted((listed.apply(i) for i in range(listed.size())), key=int)

    def await_executors(number: int) -> list[str]:
        end = time.monotonic() + 120
        while len(found := executors()) != number:
            if time.monotonic() > end:
                raise click.ClickException(f"{len(found)} executors instead of {number}")
            time.sleep(0.1)
        return found

    await_executors(most)
    context.requestTotalExecutors(most, 0, utils.toScalaMap({}))
    context.killExecutors(utils.toSeq(executors()[first:]))
    await_executors(first)

    (work / "input").mkdir()
    schema = "key long, side int, ts timestamp, amount long, value binary"
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(work / "input"))
    result = rows.groupBy("key").agg(sf.count("*").alias("rows"), sf.max_by("value", "ts").alias("value"))
    writer = result.drop("value").writeStream.outputMode("update").format("noop")
    query = writer.option("checkpointLocation", str(work / "checkpoint")).start()
    state = jvm.org.apache.spark.sql.execution.streaming.state
    coordinator = spark._jsparkSession.sessionState().streamingQueryManager().stateStoreCoordinator()
    run_id = jvm.java.util.UUID.fromString(str(query.runId))

    def places() -> Counter[str]:
        counts: Counter[str] = Counter()
        for partition in range(partitions):
            store = state.StateStoreId(f"file:{work}/checkpoint/state", 0, partition, "default")
            known = coordinator.getLocation(state.StateStoreProviderId(store, run_id))
            counts[known.get().rpartition("_")[2] if known.isDefined() else "nowhere"] += 1
        return counts

    random = np.random.default_rng(7)
    done: list[dict[str, Any]] = []
    for number in range(order["batches"]):
        if number == order["batches"] // 2:
            context.requestTotalExecutors(most, 0, utils.toScalaMap({}))
            await_executors(most)
        # The first batch makes the state.
        everything = np.arange(order["keys"])
        keys = everything if number == 0 else random.choice(order["keys"], order["updates"], replace=False)
        hidden = work / f"{number:05}.parquet"
        write_batch(hidden, random, number, keys, VALUE_BYTES)
        hidden.rename(work / "input" / hidden.name)
        query.processAllAvailable()
        last = [each for each in query.recentProgress if each["numInputRows"]][-1]
        done.append({"ms": last["durationMs"]["triggerExecution"], "places": places()})
    query.stop()
    spark.stop()
    return {"batches": done, "joined": order["batches"] // 2, "executors": first}


def line_of(side: str, found: dict[str, Any]) -> dict[str, Any]:
    """What one side shows."""
    joined, batches = found["joined"], found["batches"]
    after = batches[joined:]
    even = [number for number, each in enumerate(after, 1) if is_even(each["places"], 2 * found["executors"])]
    median = statistics.median(each["ms"] for each in batches[2:joined])
    return {
        "side": side,
        "batches until even": even[0] if even else None,
        "median before, ms": median,
        "slowest after, ms": max(each["ms"] for each in after),
        "slowest ÷ median": max(each["ms"] for each in after) / median,
        "median at the end, ms": statistics.median(each["ms"] for each in after[MOST_BATCHES:]),
        "at the end": sorted(after[-1]["places"].values()),
    }


def print_table(lines: list[dict[str, Any]], executors: int) -> None:
    """Prints what each side shows, and whether targets are met."""
    table = Table(title=f"{executors} executors become {2 * executors}", title_justify="left", title_style="bold")
    for column in lines[0]:
        table.add_column(column, justify="left" if column == "side" else "right")
    for line in lines:
        cells = [
            "never" if cell is None else f"{cell:.2f}" if isinstance(cell, float) else str(cell)
            for cell in line.values()
        ]
        table.add_row(*cells)
    table.caption = f"Asked of auto: even after {MOST_BATCHES} batches, slowest ÷ median {MOST_SLOWEST} at most."
    Console(width=max(130, Console().width)).print(table)


def draw(raw: dict[str, dict[str, Any]], target: Path) -> None:
    """Draws the time of each batch."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    colours = dict(zip(SIDES, (COLOURS["stock"], COLOURS["merged"], "#9d755d"), strict=True))
    picture, axis = plt.subplots(figsize=(8, 3.2), layout="constrained")
    for side, found in raw.items():
        times = [each["ms"] / 1000 for each in found["batches"]][1:]
        axis.plot(range(1, len(times) + 1), times, marker=".", color=colours[side], label=side)
    axis.axvline(next(iter(raw.values()))["joined"] - 0.5, color="grey", linestyle=":")
    axis.set(xlabel="batch (executors join at the line)", ylabel="s", ylim=0)
    axis.grid(axis="y", alpha=0.3)
    axis.legend(fontsize=8)
    picture.savefig(target, dpi=110)
    plt.close(picture)


@click.command(context_settings={"show_default": True})
@click.option("--side", "sides", type=click.Choice([*SIDES]), multiple=True, default=[*SIDES])
@click.option("--executors", type=click.IntRange(1), default=2, help="At first; as many join.")
@click.option("--partitions", type=click.IntRange(4), default=24)
@click.option("--keys", type=click.IntRange(100), default=400_000, help="In the state, of 1 KB.")
@click.option("--updates", type=click.IntRange(1), default=20_000, help="Keys of a batch.")
@click.option("--batches", type=click.IntRange(8), default=24)
@click.option("--quick", is_flag=True, help="40,000 keys, 2,000 of them in a batch.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build/benchmarks"))
def main(
    sides: tuple[str, ...],
    executors: int,
    partitions: int,
    keys: int,
    updates: int,
    batches: int,
    quick: bool,
    out: Path,
) -> None:
    """Let executors join, and see how soon state uses them."""
    build_shim()
    if quick:
        keys, updates = keys // 10, updates // 10
    out.mkdir(parents=True, exist_ok=True)
    raw = {}
    for side in sides:
        with tempfile.TemporaryDirectory(prefix="rebalance-", ignore_cleanup_errors=True) as work:
            order = {"side": side, "work": work, "partitions": partitions, "keys": keys, "updates": updates}
            answer = Path(work) / "answer.json"
            text = json.dumps({**order, "batches": batches, "executors": executors, "answer": str(answer)})
            command = [sys.executable, "-W", "ignore::FutureWarning", "-m", "benchmarks.rebalance", "--order", text]
            environment = {**os.environ, "SPARK_HOME": str(spark_home(Path(work) / "spark"))}
            if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode:
                raise click.ClickException(f"{side} failed")
            raw[side] = json.loads(answer.read_text())
    (out / "rebalance.json").write_text(json.dumps(raw, indent=1) + "\n")
    print_table([line_of(side, found) for side, found in raw.items()], executors)
    draw(raw, out / "rebalance.png")
    click.echo(f"raw numbers: {out}/rebalance.json, picture: {out}/rebalance.png", err=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--order"]:
        given = json.loads(sys.argv[2])
        Path(given.pop("answer")).write_text(json.dumps(run(given)))
    else:
        main()
