"""What does state cost that is larger than the local disk? Stock Spark, whose disk holds everything, beside it.

python benchmarks/remote.py            # 4 GB of state, uniform and skewed keys, 100 batches; 15 minutes, 50 GB of disk
python benchmarks/remote.py --quick    # 200 MB, 20 batches

Both sides run until the state is there, and are killed. Then each starts again from the same checkpoint and works on
the same batches: stock Spark, and merged state with restore=remote, which may have a half and a tenth of the state on
the disk. The local disk is looked at four times a second.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.figures import STATE_CATEGORIES  # noqa: E402
from benchmarks.filesystems import calls  # noqa: E402
from benchmarks.report import COLOURS  # noqa: E402
from benchmarks.restart import ANOTHER_HOST, check_same, come_back, live_and_die, restore_checkpoint  # noqa: E402
from benchmarks.scenario import SIDES, Scenario  # noqa: E402
from benchmarks.shim import build_shim  # noqa: E402
from benchmarks.space import SpaceReader  # noqa: E402
from benchmarks.workloads import write_batch, write_input  # noqa: E402

SHARES = {"a half": 2, "a tenth": 10}
"""What the disk may have of the state, and one part in how many that is."""
SKEW = 1.1
"""Of Zipf's distribution."""
MOST_TIME = {"uniform": 1.5, "skewed": 1.1}
"""Median batch, of stock's, with half of the state on the disk."""
MOST_PUBLISHED, MOST_RESTART, MOST_WRITTEN, MOST_SPACE = 0.1, 0.3, 1.2, 2.0


def write_batches(groups: Any, staging: Path, first: int, batches: int, updates: int, keys: str) -> list[Path]:
    """Writes batches of keys that have state.

    Args:
        groups: All keys.
        staging: Where to.
        first: The number of the first one.
        batches: How many.
        updates: Keys of each.
        keys: "uniform", or "skewed": by Zipf's distribution, the hot ones anywhere among the others.
    """
    random = np.random.default_rng(first)
    order = random.permutation(groups)
    files = []
    for batch in range(first, first + batches):
        if keys == "skewed":
            drawn = order[np.minimum(random.zipf(SKEW, updates) - 1, len(order) - 1)]
        else:
            drawn = random.choice(groups, updates)
        files.append(staging / f"{batch:05}-{keys}.parquet")
        write_batch(files[-1], random, batch, np.unique(drawn), None)
    return files


def figures(side: dict[str, Any], work: Path) -> dict[str, Any]:
    """Figures of a side that has come back."""
    counts = side["counts_at_the_end"]
    written = {thread: calls(counts, STATE_CATEGORIES, (thread,)).get("write_bytes", 0) for thread in counts}
    found = {
        "restart_s": side["seconds"],
        "median_ms": statistics.median(side["following_ms"]),
        "cpu_s": side["following_cpu_seconds"],
        "p99_ms": float(np.percentile(side["following_ms"], 99)),
        "published_bytes": written.get("maintenance", 0),
        "published": len(side["snapshot_seconds"]),
        "published_s": sum(side["snapshot_seconds"]),
        "written_bytes": sum(written.values()),
        "early_bytes": side["ssts_at_the_end"].get("earlyBytes"),
        "wasted_bytes": side["ssts_at_the_end"].get("wastedBytes"),
        "read_bytes": calls(counts, STATE_CATEGORIES).get("read_bytes", 0),
        "requests": calls(counts, STATE_CATEGORIES).get("read", 0),
        "local_peak_bytes": max(side["local_bytes"], default=0),
        # The first of them while the store opens; what was asked for is that the limit holds all the time.
        "local_median_bytes": statistics.median(side["local_bytes"] or [0]),
    }
    merged = work / "state" / "_merged"
    if merged.is_dir():
        found["space"] = SpaceReader(merged).measure()["amplification"]
    return found


def print_table(keys: str, found: dict[str, dict[str, Any]], state_bytes: int) -> None:
    """Prints figures, and whether targets are met."""
    title = f"{keys} keys, {state_bytes / 1e9:.2f} GB of state"
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in ("", *found, "asked of a half"):
        table.add_column(column, justify="right" if column else "left")

    def row(label: str, name: str, scale: float, digits: int, limit: float | None = None) -> None:
        stock = found["stock"].get(name)
        cells = []
        for side in found.values():
            value = side.get(name)
            ratio = f" ({value / stock:.2f})" if value is not None and stock and side is not found["stock"] else ""
            cells.append("" if value is None else f"{value / scale:,.{digits}f}{ratio}")
        half = found.get("a half", {}).get(name)
        asked = ""
        if limit is not None and half is not None:
            asked = f"<= {limit}: {'met' if half <= limit * (stock or 1) else 'MISSED'}"
        table.add_row(label, *cells, asked)

    row("median batch, s", "median_ms", 1000, 2, MOST_TIME[keys])
    row("99th percentile, s", "p99_ms", 1000, 2)
    row("processor time of all batches, s", "cpu_s", 1, 0)
    row("restart to the first batch's end, s", "restart_s", 1, 1, MOST_RESTART)
    row("snapshots", "published", 1, 0)
    row("seconds of publishing them, added up", "published_s", 1, 1, MOST_PUBLISHED)
    row("MB written by publishing them", "published_bytes", 1e6, 1, MOST_PUBLISHED)
    row("MB written for state", "written_bytes", 1e6, 0, MOST_WRITTEN)
    row("of these before their snapshot", "early_bytes", 1e6, 0)
    row("of these never named by one", "wasted_bytes", 1e6, 0)
    row("MB read for state", "read_bytes", 1e6, 0)
    row("reads for state", "requests", 1, 0)
    row("MB of SSTs on the disk, at most", "local_peak_bytes", 1e6, 0)
    row("MB of SSTs on the disk, median", "local_median_bytes", 1e6, 0)
    row("physical ÷ live bytes", "space", 1, 2)
    Console(width=max(120, Console().width)).print(table)


