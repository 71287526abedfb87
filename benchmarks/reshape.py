"""How long does another number of partitions take, beside Spark's own repartitioning, and what is left afterwards?

python benchmarks/reshape.py                          # a million and five million keys, 8 -> 16 -> 8 -> 12 -> 4
python benchmarks/reshape.py --keys 20000 --no-build  # to see that it runs
python benchmarks/reshape.py --fork --value-bytes 1024    # 8 -> 16, large rows, in place and by a fork; 25 GB of disk

Two queries with the same input, one with merged state and one on stock Spark, in one session. They are repartitioned in
turn, and a batch follows each time, after which both have to have the same state.

With --fork, the side with merged state is first forked with twice the partitions. Then both are repartitioned in place.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.targets import Figure, draw_bars, publish  # noqa: E402
from pyspark_statestore import Checkpoint, configure  # noqa: E402
from pyspark_statestore.session.doors import PROVIDER_KEY, STOCK_PROVIDERS  # noqa: E402

NUMBERS = (8, 16, 8, 12, 4)
SIDES = ("stock", "merged")


HASH_BYTES = 128
"""What ``sha2(…, 512)`` returns: text that RocksDB's own compression makes hardly smaller."""


def session(work: Path, *, changelog: bool = True) -> Any:
    """Starts the session of both sides: the provider door, all cores."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[*]").appName("reshape")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "4g",
        "spark.local.dir": str(work / "local"),
        "spark.sql.shuffle.partitions": str(NUMBERS[0]),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": str(changelog).lower(),
    }.items():
        builder = builder.config(key, value)
    return configure(builder).getOrCreate()


def write_input(spark: Any, folder: Path, batch: int, keys: int, value_bytes: int = 0) -> None:
    """Writes the input of a batch: all keys at first, then a hundredth of them."""
    hashes = [f"sha2(concat(id, '-', {number}), 512)" for number in range(-(-value_bytes // HASH_BYTES))]
    rows = spark.range(0, keys, 1 if batch == 0 else 100).selectExpr(
        "id", f"id * {batch + 1} AS v", f"concat({', '.join(hashes)}) AS text" if hashes else "'' AS text"
    )
    rows.coalesce(1).write.mode("append").parquet(str(folder))


def run_batch(spark: Any, side: str, work: Path, *, with_text: bool = False) -> None:
    """Runs a side's query over what is new; ``with_text`` it keeps each key's text, too."""
    own = spark.conf.get(PROVIDER_KEY)
    if side == "stock":
        spark.conf.set(PROVIDER_KEY, STOCK_PROVIDERS["rocksdb"])
    try:
        stream = spark.readStream.schema("id long, v long, text string").parquet(str(work / "input"))
        sums = {"v": "sum", "*": "count"} | ({"text": "max"} if with_text else {})
        counted = stream.groupBy("id").agg(sums)
        writer = counted.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
        writer.option("checkpointLocation", str(work / side)).start().awaitTermination()
    finally:
        spark.conf.set(PROVIDER_KEY, own)


def state_of(spark: Any, side: str, work: Path) -> tuple[Any, ...]:
    """How many keys a side has, and a checksum over them with their partitions."""
    rows = spark.read.format("statestore").load(str(work / side))
    return tuple(rows.selectExpr("count(*)", "sum(xxhash64(key, value, partition_id) % 1000003)").first())


def size_of(folder: Path) -> int:
    """Bytes of all files."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def dead_files(folder: Path, partitions: int) -> int:
    """Files of partitions that are gone: plain ones, and live segments."""
    below = [path for path in (folder / "state" / "0").rglob("*") if path.is_file()]
    plain = [path.relative_to(folder / "state" / "0").parts[0] for path in below]
    rows = Checkpoint(folder).inspect.segments().select(["logical_path", "status"]).to_pylist()
    live = [row["logical_path"].split("/")[1] for row in rows if row["status"] == "live"]
    return sum(part.isdecimal() and int(part) >= partitions for part in [*plain, *live])


