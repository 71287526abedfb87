"""What does a batch cost on the heap store? Time and memory beside stock Spark's, in one JVM, batch by batch in turn.

python benchmarks/heap_store.py                      # 100,000 to 3,000,000 keys, and a streaming aggregation
python benchmarks/heap_store.py --quick              # 10,000 and 50,000 keys
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.heap_measures import (  # noqa: E402
    PER_PREFIX,
    SCANS,
    aggregation,
    batch_times,
    heap,
    median,
    prefix_times,
    start_jvm,
)
from benchmarks.shim import build_shim  # noqa: E402

LABELS = {
    "obtain": "obtaining the stores of a batch, ms",
    "batch": "whole batch, ms",
    "gets": "20,000 gets, ms",
    "scan": "going through all rows, ms",
}


@dataclass(frozen=True)
class Line:
    """A line of the result.

    Attributes:
        name: What was measured.
        keys: The number of keys in the store.
        stock: The value of stock Spark.
        shared: The value of maps that share their rows.
        copies: The value of merged files with Spark's own maps; None where it was not measured.
        most: The highest allowed ``shared / stock``; None where there is no target.
    """

    name: str
    keys: int
    stock: float
    shared: float
    copies: float | None = None
    most: float | None = None

    @property
    def ratio(self) -> float:
        """Shared over stock."""
        return self.shared / self.stock

    @property
    def met(self) -> str:
        """Whether the target is met."""
        if self.most is None:
            return ""
        return "met" if self.ratio <= self.most else "MISSED"


def lines_of(raw: dict[str, Any]) -> list[Line]:
    """Turns raw numbers into the lines of the table, with medians over batches."""
    found = []
    main = raw["main"]
    for keys, sides in raw["batches"].items():
        targets = {"gets": 1.1, "scan": 1.1}
        if int(keys) == main:
            targets |= {"obtain": 1 / 500, "batch": 1 / 8}
        for what, label in LABELS.items():
            stock, copies, shared = (median(sides[side][what]) for side in ("stock", "copies", "shared"))
            found.append(Line(label, int(keys), stock, shared, copies, targets.get(what)))
    for keys, sides in raw["prefix"].items():
        stock, shared = (median(sides[side]) for side in ("stock", "shared"))
        found.append(Line(f"{SCANS:,} prefix scans of {PER_PREFIX} rows, ms", int(keys), stock, shared, None, 1.1))
    for versions, most in (("10", 0.35), ("2", 0.75)):
        sides = raw["heap"][versions]
        found.append(
            Line(f"MB of heap, {versions} versions", main, sides["stock"] / 1e6, sides["shared"] / 1e6, None, most)
        )
    if "aggregation" in raw:
        stock, shared = (median(raw["aggregation"][side]) for side in ("stock", "shared"))
        found.append(Line(raw["aggregation_name"], main, stock, shared, None, 0.5))
    return found


def flatness(lines: list[Line]) -> float:
    """Returns the longest time to obtain stores divided by the shortest, over all sizes."""
    times = [line.shared for line in lines if line.name == LABELS["obtain"]]
    return max(times) / min(times)


def print_table(lines: list[Line]) -> None:
    """Prints figures, targets, and whether they are met."""
    table = Table(title="Heap store", title_justify="left", title_style="bold")
    for column in ("", "keys", "stock", "merged, Spark's maps", "merged, shared rows", "÷ stock", "target", ""):
        table.add_column(column, justify="left" if column == "" else "right")
    for line in lines:
        style = {"MISSED": "bold red", "met": "green"}.get(line.met, "dim")
        values = ("-" if value is None else f"{value:,.4g}" for value in (line.stock, line.copies, line.shared))
        most = "" if line.most is None else f"<= {line.most:.4g}"
        row = (line.name, f"{line.keys:,}", *values, f"{line.ratio:.4g}", most, f"[{style}]{line.met}[/{style}]")
        table.add_row(*row)
    console = Console(width=max(130, Console().width))
    console.print(table)
    console.print(f"obtaining stores, longest ÷ shortest over all sizes: {flatness(lines):.2f}")


def draw(lines: list[Line], target: Path) -> None:
    """Draws times by size, and heap.

    Args:
        lines: The results.
        target: The PNG file.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    picture, axes = plt.subplots(1, 3, figsize=(13, 3.4), layout="constrained")
    for axis, what in zip(axes, ("obtain", "batch"), strict=False):
        for side, colour in (("stock", "#b0483a"), ("copies", "#9d755d"), ("shared", "#2f6db3")):
            chosen = [line for line in lines if line.name == LABELS[what]]
            label = {"stock": "stock", "copies": "merged files, Spark's maps", "shared": "shared rows"}[side]
            axis.plot([c.keys for c in chosen], [getattr(c, side) for c in chosen], "o-", color=colour, label=label)
        axis.set(xscale="log", yscale="log", xlabel="keys", title=LABELS[what])
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    heaps = [line for line in lines if line.name.startswith("MB")]
    for offset, side, colour in ((-0.2, "stock", "#b0483a"), (0.2, "shared", "#2f6db3")):
        places = [place + offset for place in range(len(heaps))]
        axes[2].bar(places, [getattr(line, side) for line in heaps], 0.4, color=colour)
    axes[2].set_xticks(range(len(heaps)), [line.name.removeprefix("MB of heap, ") for line in heaps])
    axes[2].set_title(f"MB of heap, {heaps[0].keys:,} keys")
    axes[2].grid(axis="y", alpha=0.3)
    picture.savefig(target, dpi=110)
    plt.close(picture)