def draw(raw: dict[str, dict[str, dict[str, Any]]], target: Path) -> None:
    """Draws batches and local bytes over time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, len(raw), figsize=(6 * len(raw), 6), layout="constrained", squeeze=False)
    for column, (keys, sides) in enumerate(raw.items()):
        for name, side in sides.items():
            colour = COLOURS["stock"] if name == "stock" else None
            axes[0][column].plot([ms / 1000 for ms in side["following_ms"]], color=colour, label=name)
            at = [number / 4 for number in range(len(side["local_bytes"]))]
            axes[1][column].plot(at, [each / 1e6 for each in side["local_bytes"]], color=colour, label=name)
        axes[0][column].set(title=f"{keys} keys", xlabel="batch", ylabel="s")
        axes[1][column].set(xlabel="s", ylabel="MB of SSTs on the disk")
        axes[0][column].legend(fontsize=8)
    figure.savefig(target, dpi=110)
    plt.close(figure)


@click.command(context_settings={"show_default": True})
@click.option("--partitions", type=click.IntRange(1), default=8)
@click.option("--rows-per-batch", type=click.IntRange(1), default=300_000, help="Of each of the first eight batches.")
@click.option("--value-bytes", type=click.IntRange(1), default=1700, help="In each group's state.")
@click.option("--batches", type=click.IntRange(2), default=100, help="That are measured.")
@click.option("--updates", type=click.IntRange(1), default=8_000, help="Keys of each of them.")
@click.option("--delay-ms", type=click.IntRange(0), default=5, help="Sleep in each metadata call.")
@click.option("--mb-per-second", type=click.IntRange(0), default=100, help="What a stream reads.")
@click.option("--quick", is_flag=True, help="120,000 groups and 20 batches.")
@click.option("--build/--no-build", default=True, help="Compile the shim first if its sources changed.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build/benchmarks"))
def main(
    partitions: int,
    rows_per_batch: int,
    value_bytes: int,
    batches: int,
    updates: int,
    delay_ms: int,
    mb_per_second: int,
    quick: bool,
    build: bool,
    out: Path,
) -> None:
    """Measure batches of queries whose state is larger than what the disk may have of it."""
    if quick:
        partitions, rows_per_batch, batches, updates = min(partitions, 2), 15_000, min(batches, 20), min(updates, 500)
    if build:
        build_shim()
    scenario = Scenario(
        partitions=partitions,
        batches=8,
        delay_ms=delay_ms,
        rows_per_batch=rows_per_batch,
        keys=100_000_000,
        value_bytes=value_bytes,
        maintenance_interval="2s",
        # A snapshot with each batch, so that nothing is replayed afterwards. The batches that are measured write
        # changelogs.
        changelog=False,
    )
    work = Path(tempfile.mkdtemp(prefix="remote-"))
    scenario = dataclasses.replace(scenario, options=dict(ANOTHER_HOST))
    state_bytes = 8 * rows_per_batch * value_bytes
    out.mkdir(parents=True, exist_ok=True)
    raw: dict[str, Any] = {}
    found: dict[str, Any] = {}
    try:
        before = write_input(scenario, work / "staging")
        environment = live_and_die(scenario, work, before)
        (work / "as-it-was").mkdir()
        for side in SIDES:
            (work / side / "checkpoint").rename(work / "as-it-was" / side)
        groups = np.unique(np.concatenate([pq.read_table(file, columns=["key"])["key"].to_numpy() for file in before]))
        for file in before:
            # It is as large as the state, and the query has read it.
            for copy in (file, *(work / side / "input" / file.name for side in SIDES)):
                copy.unlink()
        scenario = dataclasses.replace(scenario, changelog=True)
        for keys in MOST_TIME:
            files = write_batches(groups, work / "staging", len(before), batches + 1, updates, keys)
            raw[keys], found[keys] = {}, {}
            for name in ("stock", *SHARES):
                side = "stock" if name == "stock" else "merged"
                limit = {} if name == "stock" else {"local_size_limit": str(state_bytes // SHARES[name])}
                options = limit and {**ANOTHER_HOST, **limit, "restore": "remote"}
                restore_checkpoint(work, side)
                raw[keys][name] = come_back(scenario, work, side, files, mb_per_second, **options)
                found[keys][name] = figures(raw[keys][name], work / side / "checkpoint")
            check_same(raw[keys], len(before))
            result = {"environment": environment, "scenario": scenario.to_json(), "figures": found, "raw": raw}
            (out / "remote.json").write_text(json.dumps(result, indent=1) + "\n")
            print_table(keys, found[keys], state_bytes)
        draw(raw, out / "remote.png")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"raw numbers: {out}/remote.json, picture: {out}/remote.png", file=sys.stderr)


if __name__ == "__main__":
    main()
