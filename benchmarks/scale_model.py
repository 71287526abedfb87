"""How does it scale? File-system calls per batch and at a restart, for 100 to 100,000 partitions, from a model.

python benchmarks/scale_model.py              # the model: a table and a picture, no Spark
python benchmarks/scale_model.py --alone      # without the index service
python benchmarks/scale_model.py --check      # the model beside what was counted, at sizes that run here
python benchmarks/scale_model.py --check --shape 50 8 512   # on local-cluster[8,1,512]
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
from collections.abc import Iterator, Sequence
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
from benchmarks.scale import (  # noqa: E402
    MergedBatch,
    MergedCosts,
    Restart,
    Shape,
    alone_batch,
    alone_restart,
    served_batch,
    served_restart,
    stock_batch,
    stock_restart,
)
from benchmarks.scenario import SIDES, Scenario  # noqa: E402
from benchmarks.shim import build_shim  # noqa: E402
from benchmarks.workloads import write_input  # noqa: E402

PARTITIONS = (100, 1_000, 10_000, 100_000)
EXECUTORS = (10, 100, 1_000)
DRAWN_PARTITIONS = (1_000, 10_000)
DRAWN_EXECUTORS = (1, 3, 10, 30, 100, 300, 1_000)
# Partitions, executors and megabytes of each; 0 executors: all in the driver's process.
CHECKED = ((10, 0, 0), (50, 0, 0), (10, 2, 700), (50, 2, 700), (50, 4, 700))
CHECK_BATCHES = 8
CHECK_MAINTENANCE_SECONDS = 2.0


def sizes() -> Iterator[tuple[int, int]]:
    """Yields partitions and executors where each executor has a partition."""
    for partitions in PARTITIONS:
        for executors in EXECUTORS:
            if executors <= partitions:
                yield partitions, executors


def ways(shape: Shape, costs: MergedCosts, alone: bool) -> tuple[MergedBatch, Restart, Restart]:
    """Returns the calls of merged state: in a batch, at a restart after a kill, and with an index-only file."""
    batch, restart = (alone_batch, alone_restart) if alone else (served_batch, served_restart)
    return batch(shape, costs), restart(shape, costs), restart(shape, costs, index_only=True)


def modelled(shape: Shape, costs: MergedCosts, alone: bool = False) -> dict[str, float]:
    """Returns all figures of one size.

    Args:
        shape: The query and its cluster.
        costs: The costs of merged state.
        alone: Whether there is no index service.

    Returns:
        Calls by name.
    """
    batch, killed, covered = ways(shape, costs, alone)
    return {
        "stock batch": stock_batch(shape),
        **{f"merged {part}": value for part, value in dataclasses.asdict(batch).items()},
        "merged batch": batch.total,
        "stock restart": stock_restart(shape),
        "merged restart": killed.total,
        "index-only restart": covered.total,
    }


def worst(base: Shape, costs: MergedCosts, alone: bool = False) -> list[tuple[str, Shape, float]]:
    """Finds where merged state is worst beside stock Spark, from 100 to 100,000 partitions and 1 to 1,000 executors.

    Args:
        base: The query.
        costs: The costs of merged state.
        alone: Whether there is no index service.

    Returns:
        What is compared, the shape, and merged calls for each of stock Spark's.
    """
    found: dict[str, tuple[str, Shape, float]] = {}
    for partitions in (round(100 * 10 ** (step / 8)) for step in range(25)):
        for executors in (round(10 ** (step / 8)) for step in range(25)):
            shape = base.scaled(partitions, executors)
            calls = modelled(shape, costs, alone)
            for name in ("batch", "restart"):
                ratio = calls[f"merged {name}"] / calls[f"stock {name}"]
                if name not in found or ratio > found[name][2]:
                    found[name] = (name, shape, ratio)
    return list(found.values())


def print_model(base: Shape, costs: MergedCosts, alone: bool) -> None:
    """Prints the table of all sizes, and where merged state is worst."""
    title = (
        f"file-system calls, a batch every {base.batch_seconds:g} s, {base.commit_bytes:,} bytes a partition and "
        f"batch, {'without' if alone else 'with'} the index service"
    )
    table = Table(title=title, title_justify="left", title_style="bold")
    heads = ("partitions", "executors", "stock\nbatch", "merged\nbatch", "per part.\nand batch")
    restarts = ("stock\nrestart", "merged,\nkilled", "merged /\nstock", "merged,\nindex-only", "index-only\n/ stock")
    for column in heads + restarts:
        table.add_column(column, justify="right")
    for partitions, executors in sizes():
        found = modelled(base.scaled(partitions, executors), costs, alone)
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
    console = Console(width=max(110, Console().width))
    console.print(table)
    for name, shape, ratio in worst(base, costs, alone):
        where = f"{shape.partitions:,} partitions on {shape.executors:,} executors"
        console.print(f"worst {name}: {ratio:.3g} times stock Spark's calls, with {where}")


def draw(base: Shape, costs: MergedCosts, target: Path) -> None:
    """Draws calls per batch and at a restart after a kill over executors: stock, alone, with the service."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(14, 5), layout="constrained")
    sides = (
        ("stock Spark", "stock", COLOURS["stock"], False),
        ("merged, without the index service", "merged", "#b279a2", True),
        ("merged", "merged", COLOURS["merged"], False),
    )
    styles = dict(zip(DRAWN_PARTITIONS, ("-", "--"), strict=True))
    for label, side, colour, alone in sides:
        for partitions in DRAWN_PARTITIONS:
            found = [modelled(base.scaled(partitions, executors), costs, alone) for executors in DRAWN_EXECUTORS]
            for axis, what in zip(axes, ("batch", "restart"), strict=True):
                axis.plot(
                    DRAWN_EXECUTORS,
                    [each[f"{side} {what}"] for each in found],
                    color=colour,
                    linestyle=styles[partitions],
                    marker=".",
                    label=f"{label}, {partitions:,} partitions",
                )
    titles = ("calls in a steady batch", "calls from a kill of all processes to the end of the first batch")
    for axis, title in zip(axes, titles, strict=True):
        axis.set(xscale="log", yscale="log", xlabel="executors", title=title)
        axis.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize=8, ncols=3, loc="outside lower center")
    # The same bytes for the same figures: the picture of benchmarks/README.md is in the repository.
    with matplotlib.rc_context({"svg.hashsalt": "scale_model", "svg.fonttype": "none"}):
        figure.savefig(target, dpi=110, metadata={"Date": None} if target.suffix == ".svg" else None)
    plt.close(figure)