@click.command(context_settings={"show_default": True})
@click.option("--keys", type=click.IntRange(100), multiple=True, default=(100_000, 1_000_000, 3_000_000))
@click.option("--main", "main_keys", type=click.IntRange(100), default=1_000_000, help="Where the targets hold.")
@click.option("--updates", type=click.IntRange(1), default=1_000, help="Keys that a batch changes.")
@click.option("--batches", type=click.IntRange(1), default=15)
@click.option("--partitions", type=click.IntRange(1), default=8, help="Of the streaming aggregation.")
@click.option("--memory", default="6g", help="The JVM's heap.")
@click.option("--spark/--no-spark", default=True, help="Also a whole streaming aggregation.")
@click.option("--quick", is_flag=True, help="10,000 and 50,000 keys in 1 GB.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build/benchmarks"))
def main(
    keys: tuple[int, ...],
    main_keys: int,
    updates: int,
    batches: int,
    partitions: int,
    memory: str,
    spark: bool,
    quick: bool,
    out: Path,
) -> None:
    """Measure batches and memory of heap stores."""
    if quick:
        keys, main_keys, updates, batches, memory = (10_000, 50_000), 50_000, 200, 5, "1g"
    if main_keys not in keys:
        raise click.UsageError("--main has to be one of --keys")
    build_shim()
    work = Path(tempfile.mkdtemp(prefix="heap-"))
    raw: dict[str, Any] = {
        "main": main_keys,
        "updates": updates,
        "python": platform.python_version(),
        "batches": {},
        "prefix": {},
    }
    try:
        jvm = start_jvm(memory, work)
        for size in keys:
            raw["batches"][str(size)] = batch_times(jvm, work / f"batches-{size}", size, updates, batches)
            if size <= main_keys:
                raw["prefix"][str(size)] = prefix_times(jvm, work / f"prefix-{size}", size, batches)
            print(f"{size:,} keys are done", file=sys.stderr)
        versions = (2, 10)
        raw["heap"] = {str(n): heap(jvm, work / f"heap-{n}", main_keys, updates, n) for n in versions}
        if spark:
            raw["aggregation_name"] = f"streaming aggregation, {partitions} partitions, s"
            raw["aggregation"] = aggregation(work / "stream", main_keys, updates, batches, partitions)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    lines = lines_of(raw)
    raw["lines"] = [{**asdict(line), "ratio": line.ratio, "met": line.met} for line in lines]
    raw["flatness"] = flatness(lines)
    out.mkdir(parents=True, exist_ok=True)
    (out / "heap_store.json").write_text(json.dumps(raw, indent=1) + "\n")
    draw(lines, out / "heap_store.png")
    print_table(lines)
    print(f"raw numbers: {out}/heap_store.json, picture: {out}/heap_store.png", file=sys.stderr)


if __name__ == "__main__":
    main()
