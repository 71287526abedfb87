"""What does it cost to inspect a large checkpoint? Time, memory and file-system calls of each table.

python benchmarks/inspect_tables.py                      # 1,000,000 segments in 200 merged files
python benchmarks/inspect_tables.py --quick              # 50,000 in 20
python benchmarks/inspect_tables.py --no-spark

The file is not called inspect.py: every script in this directory would then import it for Python's own `inspect`.
"""

from __future__ import annotations

import platform
import shutil
import statistics
import sys
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.inspect_checkpoint import Shape, write_checkpoint  # noqa: E402
from benchmarks.inspect_requests import cold_summary, s3_summary  # noqa: E402
from benchmarks.targets import Figure, child, draw_bars, publish  # noqa: E402

SMALL = Shape(segments=5_000, files=10, segment_bytes=2_000)
TABLES = ("segments", "files", "summary", "versions")
MOST_SECONDS = {"segments": 3.0, "files": 2.0, "summary": 2.0}
MOST_MB = {"segments": 1024.0}
MOST_BYTES = 128 * 1024
MOST_OF_PYTHON = 2.0


def figures_of(raw: dict[str, Any]) -> list[Figure]:
    """Turns raw numbers into figures, with medians over runs."""
    found = []
    for table in TABLES:
        runs = raw["tables"][table]
        seconds = statistics.median(run["seconds"] for run in runs)
        memory = statistics.median(run["peak_mb"] for run in runs)
        found.append(Figure(f"{table}()", seconds, "s", MOST_SECONDS.get(table)))
        found.append(Figure("  peak memory of the process", memory, "MB", MOST_MB.get(table)))
    cold = raw["cold_summary"]
    found.append(Figure("cold summary() of 10 files: opens of a file, at most", cold["opens"], "", 1))
    found.append(Figure("  bytes read of a file, at most", cold["bytes"], "bytes", MOST_BYTES))
    found.append(Figure("  listings", cold["listings"], "", 1))
    s3, note = raw["s3_summary"], raw["s3_summary"].get("missing", "")
    found.append(Figure("the same on S3: listings", s3.get("listings"), "", 1, note))
    found.append(Figure("  ranged reads of a file, at most", s3.get("gets"), "", 2, note))
    found.append(Figure("  other requests (HEAD, ...)", s3.get("others"), "", 0, note))
    grouped = statistics.median(run["grouped_seconds"] for run in raw["tables"]["segments"])
    found.append(Figure("segments() counted by partition in Python", grouped, "s"))
    return found + spark_figures(raw.get("spark"), grouped)


def spark_figures(runs: dict[str, list[dict[str, Any]]] | None, grouped: float) -> list[Figure]:
    """What the same costs in Spark.

    A fresh session loads classes, generates code and starts Python workers, whatever the question. The time for a small
    checkpoint in a fresh session is therefore its start-up; what a large one takes longer is the time of the answer.

    Args:
        runs: The runs on the small and on the large checkpoint, each in a process of its own; None if left out.
        grouped: The seconds that the answer takes in Python.
    """
    missing = "left out" if runs is None else runs["large"][0].get("missing", "")
    names = ("the same in Spark, beyond its start-up", "  start-up", "  asked again in a session that runs")
    if missing or runs is None:
        return [Figure(name, None, "s", None, missing) for name in names]
    startup, seconds, again = (
        statistics.median(run[key] for run in runs[size])
        for size, key in (("small", "seconds"), ("large", "seconds"), ("large", "again_seconds"))
    )
    values = zip(names, (seconds - startup, startup, again), (MOST_OF_PYTHON * grouped, None, None), strict=True)
    return [Figure(name, value, "s", most) for name, value, most in values]


def title_of(shape: Shape) -> str:
    """Of table and picture."""
    return f"{shape.segments:,} segments in {shape.files} merged files"


def draw(shape: Shape, figures: list[Figure], target: Path) -> None:
    """Draws times and memory beside their targets.

    Args:
        shape: What was asked about.
        figures: The results.
        target: The PNG file.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    picture, axes = plt.subplots(1, 2, figsize=(13, 3.4), layout="constrained")
    for axis, unit, what in zip(axes, ("s", "MB"), ("seconds", "MB at the peak"), strict=True):
        draw_bars(axis, unit, what, _named(figures))
    axes[0].set_title(title_of(shape), loc="left", fontsize=10, fontweight="bold")
    picture.savefig(target, dpi=110)
    plt.close(picture)


def _named(figures: list[Figure]) -> list[tuple[str, Figure]]:
    """Figures and what a picture calls them: an indented line belongs to the one before it."""
    found, above = [], ""
    for figure in figures:
        above = above if figure.name.startswith(" ") else figure.name
        found.append((above if figure.unit == "MB" else figure.name.strip(), figure))
    return found


@click.command(context_settings={"show_default": True})
@click.option("--segments", type=click.IntRange(1), default=1_000_000)
@click.option("--files", type=click.IntRange(1), default=200)
@click.option("--repeat", type=click.IntRange(1), default=3, help="Processes for each table; the median counts.")
@click.option("--spark/--no-spark", default=True, help="Also through the data source.")
@click.option("--quick", is_flag=True, help="50,000 segments in 20 files, once.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build/benchmarks"))
def main(segments: int, files: int, repeat: int, spark: bool, quick: bool, out: Path) -> None:
    """Write a large checkpoint and measure what looking into it costs."""
    shape = Shape(50_000, 20) if quick else Shape(segments, files)
    work = Path(tempfile.mkdtemp(prefix="inspect-"))
    raw: dict[str, Any] = {"shape": asdict(shape), "python": platform.python_version()}
    try:
        write_checkpoint(work / "large", shape)
        write_checkpoint(work / "small", SMALL)
        times = 1 if quick else repeat
        raw["tables"] = {
            table: [child("inspect_child", table, str(work / "large")) for _ in range(times)] for table in TABLES
        }
        if any(run["rows"] != shape.segments for run in raw["tables"]["segments"]):
            raise click.ClickException(f"segments() does not give {shape.segments:,} rows")
        raw["cold_summary"] = cold_summary(work / "small")
        raw["s3_summary"] = s3_summary(work / "small")
        if spark:
            raw["spark"] = {
                size: [child("inspect_child", "spark", str(work / size)) for _ in range(times)]
                for size in ("small", "large")
            }
            if any(run.get("rows", shape.segments) != shape.segments for run in raw["spark"]["large"]):
                raise click.ClickException(f"Spark does not count {shape.segments:,} segments")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    figures = figures_of(raw)
    publish("inspect", title_of(shape), raw, figures, partial(draw, shape, figures), out)


if __name__ == "__main__":
    main()