def _life(scenario: Scenario, work: Path, cluster: tuple[int, int], files: list[Path], first: bool) -> dict[str, Any]:
    order, answer = work / f"{first}-in.json", work / f"{first}-out.json"
    executors, megabytes = cluster
    what = {"scenario": scenario.to_json(), "work": str(work), "executors": executors, "first": first}
    what["megabytes"] = megabytes
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


def measured(partitions: int, cluster: tuple[int, int], side: str, alone: bool) -> dict[str, Any]:
    """Runs one side at a small size.

    Args:
        partitions: Shuffle partitions.
        cluster: The executors of a local cluster, and the megabytes of each; 0 executors run everything in the driver.
        side: "stock" or "merged".
        alone: Whether there is no index service.

    Returns:
        Calls in a steady batch and at the restart, seconds of a batch, bytes of a commit.
    """
    scenario = Scenario(
        partitions=partitions,
        batches=CHECK_BATCHES + 1,
        rows_per_batch=1_000,
        sides=(side,),
        maintenance_interval=f"{CHECK_MAINTENANCE_SECONDS:g}s",
        options={"index_service_enabled": "false"} if alone else {},
    )
    work = Path(tempfile.mkdtemp(prefix="scale-"))
    try:
        files = write_input(scenario, work / "staging")
        steady = _life(scenario, work, cluster, files[:-1], True)
        shutil.copyfile(files[-1], work / side / "input" / files[-1].name)
        again = _life(scenario, work, cluster, [], False)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    counted = calls(steady["counts"], STATE_CATEGORIES)
    restarted = calls(again["counts"], STATE_CATEGORIES)
    return {
        "batch": sum(counted.get(kind, 0) for kind in METADATA_CALLS) / steady["batches"],
        "restart": sum(restarted.get(kind, 0) for kind in METADATA_CALLS),
        "seconds": steady["seconds"],
        "restart_seconds": again["seconds"],
        "bytes": counted.get("write_bytes", 0) / steady["batches"] / partitions,
        "batch_kinds": {kind: counted[kind] for kind in METADATA_CALLS if counted.get(kind)},
        "restart_kinds": {kind: restarted[kind] for kind in METADATA_CALLS if restarted.get(kind)},
    }


