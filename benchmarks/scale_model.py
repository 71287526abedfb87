"""How does it scale? File-system calls per batch and at a restart, for 100 to 100,000 partitions, from a model.

python benchmarks/scale_model.py              # the model: a table and a picture, no Spark
python benchmarks/scale_model.py --check      # the model beside what was counted, at sizes that run here
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.figures import STATE_CATEGORIES  # noqa: E402
from benchmarks.filesystems import METADATA_CALLS, calls  # noqa: E402
from benchmarks.report import COLOURS  # noqa: E402
from benchmarks.scale import MergedCosts, Shape, merged_batch, merged_restart, stock_batch, stock_restart  # noqa: E402
from benchmarks.scenario import SIDES, Scenario  # noqa: E402
from benchmarks.shim import build_shim  # noqa: E402
from benchmarks.workloads import write_input  # noqa: E402

PARTITIONS = (100, 1_000, 10_000, 100_000)
EXECUTORS = (10, 100, 1_000)
# Partitions and executors; 0 executors: all in the driver's process.
CHECKED = ((10, 0), (50, 0), (10, 2), (50, 2))
CHECK_BATCHES = 8
CHECK_MAINTENANCE_SECONDS = 2.0


def sizes() -> Iterator[tuple[int, int]]:
    """Yields partitions and executors where each executor has a partition."""
    for partitions in PARTITIONS:
        for executors in EXECUTORS:
            if executors <= partitions:
                yield partitions, executors


def modelled(shape: Shape, costs: MergedCosts) -> dict[str, float]:
    """Returns all figures of one size.

    Args:
        shape: The query and its cluster.
        costs: The costs of merged state.

    Returns:
        Calls by name.
    """
    return {
        "stock batch": stock_batch(shape),
        **{f"merged {part}": value for part, value in dataclasses.asdict(merged_batch(shape, costs)).items()},
        "merged batch": merged_batch(shape, costs).total,
        "stock restart": stock_restart(shape),
        "merged restart": merged_restart(shape, costs).total,
        "index-only restart": merged_restart(shape, costs, index_only=True).total,
    }


def print_model(base: Shape, costs: MergedCosts) -> None:
    """Prints the table of all sizes."""
    title = (
        f"file-system calls, a batch every {base.batch_seconds:g} s, {base.commit_bytes:,} bytes a partition and batch"
    )
    table = Table(title=title, title_justify="left", title_style="bold")
    heads = ("partitions", "executors", "stock\nbatch", "merged\nbatch", "per part.\nand batch")
    restarts = ("stock\nrestart", "merged,\nkilled", "merged /\nstock", "merged,\nindex-only", "index-only\n/ stock")
    for column in heads + restarts:
        table.add_column(column, justify="right")
    for partitions, executors in sizes():
        found = modelled(base.scaled(partitions, executors), costs)
        stock, killed, covered = (found[f"{each} restart"] for each in ("stock", "merged", "index-only"))
        table.add_row(
            f"{partitions:,}",
            f"{executors:,}",
            f"{found['stock batch']:,.0f}",
            f"{found['merged batch']:,.1f}",
            f"{found['merged batch'] / partitions:.4f}",
            f"{stock:,.0f}",
            f"{killed:,.0f}",
            f"{killed / stock:.3g}",
            f"{covered:,.0f}",
            f"{covered / stock:.3g}",
        )
    Console(width=max(110, Console().width)).print(table)


def draw(base: Shape, costs: MergedCosts, target: Path) -> None:
    """Draws calls per batch and at a restart over partitions, a line for each number of executors."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (batch, restart) = plt.subplots(1, 2, figsize=(14, 5), layout="constrained")
    styles = dict(zip(EXECUTORS, ("-", "--", ":"), strict=True))
    for executors in EXECUTORS:
        some = [partitions for partitions in PARTITIONS if executors <= partitions]
        found = [modelled(base.scaled(partitions, executors), costs) for partitions in some]
        style: dict[str, Any] = {"linestyle": styles[executors], "marker": "."}
        if executors == EXECUTORS[0]:
            batch.plot(some, [f["stock batch"] for f in found], color=COLOURS["stock"], label="stock", marker=".")
            restart.plot(some, [f["stock restart"] for f in found], color=COLOURS["stock"], label="stock", marker=".")
        label = f"merged, {executors:,} executors"
        batch.plot(some, [f["merged batch"] for f in found], color=COLOURS["merged"], label=label, **style)
        restart.plot(
            some, [f["merged restart"] for f in found], color=COLOURS["merged"], label=f"{label}, killed", **style
        )
        restart.plot(
            some,
            [f["index-only restart"] for f in found],
            color="#54a24b",
            label=f"stopped cleanly, index-only, {executors:,}",
            **style,
        )
    for axis, title in (
        (batch, "calls in a steady batch"),
        (restart, "calls from a restart to the end of its first batch"),
    ):
        axis.set(xscale="log", yscale="log", xlabel="partitions", title=title)
        axis.grid(alpha=0.3, which="both")
        axis.legend(fontsize=8)
    figure.savefig(target, dpi=110)
    plt.close(figure)


def _life(scenario: Scenario, work: Path, executors: int, files: list[Path], first: bool) -> dict[str, Any]:
    order, answer = work / f"{first}-in.json", work / f"{first}-out.json"
    what = {"scenario": scenario.to_json(), "work": str(work), "executors": executors, "first": first}
    order.write_text(json.dumps({**what, "files": [str(file) for file in files]}))
    command = [sys.executable, "-W", "ignore::FutureWarning", "-m", "benchmarks.scale_check", str(order), str(answer)]
    process = subprocess.Popen(command, cwd=ROOT)
    while not answer.exists():
        if process.poll() is not None:
            raise click.ClickException(f"the check failed: {scenario.title()}")
        time.sleep(0.1)
    said: dict[str, Any] = json.loads(answer.read_text())
    if first:
        for pid in dict.fromkeys(said["pids"]):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    return said