def amplification(folder: Path) -> float:
    """Bytes of all merged files, divided by the bytes that live in them."""
    return float(Checkpoint(folder).inspect.summary()["space_amplification"][0].as_py())


def repartitioned(spark: Any, side: str, work: Path, partitions: int) -> dict[str, Any]:
    """Repartitions a side in place, and says how long that took and how many bytes it wrote."""
    size = size_of(work / side)
    begin = time.perf_counter()
    if side == "stock":
        spark._streamingCheckpointManager.repartition(str(work / side), partitions)
    else:
        Checkpoint(work / side).repartition(partitions, spark=spark, force=True)
    return {f"{side}_seconds": time.perf_counter() - begin, f"{side}_bytes": size_of(work / side) - size}


def measure(keys: int, work: Path) -> dict[str, Any]:
    """Repartitions both sides through all numbers.

    Returns:
        For each step, what both took, wrote and left.
    """
    spark = session(work)
    steps: list[dict[str, Any]] = []
    try:
        write_input(spark, work / "input", 0, keys)
        for side in SIDES:
            run_batch(spark, side, work)
        for batch, (before, after) in enumerate(pairwise(NUMBERS), 1):
            step: dict[str, Any] = {"before": before, "after": after}
            for side in SIDES if batch % 2 else SIDES[::-1]:
                step |= repartitioned(spark, side, work, after)
            write_input(spark, work / "input", batch, keys)
            for side in SIDES:
                run_batch(spark, side, work)
            if state_of(spark, "stock", work) != state_of(spark, "merged", work):
                raise click.ClickException(f"the states differ after {before} -> {after}")
            Checkpoint(work / "merged").maintenance.remove_old_partitions(dry_run=False)
            step |= {f"{side}_dead_files": dead_files(work / side, after) for side in SIDES}
            step["amplification_before_compaction"] = amplification(work / "merged")
            step["compacted_bytes"] = Checkpoint(work / "merged").maintenance.compact().rewritten_bytes_count
            step["amplification"] = amplification(work / "merged")
            steps.append(step)
            print(json.dumps(step), file=sys.stderr, flush=True)
    finally:
        spark.stop()
    return {"keys": keys, "steps": steps}


def measure_fork(keys: int, value_bytes: int, work: Path) -> dict[str, Any]:
    """Doubles the partitions: of stock Spark's side in place, of the other one by a fork and then in place, too.

    Returns:
        What each took and wrote, and how much larger what the fork restores is than its rows.
    """
    before, after = NUMBERS[:2]
    with_text = value_bytes > 0
    # A snapshot with each batch: state of this size is in snapshots, but for the last few batches.
    spark = session(work, changelog=False)
    raw: dict[str, Any] = {"keys": keys, "value_bytes": value_bytes, "before": before, "after": after}
    try:
        write_input(spark, work / "input", 0, keys, value_bytes)
        for side in SIDES:
            run_batch(spark, side, work, with_text=with_text)
        raw["state_bytes"] = size_of(work / "stock")
        begin = time.perf_counter()
        Checkpoint(work / "merged").fork(work / "fork", partitions=after, spark=spark)
        raw["fork_seconds"], raw["fork_bytes"] = time.perf_counter() - begin, size_of(work / "fork")
        for side in SIDES:
            raw |= repartitioned(spark, side, work, after)
        write_input(spark, work / "input", 1, keys, value_bytes)
        for side in (*SIDES, "fork"):
            run_batch(spark, side, work, with_text=with_text)
        if len({state_of(spark, side, work) for side in (*SIDES, "fork")}) != 1:
            raise click.ClickException("the states differ")
        live = Checkpoint(work / "fork").inspect.summary().to_pylist()[0]
        raw["fork_live_bytes"] = live["live_bytes"] + live["foreign_live_bytes"]
    finally:
        spark.stop()
    return raw


