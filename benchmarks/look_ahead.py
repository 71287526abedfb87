"""What does it bring to read state ahead where files are whole? Stock Spark beside it, batch by batch in turn.

python benchmarks/look_ahead.py                # 160,000 keys of 1 KB, each batch 8,000 of them; 20 minutes
python benchmarks/look_ahead.py --quick        # a tenth

Twice for each query: with RocksDB's block cache for a quarter of the state and 1 ms for each read of an SST, and with
all state in memory. A library that stands before the C library's ``pread`` adds the millisecond (``slow_reads.c``,
which needs a C compiler), so the pages that the operating system keeps are as slow.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.report import COLOURS  # noqa: E402
from benchmarks.shim import build_shim  # noqa: E402

QUERIES = ("counts", "join", "groups")
SIDES = ("stock", "row by row", "look-ahead")
PLACES = {"disk": "a slow disk", "memory": "memory"}
READ_MICROS = 1000
LEAST_ON_DISK = 3
MOST_IN_MEMORY = 1.01


def slow_reads() -> Path:
    """Compiles the library that lets reads take longer; returns its path, which stays: workers may start late."""
    library = ROOT / "build" / "slow_reads.so"
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise click.ClickException("a C compiler (cc, gcc or clang) is needed for the slow disk; install one")
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(ROOT / "benchmarks/slow_reads.c"), "-ldl"]
    subprocess.run(command, check=True)
    return library


def measure(query: str, place: str, work: Path, keys: int, updates: int, batches: int) -> dict[str, Any]:
    """Runs all sides of one query in a process of its own.

    Args:
        query: One of QUERIES.
        place: One of PLACES.
        work: Where everything is written; it is empty.
        keys: Keys in the state.
        updates: Keys of a batch.
        batches: How many are measured.

    Returns:
        By side: the milliseconds of each batch, and what was read ahead.
    """
    environment = dict(os.environ)
    if place == "disk":
        environment |= {"LD_PRELOAD": str(slow_reads()), "SLOW_SST_READ_MICROS": str(READ_MICROS)}
    order = {"query": query, "place": place, "work": str(work), "keys": keys, "updates": updates, "batches": batches}
    answer = work / "answer.json"
    command = [sys.executable, "-W", "ignore::FutureWarning", "-m", "benchmarks.look_ahead_process"]
    if subprocess.run([*command, json.dumps(order), str(answer)], cwd=ROOT, env=environment, check=False).returncode:
        raise click.ClickException(f"{query} in {PLACES[place]} failed")
    found: dict[str, Any] = json.loads(answer.read_text())
    return found


def lines_of(raw: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """A line for each query and place, with medians in seconds."""
    lines = []
    for name, sides in raw.items():
        query, _, place = name.partition(", ")
        medians = {side: statistics.median(sides[side]["batches_ms"]) / 1000 for side in SIDES}
        line = {"query": query, "place": place, **medians}
        line["faster"] = medians["stock"] / medians["look-ahead"]
        line["to row by row"] = medians["look-ahead"] / medians["row by row"]
        on_disk = place == PLACES["disk"]
        line["met"] = line["faster"] >= LEAST_ON_DISK if on_disk else line["to row by row"] <= MOST_IN_MEMORY
        line["target"] = f"stock ÷ look-ahead >= {LEAST_ON_DISK}" if on_disk else f"÷ row by row <= {MOST_IN_MEMORY}"
        lines.append(line)
    return lines


def print_table(lines: list[dict[str, Any]]) -> None:
    """Prints medians, ratios, and whether targets are met."""
    table = Table(title="Median batch, s", title_justify="left", title_style="bold")
    for column in ("query", "state in", *SIDES, "stock ÷ look-ahead", "÷ row by row", "target", ""):
        table.add_column(column, justify="left" if column in ("query", "state in") else "right")
    for line in lines:
        style, word = ("green", "met") if line["met"] else ("bold red", "MISSED")
        times = (f"{line[side]:.2f}" for side in SIDES)
        ratios = (f"{line['faster']:.2f}", f"{line['to row by row']:.3f}")
        table.add_row(line["query"], line["place"], *times, *ratios, line["target"], f"[{style}]{word}[/{style}]")
    Console(width=max(130, Console().width)).print(table)


def draw(lines: list[dict[str, Any]], target: Path) -> None:
    """Draws the medians as bars, a chart for each place of the state."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    colours = dict(zip(SIDES, (COLOURS["stock"], "#9d755d", COLOURS["merged"]), strict=True))
    places = list(dict.fromkeys(line["place"] for line in lines))
    picture, axes = plt.subplots(1, len(places), figsize=(5 * len(places), 3.2), layout="constrained", squeeze=False)
    for axis, place in zip(axes[0], places, strict=True):
        chosen = [line for line in lines if line["place"] == place]
        for number, side in enumerate(SIDES):
            at = [query + (number - 1) * 0.27 for query in range(len(chosen))]
            axis.bar(at, [line[side] for line in chosen], 0.25, color=colours[side], label=side)
        axis.set_xticks(range(len(chosen)), [line["query"] for line in chosen])
        axis.set(title=f"state in {place}", ylabel="median batch, s")
        axis.grid(axis="y", alpha=0.3)
    axes[0][0].legend(fontsize=8)
    picture.savefig(target, dpi=110)
    plt.close(picture)


@click.command(context_settings={"show_default": True})
@click.option("--query", "queries", type=click.Choice(QUERIES), multiple=True, default=QUERIES)
@click.option("--place", "places", type=click.Choice([*PLACES]), multiple=True, default=[*PLACES])
@click.option("--keys", type=click.IntRange(100), default=160_000, help="In the state, of 1 KB.")
@click.option("--updates", type=click.IntRange(1), default=8_000, help="Keys of a batch.")
@click.option("--batches", type=click.IntRange(1), default=9, help="That are measured.")
@click.option("--quick", is_flag=True, help="16,000 keys, 1,000 of them in a batch.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build/benchmarks"))
def main(
    queries: tuple[str, ...],
    places: tuple[str, ...],
    keys: int,
    updates: int,
    batches: int,
    quick: bool,
    out: Path,
) -> None:
    """Measure batches of queries whose state is read ahead."""
    if quick:
        keys, updates, batches = 16_000, 1_000, 3
    build_shim()
    raw: dict[str, Any] = {}
    for query in queries:
        for place in places:
            work = Path(tempfile.mkdtemp(prefix="look-ahead-"))
            try:
                raw[f"{query}, {PLACES[place]}"] = measure(query, place, work, keys, updates, batches)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    lines = lines_of(raw)
    out.mkdir(parents=True, exist_ok=True)
    (out / "look_ahead.json").write_text(json.dumps({"raw": raw, "lines": lines}, indent=1) + "\n")
    draw(lines, out / "look_ahead.png")
    print_table(lines)
    print(f"raw numbers: {out}/look_ahead.json, picture: {out}/look_ahead.png", file=sys.stderr)


if __name__ == "__main__":
    main()