def measured(partitions: int, executors: int, side: str) -> dict[str, Any]:
    """Runs one side at a small size.

    Args:
        partitions: Shuffle partitions.
        executors: The executors of a local cluster; 0 runs everything in the driver.
        side: "stock" or "merged".

    Returns:
        Calls in a steady batch and at the restart, seconds of a batch, bytes of a commit.
    """
    scenario = Scenario(
        partitions=partitions,
        batches=CHECK_BATCHES + 1,
        rows_per_batch=1_000,
        sides=(side,),
        maintenance_interval=f"{CHECK_MAINTENANCE_SECONDS:g}s",
    )
    work = Path(tempfile.mkdtemp(prefix="scale-"))
    try:
        files = write_input(scenario, work / "staging")
        steady = _life(scenario, work, executors, files[:-1], True)
        shutil.copyfile(files[-1], work / side / "input" / files[-1].name)
        again = _life(scenario, work, executors, [], False)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    counted = calls(steady["counts"], STATE_CATEGORIES)
    restarted = calls(again["counts"], STATE_CATEGORIES)
    return {
        "batch": sum(counted.get(kind, 0) for kind in METADATA_CALLS) / steady["batches"],
        "restart": sum(restarted.get(kind, 0) for kind in METADATA_CALLS),
        "seconds": steady["seconds"],
        "bytes": counted.get("write_bytes", 0) / steady["batches"] / partitions,
        "batch_kinds": {kind: counted[kind] for kind in METADATA_CALLS if counted.get(kind)},
        "restart_kinds": {kind: restarted[kind] for kind in METADATA_CALLS if restarted.get(kind)},
    }


def check(shapes: tuple[tuple[int, int], ...]) -> list[dict[str, Any]]:
    """Runs small sizes and prints the model's figures beside those that were counted.

    Args:
        shapes: Partitions and executors.

    Returns:
        The raw numbers.
    """
    table = Table(title="calls: the model beside the counting file system", title_justify="left", title_style="bold")
    for column in ("size", "side", "batch\nmodel", "batch\ncounted", "restart\nmodel", "restart\ncounted", "deviation"):
        table.add_column(column, justify="left" if column in ("size", "side") else "right")
    raw = []
    for partitions, executors in shapes:
        for side in SIDES:
            found = measured(partitions, executors, side)
            shape = Shape(
                partitions=partitions,
                executors=max(1, executors),
                batch_seconds=found["seconds"],
                maintenance_seconds=CHECK_MAINTENANCE_SECONDS,
                commit_bytes=int(found["bytes"]),
                # Too few batches for a snapshot, or for anything to be deleted.
                deltas_per_snapshot=10**9,
                ssts_per_load=0,
                changelogs_per_load=CHECK_BATCHES,
                retained=False,
            )
            costs = MergedCosts(open_files=1, relocated=0.0)
            batch = stock_batch(shape) if side == "stock" else merged_batch(shape, costs).total
            restart = stock_restart(shape) if side == "stock" else merged_restart(shape, costs).total
            where = f"{executors} executors" if executors else "one process"
            table.add_row(
                f"{partitions} partitions, {where}",
                side,
                f"{batch:,.1f}",
                f"{found['batch']:,.1f}",
                f"{restart:,.0f}",
                f"{found['restart']:,}",
                f"{batch - found['batch']:+.1f}, {restart / max(1, found['restart']) - 1:+.0%}",
            )
            raw.append({"partitions": partitions, "executors": executors, "side": side, **found})
            print(f"  {partitions} partitions, {where}, {side}: {found}", file=sys.stderr)
    Console(width=max(110, Console().width)).print(table)
    return raw


@click.command(context_settings={"show_default": True})
@click.option("--batch-seconds", default=10.0, help="From one batch to the next.")
@click.option("--maintenance-seconds", default=60.0, help="Spark's maintenance interval.")
@click.option("--commit-bytes", default=20_000, help="What a partition writes in a batch.")
@click.option("--max-file-bytes", default=128 << 20, help="maxFileSize.")
@click.option("--check", "checked", is_flag=True, help="Run small sizes, and compare.")
@click.option("--quick", is_flag=True, help="Check the smallest sizes only.")
@click.option("--build/--no-build", default=True, help="Compile the shim first if its sources changed (for --check).")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build/benchmarks"))
def main(
    batch_seconds: float,
    maintenance_seconds: float,
    commit_bytes: int,
    max_file_bytes: int,
    checked: bool,
    quick: bool,
    build: bool,
    out: Path,
) -> None:
    """Compute what stock Spark and merged state ask of a file system on clusters that do not fit here."""
    out.mkdir(parents=True, exist_ok=True)
    base = Shape(batch_seconds=batch_seconds, maintenance_seconds=maintenance_seconds, commit_bytes=commit_bytes)
    costs = MergedCosts(max_file_bytes=max_file_bytes)
    raw: dict[str, Any] = {
        "model": [
            {"partitions": partitions, "executors": executors, **modelled(base.scaled(partitions, executors), costs)}
            for partitions, executors in sizes()
        ]
    }
    print_model(base, costs)
    draw(base, costs, out / "scale_model.png")
    if checked:
        if build:
            build_shim()
        raw["check"] = check(CHECKED[::2] if quick else CHECKED)
    (out / "scale_model.json").write_text(json.dumps(raw, indent=1) + "\n")
    print(f"raw numbers: {out}/scale_model.json, picture: {out}/scale_model.png", file=sys.stderr)


if __name__ == "__main__":
    main()