def check(shapes: Sequence[tuple[int, int, int]], alone: bool) -> list[dict[str, Any]]:
    """Runs small sizes and prints the model's figures beside those that were counted.

    Args:
        shapes: Partitions, executors and megabytes of each.
        alone: Whether there is no index service.

    Returns:
        The raw numbers.
    """
    table = Table(title="calls: the model beside the counting file system", title_justify="left", title_style="bold")
    for column in ("size", "side", "batch\nmodel", "batch\ncounted", "restart\nmodel", "restart\ncounted", "deviation"):
        table.add_column(column, justify="left" if column in ("size", "side") else "right")
    raw = []
    for partitions, executors, megabytes in shapes:
        for side in SIDES:
            found = measured(partitions, (executors, megabytes), side, alone)
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
            # A driver that runs all tasks itself makes no pass as long as it knows of nothing to do.
            costs = MergedCosts(open_files=1, relocated=0.0, pass_lists=1.0 if executors else 0.0)
            merged_batch, _, _ = ways(shape, costs, alone)
            restarted = dataclasses.replace(shape, batch_seconds=found["restart_seconds"])
            _, merged_restart, _ = ways(restarted, costs, alone)
            batch = stock_batch(shape) if side == "stock" else merged_batch.total
            restart = stock_restart(shape) if side == "stock" else merged_restart.total
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
@click.option("--alone", is_flag=True, help="Without the index service.")
@click.option("--quick", is_flag=True, help="Check the smallest sizes only.")
@click.option(
    "--shape",
    "shapes",
    type=(int, int, int),
    multiple=True,
    help="Check these partitions, executors, and megabytes of each executor instead.",
)
@click.option("--build/--no-build", default=True, help="Compile the shim first if its sources changed (for --check).")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build/benchmarks"))
@click.option("--picture", type=click.Path(dir_okay=False, path_type=Path), help="Draw it here, .png or .svg.")
def main(
    batch_seconds: float,
    maintenance_seconds: float,
    commit_bytes: int,
    max_file_bytes: int,
    checked: bool,
    alone: bool,
    quick: bool,
    shapes: tuple[tuple[int, int, int], ...],
    build: bool,
    out: Path,
    picture: Path | None,
) -> None:
    """Compute what stock Spark and merged state ask of a file system on clusters that do not fit here."""
    out.mkdir(parents=True, exist_ok=True)
    base = Shape(batch_seconds=batch_seconds, maintenance_seconds=maintenance_seconds, commit_bytes=commit_bytes)
    costs = MergedCosts(max_file_bytes=max_file_bytes)
    raw: dict[str, Any] = {
        "model": [
            {
                "partitions": partitions,
                "executors": executors,
                **modelled(base.scaled(partitions, executors), costs, alone),
            }
            for partitions, executors in sizes()
        ]
    }
    print_model(base, costs, alone)
    picture = picture or out / "scale_model.png"
    draw(base, costs, picture)
    if checked:
        if build:
            build_shim()
        raw["check"] = check(shapes or (CHECKED[::2] if quick else CHECKED), alone)
    (out / "scale_model.json").write_text(json.dumps(raw, indent=1) + "\n")
    print(f"raw numbers: {out}/scale_model.json, picture: {picture}", file=sys.stderr)


if __name__ == "__main__":
    main()