def fork_figures_of(raw: list[dict[str, Any]]) -> list[Figure]:
    """Turns raw numbers of forks into figures, with the targets."""
    found: list[Figure] = []
    for run in raw:
        name = f"{run['keys']:,} keys of {run['value_bytes']:,} bytes, {run['before']} -> {run['after']}"
        ways = {"stock": "stock, in place", "merged": "merged, in place", "fork": "merged, a fork"}
        found += [Figure(f"{name}: {label}", run[f"{way}_seconds"], "s") for way, label in ways.items()]
        for way in ("merged", "fork"):
            for what, limit in (("seconds", 0.1), ("bytes", 0.05)):
                ratio = run[f"{way}_{what}"] / run[f"stock_{what}"]
                found.append(Figure(f"{name}: {what}, {ways[way]} ÷ stock", ratio, "", limit))
        restored = run["fork_live_bytes"] / run["state_bytes"]
        found.append(Figure(f"{name}: bytes that all stores of the fork restore ÷ state", restored, ""))
    return found


def figures_of(raw: list[dict[str, Any]]) -> list[Figure]:
    """Turns raw numbers into figures, with the targets."""
    found: list[Figure] = []
    for run in raw:
        for step in run["steps"]:
            name = f"{run['keys']:,} keys, {step['before']} -> {step['after']}"
            grows = step["after"] % step["before"] == 0
            found.append(Figure(f"{name}: stock", step["stock_seconds"], "s"))
            found.append(Figure(f"{name}: merged", step["merged_seconds"], "s"))
            ratio = step["merged_seconds"] / step["stock_seconds"]
            found.append(Figure(f"{name}: time, merged ÷ stock", ratio, "", 0.1 if grows else 0.4))
            if grows:
                share = step["merged_bytes"] / max(1, step["stock_bytes"])
                found.append(Figure(f"{name}: bytes, merged ÷ stock", share, "", 0.05))
            before = step["amplification_before_compaction"]
            found.append(Figure(f"{name}: space amplification without the old partitions", before, ""))
            found.append(Figure(f"{name}: space amplification, compacted", step["amplification"], "", 1.5))
            found.append(Figure(f"{name}: files of partitions that are gone", step["merged_dead_files"], "", 0))
    return found


def draw(figures: list[Figure], target: Path) -> None:
    """Draws the times side by side."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    times = [figure for figure in figures if figure.unit == "s"]
    picture, axis = plt.subplots(figsize=(10, 0.4 * len(times) + 1), layout="constrained")
    draw_bars(axis, "s", "seconds", [(figure.name, figure) for figure in times])
    picture.savefig(target, dpi=110)
    plt.close(picture)


@click.command(context_settings={"show_default": True})
@click.option("--keys", type=click.IntRange(1), multiple=True, default=(1_000_000, 5_000_000))
@click.option("--fork", is_flag=True, help="Only 8 -> 16, in place and by a fork.")
@click.option("--value-bytes", type=click.IntRange(0), default=0, help="Bytes of text in each row; with --fork.")
@click.option("--build/--no-build", default=True, help="Compile the shim first, if its sources have changed.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build/benchmarks"))
def main(keys: tuple[int, ...], fork: bool, value_bytes: int, build: bool, out: Path) -> None:
    """Repartition the same state with Spark's own call and with this package."""
    if build:
        subprocess.run([sys.executable, str(ROOT / "jvm-shim" / "build.py")], check=True)
    raw = []
    for number in keys:
        work = Path(tempfile.mkdtemp(prefix="reshape-"))
        try:
            raw.append(measure_fork(number, value_bytes, work) if fork else measure(number, work))
        finally:
            shutil.rmtree(work, ignore_errors=True)
    figures = fork_figures_of(raw) if fork else figures_of(raw)
    name = "reshape-fork" if fork else "reshape"
    publish(name, "another number of state partitions", {"runs": raw}, figures, partial(draw, figures), out)


if __name__ == "__main__":
    main()
